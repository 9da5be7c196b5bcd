// The translator: a text is translated while one types.

import { Alignment } from "./alignment.js";
import { translate, translateStream } from "./calls.js";
import { Choices } from "./choices.js";
import { DocumentBox } from "./document-box.js";
import { count, fillTemplate, language, setField, time } from "./fields.js";

const PAUSE = 300; // after a key, before a text is translated [milliseconds]
const ALTERNATIVES = 5;
const COPIED = 1500; // how long the page says so [milliseconds]

export class Translator {
  #askForKey;
  #form = document.querySelector("#translator");
  #fields = this.#form.elements;
  #output = document.querySelector("#translation");
  #mirror = document.querySelector("#source-words");
  #list = document.querySelector("#alternatives");
  #alignment = new Alignment(document.querySelector("#alignment"));
  #links = []; // one of each translation that is shown
  #source = null; // the element of each source token of the text that is shown
  #timer = 0;
  #running = new AbortController(); // of what is shown now
  #asked = null; // the one of what alternatives are asked for
  #isLinked = false; // whether the alignment of what is shown now is asked for
  #isOffered = false;

  constructor(askForKey) {
    this.#askForKey = askForKey;
    const { text, clear, copy, alternatives } = this.#fields;
    this.choices = new Choices(this.#fields, (isSwap) => this.#chosen(isSwap));
    this.documents = new DocumentBox(this.#form, this.choices, () => this.#empty(), (error) => this.#tell(error));
    text.addEventListener("input", () => this.#typed());
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.#translate();
    });
    this.#form.addEventListener("submit", (event) => event.preventDefault());
    clear.addEventListener("click", () => {
      text.value = "";
      this.#typed();
      text.focus();
    });
    copy.addEventListener("click", () => this.#copy());
    alternatives.addEventListener("click", () => this.#toggleAlternatives());
    // Alignments take the server another pass. So they wait until somebody points at a word.
    this.#output.addEventListener("pointerenter", () => this.#align());
    this.#output.addEventListener("focus", () => this.#align());
    text.addEventListener("pointermove", (event) => this.#pointAtSource(event));
    text.addEventListener("pointerleave", () => this.#alignment.clear());
    this.#alignment.watch(this.#form, (span) => this.#linksOf(span));
  }

  // Takes the status of the server.
  offer({ models, identifiesLanguages }) {
    this.choices.offer(models, identifiesLanguages);
    if (!this.#isOffered) this.#typed(); // a browser may have kept the text of an earlier visit
    this.#isOffered = true;
  }

  #chosen(isSwap) {
    const { text } = this.#fields;
    if (isSwap && this.#output.textContent && this.#output.ariaBusy !== "true") text.value = this.#output.textContent;
    this.#translate();
  }

  // The text has changed: what is on its way is of no use any more.
  #typed() {
    const { text, clear } = this.#fields;
    this.#mirror.textContent = text.value;
    clear.hidden = text.value === "";
    this.#running.abort();
    clearTimeout(this.#timer);
    if (text.value.trim()) this.#timer = setTimeout(() => this.#translate(), PAUSE);
    else this.#empty();
  }

  #empty() {
    this.#running.abort();
    clearTimeout(this.#timer);
    this.#begin();
    this.#output.textContent = "";
  }

  // What is shown beside the translation is about an earlier one.
  #begin() {
    this.documents.close();
    this.#links = [];
    this.#source = null;
    this.#isLinked = false;
    this.#mirror.textContent = this.#fields.text.value;
    this.#alignment.clear();
    this.#list.replaceChildren();
    this.#list.hidden = true;
    this.#output.classList.remove("growing");
    this.#output.tabIndex = -1;
    this.#fields.alternatives.ariaExpanded = "false";
    for (const name of ["alternatives", "copy"]) this.#fields[name].hidden = true;
    document.querySelector("#problem").textContent = "";
    document.querySelector("#facts").textContent = "";
  }

  async #translate() {
    const text = this.#fields.text.value;
    if (!text.trim()) return;
    this.#running.abort();
    clearTimeout(this.#timer);
    this.#running = new AbortController();
    const { signal } = this.#running;
    this.#begin();
    this.#output.ariaBusy = "true";
    this.#output.classList.add("old"); // it stays until the first words of the new one are there
    try {
      await this.#stream({ ...this.choices.request, format: this.choices.format, text }, signal);
    } catch (error) {
      if (!signal.aborted) this.#tell(error);
    } finally {
      if (this.#running.signal === signal) {
        this.#output.ariaBusy = "false"; // a screen reader reads the translation once it is whole
        this.#output.classList.remove("growing", "old");
      }
    }
  }

  async #stream(request, signal) {
    const output = this.#output;
    for await (const message of translateStream(request, signal)) {
      if (signal.aborted) return;
      if (output.classList.contains("old")) {
        output.classList.replace("old", "growing");
        output.replaceChildren();
        output.lang = request.targetLanguage ?? "";
      }
      output.append(message.textDelta ?? "");
      if (message.hypothesis) this.#end(message);
    }
  }

  #end({ hypothesis, timing = {}, treatment = {}, models = [] }) {
    const cut = hypothesis.finishReason === "FINISH_REASON_MAX_LENGTH";
    if (treatment.sourceLanguage) this.choices.detected(treatment.sourceLanguage);
    this.#fields.swap.disabled = !this.choices.canSwap;
    this.#output.tabIndex = 0;
    this.#fields.copy.hidden = false;
    this.#fields.alternatives.hidden = this.choices.mostBeams < 2;
    document.querySelector("#facts").textContent = [
      timing.total ? time(Number.parseFloat(timing.total)) : "",
      models.join(", "),
      treatment.sourceLanguage ? `from ${language(treatment.sourceLanguage)}` : "",
      treatment.pivotLanguage ? `through ${language(treatment.pivotLanguage)}` : "",
      treatment.sentences ? `${count(treatment.sentences)} sentences` : "",
      treatment.preserved ? `${count(treatment.preserved)} kept as they are` : "",
      cut ? "cut at the longest length" : "",
    ].filter(Boolean).join(" · ");
  }

  #tell(error) {
    this.#output.textContent = "";
    document.querySelector("#problem").textContent = error.toString();
    if (error.needsKey) this.#askForKey(error);
  }

  // Asks for the alignment of the text that is shown, once. A translation is of use without one, too.
  async #align() {
    if (this.#isLinked || !this.#output.textContent || this.#output.ariaBusy === "true") return;
    this.#isLinked = true;
    const translation = await this.#ask({}).catch(() => null);
    const hypothesis = translation?.hypotheses[0];
    if (hypothesis?.text !== this.#output.textContent) return; // another one is shown by now, or it was sampled
    const hadFocus = document.activeElement === this.#output;
    this.#link(this.#output, translation, hypothesis);
    this.#output.tabIndex = -1; // its words have the focus from now on
    if (hadFocus) this.#output.querySelector(".word")?.focus();
  }

  #link(line, translation, hypothesis) {
    const text = this.#fields.text.value;
    this.#source ??= this.#alignment.write(this.#mirror, text, translation.sourcePieces ?? []);
    const target = this.#alignment.write(line, hypothesis.text, hypothesis.tokens ?? []);
    this.#links.push(this.#alignment.link(this.#source, target, hypothesis.alignment?.points ?? []));
  }

  // Translates the text that is shown once more, with an alignment, or without one where the model has none. Returns
  // null if another text is shown by now.
  async #ask(options) {
    const { options: chosen, ...request } = this.choices.request;
    const whole = { ...request, format: this.choices.format, texts: [this.#fields.text.value] };
    const { signal } = this.#running;
    const ask = async (more) => {
      const answer = await translate({ ...whole, options: { ...chosen, ...options, ...more } }, signal);
      return signal.aborted ? null : answer.translations[0];
    };
    try {
      return await ask({ returnTokens: true, returnAlignment: true });
    } catch (error) {
      if (signal.aborted) return null;
      if (!error.message.startsWith("options.return_alignment")) throw error;
      return ask({});
    }
  }

  async #toggleAlternatives() {
    const { alternatives } = this.#fields;
    this.#list.hidden = !this.#list.hidden;
    alternatives.ariaExpanded = String(!this.#list.hidden);
    const running = this.#running;
    if (this.#list.hidden || this.#list.children.length || this.#asked === running) return;
    this.#asked = running; // the button may be pressed again before the answer is there
    const beams = Math.min(ALTERNATIVES, this.choices.mostBeams);
    try {
      const translation = await this.#ask({ beamSize: beams, numHypotheses: beams });
      for (const hypothesis of translation?.hypotheses ?? []) {
        const item = fillTemplate("#alternative-template");
        this.#list.append(item);
        this.#link(item.querySelector(".words"), translation, hypothesis);
        setField(item, "facts", "score" in hypothesis ? `score ${hypothesis.score.toFixed(3)}` : "");
      }
    } catch (error) {
      if (this.#asked !== running) return;
      this.#asked = null;
      document.querySelector("#problem").textContent = error.toString();
    }
  }

  async #copy() {
    const { copy } = this.#fields;
    try {
      await navigator.clipboard.writeText(this.#output.textContent);
    } catch { // only a page of this machine, or one over TLS, may write to the clipboard
      getSelection().selectAllChildren(this.#output);
      document.execCommand("copy");
    }
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, COPIED);
  }

  // The words of the source lie below the text that one types.
  #pointAtSource({ clientX, clientY }) {
    this.#align();
    const span = document.elementsFromPoint(clientX, clientY).find((each) => each.matches("#source-words .word"));
    if (span) this.#alignment.show(span, this.#linksOf(span));
    else this.#alignment.clear();
  }

  // The links of a word. Those of a source word are the links of all translations.
  #linksOf(span) {
    const all = this.#links.flatMap((links) => [...(links.get(span) ?? [])]);
    return all.length ? new Map(all) : null;
  }
}
