// Translates texts, and then the first of them as a stream: node translate.js TEXT...
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const { promisify } = require("node:util");
const grpc = require("@grpc/grpc-js");
const protoLoader = require("@grpc/proto-loader");

const protos = path.join(__dirname, "../../protos");
const definition = protoLoader.loadSync("translane/v1/translation.proto", { includeDirs: [protos], enums: String });
const { TranslationService } = grpc.loadPackageDefinition(definition).translane.v1;

// With a file of certificates, the client speaks TLS. A key goes over TLS alone.
function credentials({ TRANSLANE_CLIENT_CA: trusted, TRANSLANE_CLIENT_TOKEN: key }) {
  if (!trusted && key) throw new Error("a key needs TLS: set TRANSLANE_CLIENT_CA");
  if (!trusted) return grpc.credentials.createInsecure();
  const channel = grpc.credentials.createSsl(fs.readFileSync(trusted));
  if (!key) return channel;
  const call = grpc.credentials.createFromMetadataGenerator((_, done) => {
    const metadata = new grpc.Metadata();
    metadata.set("authorization", `Bearer ${key}`);
    done(null, metadata);
  });
  return grpc.credentials.combineChannelCredentials(channel, call);
}

async function main(texts) {
  const client = new TranslationService(process.env.TRANSLANE_CLIENT_SERVER ?? "localhost:50051", credentials(process.env));
  try {
    const translate = promisify(client.translate).bind(client);
    const { translations } = await translate({ texts }, { deadline: in30Seconds() });
    for (const { hypotheses } of translations) console.log(hypotheses[0].text);

    for await (const { textDelta } of client.translateStream({ text: texts[0] }, { deadline: in30Seconds() })) {
      process.stdout.write(textDelta ?? "");
    }
    console.log();
  } finally {
    client.close();
  }
}

function in30Seconds() {
  return new Date(Date.now() + 30_000);
}

const texts = process.argv.slice(2);
main(texts.length ? texts : ["今天天气很好"]).catch((error) => {
  console.error(error.message); // of a call: the code's number, its name, and what is wrong
  process.exitCode = 1;
});
