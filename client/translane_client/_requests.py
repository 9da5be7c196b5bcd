"""Requests as they travel, the calls that carry them, and how their answers are read.

What makes no sense is refused as a call is made: TypeError and ValueError name the argument, and InvalidArgument names
a text with a lone surrogate, which no encoding of Unicode can carry.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from translane import conversions
from translane.errors import Internal, Unavailable, checked_document, checked_pair, checked_text, is_pair
from translane.options import Format, checked_request, checked_scoring
from translane.results import (
    DocumentProgress,
    Score,
    ServerInfo,
    StreamedTranslation,
    TranslatedDocument,
    Translation,
)
from translane.v1 import translation_pb2 as pb

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request, the method it goes to, and the reader of the response."""

    method: str
    request: (
        pb.ListModelsRequest
        | pb.TranslateRequest
        | pb.TranslateStreamRequest
        | pb.TranslateDocumentRequest
        | pb.ScoreRequest
    )
    parse: Callable[[Any], Answer]  # reads the response, or each message of a stream
    offset: int = 0  # index of the request's first item in the caller's list

    @property
    def kind(self) -> tuple[str, ...]:
        """What the servers that can answer it have in common: the model, or the languages that choose it."""
        request = self.request
        if isinstance(request, pb.ListModelsRequest):
            return ()
        return request.model, request.source_language, request.target_language


@dataclass(frozen=True, slots=True)
class Job(Generic[Item, Answer]):
    """What is done with each item of a list."""

    call: Callable[[Sequence[Item], int], Call[list[Answer]]]
    """Makes the call for some items, the first of which has this index in the list; it gives an answer for each."""
    size_of: Callable[[Item], int]  # UTF-8 bytes of an item; 0 for an item that `call` refuses anyway
    overhead: int  # bytes of a request without items


def server_call() -> Call[list[ServerInfo]]:
    """The call that asks for the models and limits."""
    return Call("ListModels", pb.ListModelsRequest(), lambda response: [conversions.server_info_of(response)])


def request_fields(request: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request's message, beside its texts, by `TranslateOptions`."""
    format_ = conversions.format_message(request.get("format", Format.TEXT))
    return {**_fields(request, "format"), "format": format_}


def _fields(request: Mapping[str, Any], *beside: str) -> dict[str, Any]:
    """The fields of a request that all translations have; `beside` are those that no option is."""
    fields, options = checked_request({name: value for name, value in request.items() if name not in beside})
    return {**fields, "options": conversions.options_message(options)}


def translate_job(request: Mapping[str, Any]) -> Job[str, Translation]:
    """The job of translating texts, by `TranslateOptions`."""
    settings = pb.TranslateRequest(**request_fields(request))

    def call(texts: Sequence[str], offset: int) -> Call[list[Translation]]:
        message = pb.TranslateRequest()
        message.CopyFrom(settings)
        message.texts.extend(checked_text(text, f"texts[{n}]") for n, text in enumerate(texts, offset))
        return Call("Translate", message, lambda response: _translations(response, len(texts)), offset)

    return Job(call, _bytes_of, settings.ByteSize())


def stream_call(text: str, request: Mapping[str, Any]) -> tuple[Call[str], ReceivedStream]:
    """The call that translates `text` delta by delta, and what the call has received so far."""
    message = pb.TranslateStreamRequest(text=checked_text(text, "text"), **request_fields(request))
    received = ReceivedStream()
    return Call("TranslateStream", message, received.delta_of), received


def document_call(
    content: bytes, mime_type: str, progress: Callable[[DocumentProgress], None] | None, request: Mapping[str, Any]
) -> tuple[Call[TranslatedDocument | None], ReceivedDocument]:
    """The call that translates a document, by `DocumentOptions`, and what it has received so far."""
    content, mime_type, replace = checked_document(content, mime_type, request.get("replace_translations", False))
    message = pb.TranslateDocumentRequest(
        content=content,
        mime_type=mime_type,
        replace_translations=replace,
        **_fields(request, "replace_translations"),
    )
    received = ReceivedDocument(progress)
    return Call("TranslateDocument", message, received.take), received


def score_job(request: Mapping[str, Any]) -> Job[tuple[str, str], Score]:
    """The job of scoring pairs of source and target, by `ScoreOptions`."""
    settings = pb.ScoreRequest(**checked_scoring(request))

    def call(pairs: Sequence[tuple[str, str]], offset: int) -> Call[list[Score]]:
        message = pb.ScoreRequest()
        message.CopyFrom(settings)
        for number, pair in enumerate(pairs, offset):
            source, target = checked_pair(pair, f"inputs[{number}]")
            message.inputs.add(source=source, target=target)
        return Call("Score", message, lambda response: _scores(response, len(pairs)), offset)

    return Job(call, lambda pair: sum(map(_bytes_of, pair)) if is_pair(pair) else 0, settings.ByteSize())


def _bytes_of(text: str) -> int:
    return len(text.encode(errors="surrogatepass")) if isinstance(text, str) else 0


def _translations(response: pb.TranslateResponse, expected: int) -> list[Translation]:
    if len(response.translations) != expected:
        raise Internal(f"the server answered {len(response.translations)} translations to {expected} texts")
    translations = conversions.translations_of(response)
    if not all(translation.hypotheses for translation in translations):
        raise Internal("the server answered a translation without a hypothesis")
    return translations


def _scores(response: pb.ScoreResponse, expected: int) -> list[Score]:
    if len(response.scores) != expected:
        raise Internal(f"the server answered {len(response.scores)} scores to {expected} inputs")
    return conversions.scores_of(response)


class ReceivedStream:
    """What has arrived of a streamed translation, by one call, or by several if calls break off.

    Each call gives the translation from its beginning. So text that a call before has given is compared, and left out.
    """

    def __init__(self) -> None:
        self.translation: StreamedTranslation | None = None  # the whole translation, once the last message has arrived
        self._text = io.StringIO()  # all that was handed out; its position is how far the running call has come

    def begin(self) -> None:
        self._text.seek(0)

    def delta_of(self, response: pb.TranslateStreamResponse) -> str:
        """Takes one message; returns what is new of the message's delta, which may be nothing.

        Raises:
            Unavailable: an earlier call has given another text, so the stream cannot go on.
        """
        known = self._text.read(len(response.text_delta))
        new = response.text_delta[len(known) :]
        self._text.write(new)
        is_last = response.HasField("hypothesis")
        if not response.text_delta.startswith(known) or (is_last and self._text.read(1)):
            raise Unavailable("the stream broke off, and its repetition is another translation")
        if is_last:
            self.translation = StreamedTranslation(
                conversions.hypothesis_of(response.hypothesis),
                conversions.timing_of(response),
                conversions.treatment_of(response),
                tuple(response.models),
                dict(response.model_versions),
            )
        return new

    def end(self) -> None:
        """Internal: the whole translation has not arrived."""
        if self.translation is None:
            raise Internal("the server ended the stream without its translation")


class ReceivedDocument:
    """What has arrived of a document, by one call. A call that breaks off is made again from the beginning."""

    def __init__(self, progress: Callable[[DocumentProgress], None] | None) -> None:
        self._progress = progress
        self._content = bytearray()
        self._is_whole = False

    def begin(self) -> None:
        self._content.clear()

    def take(self, response: pb.TranslateDocumentResponse) -> TranslatedDocument | None:
        """Takes one message; returns the document, if the message is its end. Internal: parts of it are missing."""
        self._content += response.content
        if self._progress and response.HasField("progress"):
            self._progress(DocumentProgress(response.progress.texts_done, response.progress.texts))
        if not response.HasField("end"):
            return None
        if len(self._content) != response.end.content_bytes:
            raise Internal(f"the document has {response.end.content_bytes} bytes, and {len(self._content)} came")
        self._is_whole = True
        return conversions.document_of(bytes(self._content), response.end)

    def end(self) -> None:
        """Internal: the end of the document has not arrived."""
        if not self._is_whole:
            raise Internal("the server ended the stream without the document's end")
