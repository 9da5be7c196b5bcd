// A document: dropped or chosen, translated by the server, and saved.

import { translateDocument } from "./calls.js";
import { count, setField, time } from "./fields.js";

const TYPES = {
  txt: "text/plain",
  html: "text/html",
  htm: "text/html",
  md: "text/markdown",
  xliff: "application/xliff+xml",
  xlf: "application/xliff+xml",
  po: "text/x-gettext-translation",
  pot: "text/x-gettext-translation",
  srt: "application/x-subrip",
  vtt: "text/vtt",
};

export class DocumentBox {
  #place = document.querySelector("#document");
  #link = this.#place.querySelector("a");
  #stop;
  #choices;
  #empty;
  #tell;
  #running = null;

  // `empty` clears the translator, and `tell` tells an error.
  constructor(form, choices, empty, tell) {
    this.#choices = choices;
    this.#empty = empty;
    this.#tell = tell;
    const { document: input, open, stop } = form.elements;
    this.#stop = stop;
    input.accept = Object.keys(TYPES).map((ending) => `.${ending}`).join();
    open.addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      if (input.files.length) this.#translate(input.files[0]);
      input.value = ""; // the same file may be chosen again
    });
    stop.addEventListener("click", () => this.close());
    form.addEventListener("dragover", (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      form.classList.add("dropping");
    });
    form.addEventListener("dragleave", () => form.classList.remove("dropping"));
    form.addEventListener("drop", (event) => {
      form.classList.remove("dropping");
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      this.#translate(event.dataTransfer.files[0]);
    });
  }

  close() {
    this.#running?.abort();
    this.#running = null;
    URL.revokeObjectURL(this.#link.href);
    this.#place.hidden = true;
  }

  async #translate(file) {
    this.#empty();
    const [, stem, ending] = /^(.*?)\.?([^.]*)$/su.exec(file.name);
    const type = TYPES[ending.toLowerCase()];
    if (!type) {
      this.#tell(new Error(`${file.name} is of a kind that is not translated. These are: ${Object.keys(TYPES).join(", ")}`));
      return;
    }
    const request = this.#choices.request; // another target may be chosen meanwhile
    this.#running = new AbortController();
    const { signal } = this.#running;
    const bar = this.#place.querySelector("progress");
    bar.removeAttribute("value");
    bar.hidden = this.#stop.hidden = this.#place.hidden = false;
    this.#link.hidden = true;
    setField(this.#place, "name", file.name);
    setField(this.#place, "facts", "");
    try {
      const { content, end } = await translateDocument(file, type, request, signal, ({ textsDone = 0, texts = 0 }) => {
        if (signal.aborted) return;
        if (texts) [bar.max, bar.value] = [texts, textsDone];
        setField(this.#place, "facts", `${count(textsDone)} of ${count(texts)} texts`);
      });
      if (signal.aborted) return;
      this.#save(content, type, `${stem}.${request.targetLanguage ?? "translated"}.${ending}`);
      setField(this.#place, "facts", [time(Number.parseFloat(end.timing?.total ?? "0")), ...(end.models ?? [])].join(" · "));
    } catch (error) {
      if (signal.aborted) return;
      this.close();
      this.#tell(error);
    } finally {
      if (!signal.aborted) bar.hidden = this.#stop.hidden = true;
    }
  }

  #save(content, type, name) {
    this.#link.href = URL.createObjectURL(new Blob(content, { type }));
    this.#link.download = name;
    this.#link.textContent = `Save ${name}`;
    this.#link.hidden = false;
    this.#link.click();
  }
}
