// Texts go into the page as text, so that no text can become HTML.

export function setField(place, name, text) {
  const element = place.querySelector(`[data-field="${name}"]`);
  if (element.textContent !== text) element.textContent = text;
}

export function fillTemplate(id) {
  return document.querySelector(id).content.cloneNode(true).firstElementChild;
}

export function setOptions(select, options) {
  const chosen = select.value;
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

// Figures

const whole = new Intl.NumberFormat("en");

export function count(value) {
  return whole.format(value);
}

export function rate(value) {
  if (value === null) return "–";
  return new Intl.NumberFormat("en", { maximumFractionDigits: value < 10 ? 1 : 0 }).format(value);
}

export function time(seconds) {
  if (seconds === null) return "–";
  if (seconds >= 60) return duration(seconds);
  return seconds < 1 ? `${(seconds * 1000).toPrecision(seconds < 0.001 ? 1 : 3).replace(/\.0+$/, "")} ms` : `${seconds.toFixed(2)} s`;
}

export function duration(seconds) {
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => seconds >= size);
  if (first < 0) return "0 s";
  let left = Math.floor(seconds);
  return units.slice(first, first + 2).map(([unit, size]) => {
    const number = Math.floor(left / size);
    left -= number * size;
    return `${number} ${unit}`;
  }).join(" ");
}

// Languages

const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "none" });

// The name of a language, or its tag if the browser does not know the language. Script and country are in the name only
// where the whole is asked for, or where they have a name with the language, such as Simplified Chinese.
export function language(tag, isWhole = false) {
  const locale = read(tag);
  if (!locale) return tag;
  const whole = names.of(locale.baseName);
  const short = names.of(locale.language);
  return (whole?.startsWith(`${short} (`) && !isWhole ? short : whole) ?? tag;
}

// What two tags of one language have in common, such as zh, zh-Hans and NLLB's zho_Hans.
export function same(tag) {
  const { language = tag, script } = read(tag)?.maximize() ?? {};
  return { language, written: `${language}-${script}`, all: `${language}-${script}-${read(tag)?.region}` };
}

function read(tag) {
  try {
    return new Intl.Locale(tag.replaceAll("_", "-"));
  } catch { // the tag is of no form that the browser knows
    return null;
  }
}
