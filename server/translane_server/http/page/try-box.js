// The box to try a translation.

import { Alignment } from "./alignment.js";
import { translate, translateStream } from "./calls.js";
import { count, fillTemplate, language, setField, setOptions, time } from "./fields.js";
import { stateOf } from "./model-card.js";

const BEAMS = 4;
const MOST_HYPOTHESES = 5;

export class TryBox {
  #askForKey;
  #models = [];
  #form = document.querySelector("#try");
  #source = document.querySelector("#source");
  #list = document.querySelector("#hypotheses");
  #alignment = new Alignment(document.querySelector("#alignment"));
  #links = []; // one of each translation
  #running = null;

  constructor(askForKey) {
    this.#askForKey = askForKey;
    const { model, stream, stop, text } = this.#form.elements;
    model.addEventListener("change", () => this.#offerLanguages());
    stream.addEventListener("change", () => this.#enable());
    stop.addEventListener("click", () => this.#running?.abort());
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.#form.requestSubmit();
    });
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#run();
    });
    this.#alignment.watch(document.querySelector("#answer"), (span) => this.#linksOf(span));
  }

  // Takes the models of the server. What is chosen stays chosen.
  offer(models) {
    const facts = (list) => JSON.stringify(list.map(({ load, ...model }) => model));
    if (facts(models) === facts(this.#models)) return;
    this.#models = models;
    const states = models.map((model) => [model.name, stateOf(model)]);
    setOptions(this.#form.elements.model, states.map(([name, state]) => [name, state === "ready" ? name : `${name} (${state})`]));
    this.#offerLanguages();
  }

  get #model() {
    return this.#models.find((model) => model.name === this.#form.elements.model.value);
  }

  #offerLanguages() {
    const { source, target, hypotheses } = this.#form.elements;
    const options = (tags) => (tags ?? []).map((tag) => [tag, language(tag)]);
    setOptions(source, options(this.#model?.sourceLanguages));
    setOptions(target, options(this.#model?.targetLanguages));
    const most = Math.max(1, Math.min(MOST_HYPOTHESES, this.#model?.maxBeamSize ?? 1));
    setOptions(hypotheses, Array.from({ length: most }, (_, number) => [String(number + 1), String(number + 1)]));
  }

  #enable() {
    const { stream, stop, hypotheses } = this.#form.elements;
    hypotheses.disabled = stream.checked; // a stream has one translation
    stop.hidden = !this.#running;
    this.#form.querySelector("[type=submit]").disabled = Boolean(this.#running);
  }

  async #run() {
    if (this.#running) return;
    const { model, source, target, text, stream } = this.#form.elements;
    const request = { model: model.value, sourceLanguage: source.value, targetLanguage: target.value };
    this.#running = new AbortController();
    this.#enable();
    this.#clear(text.value);
    try {
      if (stream.checked) await this.#stream({ ...request, text: text.value });
      else await this.#translate({ ...request, texts: [text.value] });
    } catch (error) {
      if (error.name !== "AbortError") document.querySelector("#problem").textContent = error.toString();
      if (error.needsKey) this.#askForKey(error);
    } finally {
      this.#running = null;
      this.#enable();
    }
  }

  #clear(text) {
    this.#links = [];
    this.#alignment.clear();
    this.#source.textContent = text;
    this.#list.replaceChildren();
    document.querySelector("#problem").textContent = "";
    document.querySelector("#facts").textContent = "";
    document.querySelector("#answer").hidden = true;
  }

  // Adds a place for a translation. Returns it.
  #addPlace() {
    const item = fillTemplate("#hypothesis-template");
    this.#list.append(item);
    item.querySelector(".words").setAttribute("aria-label", `Translation ${this.#list.children.length}`);
    document.querySelector("#answer").hidden = false;
    return item;
  }

  async #translate(request) {
    const wanted = Number(this.#form.elements.hypotheses.value);
    const options = { beamSize: wanted > 1 ? Math.max(wanted, Math.min(BEAMS, this.#model.maxBeamSize)) : 1, numHypotheses: wanted };
    const answer = await this.#withAlignment(request, options);
    const [translation] = answer.translations;
    const source = this.#alignment.write(this.#source, request.texts[0], translation.sourcePieces ?? []);
    for (const hypothesis of translation.hypotheses) {
      const item = this.#addPlace();
      const line = item.querySelector(".words");
      const target = this.#alignment.write(line, hypothesis.text ?? "", hypothesis.tokens ?? []);
      this.#links.push(this.#alignment.link(source, target, hypothesis.alignment?.points ?? []));
      setField(item, "facts", facts(hypothesis));
    }
    document.querySelector("#facts").textContent = [
      ...timing(answer.timing),
      `${count(translation.sourceTokens ?? 0)} source tokens`,
      ...treatment(translation.treatment),
    ].join(" · ");
  }

  // Translates with an alignment, or without one where the model has none.
  async #withAlignment(request, options) {
    const { signal } = this.#running;
    try {
      const more = { returnTokens: true, returnAlignment: true };
      return await translate({ ...request, options: { ...options, ...more } }, signal);
    } catch (error) {
      if (!error.message.startsWith("options.return_alignment")) throw error;
      return translate({ ...request, options }, signal);
    }
  }

  async #stream(request) {
    const item = this.#addPlace();
    const line = item.querySelector(".words");
    line.classList.add("growing");
    try {
      for await (const message of translateStream(request, this.#running.signal)) {
        line.append(message.textDelta ?? "");
        if (message.hypothesis) {
          setField(item, "facts", facts(message.hypothesis));
          const more = [...timing(message.timing), ...treatment(message.treatment)];
          document.querySelector("#facts").textContent = more.join(" · ");
        }
      }
    } finally {
      line.classList.remove("growing");
    }
  }

  // The links of a word. Those of a source word are the links of all translations.
  #linksOf(span) {
    const all = this.#links.flatMap((links) => [...(links.get(span) ?? [])]);
    return all.length ? new Map(all) : null;
  }
}

function facts(hypothesis) {
  const score = "score" in hypothesis ? [`score ${hypothesis.score.toFixed(3)}`] : [];
  const cut = hypothesis.finishReason === "FINISH_REASON_MAX_LENGTH" ? ["cut at the longest length"] : [];
  return [...score, ...cut].join(" · ");
}

function timing(parts = {}) {
  const seconds = (text) => time(Number.parseFloat(text ?? "0"));
  return parts.total ? [`${seconds(parts.total)} in all`, `${seconds(parts.decode)} to decode`] : [];
}

function treatment(done = {}) {
  return [
    done.sentences ? `${count(done.sentences)} sentences` : "",
    done.preserved ? `${count(done.preserved)} kept as they are` : "",
  ].filter(Boolean);
}
