"""Makes hypotheses from rows and beams, with their alignment, and the committed tokens of a streamed translation.

The committed tokens are the tokens with which all hypotheses of a sentence begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from translane_server.core.arrays import FloatArray
from translane_server.engine.options import DecodingOptions
from translane_server.engine.rows import RowTable
from translane_server.engine.search import Ended, LiveBeams, Path, Search
from translane_server.engine.sequence import AlignedToken, CommittedTokens, Hypothesis
from translane_server.runtime.backend import Align

# Least coverage of a source token, so that its logarithm is finite.
LEAST_COVERAGE = 1e-9


def aligned_tokens(attention: FloatArray, source_length: int) -> tuple[AlignedToken, ...]:
    """The source token to which each target token attends most; the first one between equal weights.

    The source's end-of-sentence token is ignored unless it is the only token: target tokens without a counterpart
    attend to it. `attention` is [T, S] for T target tokens, with S ≥ `source_length` ≥ 1.
    """
    weights = attention[:, : max(source_length - 1, 1)]
    sources = weights.argmax(axis=1)
    best = np.take_along_axis(weights, sources[:, None], axis=1)[:, 0]
    return tuple(map(AlignedToken, sources.tolist(), best.tolist()))


def coverage_penalty(attention_sum: npt.NDArray[np.floating[Any]], source_length: int) -> float:
    """The coverage penalty: 0 if the whole source is covered, and negative otherwise.

    Wu et al. 2016, https://arxiv.org/abs/1609.08144 (14), without the factor: the sum of log(min(coverage, 1)) over all
    source tokens. `attention_sum`, over the target tokens, is [S] with S ≥ `source_length`.
    """
    coverage = attention_sum[:source_length].astype(np.float64)
    return float(np.log(coverage.clip(LEAST_COVERAGE, 1.0)).sum())


def row_hypothesis(table: RowTable, search: Search, row: int, eos: int) -> Ended:
    """The hypothesis in `row`, which its last token has ended."""
    options, length = search.options, table.positions.item(row)
    token = table.next_ids.item(row)
    return _hypothesis(
        options,
        table.history[row, 1:length].tolist(),
        table.log_probs[row, :length].tolist() if options.scores else (),
        None if token == eos else token,
        table.scores.item(row),
        table.chosen_in[row, :length].tolist() if options.alignment else (),
    )


def beam_hypothesis(search: Search, beam: int, last: int | None, log_prob: float, score: float) -> Ended:
    """The hypothesis that ends a live beam with one more token, `last`, which is None at the end of the sentence."""
    beams, options = search.beams, search.options
    assert beams is not None
    tokens, log_probs, chosen_in = unrolled(beams.paths[beam])
    chosen_in = [*chosen_in, search.rows[beam]] if options.alignment else []
    return _hypothesis(options, tokens, [*log_probs, log_prob], last, score, chosen_in)


def unrolled(path: Path) -> tuple[list[int], list[float], list[int]]:
    """The tokens of a path, their log-probabilities, and the rows in which they were chosen, from first to last."""
    tokens: list[int] = []
    log_probs: list[float] = []
    rows: list[int] = []
    while path is not None:
        token, log_prob, row, path = path
        tokens.append(token)
        log_probs.append(log_prob)
        rows.append(row)
    return tokens[::-1], log_probs[::-1], rows[::-1]


def _hypothesis(
    options: DecodingOptions,
    token_ids: Sequence[int],
    log_probs: Sequence[float],
    last: int | None,
    score: float,
    chosen_in: Sequence[int],
) -> Ended:
    hypothesis = Hypothesis(
        tuple(token_ids) if last is None else (*token_ids, last),
        score if options.scores else None,
        last is None,
        tuple(log_probs) if options.scores else (),
    )
    return Ended(hypothesis, chosen_in[: len(hypothesis.token_ids)])


def returned_hypotheses(search: Search, align: Align) -> tuple[Hypothesis, ...]:
    """The hypotheses of an ended search that are returned, best first, with their alignments."""
    if search.beams:
        ended = search.beams.pool.hypotheses[: search.options.num_hypotheses]
    else:
        ended = sorted(search.ended, key=lambda each: (-(each.hypothesis.score or 0.0), each.hypothesis.token_ids))
    if not search.options.alignment:
        return tuple([each.hypothesis for each in ended])
    return tuple([each.hypothesis._replace(alignment=_alignment(search, 0, each.chosen_in, align)) for each in ended])


def _alignment(search: Search, start: int, chosen_in: Sequence[int], align: Align) -> tuple[AlignedToken, ...]:
    """The alignment of a hypothesis's tokens from `start` on, which were chosen in these rows."""
    if not chosen_in:
        return ()
    attention = align(search.rows[0], search.entered_step + start, chosen_in)
    return aligned_tokens(attention, len(search.sequence.sentence.source_ids))


def new_committed_tokens(search: Search, table: RowTable, align: Align) -> CommittedTokens | None:
    """The tokens of a live search that have become committed since the last call; None if there are none."""
    row, start = search.rows[0], search.reported
    if search.beams is None:
        end = table.positions.item(row)
        tokens, chosen_in = table.tokens(row, start, end), table.chosen_in[row, start:end].tolist()
    else:
        end, path = _shared(search.beams)
        if end <= start:
            return None
        whole, _, rows = unrolled(path)
        end = _agreed(search.beams, whole)
        tokens, chosen_in = whole[start:end], rows[start:end]
    if not tokens:
        return None
    search.reported = end
    alignment = _alignment(search, start, chosen_in, align) if search.options.alignment else ()
    return CommittedTokens(tuple(tokens), alignment)


def _shared(beams: LiveBeams) -> tuple[int, Path]:
    """The common beginning of the live beams, and its length. Beams have equal lengths, and share equal beginnings."""
    length, paths = beams.length, {id(path): path for path in beams.paths}
    while len(paths) > 1:
        length -= 1
        paths = {id(path[3]): path[3] for path in paths.values() if path is not None}
    (path,) = paths.values()
    return length, path


def _agreed(beams: LiveBeams, tokens: list[int]) -> int:
    """The number of `tokens` with which the best ended hypothesis begins; all if no hypothesis has ended."""
    if not beams.pool.hypotheses:
        return len(tokens)
    ended = beams.pool.hypotheses[0].hypothesis.token_ids
    return next(
        (place for place, pair in enumerate(zip(tokens, ended, strict=False)) if pair[0] != pair[1]),
        min(len(tokens), len(ended)),
    )
