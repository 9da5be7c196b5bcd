"""Documents: what is refused for them, and one translation of those of their sentences."""

import pytest

from translane.v1 import translation_pb2 as pb
from translane_server.errors import InvalidRequestError
from translane_server.requests.documents import check_split, merge_translations, split_texts
from translane_server.text.splitting import SplitLimits


def characters(texts):
    return [[*map(ord, text), 3] for text in texts]


def documents(*texts, max_tokens=100, max_characters=1000, max_sentences=4):
    fields = {f"texts[{index}]": text for index, text in enumerate(texts)}
    return split_texts(fields, "en", characters, SplitLimits(max_tokens, max_characters, max_sentences))


def document(text):
    (found,) = documents(text)
    return found


def violations(*texts, **limits):
    with pytest.raises(InvalidRequestError) as caught:
        documents(*texts, **limits)
    return {violation.field: violation.description for violation in caught.value.violations}


def test_all_texts_of_a_request_share_a_limit_of_sentences():
    assert [len(each.sentences) for each in documents("A! B!", "", "C!\nD!")] == [2, 0, 2]
    message = "has too many sentences, at most 4 are accepted in a request"
    assert violations("A! B!", "C! D! E!", "F!") == {"texts[1]": message}
    assert violations("A!\n" * 5) == {"texts[0]": message}
    assert violations("A! B! C! D!", "x") == {"texts[1]": message}


def test_a_character_of_too_many_tokens_is_refused():
    found = violations("fine", "x e" + "\u0301" * 9, max_tokens=8)
    assert found == {"texts[1]": "has a character of 11 tokens, at most 8 are accepted"}
    found = violations("fine", "x e" + "\u0301" * 60, max_tokens=8, max_characters=50)
    assert found == {"texts[1]": "has a character of 61 code points, at most 50 are accepted"}


def translation(text, *, score=-1.0, tokens=(), log_probs=(), reason=pb.FINISH_REASON_END_OF_SENTENCE, **fields):
    points = [pb.AlignmentPoint(source_token=s, target_token=t, weight=0.5) for s, t in fields.pop("points", ())]
    alignment = pb.Alignment(points=points) if points else None
    hypothesis = pb.Hypothesis(
        text=text, score=score, tokens=tokens, token_log_probs=log_probs, finish_reason=reason, alignment=alignment
    )
    return pb.Translation(hypotheses=[hypothesis], **fields)


def test_translations_of_sentences_make_one_of_the_text():
    parts = document("甲。乙。\n丙。")
    merged = merge_translations(
        parts,
        [
            translation("One.", score=-1, tokens=["▁One", ".", "</s>"], log_probs=[-0.5, -0.25, -0.25], source_tokens=3,
                        source_pieces=["甲", "。", "</s>"], points=[(0, 0), (1, 1)]),
            translation("Two", score=-2, tokens=["▁Two"], log_probs=[-2], source_tokens=3,
                        source_pieces=["乙", "。", "</s>"], reason=pb.FINISH_REASON_MAX_LENGTH, points=[(0, 0)]),
            translation("Three", score=-3, tokens=["▁Three", "</s>"], log_probs=[-1, -2], source_tokens=3,
                        source_pieces=["丙", "。", "</s>"], points=[(1, 0)]),
        ],
        "en",
    )  # fmt: skip
    (hypothesis,) = merged.hypotheses
    assert hypothesis.text == "One. Two\nThree"
    assert hypothesis.score == -6
    assert list(hypothesis.tokens) == ["▁One", ".", "</s>", "▁Two", "▁Three", "</s>"]
    assert list(hypothesis.token_log_probs) == [-0.5, -0.25, -0.25, -2, -1, -2]
    assert hypothesis.finish_reason == pb.FINISH_REASON_MAX_LENGTH
    assert [(p.source_token, p.target_token) for p in hypothesis.alignment.points] == [(0, 0), (1, 1), (3, 3), (7, 4)]
    assert merged.source_tokens == 9
    assert "".join(merged.source_pieces) == "甲。</s>乙。</s>丙。</s>"


def test_alignments_count_the_same_where_tokens_are_not_asked_for():
    parts = document("A! B! C!")
    merged = merge_translations(
        parts,
        [
            translation("x", source_tokens=2, points=[(0, 0), (1, 1)]),
            translation("y", source_tokens=4, points=[(0, 0)], reason=pb.FINISH_REASON_MAX_LENGTH),
            translation("z", source_tokens=2, points=[(1, 0)]),
        ],
        "en",
    )
    found = [(point.source_token, point.target_token) for point in merged.hypotheses[0].alignment.points]
    assert found == [(0, 0), (1, 1), (2, 3), (7, 4)]


def test_a_text_without_sentences_is_its_own_translation():
    merged = merge_translations(document(" \n"), [], "en")
    assert merged.hypotheses[0].text == " \n"
    assert merged.hypotheses[0].finish_reason == pb.FINISH_REASON_END_OF_SENTENCE
    assert not merged.hypotheses[0].HasField("alignment")


def test_without_scores_of_its_sentences_a_text_has_none():
    merged = merge_translations(document("A! B!"), [translation("x", score=None), translation("y", score=None)], "en")
    assert not merged.hypotheses[0].HasField("score")
    merged = merge_translations(document("A! B!"), [translation("x", score=-1), translation("y", score=None)], "en")
    assert not merged.hypotheses[0].HasField("score")


def test_options_for_one_sentence_are_refused():
    options = pb.DecodingOptions(split_sentences=True, num_hypotheses=2, return_alternatives=True, target_prefix="x")
    found = {violation.field for violation in check_split(options)}
    assert found == {"options.num_hypotheses", "options.return_alternatives", "options.target_prefix"}
    options.split_sentences = False
    assert not check_split(options)
    assert not check_split(pb.DecodingOptions(split_sentences=True, num_hypotheses=1, target_prefix="", beam_size=4))
