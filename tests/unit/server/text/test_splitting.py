"""Texts cut into sentences and put together again."""

import itertools
import re
import time
from typing import NamedTuple

import pytest
import sentencex
from hypothesis import example, given
from hypothesis import strategies as st

from translane_server.core.budget import Budget, OverBudgetError, WorkEndedError
from translane_server.text.characters import is_boundary, target_gaps
from translane_server.text.sentences import (
    LongCharacterError,
    SplitLimits,
    TooManySentencesError,
    maybe_several,
    split_text,
)

EOS = 3
PIECES = (
    "a", "B", "é", "e\u0301", "你", "好", "😀", "👩‍👩‍👧‍👦", "Dr.", "z.B.", "3.5", "...", "http://a.b", "\r\n", "\n\n",
)  # fmt: skip
SIGNS = ".!?,;:。！？，、…\"'“”‘’«»「」()（）[]- \n\r\t\v\x1e\x1f\x85\xa0\u2003\u2028\u3000\u200b\u200d\x00"
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.sampled_from(SIGNS), st.text(max_size=4))).map("".join)
LANGUAGES = st.sampled_from(["en", "de", "zh", "zh-Hant-TW", "ja", "hi", "ar", "tlh", "", "x-none", "\x00"])


def characters(texts):
    """A token for each character that is no white space, and the end of the sentence."""
    ids = [[ord(c) for c in text if not c.isspace()] for text in texts]
    return [[*each, EOS] if each else [] for each in ids]


def split(text, language="en", *, encode=characters, tokens=10_000, length=1_000_000, most=100_000, **more):
    """Split a text into at most so many sentences, each of so many tokens and characters."""

    def encode_spans(spans):
        return encode([text[start:end] for start, end in spans])

    found = split_text(text, language, encode_spans, SplitLimits(tokens, length, most), **more)
    ends = [0, *(end for _, end in found.spans)]
    starts = [*(start for start, _ in found.spans), len(text)]
    gaps = tuple(text[end:start] for end, start in zip(ends, starts, strict=True))
    return Split(tuple(text[start:end] for start, end in found.spans), gaps, found.source_ids, found.halved)


class Split(NamedTuple):
    """The sentences of a text with their tokens, the gaps around them, and how many were halved."""

    sentences: tuple[str, ...]
    gaps: tuple[str, ...]
    source_ids: tuple[tuple[int, ...], ...]
    halved: int


def whole(text):
    return "".join(gap + sentence for gap, sentence in zip(text.gaps, (*text.sentences, ""), strict=True))


@given(TEXTS, LANGUAGES, st.sampled_from([2, 5, 17, 1000]))
@example("B\xa0.\u2028", "xx", 5)
@example("A.\u3000B。\x85C", "en", 2)
@example("-\x1f", "en", 2)
def test_nothing_of_a_text_is_lost(text, language, max_tokens):
    parts = split(text, language, tokens=max_tokens)
    assert whole(parts) == text
    assert all(re.sub(r"\(?[0-9]{1,3}[.)]|[-*+•‣▪◦·–—](?=\s)", "", gap).strip() == "" for gap in parts.gaps)
    assert all(sentence == sentence.strip() != "" for sentence in parts.sentences)
    assert all(len(sentence.splitlines()) == 1 for sentence in parts.sentences)
    assert list(map(list, parts.source_ids)) == characters(parts.sentences)


@given(TEXTS, st.sampled_from([2, 3, 7]))
def test_sentences_have_as_many_tokens_as_the_model_takes_and_are_cut_between_characters(text, max_tokens):
    parts = split(text, tokens=max_tokens)
    position = 0
    for gap, sentence, ids in zip(parts.gaps, parts.sentences, parts.source_ids, strict=False):
        position += len(gap)
        if not gap and position:
            assert is_boundary(text, position)
        position += len(sentence)
        if len(ids) > max_tokens:
            assert not any(is_boundary(sentence, index) for index in range(1, len(sentence)))


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        ("en", "Dr. Smith left. Why?  Nobody knows.", ["Dr. Smith left.", "Why?", "Nobody knows."]),
        ("en-GB", "Mr. Bean, e.g. in London! Yes.", ["Mr. Bean, e.g. in London!", "Yes."]),
        ("de", "Dr. Müller kam am 3. Mai. Er ging.", ["Dr. Müller kam am 3. Mai.", "Er ging."]),
        ("de-CH", "Dr. Müller kam am 3. Mai. Er ging.", ["Dr. Müller kam am 3. Mai.", "Er ging."]),
        ("zho_Hans", "你好！真的吗？", ["你好！", "真的吗？"]),
        ("zh", "重１２．５公斤．真的吗？", ["重１２．５公斤．", "真的吗？"]),
        ("tlh", "Qapla'! Heghlu'meH. QaQ jajvam?", ["Qapla'!", "Heghlu'meH.", "QaQ jajvam?"]),
        ("en", "Title\nFirst. Second\r\n\r\n\tThird.", ["Title", "First.", "Second", "Third."]),
        ("en", "He gave it to me. I was glad.", ["He gave it to me.", "I was glad."]),
        ("en", '"Listen to me." "No."', ['"Listen to me."', '"No."']),
        ("en", "He lives in Augusta, me. and likes it.", ["He lives in Augusta, me. and likes it."]),
        ("de", "Sie mag mich. Das ist gut.", ["Sie mag mich.", "Das ist gut."]),
        (
            "de",
            "Er kam im 19. Jahrhundert. Es war der 3. Oktober.",
            ["Er kam im 19. Jahrhundert.", "Es war der 3. Oktober."],
        ),
        ("zh", "他来了。2017 年走了。", ["他来了。", "2017 年走了。"]),
        ("zh", "“他来了。”2017 年走了。", ["“他来了。”", "2017 年走了。"]),
        ("en", "", []),
        ("en", " \n\t\n", []),
    ],
)
def test_sentences(language, text, sentences):
    assert list(split(text, language).sentences) == sentences


def test_numbers_of_items_are_kept():
    parts = split("1. One.\n2. Two. (3) 4\n12.", "en")
    assert parts.sentences == ("One.", "Two.", "(3) 4")
    assert target_gaps(parts.gaps, "zh") == ["1. ", "\n2. ", "", "\n12."]
    assert split("Er kam am\n2. Mai an. Ja!", "de").sentences[1:] == ("2. Mai an.", "Ja!")


def test_a_sentence_without_tokens_belongs_to_the_gap():
    parts = split("One. \u200b\nTwo.", encode=lambda texts: [[1] if "." in text else [] for text in texts])
    assert (parts.sentences, parts.gaps) == (("One.", "Two."), ("", " \u200b\n", ""))


@pytest.mark.parametrize(
    ("target", "text", "translated"),
    [
        ("en", "甲。乙。丙", "1 2 3"),
        ("en", "甲。　乙。\n\n　　丙 ", "1 2\n\n　　3 "),
        ("en", "A! B!  C!\tD!\r\n", "1 2  3\t4\r\n"),
        ("zh", "A! B!  C!\tD!\n\n E", "12  3\t4\n\n 5"),
        ("zh-Hant-TW", "A! B!", "12"),
        ("zho_Hans", "A! B!", "12"),
        ("zh-Latn", "甲。乙。", "1 2"),
        ("yue", "A! B!", "12"),
        ("ja", "A! B!", "12"),
        ("ko", "甲。乙。", "1 2"),
        ("th", "A! B!", "1 2"),
        ("lzh", "  A! B!  ", "  12  "),
        ("en", " \n ", " \n "),
        ("en", "", ""),
    ],
)
def test_translations_stand_as_the_target_language_has_it(target, text, translated):
    parts = split(text)
    numbers = [str(index) for index, _ in enumerate(parts.sentences, 1)]
    gaps = target_gaps(parts.gaps, target)
    assert "".join(gap + number for gap, number in zip(gaps, [*numbers, ""], strict=True)) == translated


def test_a_sentence_that_is_too_long_is_cut_at_clauses():
    text = "When it rains, which it does, we stay at home, and the 1,000 others do what they like."
    parts = split(text, tokens=45)
    assert parts.sentences == (
        "When it rains, which it does, we stay at home,",
        "and the 1,000 others do what they like.",
    )
    assert split(text, tokens=80).sentences == (text,)
    parts = split("天气很好，我们去公园散步，他们去学校上课，你们在家里休息", tokens=16)
    assert parts.sentences == ("天气很好，我们去公园散步，", "他们去学校上课，你们在家里休息")


def test_without_clauses_it_is_cut_between_words_and_without_words_between_characters():
    parts = split("one two three four five six", tokens=12)
    assert parts.sentences == ("one two three", "four five six")
    parts = split("👩‍👩‍👧‍👦" * 5, tokens=20)
    assert "".join(parts.sentences) == "👩‍👩‍👧‍👦" * 5
    assert set(parts.sentences) <= {"👩‍👩‍👧‍👦", "👩‍👩‍👧‍👦" * 2}


@pytest.mark.parametrize(
    "number", ["123456", "１２３４５６", "1,234,567", "１，２３４，５６７", "３．１４１５９２", "１５：３０：００"]
)
@pytest.mark.parametrize("before", range(30, 42))
def test_a_number_is_not_cut(number, before):
    text = "好" * before + number + "好" * (76 - before - len(number))
    assert sum(number in part for part in split(text, "zh", tokens=60).sentences) == 1


def test_too_many_sentences_are_found_before_much_work_is_done():
    calls: list[list[str]] = []
    assert len(split("A! B! C!", most=3).sentences) == 3
    for text, times in (("A! " * 11, 0), ("A! " * 1000, 0), ("好" * 100_000, 1)):
        with pytest.raises(TooManySentencesError):
            split(text, encode=lambda texts: calls.append(texts) or characters(texts), tokens=256, most=10)
        assert len(calls) == times


def test_a_long_line_is_cut_as_its_sentences_are():
    sentences = [f"This is sentence {number}, said Dr. Smith." for number in range(1000)]
    assert list(split(" ".join(sentences)).sentences) == sentences
    chinese = [f"这是第{number}句话，很长很长的一句话。" for number in range(2000)]
    assert list(split("".join(chinese), "zh").sentences) == chinese


@pytest.mark.parametrize(
    "unit", ["你好。", "“", "“A. ", "Dr. ", "\n", " \n", "好", "word ", '"a." ', "(a. ", "‘A. B’ "]
)
def test_time_grows_with_the_length_alone(unit):
    def seconds(length):
        text = (unit * length)[:length]
        started = time.thread_time()
        split(text, tokens=256)
        return time.thread_time() - started

    seconds(1_000)
    assert min(seconds(100_000) for _ in range(2)) < 40 * max(seconds(10_000), 0.005)


class Panic(BaseException):
    pass


@pytest.mark.parametrize("outcome", [Panic("a panic"), ["shorter"]])
def test_a_line_that_sentencex_cannot_cut_is_a_sentence(monkeypatch, outcome):
    def segment(language, text):
        if isinstance(outcome, Panic):
            raise outcome
        return outcome

    monkeypatch.setattr(sentencex, "segment", segment)
    assert split("One. Two.\nThree.").sentences == ("One. Two.", "Three.")


def test_long_sentences_are_halved_before_they_are_tokenized():
    longest: list[int] = []

    def encode(texts):
        longest.extend(map(len, texts))
        return characters(texts)

    parts = split("好" * 1000 + "，" + "x " * 500, encode=encode, tokens=400, length=600)
    assert max(longest) <= 600
    assert "".join(parts.sentences).replace(" ", "") == "好" * 1000 + "，" + "x" * 500
    assert max(map(len, parts.source_ids)) <= 400


def test_a_character_that_is_too_long_to_be_tokenized_is_told():
    with pytest.raises(LongCharacterError) as caught:
        split("One. e" + "\u0301" * 700, length=600)
    assert caught.value.length == 701


def test_the_work_ends_between_its_pieces_two_parts_of_a_line_and_two_rounds_of_halving():
    budget = Budget()
    budget.end()
    for text in ("A! " * 10_000, "好" * 50_000, "a\n" * 1000):
        with pytest.raises(WorkEndedError):
            split(text, tokens=64, budget=budget)
    budget = Budget(9, clock=itertools.count().__next__)  # each look takes a second
    budget.start()
    with pytest.raises(OverBudgetError):
        split("a" * 100_000, tokens=200_000, budget=budget)
    budget = Budget()
    with pytest.raises(WorkEndedError):
        split("好" * 1000, encode=lambda texts: budget.end() or characters(texts), tokens=64, budget=budget)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("unit", [".", "!", "·", "\n", "\r", "\x85", "<!--", ". ", "。", "。”", "… ", "\n "])
def test_whether_a_text_holds_several_sentences_is_found_in_linear_time(unit):
    signs = unit * 200_000
    assert maybe_several(f"猫{signs} b")
    assert maybe_several(f"猫{signs}") == maybe_several(f"猫{unit * 3}")
