"""Streams of a server whose model translates a text to itself; and what becomes of answers."""

import itertools
from unittest.mock import Mock

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.serving import FakeTokenizer, make_manifest, serving
from helpers.failures import failed
from helpers.http_calls import until
from translane.options import Options
from translane.requests import TranslationRequest
from translane.results import AlignmentPoint, FinishReason, Hypothesis, Translation
from translane.v1 import translation_pb2 as pb
from translane_server.engine.sequence import AlignedToken
from translane_server.translation import translations, translator
from translane_server.translation.limits import RequestLimits, TokenLimits
from translane_server.translation.plan import PreparedText, RequestPlans
from translane_server.translation.translations import aligned_text, best_combinations, merged, replacements

LONG = "abcdefghijklmnopqrst"


async def test_an_error_of_the_tokenizer_frees_the_rows(monkeypatch):
    monkeypatch.setattr(translator, "surfaces", Mock(side_effect=ValueError("broken")))
    async with serving() as running:
        running.backend.hold()
        call = running.stub.TranslateStream(pb.TranslateStreamRequest(text=f"{LONG}!\n{LONG}!"))
        await until(lambda: running.dispatcher.active_rows == 2)
        running.backend.release(3)
        assert (await failed(call.read())).code is grpc.StatusCode.INTERNAL
        running.backend.release()
        await until(lambda: running.dispatcher.active_rows == 0)
        assert len(running.backend.step_rows) < 20


async def test_every_token_is_looked_at_once(monkeypatch):
    seen = []

    def surfaces_of(plan, segment, tokens, before):
        seen.extend(tokens.token_ids)
        return translations.surfaces(plan, segment, tokens, before)

    monkeypatch.setattr(translator, "surfaces", surfaces_of)
    async with serving() as running:
        messages = [each async for each in running.stub.TranslateStream(pb.TranslateStreamRequest(text=LONG))]
    assert messages[-1].hypothesis.text == LONG
    (ids,) = FakeTokenizer().encode_target([LONG])
    assert seen == ids[: len(seen)]


# Decoded sentences to translations: parts of the source, unknown tokens, and the sentences of a text as one.


PLANS = RequestPlans(make_manifest(), FakeTokenizer(), RequestLimits(4, 8, TokenLimits(32, 24, 20), 6))


def merge(text, translations, **options):
    return merged(text, translations, PLANS.of(TranslationRequest([""], options=Options(**options))))


def document(*gaps, **fields):
    return PreparedText((), [gaps], **fields)


def translation(text, *, score=-1.0, tokens=(), log_probs=(), reason=FinishReason.END_OF_SENTENCE, **fields):
    alignment = tuple(AlignmentPoint(source, target, 0.5) for source, target in fields.pop("points", ()))
    hypothesis = Hypothesis(text, score, reason, tuple(tokens), tuple(log_probs), alignment)
    return Translation((hypothesis,), **{"source_tokens": 0, **fields})


def test_alignments_count_the_same_where_tokens_are_not_asked_for():
    parts = document("", " ", " ", "")
    whole = merge(
        parts,
        [
            translation("x", source_tokens=2, points=[(0, 0), (1, 1)]),
            translation("y", source_tokens=4, points=[(0, 0)], reason=FinishReason.MAX_LENGTH),
            translation("z", source_tokens=2, points=[(1, 0)]),
        ],
    )
    found = [(point.source_token, point.target_token) for point in whole.hypotheses[0].alignment]
    assert found == [(0, 0), (1, 1), (2, 3), (7, 4)]


@pytest.mark.parametrize("score", [None, -1])
def test_without_scores_of_its_sentences_a_text_has_none(score):
    whole = merge(document("", " ", ""), [translation("x", score=score), translation("y", score=None)])
    assert whole.hypotheses[0].score is None


def test_hypotheses_without_an_order_are_joined_one_by_one():
    scores = {"a": -9, "b": -2}, {"x": -5, "y": -1}
    parts = [Translation(tuple(Hypothesis(*each) for each in of_part.items()), 0) for of_part in scores]
    whole = merge(document("", "", ""), parts, return_alternatives=True)
    assert [(each.text, each.score) for each in whole.hypotheses] == [("a x", -14), ("b y", -3)]


SCORES = st.lists(
    st.lists(st.integers(-20, 0), min_size=1, max_size=4).map(lambda scores: sorted(scores, reverse=True)), max_size=4
)


@given(SCORES, st.integers(1, 12))
def test_no_combination_is_better(scores, most):
    def total(numbers):
        return sum(of_sentence[number] for of_sentence, number in zip(scores, numbers, strict=True))

    found = best_combinations(scores, most)
    every = sorted(map(total, itertools.product(*(range(len(each)) for each in scores))), reverse=True)
    assert list(map(total, found)) == every[:most]
    assert len(set(found)) == len(found)


@pytest.mark.timeout(20)
def test_many_sentences_take_no_more_time_than_their_number():
    (best, second) = best_combinations([[-1.0, -1.5]] * 20_000, 2)
    assert set(best) == {0}
    assert sum(second) == 1


def test_bytes_of_a_character_become_one_piece_and_one_that_is_cut_off_is_replaced():
    first = AlignedToken(0, 1.0)
    found = aligned_text("猫", [bytes([byte]) for byte in "猫".encode()], "cat", [(0, 3)], [first] * 3)
    assert found.pieces == ["", "", "猫"]
    found = aligned_text("a\ufffd", [b"a", "猫".encode()[:2]], "猫", [(0, 1), None], [first, AlignedToken(1, 1.0)])
    assert "".join(found.pieces) == found.text == "a\ufffd"
    assert found.sources == [(0, 1), None], "the second token has no text"


@pytest.mark.parametrize(
    ("surfaces", "source", "sources"),
    [
        ([b"aa", b"bb"], "wxyz", [(0, 2), (2, 4)]),
        ([b"a", b"bbb"], "wxyz", [(0, 1), (1, 4)]),
        ([b"a", b""], "wx", [(0, 2), (2, 3)]),
        ([b"a", b"b", b"c"], "w", [(0, 1)] * 3),
        ([b"a"], "", [None]),
        ([], "w", []),
    ],
)
def test_without_alignment_tokens_come_from_the_same_share(surfaces, source, sources):
    text = b"".join(surfaces).decode()
    assert aligned_text(text, surfaces, source, [], ()).sources == sources


UNKNOWN = 1


@pytest.mark.parametrize(
    ("tokens", "sources", "surfaces", "replaced"),
    [
        ([7, UNKNOWN, UNKNOWN], [0, 2, 1], ["a", " b", " c "], {1: "c", 2: "b"}),
        ([UNKNOWN], [1], ["a", " "], {}),  # nothing visible is there
        ([UNKNOWN, UNKNOWN], [0, 1], ["x" * 1024, "y" * 1025], {0: "x" * 1024}),  # the other part is very long
    ],
)
def test_unknown_tokens_become_the_source_they_are_aligned_to(tokens, sources, surfaces, replaced):
    alignment = [AlignedToken(source, 0.9) for source in sources]
    spans = list(itertools.pairwise(itertools.accumulate(map(len, surfaces), initial=0)))
    assert replacements(tokens, alignment, UNKNOWN, "".join(surfaces), spans) == replaced
