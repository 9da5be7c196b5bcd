// The languages, the model, the glossary and the format that a translation takes. They are remembered in this browser.

import { language, same, setOptions } from "./fields.js";

const STORED = "translane-choices";
const DETECT = "auto";
// Sources to begin with, for whom the page has no better guess.
const COMMON = ["en", "zh", "es", "fr", "de", "ru", "ja", "ar", "pt"];

export class Choices {
  #fields;
  #models = [];
  #detects = false;
  #changed;
  #found = ""; // the language that the server has detected
  #last = ["", ""]; // source and target
  #wanted = remembered().model; // that the reader has chosen, if any

  // `changed` is called when something else is chosen.
  constructor(fields, changed) {
    this.#fields = fields;
    this.#changed = changed;
    const { source, target, model, glossary, format, swap } = fields;
    source.addEventListener("change", () => this.#choose());
    target.addEventListener("change", () => this.#choose());
    model.addEventListener("change", () => (this.#wanted = model.value));
    for (const each of [model, glossary, format]) each.addEventListener("change", () => this.#end());
    swap.addEventListener("click", () => this.#swap());
    if (remembered().format) format.value = remembered().format;
  }

  // Takes the models of the server, and whether it detects languages. What is chosen stays chosen.
  offer(models, detects) {
    const facts = (list) => JSON.stringify(list.map(({ load, state, ...model }) => model));
    if (facts(models) === facts(this.#models) && detects === this.#detects) return;
    const isFirst = this.#models.length === 0;
    this.#models = models;
    this.#detects = detects;
    const { source, target } = this.#fields;
    const sources = all(models, "sourceLanguages");
    setOptions(source, [...(detects && sources.length > 1 ? [[DETECT, "Detect language"]] : []), ...named(sources)]);
    if (isFirst) source.value = this.#firstSource(sources);
    this.#offerTargets();
    if (isFirst) target.value = this.#firstTarget();
    this.#last = [source.value, target.value];
    this.#offerModels();
  }

  // The fields of a request. The model is left to the server where it has no other, or finds the language first.
  get request() {
    const { source, target, model, glossary } = this.#fields;
    return {
      ...(model.value ? { model: model.value } : {}),
      ...(source.value ? { sourceLanguage: source.value } : {}),
      ...(target.value ? { targetLanguage: target.value } : {}),
      options: glossary.value ? { glossaries: [glossary.value] } : {},
    };
  }

  get format() {
    return this.#fields.format.value;
  }

  // The most hypotheses that beams of this pair can return.
  get mostBeams() {
    return Math.max(1, ...this.#ofPair().map((model) => model.maxBeamSize ?? 1));
  }

  // Takes the language that the server has found, for a swap.
  detected(tag) {
    const { source } = this.#fields;
    if (source.value === DETECT) source.options[0].textContent = `${language(tag)} (detected)`;
    this.#found = tag;
  }

  get canSwap() {
    const { source, target } = this.#fields;
    return offers(source, target.value) && this.#targetsOf(target.value).includes(this.#from);
  }

  // The language of the text, as far as it is known.
  get #from() {
    const { source } = this.#fields;
    return source.value === DETECT ? this.#found : source.value;
  }

  // The button is disabled where the languages cannot be swapped.
  #swap() {
    const { source, target } = this.#fields;
    const [from, to] = [this.#from, target.value];
    source.value = to;
    this.#offerTargets();
    target.value = from;
    this.#end(true);
  }

  // Whoever chooses the language of the other side wants the two swapped.
  #choose() {
    const { source, target } = this.#fields;
    const [from, to] = this.#last;
    const isSwap = source.value === target.value && offers(source, to);
    if (isSwap) source.value = to;
    const wanted = isSwap ? from : target.value;
    this.#offerTargets();
    if (offers(target, wanted)) target.value = wanted;
    if (source.value === target.value) target.value = this.#guessTarget();
    this.#end();
  }

  #end(isSwap = false) {
    const { source, target, format } = this.#fields;
    if (source.value !== DETECT && source.options[0]?.value === DETECT) source.options[0].textContent = "Detect language";
    this.#last = [source.value, target.value];
    this.#offerModels();
    remember({ source: source.value, target: target.value, format: format.value, model: this.#wanted });
    this.#changed(isSwap);
  }

  #offerTargets() {
    const { source, target } = this.#fields;
    setOptions(target, named(this.#targetsOf(source.value)));
  }

  #offerModels() {
    const { source, target, model, glossary, swap } = this.#fields;
    const models = this.#ofPair().map(({ name }) => [name, name]);
    const isOpen = source.value === DETECT || this.#models.length === 1 || models.length === 0;
    setOptions(model, [...(isOpen ? [["", "the server's choice"]] : []), ...(this.#models.length === 1 ? [] : models)]);
    const first = this.#withAllSources()?.name ?? model.options[0].value;
    model.value = models.length > 1 && offers(model, this.#wanted) ? this.#wanted : first;
    const glossaries = [...new Set(this.#ofPair().flatMap((each) => each.glossaries ?? []))];
    setOptions(glossary, [["", "none"], ...glossaries.map((name) => [name, name])]);
    model.closest("label").hidden = models.length < 2;
    glossary.closest("label").hidden = glossaries.length === 0;
    for (const select of [source, target]) select.hidden = select.options.length === 0;
    swap.hidden = source.hidden || target.hidden;
    swap.disabled = !this.canSwap;
  }

  #targetsOf(source) {
    const models = source === DETECT ? this.#models : this.#models.filter((model) => has(model, "sourceLanguages", source));
    return all(models, "targetLanguages");
  }

  #ofPair() {
    const { source, target } = this.#fields;
    return this.#models.filter((model) => (source.value === DETECT || has(model, "sourceLanguages", source.value))
      && has(model, "targetLanguages", target.value));
  }

  // Of several models, one that has the source languages of all. The server would ask which one is meant.
  #withAllSources() {
    const models = this.#ofPair();
    const sources = this.#fields.source.value === DETECT && models.length > 1 ? all(models, "sourceLanguages") : [];
    return models.find((model) => sources.length > 0 && sources.every((tag) => has(model, "sourceLanguages", tag)));
  }

  #firstSource(sources) {
    const before = remembered().source;
    if (before === DETECT ? this.#detects : sources.includes(before)) return before;
    if (this.#detects && sources.length > 1) return DETECT;
    const own = mine(sources);
    return COMMON.map((tag) => like(tag, sources)).find((tag) => tag && tag !== own) ?? sources.find((tag) => tag !== own) ?? own;
  }

  #firstTarget() {
    const before = remembered().target;
    return offers(this.#fields.target, before) ? before : this.#guessTarget();
  }

  #guessTarget() {
    const source = this.#fields.source.value;
    const targets = this.#targetsOf(source);
    const others = targets.filter((tag) => tag !== source);
    return mine(others) ?? like("en", others) ?? others[0] ?? targets[0] ?? "";
  }
}

function offers(select, tag) {
  return [...select.options].some(({ value }) => value === tag);
}

// The languages of all models. What models spell in different ways has the spelling of the first one.
function all(models, field) {
  const found = [];
  for (const model of models) {
    const known = new Set(found.map((tag) => same(tag).all));
    found.push(...(model[field] ?? []).filter((tag) => !known.has(same(tag).all)));
  }
  return found;
}

// Whether a model has a language. One that names none takes whatever it gets.
function has(model, field, tag) {
  const tags = model[field] ?? [];
  return tags.length === 0 || tags.some((each) => same(each).all === same(tag).all);
}

// The names of languages, in their order. Two of one name have their scripts, and else their tags.
function named(tags) {
  const forms = [tags.map((tag) => language(tag)), tags.map((tag) => language(tag, true))];
  const isSingle = (name, list) => list.indexOf(name) === list.lastIndexOf(name);
  const label = (tag, number) => forms.find((list) => isSingle(list[number], list))?.[number] ?? `${forms[1][number]} (${tag})`;
  return tags.map((tag, number) => [tag, label(tag, number)]).sort(([, one], [, other]) => one.localeCompare(other, "en"));
}

// The tag among `tags` that is the same language, in the same script and country if there is such a one.
function like(tag, tags) {
  const wanted = same(tag);
  const by = (part) => tags.find((each) => same(each)[part] === wanted[part]);
  return tags.find((each) => each === tag) ?? by("all") ?? by("written") ?? by("language");
}

// The language of this browser, if it is among `tags`.
function mine(tags) {
  return navigator.languages.map((tag) => like(tag, tags)).find(Boolean);
}

function remembered() {
  try {
    return JSON.parse(localStorage.getItem(STORED)) ?? {};
  } catch {
    return {}; // storage is switched off, or holds something else
  }
}

function remember(choices) {
  try {
    localStorage.setItem(STORED, JSON.stringify(choices));
  } catch { /* storage is switched off */ }
}
