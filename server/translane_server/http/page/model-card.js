// A model: its state, its rates, and how full it is.

import { count, fillTemplate, language, rate, setField, time } from "./fields.js";

const READINGS = 60; // of the curve
const HEIGHT = 20; // of the curve's drawing, whose width is READINGS - 1
const NEARLY_FULL = 0.9;
const STATES = {
  MODEL_STATE_LOADING: "loading",
  MODEL_STATE_READY: "ready",
  MODEL_STATE_IDLE: "idle",
  MODEL_STATE_UNLOADED: "unloaded",
  MODEL_STATE_FAILED: "failed",
};

export function stateOf(model) {
  return STATES[model.state] ?? "unknown";
}

export class ModelCard {
  #history = [];

  constructor(name) {
    this.element = fillTemplate("#model-template");
    setField(this.element, "name", name);
  }

  show(model, rates) {
    const { element } = this;
    const { load } = model;
    setField(element, "state", stateOf(model));
    element.querySelector(".state").dataset.state = stateOf(model);
    setField(element, "facts", facts(model));
    setField(element, "requests", rate(rates.requests));
    setField(element, "tokens", rate(rates.tokens));
    setField(element, "time", time(rates.time));
    this.#fill("rows", load.rowsBusy, load.rowsLimit);
    this.#fill("waiting", load.sentencesWaiting, load.sentencesWaitingLimit);
    setField(element, "totals", totals(load));
    if (rates.tokens !== null) this.#draw(rates.tokens);
  }

  #fill(name, value, limit) {
    const meter = this.element.querySelector(`[data-field="${name}-meter"]`);
    meter.max = Math.max(limit, 1);
    meter.value = value;
    meter.style.setProperty("--share", String(meter.value / meter.max));
    meter.classList.toggle("nearly-full", meter.value > NEARLY_FULL * meter.max);
    setField(this.element, name, `${count(value)} of ${count(limit)}`);
  }

  // Draws the tokens a second of the last readings.
  #draw(value) {
    this.#history = [...this.#history, value].slice(-READINGS);
    const highest = Math.max(...this.#history, 1);
    const start = READINGS - this.#history.length;
    const points = this.#history.map((each, number) => `${start + number},${HEIGHT * (1 - 0.95 * each / highest)}`);
    this.element.querySelector(".line").setAttribute("points", points.join(" "));
    const area = [`${start},${HEIGHT}`, ...points, `${READINGS - 1},${HEIGHT}`];
    this.element.querySelector(".area").setAttribute("points", area.join(" "));
  }
}

function facts(model) {
  const pair = [model.sourceLanguages, model.targetLanguages].map((tags) => languages(tags ?? [])).join(" → ");
  const parameters = Number(model.parameters ?? 0);
  return [
    pair,
    `version ${model.version ?? "?"}`,
    [model.precision, model.device].filter(Boolean).join(" on "),
    parameters ? `${count(Math.round(parameters / 1e5) / 10)} M parameters` : "",
  ].filter(Boolean).join(" · ");
}

function languages(tags) {
  return tags.length > 3 ? `${tags.length} languages` : tags.map(language).join(", ");
}

function totals(load) {
  const memory = load.memoryBytes ? ` · ${count(Math.round(load.memoryBytes / 2 ** 20))} MiB` : "";
  return `${count(load.requests)} requests · ${count(load.generatedTokens)} tokens so far${memory}`;
}
