"""Stand-ins ⟨1⟩ … ⟨9⟩: symbols that a model copies, and the pairs it learns that from.

What a translation has to keep, such as a placeholder or a name, can be replaced by a stand-in before translation and
put back afterwards. A model does so reliably once it has seen stand-ins as words of sentences. So training draws, anew
for each epoch, pairs in which the same number, the same name, or two words that mean each other are replaced on both
sides: by a stand-in, by another number, or by another name.
"""

from __future__ import annotations

import random
import re
import string
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from translane_server.text.stand_ins import STAND_INS

_NUMBER = re.compile(r"(?<![\w.,:])\d+(?:[.,:]\d+)*(?![\w.,:]*\d)", re.ASCII)
_LATIN = re.compile(r"(?<![A-Za-z0-9'-])[A-Z][A-Za-z]+(?![A-Za-z0-9'-])")
_WORD = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)*")
_HAN = re.compile("[\u3400-\u9fff]+")
_LONGEST = 4  # characters of a word of a script without spaces
_ENDS = "。！？.!?…"

# Of the words that are learnt to mean each other: how often they occur, and how often together.
_LEAST_COUNT = 5
_LEAST_SHARE = 0.7  # of the sentences with the source word, those with the target word
_LEAST_DICE = 0.3
_WHOLE = 0.8  # of the sentences with a part of a word, those with the word
_COMMON = 0.01  # target words in a larger share of the sentences say more of grammar than of things

_LEARNT_FROM = 50_000  # pairs: the lexicon's counts take some kilobytes for each
_WITHIN = re.compile(r"(?<=[a-z] )[A-Z][a-z]+")  # a name within a sentence
_LEAST_NAMED = 2


class Kind(Enum):
    """What a part is, which decides what may stand in its place."""

    NUMBER = "number"
    NAME = "name"
    WORD = "word"


@dataclass(frozen=True)
class Meaning:
    """What a source word means."""

    target: str
    kind: Kind


Lexicon = Mapping[str, Meaning]
"""Source words, and the one target word that each of them nearly always means."""


def learn_lexicon(pairs: Sequence[tuple[str, str]]) -> dict[str, Meaning]:
    """Find source words, cut from runs of Han characters, that nearly always mean the same target word.

    The first 50,000 pairs are looked at.

    Any run of up to four characters may be a word of the source. Of runs that mean the same, where one contains the
    other, the one stays that occurs more often with its meaning and less often without it. A run that nearly always is
    a part of the same longer run counts as the longer one: 汤 as 汤姆.
    """
    pairs = pairs[:_LEARNT_FROM]
    source_counts: Counter[str] = Counter()
    target_counts: Counter[str] = Counter()
    upper: Counter[str] = Counter()
    for source, target in pairs:
        source_counts.update(set(_runs(source)))
        words = _WORD.findall(target)
        target_counts.update({word.lower() for word in words})
        upper.update({word.lower() for word in words if word[0].isupper()})
    together: Counter[tuple[str, str]] = Counter()
    for source, target in pairs:
        words_here = {word.lower() for word in _WORD.findall(target) if len(word) > 1}
        for run in set(_runs(source)):
            if source_counts[run] >= _LEAST_COUNT:
                together.update((run, word) for word in words_here)
    candidates: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for (run, word), count in together.items():
        name = upper[word] > 0.9 * target_counts[word]
        if count < _LEAST_SHARE * source_counts[run] or (target_counts[word] > _COMMON * len(pairs) and not name):
            continue
        dice = 2 * count / (source_counts[run] + target_counts[word])
        if dice >= _LEAST_DICE:
            candidates[word].append((dice, run))
    found: dict[str, tuple[float, Meaning]] = {}
    whole = _whole_words(source_counts)
    for word, ranked in candidates.items():
        kept: list[str] = []
        for dice, part in sorted(ranked, key=lambda each: (-each[0], -len(each[1]))):
            run = whole(part)
            if any(run in other or (other in run and len(other) > 1) for other in kept):
                continue
            kept.append(run)
            if dice > found.get(run, (0.0, None))[0]:
                is_name = upper[word] > 0.9 * target_counts[word]
                meaning = Meaning(word.capitalize() if is_name else word, Kind.NAME if is_name else Kind.WORD)
                found[run] = dice, meaning
    return {run: meaning for run, (_, meaning) in found.items()}


def _whole_words(counts: Mapping[str, int]) -> Callable[[str], str]:
    """Return a function from a run to the longest run that nearly always stands around it."""
    longer: dict[str, str] = {}
    for run, count in counts.items():
        for part in (run[:-1], run[1:]):
            if part and count >= _WHOLE * counts[part] and count > counts.get(longer.get(part, ""), 0):
                longer[part] = run

    def whole(run: str) -> str:
        while run in longer:
            run = longer[run]
        return run

    return whole


def _runs(text: str) -> Iterator[str]:
    """Yield each run of up to four Han characters."""
    for match in _HAN.finditer(text):
        part = match.group()
        for start in range(len(part)):
            for end in range(start + 1, min(start + _LONGEST, len(part)) + 1):
                yield part[start:end]


@dataclass(frozen=True)
class Part:
    """The same thing on both sides of a pair: where it starts and ends in either text."""

    source: tuple[int, int]
    target: tuple[int, int]
    kind: Kind


def find_parts(source: str, target: str, lexicon: Lexicon) -> list[Part]:
    """Return what may be replaced on both sides, from left to right in the source; parts do not overlap.

    Numbers and Latin words that are once on either side, and words of the lexicon whose meaning is once in the target.
    """
    found = [
        Part(span, spans[word], kind)
        for pattern, kind in ((_NUMBER, Kind.NUMBER), (_LATIN, Kind.NAME))
        for spans in [_once(pattern, target)]
        for word, span in _once(pattern, source).items()
        if word in spans
    ]
    targets = _once(_WORD, target)
    place = 0
    while lexicon and place < len(source):
        for end in range(min(place + _LONGEST, len(source)), place, -1):
            meaning = lexicon.get(source[place:end])
            if meaning is None:
                continue
            span = targets.get(meaning.target) or targets.get(meaning.target.capitalize())
            if span and source.count(source[place:end]) == 1:
                found.append(Part((place, end), span, meaning.kind))
            place = end - 1
            break
        place += 1
    found.sort(key=lambda part: part.source)
    kept: list[Part] = []
    for part in found:
        if not any(_overlap(part.source, other.source) or _overlap(part.target, other.target) for other in kept):
            kept.append(part)
    return kept


def _once(pattern: re.Pattern[str], text: str) -> dict[str, tuple[int, int]]:
    """Return the matches that occur once in a text, and where."""
    spans: dict[str, tuple[int, int]] = {}
    twice = set()
    for match in pattern.finditer(text):
        if match.group() in spans:
            twice.add(match.group())
        spans[match.group()] = match.span()
    return {word: span for word, span in spans.items() if word not in twice}


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


@dataclass
class Replacer:
    """Draws pairs with other numbers, other names and stand-ins in the place of what both sides share.

    Attributes:
        share: of the pairs that have such parts, how many are replaced.
        added: of all pairs, how many get something before, after or at their end that they did not have.
        stand_ins: of what is replaced, how much becomes a stand-in.
        names: names to draw from, besides invented ones.
    """

    share: float = 0.3
    added: float = 0.03
    stand_ins: float = 0.6
    names: Sequence[str] = field(default_factory=tuple)

    def draw(self, source: str, target: str, parts: Sequence[Part], chance: random.Random) -> tuple[str, str]:
        """Return the pair as it is, or with some of its `parts` replaced or something added."""
        if parts and chance.random() < self.share:
            most = min(len(parts), chance.choice((1, 1, 1, 2, 2, 3)))
            chosen = sorted(chance.sample(list(parts), most), key=lambda part: part.source)
            symbols = self._symbols(most, chance)
            new = [self._replacement(part.kind, symbol, chance) for part, symbol in zip(chosen, symbols, strict=True)]
            source = _replaced(
                source, [(part.source, _spaced(text, chance)) for part, text in zip(chosen, new, strict=True)]
            )
            target = _replaced(target, [(part.target, text) for part, text in zip(chosen, new, strict=True)])
            return source, target
        if chance.random() < self.added:
            return self._with_addition(source, target, chance)
        return source, target

    def _symbols(self, count: int, chance: random.Random) -> list[str]:
        """Return different stand-ins: as a server numbers them, or any."""
        if chance.random() < 0.7:
            return list(STAND_INS[:count])
        return chance.sample(STAND_INS, count)

    def _replacement(self, kind: Kind, symbol: str, chance: random.Random) -> str:
        if kind is Kind.WORD:
            return symbol if chance.random() < 0.85 else self._name(chance)
        if chance.random() < self.stand_ins:
            return symbol
        return _number(chance) if kind is Kind.NUMBER else self._name(chance)

    def _name(self, chance: random.Random) -> str:
        if self.names and chance.random() < 0.4:
            return chance.choice(self.names)
        return _invented(chance)

    def _with_addition(self, source: str, target: str, chance: random.Random) -> tuple[str, str]:
        kind = chance.choice((Kind.WORD, Kind.WORD, Kind.NAME, Kind.NUMBER))
        text = self._replacement(kind, self._symbols(1, chance)[0], chance)
        wide = _HAN.search(source) is not None
        own_wide = _HAN.search(target) is not None

        def brackets(side: str, wide: bool) -> str:
            body = side.rstrip(_ENDS)
            return f"{body}（{text}）{side[len(body) :]}" if wide else f"{body} ({text}){side[len(body) :]}"

        form = chance.randrange(4)
        if form == 0:
            return brackets(source, wide), brackets(target, own_wide)
        if form == 1:
            before = "：" if wide else ": ", "：" if own_wide else ": "
        elif form == 2:
            before = "，" if wide else ", ", "，" if own_wide else ", "
        else:
            return f"{source} {text}", f"{target} {text}"
        return f"{text}{before[0]}{source}", f"{text}{before[1]}{target}"


def _replaced(text: str, changes: Iterable[tuple[tuple[int, int], str]]) -> str:
    for (start, end), new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _spaced(text: str, chance: random.Random) -> str:
    """Return a source's replacement as people write it: some put spaces around what is in another script."""
    return f" {text} " if chance.random() < 0.25 else text


def _number(chance: random.Random) -> str:
    draw = chance.random()
    if draw < 0.2:
        return str(chance.randint(1900, 2040))
    if draw < 0.28:
        return f"{chance.randint(0, 999)}.{chance.randint(0, 99):02d}"
    if draw < 0.34:
        return f"{chance.randint(1, 999)},{chance.randint(0, 999):03d}"
    digits = chance.choice((1, 2, 2, 2, 3, 3, 4, 5))
    return str(chance.randint(max(2, 10 ** (digits - 1)), 10**digits - 1))


_ONSETS = (
    *("b", "c", "ch", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "sh", "t", "th", "v", "w", "z"),
    *("br", "cl", "dr", "gr", "st", "tr"),
)
_NUCLEI = ("a", "e", "i", "o", "u", "ai", "ee", "ia", "io", "ou")
_CODAS = ("", "", "n", "r", "l", "s", "t", "m", "ck", "x", "nd")


def _invented(chance: random.Random) -> str:
    """Return a name that nobody bears, or a code as products and standards have them."""

    def syllables(most: int) -> str:
        count = chance.randint(1, most)
        return "".join(chance.choice(_ONSETS) + chance.choice(_NUCLEI) + chance.choice(_CODAS) for _ in range(count))

    def capitals(least: int, most: int) -> str:
        return "".join(chance.choices(string.ascii_uppercase, k=chance.randint(least, most)))

    draw = chance.random()
    if draw < 0.45:
        return syllables(3).capitalize()
    if draw < 0.55:
        return f"{syllables(2).capitalize()} {syllables(3).capitalize()}"
    if draw < 0.7:
        return capitals(2, 5)
    if draw < 0.8:
        return f"{capitals(1, 4)}{chance.choice(('-', '-', '', ' '))}{chance.randint(1, 9999)}"
    if draw < 0.9:
        return f"{chance.choice(('i', 'e', 'x', ''))}{syllables(2).capitalize()} {chance.randint(1, 99)}"
    return syllables(2).capitalize() + syllables(2).capitalize()


class Replacements:
    """Draws, for each epoch, the pairs of a text that are replaced.

    Args:
        pairs: source and target as the vocabularies see them.
        share: of the pairs with parts to replace, how many are replaced in an epoch.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]], share: float) -> None:
        self._pairs = pairs
        lexicon = learn_lexicon(pairs)
        self._parts = [find_parts(source, target, lexicon) for source, target in pairs]
        counts = Counter(name for _, target in pairs for name in _WITHIN.findall(target))
        names = sorted(name for name, count in counts.items() if count >= _LEAST_NAMED)
        self._replacer = Replacer(share, names=names)

    def draw(self, seed: tuple[int, ...]) -> dict[int, tuple[str, str]]:
        """Return the pairs that differ from the text, by their row; the same seed draws the same ones."""
        chance = random.Random(repr(seed))  # noqa: S311
        drawn = {}
        for row, ((source, target), parts) in enumerate(zip(self._pairs, self._parts, strict=True)):
            new = self._replacer.draw(source, target, parts, chance)
            if new != (source, target):
                drawn[row] = new
        return drawn
