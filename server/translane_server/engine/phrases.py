"""Phrases that may not occur in the text, or must: in any tokenization, by the text of the tokens.

The text of tokens is made of their surfaces (see `TargetVocabulary`). A space at the start of the first surface does
not belong to the text.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from translane_server.core.arrays import BoolArray, IntArray
from translane_server.engine.options import RequiredPhrase

_SEPARATOR = b"\xff"  # UTF-8 does not use this byte


def tail_of(token_ids: Sequence[int], surfaces: Sequence[bytes], size: int) -> bytes | None:
    """The last `size` bytes of the text of some tokens; None if there is no text yet."""
    parts: list[bytes] = []
    length = 0
    for token in reversed(token_ids):
        if length > size:  # one byte more, because the first space does not count
            break
        parts.append(surfaces[token])
        length += len(parts[-1])
    if length > size:
        return b"".join(reversed(parts))[length - size :]
    return extended(None, b"".join(reversed(parts))) if length else None


def extended(text: bytes | None, surface: bytes) -> bytes:
    """A text, or the tail of a text, with the surface of one more token; None is no text yet."""
    return surface.removeprefix(b" ") if text is None else text + surface


class SurfaceIndex:
    """Finds tokens by their surfaces, [V], without a pass over all of them in Python."""

    def __init__(self, surfaces: Sequence[bytes]) -> None:
        self.surfaces = surfaces
        order = sorted(range(len(surfaces)), key=surfaces.__getitem__)
        self._sorted = [surfaces[token] for token in order]
        self._order: IntArray = np.array(order, np.int64)
        self.longest = max(map(len, surfaces), default=0)
        self._joined = np.frombuffer(_SEPARATOR.join(surfaces), np.uint8)
        lengths = np.fromiter(map(len, surfaces), np.int64, len(surfaces))
        self._starts: IntArray = np.cumsum(lengths + 1) - lengths - 1  # place of each surface in the joined bytes

    def containing(self, text: bytes, *, first: bool = False) -> BoolArray:
        """Whether each token's surface contains `text` (≥ 1 byte), [V]; `first` is for the first token of a text."""
        found = np.zeros(len(self.surfaces), np.bool_)
        places = np.flatnonzero(self._joined == text[0])
        for offset, byte in enumerate(text[1:], start=1):
            if not len(places):  # most texts are longer than any surface
                return found
            places = places[places < len(self._joined) - offset]
            places = places[self._joined[places + offset] == byte]
        tokens = np.searchsorted(self._starts, places, side="right") - 1
        if first and text.startswith(b" "):
            tokens = tokens[places > self._starts[tokens]]
        found[tokens] = True
        return found

    def starting(self, text: bytes) -> IntArray:
        """The tokens whose surface begins with `text` (≥ 1 byte; the last byte is not 255)."""
        least = bisect.bisect_left(self._sorted, text)
        most = bisect.bisect_left(self._sorted, text[:-1] + bytes([text[-1] + 1]))
        return self._order[least:most]


class SuppressedPhrases:
    """The suppressed phrases of a sentence.

    Phrases are found in the UTF-8 that tokens add to the text. So the tokenization does not matter, and tokens may hold
    parts of characters. Empty phrases are ignored.
    """

    def __init__(self, phrases: Sequence[bytes], index: SurfaceIndex) -> None:
        present = sorted({phrase for phrase in phrases if phrase})
        self._index = index
        self._longest = max(map(len, present), default=0)
        self._holding = _any(index, [index.containing(phrase) for phrase in present])
        self._holding_first = _any(index, [index.containing(phrase, first=True) for phrase in present])
        self._rests: dict[bytes, list[bytes]] = {}  # beginning of a phrase -> possible rests
        for phrase in present:
            for length in range(max(1, len(phrase) - index.longest), len(phrase)):  # the rest must fit into a token
                self._rests.setdefault(phrase[:length], []).append(phrase[length:])

    def banned(self, generated_ids: Sequence[int]) -> BoolArray:
        """Whether each token would complete a phrase after these, [V]. The caller must not write to the array."""
        tail = tail_of(generated_ids, self._index.surfaces, self._longest - 1)
        if tail is None:
            return self._holding_first
        rests = {rest for start in range(len(tail)) for rest in self._rests.get(tail[start:], ())}
        if not rests:
            return self._holding
        banned = self._holding.copy()
        banned[np.concatenate([self._index.starting(rest) for rest in rests])] = True
        return banned


def _any(index: SurfaceIndex, masks: Sequence[BoolArray]) -> BoolArray:
    result: BoolArray = np.logical_or.reduce(masks) if masks else np.zeros(len(index.surfaces), np.bool_)
    return result


class Extension(NamedTuple):
    """The hypothesis `parent` with one more token."""

    parent: int
    token: int
    score: float  # the cumulative score with the token
    remaining: int  # the number of tokens that its missing phrases still need after this token


class _Phrase:
    """A phrase, with the automaton of its tokens (Knuth, Morris and Pratt 1977, https://doi.org/10.1137/0206024)."""

    def __init__(self, phrase: RequiredPhrase, surfaces: Sequence[bytes]) -> None:
        spelled = extended(None, b"".join(surfaces[token] for token in phrase.token_ids))
        # The tokenizer may have normalised the phrase. Then the text of the tokens is searched for.
        self.text = phrase.text if phrase.text and phrase.text in spelled else spelled
        self.tokens = tuple(phrase.token_ids)
        self.once = phrase.once
        self._borders = [0] * len(self.tokens)
        for place in range(1, len(self.tokens)):
            self._borders[place] = self.matched(self._borders[place - 1], self.tokens[place])

    def matched(self, matched: int, token: int) -> int:
        """The number of tokens of the phrase that match, after one more `token`; `matched` is the number before."""
        while matched and (matched == len(self.tokens) or self.tokens[matched] != token):
            matched = self._borders[matched - 1]
        return matched + (self.tokens[matched] == token)

    def matched_by(self, token_ids: Sequence[int]) -> int:
        """The number of tokens of the phrase that match at the end of `token_ids`."""
        matched = 0
        for token in token_ids[-len(self.tokens) :]:
            matched = self.matched(matched, token)
        return matched


class _State(NamedTuple):
    """The state of a hypothesis."""

    tail: bytes | None  # the end of the text; None if there is no text
    # number of each missing phrase -> number of its tokens that match at the end of the hypothesis
    lacking: dict[int, int]


class RequiredPhrases:
    """The required phrases of one sentence: lexically constrained beam search.

    Grid beam search (Hokamp and Liu 2017, https://aclanthology.org/P17-1141) puts hypotheses into banks by their
    progress in the phrases, so that a hypothesis which begins a phrase does not compete with hypotheses that delay it.
    The slots of one beam are divided among the banks (Post and Vilar 2018, https://aclanthology.org/N18-1119). A
    hypothesis has a phrase if its text contains the phrase, in any tokenization. `RequiredPhrase.token_ids` is the
    tokenization that the search tries to generate. Duplicates count once, and phrases without tokens are ignored.
    """

    def __init__(self, phrases: Sequence[RequiredPhrase], surfaces: Sequence[bytes], eos: int) -> None:
        usable = [each for each in (_Phrase(phrase, surfaces) for phrase in phrases if phrase.token_ids) if each.text]
        distinct: dict[bytes, _Phrase] = {}
        for phrase in sorted(usable, key=lambda each: (len(each.tokens), each.text)):
            distinct.setdefault(phrase.text, phrase)
        self._phrases = list(distinct.values())
        self._surfaces = surfaces
        self._eos = eos
        self._tail_size = max((len(phrase.text) for phrase in self._phrases), default=1) - 1
        # The phrases that contain each phrase. Text with one of these contains the phrase too.
        self._inside = [
            [number for number, other in enumerate(self._phrases) if other is not phrase and phrase.text in other.text]
            for phrase in self._phrases
        ]
        self._nested = any(self._inside)
        # the last token of each phrase that is `once` -> the phrase's number
        self._once = {phrase.tokens[-1]: number for number, phrase in enumerate(self._phrases) if phrase.once}

    def are_in(self, generated_ids: Sequence[int]) -> bool:
        """Whether the text of a hypothesis with these tokens, forced tokens included, has all phrases."""
        return not self._state(generated_ids).lacking

    def select(
        self,
        parents: Sequence[tuple[Sequence[int], float]],
        token_ids: IntArray,
        cumulative_scores: npt.NDArray[np.floating[Any]],
        score_of: Callable[[int, int], float],
        beam_size: int,
        steps_left: int,
    ) -> tuple[list[Extension], list[tuple[int, float]]]:
        """Choose the continuations of a sentence's B hypotheses.

        A hypothesis ends only if it has all phrases. One that has a phrase that is `once` does not go on with the last
        token of this phrase. A hypothesis with too few steps left for its phrases is chosen only if all have too few.
        If no hypothesis can complete all phrases, the longest phrases are given up. If all hypotheses have their
        phrases, this is ordinary beam search.

        Args:
            parents: the tokens and the cumulative score of each hypothesis, [B].
            token_ids: the best next tokens of each hypothesis, [B, K].
            cumulative_scores: score of each hypothesis with each of these tokens, [B, K]; -inf is banned.
            score_of: maps a parent and any token to the score of the hypothesis with that token.
            beam_size: maximum number of continuations.
            steps_left: number of tokens that may still be generated, with this one and the end-of-sentence token (≥ 1).

        Returns:
            The continuations, and the hypotheses that may end now with their scores, both best first.
        """
        states = [self._state(generated_ids) for generated_ids, _ in parents]
        goals = self._goals(states, steps_left)
        children: list[Extension] = []
        endings: list[tuple[int, float]] = []
        for parent, (state, ids, scores) in enumerate(
            zip(states, token_ids.tolist(), cumulative_scores.tolist(), strict=True)
        ):
            known = {token: score for token, score in zip(ids, scores, strict=True) if score > -np.inf}
            for token, number in self._once.items():
                if number not in state.lacking:
                    known.pop(token, None)
            if (score := known.pop(self._eos, None)) is not None and not self._remaining(state.lacking, goals):
                endings.append((parent, score))
            for token in self._next_tokens(state.lacking, goals):
                if token not in known and token != self._eos and (score := score_of(parent, token)) > -np.inf:
                    known[token] = score
            for token, score in known.items():
                remaining = self._remaining(self._lacking_after(state, token), goals)
                children.append(Extension(parent, token, score, remaining))
        children.sort(key=_best_first)
        endings.sort(key=lambda ending: -ending[1])
        complete = [child.score for child in children if not child.remaining]
        ended = [
            ending
            for rank, ending in enumerate(endings)
            if rank + sum(score > ending[1] for score in complete) < beam_size
        ]
        running = _deal(_in_time(children, steps_left - 1), beam_size)
        return sorted(running, key=_best_first), ended

    def _state(self, generated_ids: Sequence[int]) -> _State:
        text = extended(None, b"".join([self._surfaces[token] for token in generated_ids]))
        lacking = {
            number: phrase.matched_by(generated_ids)
            for number, phrase in enumerate(self._phrases)
            if phrase.text not in text
        }
        return _State(tail_of(generated_ids, self._surfaces, self._tail_size), lacking)

    def _lacking_after(self, state: _State, token: int) -> dict[int, int]:
        """The missing phrases of a hypothesis with one more token; see `_State.lacking`."""
        text = extended(state.tail, self._surfaces[token])
        return {
            number: self._phrases[number].matched(matched, token)
            for number, matched in state.lacking.items()
            if self._phrases[number].text not in text
        }

    def _goals(self, states: Sequence[_State], steps: int) -> range:
        """The phrases that some hypothesis can complete in `steps` tokens: the first ones, which are the shortest."""
        goals = range(len(self._phrases))
        while goals and min(self._remaining(state.lacking, goals) for state in states) > steps:
            goals = goals[:-1]
        return goals

    def _sought(self, lacking: dict[int, int], goals: range) -> list[int]:
        """The missing phrases to generate, without the phrases that another of them contains."""
        sought = [number for number in lacking if number < len(goals)]
        if not self._nested:
            return sought
        return [number for number in sought if not any(other in sought for other in self._inside[number])]

    def _remaining(self, lacking: dict[int, int], goals: range) -> int:
        if not lacking:
            return 0
        sought = self._sought(lacking, goals)
        furthest = max((lacking[number] for number in sought), default=0)
        return sum(len(self._phrases[number].tokens) for number in sought) - furthest

    def _next_tokens(self, lacking: dict[int, int], goals: range) -> tuple[int, ...]:
        tokens: dict[int, None] = {}
        for number in self._sought(lacking, goals):
            phrase = self._phrases[number].tokens
            tokens |= {phrase[lacking[number]]: None, phrase[0]: None}
        return tuple(tokens)


def _best_first(child: Extension) -> float:
    return -child.score


def _in_time(children: Sequence[Extension], steps: int) -> list[Extension]:
    """The children that can complete the phrases in `steps` tokens, with the end-of-sentence token if possible."""
    for needed in (1, 0):
        if in_time := [child for child in children if child.remaining + needed <= steps]:
            return in_time
    return list(children)


def _deal(children: Sequence[Extension], beam_size: int) -> list[Extension]:
    """Divide the slots of the beam among the banks. A bank holds the children with equal `remaining`, best first.

    Each bank gets one slot per round, and the bank with the least remaining tokens comes first. Otherwise the search
    would drop begun phrases for better-scored beginnings, again and again, until the length forces the phrase.
    """
    banks: dict[int, list[Extension]] = {}
    for child in children:
        banks.setdefault(child.remaining, []).append(child)
    order = [banks[remaining] for remaining in sorted(banks)]
    dealt = [bank[turn] for turn in range(beam_size) for bank in order if turn < len(bank)]
    return dealt[:beam_size]
