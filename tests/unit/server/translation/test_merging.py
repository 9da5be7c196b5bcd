"""Translations of a text's sentences as one translation."""

from fakes.serving import FakeTokenizer, make_manifest
from translane.options import Options
from translane.requests import TranslationRequest
from translane.results import AlignmentPoint, FinishReason, Hypothesis, Translation, Treatment
from translane_server.translation.limits import RequestLimits, TokenLimits
from translane_server.translation.plan import RequestPlans
from translane_server.translation.segmentation import PreparedText
from translane_server.translation.translations import merged

PLANS = RequestPlans(make_manifest(), FakeTokenizer(), RequestLimits(4, 8, TokenLimits(32, 24, 20), 6))


def merge(text, translations, **options):
    return merged(text, translations, PLANS.of(TranslationRequest([""], options=Options(**options))))


def document(*gaps, **fields):
    return PreparedText((), [gaps], **fields)


def translation(text, *, score=-1.0, tokens=(), log_probs=(), reason=FinishReason.END_OF_SENTENCE, **fields):
    alignment = tuple(AlignmentPoint(source, target, 0.5) for source, target in fields.pop("points", ()))
    hypothesis = Hypothesis(text, score, reason, tuple(tokens), tuple(log_probs), alignment)
    return Translation((hypothesis,), **{"source_tokens": 0, **fields})


def test_translations_of_sentences_make_one_of_the_text():
    parts = document("", "", "\n", "")
    whole = merge(
        parts,
        [
            translation("One.", score=-1, tokens=["▁One", ".", "</s>"], log_probs=[-0.5, -0.25, -0.25], source_tokens=3,
                        source_pieces=["甲", "。", "</s>"], points=[(0, 0), (1, 1)]),
            translation("Two", score=-2, tokens=["▁Two"], log_probs=[-2], source_tokens=3,
                        source_pieces=["乙", "。", "</s>"], reason=FinishReason.MAX_LENGTH, points=[(0, 0)]),
            translation("Three", score=-3, tokens=["▁Three", "</s>"], log_probs=[-1, -2], source_tokens=3,
                        source_pieces=["丙", "。", "</s>"], points=[(1, 0)]),
        ])  # fmt: skip
    (hypothesis,) = whole.hypotheses
    assert hypothesis.text == "One. Two\nThree"
    assert hypothesis.score == -6
    assert list(hypothesis.tokens) == ["▁One", ".", "</s>", "▁Two", "▁Three", "</s>"]
    assert list(hypothesis.token_log_probs) == [-0.5, -0.25, -0.25, -2, -1, -2]
    assert hypothesis.finish_reason == FinishReason.MAX_LENGTH
    assert [(p.source_token, p.target_token) for p in hypothesis.alignment] == [(0, 0), (1, 1), (3, 3), (7, 4)]
    assert whole.source_tokens == 9
    assert "".join(whole.source_pieces) == "甲。</s>乙。</s>丙。</s>"


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


def test_a_text_without_sentences_is_its_own_translation():
    whole = merge(document(" \n"), [])
    assert whole.hypotheses[0].text == " \n"
    assert whole.hypotheses[0].finish_reason == FinishReason.END_OF_SENTENCE
    assert whole.hypotheses[0].alignment == ()


def test_without_scores_of_its_sentences_a_text_has_none():
    whole = merge(document("", " ", ""), [translation("x", score=None), translation("y", score=None)])
    assert whole.hypotheses[0].score is None
    whole = merge(document("A! B!"), [translation("x", score=-1), translation("y", score=None)])
    assert whole.hypotheses[0].score is None


def ranked(*hypotheses):
    return Translation(tuple(Hypothesis(text, score) for text, score in hypotheses), 0)


def test_the_best_combinations_of_hypotheses_come_first():
    parts = [ranked(("a", -1), ("b", -2), ("c", -9)), ranked(("x", -1), ("y", -1.5), ("z", -3))]
    whole = merge(document("", " ", ""), parts)
    assert [(each.text, each.score) for each in whole.hypotheses] == [("a x", -2), ("a y", -2.5), ("b x", -3)]


def test_hypotheses_without_an_order_are_joined_one_by_one():
    parts = [ranked(("a", -9), ("b", -2)), ranked(("x", -5), ("y", -1))]
    whole = merge(document("", "", ""), parts, return_alternatives=True)
    assert [(each.text, each.score) for each in whole.hypotheses] == [("a x", -14), ("b y", -3)]


def test_what_was_done_with_a_text_is_told():
    text = document("", " ", "", treatment=Treatment(sentences=2, preserved=1))
    assert merge(text, [translation("a"), translation("b")]).treatment == text.treatment
    assert merge(document("", ""), [translation("a")]).treatment is None
