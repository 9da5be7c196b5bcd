// Finds the tokens of a model in the text that they spell.

// Marks that vocabularies put on tokens for "a word begins here" and "the word goes on".
const MARKS = /^(?:▁|Ġ|##)+|(?:<\/w>|@@)$/gu;
const REACH = 40; // how far a token is looked for, for each of its characters
const WORD = /[\p{L}\p{M}\p{N}]/u;
const UNSPACED = /[\p{scx=Han}\p{scx=Hiragana}\p{scx=Katakana}\p{scx=Thai}\p{scx=Khmer}\p{scx=Lao}\p{scx=Myanmar}]/u;

// Returns the words of `text`, each with its place and the numbers of its tokens. A token that is not in the text, such
// as the end of the sentence, is in no word. In scripts without spaces each token is a word.
export function words(text, tokens) {
  const { plain, places } = simplified(text);
  const found = [];
  let from = 0;
  tokens.forEach((token, number) => {
    const piece = simplified(token.replace(MARKS, "")).plain;
    const at = piece === "" ? -1 : plain.indexOf(piece, from);
    if (at < 0 || at - from > REACH * piece.length) return;
    const [start, end] = [places[at], places[at + piece.length]];
    const last = found.at(-1);
    const glued = last && last.end === start && isWord(last.text) && isWord(piece);
    if (glued) {
      last.end = end;
      last.text += piece;
      last.tokens.push(number);
    } else {
      found.push({ start, end, text: piece, tokens: [number] });
    }
    from = at + piece.length;
  });
  return found.map(({ start, end, tokens: numbers }) => ({ start, end, text: text.slice(start, end), tokens: numbers }));
}

function isWord(piece) {
  return WORD.test(piece[0]) && !UNSPACED.test(piece);
}

// Text as most vocabularies have it, in compatible characters and small letters, and the place of each unit of it.
function simplified(text) {
  let plain = "";
  const places = [];
  let place = 0;
  for (const character of text) {
    const simple = character.normalize("NFKC").toLowerCase();
    for (let unit = 0; unit < simple.length; unit += 1) places.push(place);
    plain += simple;
    place += character.length;
  }
  return { plain, places: [...places, place] };
}
