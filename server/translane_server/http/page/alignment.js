// Shows which words of the source a word of a translation comes from, and the other way round: below the pointer, and
// for the word that has the focus. A line is one stop of the Tab key, and arrow keys go from word to word.

import { words } from "./spans.js";

const LEAST = 0.02; // weights below this are not shown

export class Alignment {
  #caption;
  #lit = [];

  constructor(caption) {
    this.#caption = caption;
  }

  clear() {
    this.#lit.forEach((span) => {
      span.classList.remove("pointed", "aligned");
      span.style.removeProperty("--weight");
    });
    this.#lit = [];
    this.#caption.textContent = "";
  }

  // Writes `text` into `line`, each word in an element. Returns the element of each token.
  write(line, text, tokens) {
    const ofTokens = new Map();
    let end = 0;
    line.replaceChildren();
    words(text, tokens).forEach((word, number) => {
      line.append(text.slice(end, word.start));
      const span = document.createElement("span");
      span.className = "word";
      span.textContent = word.text;
      span.tabIndex = number === 0 ? 0 : -1;
      word.tokens.forEach((token) => ofTokens.set(token, span));
      line.append(span);
      end = word.end;
    });
    line.append(text.slice(end));
    line.onkeydown = moveFocus;
    return ofTokens;
  }

  // Links the words of two lines. `source` and `target` are what `write` returned.
  link(source, target, points) {
    const links = new Map();
    for (const { sourceToken = 0, targetToken = 0, weight = 0 } of points) {
      const [from, to] = [source.get(sourceToken), target.get(targetToken)];
      if (from && to && weight >= LEAST) {
        add(links, to, from, weight);
        add(links, from, to, weight);
      }
    }
    return links;
  }

  // Shows the links of a word while it is pointed at. `linksOf` returns the links of a word.
  watch(place, linksOf) {
    const show = (event) => {
      const span = event.target.closest(".word");
      if (span) this.show(span, linksOf(span));
    };
    place.addEventListener("pointerover", show);
    place.addEventListener("focusin", show);
    place.addEventListener("pointerleave", () => this.clear());
  }

  show(span, others) {
    this.clear();
    if (!others) return;
    span.classList.add("pointed");
    for (const [other, weight] of others) {
      other.classList.add("aligned");
      other.style.setProperty("--weight", String(Math.min(1, weight)));
    }
    this.#lit = [span, ...others.keys()];
    const list = [...others].map(([other, weight]) => `${other.textContent} ${Math.round(100 * Math.min(1, weight))}%`);
    this.#caption.textContent = `${span.textContent} ↔ ${list.join(", ")}`;
  }
}

// Of several links between two words the strongest counts.
function add(links, from, to, weight) {
  if (!links.has(from)) links.set(from, new Map());
  links.get(from).set(to, Math.max(weight, links.get(from).get(to) ?? 0));
}

function moveFocus(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const spans = [...event.currentTarget.querySelectorAll(".word")];
  const next = spans[spans.indexOf(event.target) + step];
  if (!step || !next) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
