// Calls to the server that sent this page.

const STORED = "translane-key";
const UNAUTHENTICATED = 16; // google.rpc.Code

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
    const info = (content.details ?? []).find((detail) => detail["@type"]?.endsWith("/google.rpc.ErrorInfo"));
    this.reason = info?.reason ?? "";
    this.needsKey = content.code === UNAUTHENTICATED;
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
  const answer = await send("v1/translate", post(request, signal));
  return answer.json();
}

// Yields the messages of TranslateStream.
export async function* translateStream(request, signal) {
  yield* messages(await send("v1/stream", post(request, signal)));
}

// Returns the parts of the translated file, and its end. `progress` takes each progress.
export async function translateDocument(file, type, { options, ...fields }, signal, progress) {
  const query = new URLSearchParams(fields);
  for (const name of options.glossaries ?? []) query.append("glossaries", name);
  const headers = { "content-type": type, accept: "application/x-ndjson" };
  const answer = await send(`v1/documents?${query}`, { method: "POST", headers, body: file, signal });
  const content = [];
  for await (const message of messages(answer)) {
    if (message.progress) progress(message.progress);
    if (message.content) content.push(Uint8Array.from(atob(message.content), (character) => character.charCodeAt(0)));
    if (message.end) return { content, end: message.end };
  }
  throw new ServerError({ message: "The document did not arrive whole." });
}

async function* messages(answer) {
  for await (const line of lines(answer.body)) {
    const content = JSON.parse(line);
    if (content.error) throw new ServerError(content.error);
    yield content;
  }
}

function post(request, signal) {
  return { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(request), signal };
}

async function send(path, { headers: own = {}, ...options }) {
  let answer, headers;
  try {
    headers = new Headers({ ...own, ...key.headers });
  } catch { // a program has put a character of its own into it
    throw new ServerError({ code: UNAUTHENTICATED, message: "A key has only letters and digits of ASCII." });
  }
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError({ message: "The server does not answer." });
  }
  if (!answer.ok) {
    throw new ServerError(await answer.json().catch(() => ({ message: `The answer has status ${answer.status}.` })));
  }
  return answer;
}

async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    yield* parts;
  }
}
