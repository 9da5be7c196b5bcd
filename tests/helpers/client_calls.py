"""Calls of the client, of every kind, whose answers are a function of the call alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from helpers.reliability.cases import SENTENCES
from translane import AsyncClient, AsyncTranslator, Score, StreamedTranslation, Term, TranslatedDocument, Translation

GLOSSARY = "pets"
_TEXT = "我有一只猫。"
_MIXED = "请在 {date} 之前写信给 info@example.com 😀, 谢谢 <b>你</b>。"
_PARAGRAPH = "今天天气很好,我们去公园吧。这本书是谁写的?我不知道该怎么办。"

# What the caller gets, but the times: it is compared to the bit.
Answer = object


@dataclass(frozen=True)
class ClientCall:
    """A call of a client's method."""

    name: str  # tells the call from all others
    method: str  # `translate`, `translate_stream`, `translate_document` or `score`
    subject: Any  # what is translated or scored
    options: Mapping[str, Any] = field(default_factory=dict)  # the keywords of the method


def _translate(name: str, subject: str | list[str] = _TEXT, **options: Any) -> ClientCall:
    return ClientCall(name, "translate", subject, options)


def _stream(name: str, text: str = _PARAGRAPH, **options: Any) -> ClientCall:
    return ClientCall(f"{name} as a stream", "translate_stream", text, options)


def _document(name: str, content: str, mime_type: str, **options: Any) -> ClientCall:
    options = {"mime_type": mime_type, **options}
    return ClientCall(f"{name} as a document", "translate_document", content.encode(), options)


_SUBTITLES = "\ufeff1\n00:00:01,000 --> 00:00:02,000\n<i>我有一只猫。</i>\n\n2\n00:00:03,000 --> 00:00:04,000\n狗\n"
_CATALOGUE = """msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

msgid "我有一只猫。"
msgstr "A cat"
"""
_XLIFF = """<xliff version="2.0" srcLang="zh" trgLang="en"><file id="f"><unit id="u"><segment>
<source>我有一只<pc id="1">猫</pc>。</source></segment></unit></file></xliff>
"""
_BEAMS_OF_A_DOCUMENT: dict[str, Any] = {"beam_size": 4, "length_penalty": 0.6}
_BEAMS: dict[str, Any] = {"beam_size": 4, "return_token_scores": True}
_SAMPLES: dict[str, Any] = {"temperature": 1.3, "max_length": 60, "seed": 2**64 - 1, "return_token_scores": True}
_TERMS: dict[str, Any] = {"terminology": [Term("猫", "kitten", ignore_case=True, inflected=True), ("狗", "puppy")]}

# Every option occurs, but `use_shortlist`, which the bundled model does not offer.
CALLS = (
    _translate("a text"),
    _translate("an empty text", ""),
    _translate("texts", [*SENTENCES[:7], ""]),
    _translate("tokens", list(SENTENCES[:3]), return_tokens=True, return_token_scores=True, return_alignment=True),
    _translate("beams", list(SENTENCES[:3]), **_BEAMS, num_hypotheses=3, length_penalty=0.6),
    _translate("beams that stop early", list(SENTENCES[3:5]), **_BEAMS, early_stopping=True, coverage_penalty=0.2),
    _translate("patient beams", list(SENTENCES[5:7]), **_BEAMS, patience=2.0, return_alignment=True),
    _translate("samples", list(SENTENCES[:2]), **_SAMPLES, num_hypotheses=4),
    _translate("samples of the best", list(SENTENCES[2:4]), **_SAMPLES, top_k=20, top_p=0.9),
    _translate("a prefix", target_prefix="There is", return_tokens=True),
    _translate("alternatives", target_prefix="I ", return_alternatives=True, num_hypotheses=3),
    _translate("penalties", list(SENTENCES[8:10]), repetition_penalty=1.2, no_repeat_ngram_size=2, min_length=4),
    _translate("phrases", suppressed_phrases=["cat", "There"], suppress_unknown=True),
    _translate("unknown tokens", "我有一只𪚥。", replace_unknowns=True, preserve_untranslatable=False),
    _translate("terms", [_TEXT, "狗"], **_TERMS),
    _translate("a glossary", [_TEXT, "你好"], glossaries=[GLOSSARY]),
    _translate("sentences", _PARAGRAPH, split_sentences=True, return_token_scores=True),
    _translate("a paragraph as one sentence", _PARAGRAPH, split_sentences=False),
    _translate("what is kept", [_MIXED], preserve=["谢谢"]),
    _translate("quality", list(SENTENCES[:3]), return_quality=True),
    _translate("numbers", "湯姆從2013年起一直在這裡。", check_numbers=True),
    _translate("languages and priority", model="zh-en", source_language="zh", target_language="en", priority=-3),
    _translate("HTML", "<p>我有一只<b>猫</b>。<p title='x'>你好。", format="html"),
    _translate("Markdown", "# 你好\n\n- 我有一只**猫**。\n- `code`\n", format="markdown"),
    _translate("XLIFF", '我有一只<g id="1">猫</g>。', format="xliff"),
    _stream("a paragraph"),
    _stream("an empty text", ""),
    _stream("a sentence with its tokens", SENTENCES[3], return_tokens=True, return_token_scores=True),
    _stream("beams", beam_size=3, length_penalty=0.8),
    _stream("a sample", SENTENCES[4], temperature=0.8, seed=7),
    _stream("terms", _TEXT, **_TERMS),
    _stream("HTML", "<p>我有一只<b>猫</b>。</p>", format="html"),
    _document("lines", "我有一只猫。\r\n\r\n你好\r\n", "text/plain", **_BEAMS_OF_A_DOCUMENT),
    _document("a page", "<p title='你好'>我有一只<b>猫</b>。</p><pre>猫</pre>", "text/html", source_language="auto"),
    _document("Markdown", "# 你好\n\n- 我有一只**猫**。\n\n    猫\n", "text/markdown", priority=2),
    _document("subtitles", _SUBTITLES, "application/x-subrip", **_TERMS),
    _document("captions", "WEBVTT\n\n00:01.000 --> 00:02.000\n我有一只猫。\n", "text/vtt", glossaries=[GLOSSARY]),
    _document("a catalogue", _CATALOGUE, "text/x-gettext-translation", replace_translations=True),
    _document("XLIFF", _XLIFF, "application/xliff+xml"),
    ClientCall("scores", "score", [(_TEXT, "I have a cat."), (_TEXT, ""), (SENTENCES[1], "Where is he?")]),
    ClientCall("scores with tokens", "score", [(_TEXT, "I have a cat.")], {"return_tokens": True, "model": "zh-en"}),
)

# So long that a fault comes before their end.
LONG_TEXT = "".join(SENTENCES) * 6  # so long that a fast machine does not send the end with the beginning
LONG_STREAMS = (
    _stream("a long text", LONG_TEXT),
    _stream("beams of a long text", LONG_TEXT, beam_size=3),
    _stream("a sample of a long text", LONG_TEXT, temperature=0.8, seed=7),
)


def ask(client: Any, call: ClientCall) -> Answer:
    """Make a call over `client`, which is a Client or has the face of one. TranslaneError: the call failed."""
    made = getattr(client, call.method)(call.subject, **call.options)
    if call.method == "translate_stream":
        return "".join(made), without_times(made.result)
    return without_times(made)


async def ask_async(client: AsyncClient | AsyncTranslator, call: ClientCall, **settings: Any) -> Answer:
    """Make a call over `client`, with further keywords. TranslaneError: the call failed."""
    made = getattr(client, call.method)(call.subject, **call.options, **settings)
    if call.method == "translate_stream":
        text = "".join([delta async for delta in made])
        return text, without_times(made.result)
    return without_times(await made)


def without_times(
    result: Translation | StreamedTranslation | TranslatedDocument | Score | Iterable[Any],
) -> Answer:
    """Return a result, or results, as they are compared."""
    if isinstance(result, Translation | StreamedTranslation | TranslatedDocument | Score):
        return replace(result, timing=None)
    return [without_times(each) for each in result]


def write_glossary(folder: Path) -> Path:
    """Write the stored glossary into `folder`, and return the folder for `--glossaries`."""
    folder.mkdir()
    (folder / f"{GLOSSARY}.zh.en.tsv").write_text("猫\tkitten\n狗\tpuppy\n", encoding="utf-8")
    return folder
