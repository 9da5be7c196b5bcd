// Calls to the server that sent this page: https://connectrpc.com/docs/protocol/.

const SERVICE = "translane.v1.TranslationService";
const STORED = "translane-key";
const ENVELOPE = 5; // bytes before each message of a stream: flags, and the size as 32 bits
const LAST = 0b10; // flag of the last message

// The caller's key. It stays in this tab. Where the browser stores nothing, it stays in memory.
class Key {
  #value = "";

  constructor() {
    try {
      this.#value = sessionStorage.getItem(STORED) ?? "";
    } catch { /* storage is switched off */ }
  }

  get isKnown() {
    return this.#value !== "";
  }

  get headers() {
    return this.isKnown ? { authorization: `Bearer ${this.#value}` } : {};
  }

  use(value) {
    this.#value = value;
    try {
      sessionStorage.setItem(STORED, value);
    } catch { /* storage is switched off */ }
  }

  forget() {
    this.#value = "";
    try {
      sessionStorage.removeItem(STORED);
    } catch { /* storage is switched off */ }
  }
}

export const key = new Key();

// An error of the server, with its reason.
export class ServerError extends Error {
  constructor(content) {
    super(content.message ?? "the server gave no reason");
    const info = (content.details ?? []).find((detail) => detail.type === "google.rpc.ErrorInfo");
    this.reason = info?.debug?.reason ?? content.code ?? "";
    this.needsKey = content.code === "unauthenticated";
  }

  toString() {
    return this.reason ? `${this.message} (${this.reason})` : this.message;
  }
}

export async function readStatus(signal) {
  const answer = await send("status.json", { signal });
  return answer.json();
}

export async function translate(request, signal) {
  const answer = await send(`${SERVICE}/Translate`, post("application/json", JSON.stringify(request), signal));
  return answer.json();
}

// Yields the messages of TranslateStream.
export async function* translateStream(request, signal) {
  const message = new TextEncoder().encode(JSON.stringify(request));
  const body = new Uint8Array(ENVELOPE + message.length);
  new DataView(body.buffer).setUint32(1, message.length);
  body.set(message, ENVELOPE);
  const answer = await send(`${SERVICE}/TranslateStream`, post("application/connect+json", body, signal));
  for await (const { isLast, content } of envelopes(answer.body)) {
    if (!isLast) {
      yield content;
    } else if (content.error) {
      throw new ServerError(content.error);
    }
  }
}

function post(type, body, signal) {
  return { method: "POST", headers: { "content-type": type }, body, signal };
}

async function send(path, { headers = {}, ...options }) {
  let answer;
  try {
    answer = await fetch(path, { ...options, headers: { ...headers, ...key.headers }, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError({ message: "The server does not answer.", code: "" });
  }
  if (!answer.ok) {
    throw new ServerError(await answer.json().catch(() => ({ message: `The answer has status ${answer.status}.` })));
  }
  return answer;
}

async function* envelopes(stream) {
  const reader = stream.getReader();
  let bytes = new Uint8Array();
  for (;;) {
    const size = bytes.length < ENVELOPE ? Infinity : ENVELOPE + new DataView(bytes.buffer).getUint32(1);
    if (bytes.length >= size) {
      const content = JSON.parse(new TextDecoder().decode(bytes.subarray(ENVELOPE, size)));
      yield { isLast: (bytes[0] & LAST) !== 0, content };
      bytes = bytes.slice(size);
      continue;
    }
    const { done, value } = await reader.read();
    if (done) return;
    const both = new Uint8Array(bytes.length + value.length);
    both.set(bytes);
    both.set(value, bytes.length);
    bytes = both;
  }
}
