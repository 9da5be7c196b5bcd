"""Requests as they travel, and the calls that carry them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from google.protobuf.message import Message

from translane.conversions import format_message, options_message, server_info_of
from translane.errors import checked_pair, checked_text, is_pair
from translane.options import Format, checked_options
from translane.results import Score, ServerInfo, Translation
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc
from translane_client._responses import ReceivedStream, scores_of, translations_of

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name

_OF_SCORES = {"model", "source_language", "target_language", "return_tokens"}

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Batch(Generic[Item]):
    """The items that travel in one request."""

    items: Sequence[Item]
    offset: int
    """Index of the first item in the caller's list."""


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request, the method it goes to, and the reader of the response."""

    method: str
    request: Message
    parse: Callable[[Any], Answer]
    """Reads the response, or each message of a stream."""
    offset: int = 0
    """Index of the request's first item in the caller's list."""


@dataclass(frozen=True, slots=True)
class Job(Generic[Item, Answer]):
    """What is done with each item of a list."""

    call: Callable[[Batch[Item]], Call[list[Answer]]]
    """Makes the call for a batch; the call gives one answer for each item."""
    size_of: Callable[[Item], int]
    """UTF-8 bytes of an item; 0 for an item that `call` refuses anyway."""
    overhead: int
    """Bytes of a request without items."""


def stub_of(channel: Any) -> Any:
    """The generated stub, over a channel of grpc or grpc.aio."""
    return translation_pb2_grpc.TranslationServiceStub(channel)  # type: ignore[no-untyped-call]  # generated


def server_call() -> Call[ServerInfo]:
    """The call that asks for the models and limits."""
    return Call("ListModels", pb.ListModelsRequest(), server_info_of)


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """What a translation request says beside its texts; the arguments of `Client.translate` explain it."""

    model: str = ""
    source_language: str = ""
    target_language: str = ""
    priority: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    format: Format | str = Format.TEXT

    def fields(self) -> dict[str, Any]:
        """The fields of a request's message.

        Raises:
            TypeError, ValueError: an option or the format is of the wrong type or range; the message names it.
        """
        return {
            "model": self.model,
            "source_language": self.source_language,
            "target_language": self.target_language,
            "priority": self.priority,
            "options": options_message(checked_options(self.options)),
            "format": format_message(self.format),
        }

    def without_texts(self) -> pb.TranslateRequest:
        """A request without texts; raises as `fields` does."""
        return pb.TranslateRequest(**self.fields())

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> tuple[Self, float | None]:
        """The settings of a call's `TranslateOptions`, and its timeout. What has no other meaning is an option."""
        options = dict(request)
        timeout = options.pop("timeout", None)
        names = ("model", "source_language", "target_language", "priority", "format")
        return cls(**{name: options.pop(name) for name in names if name in options}, options=options), timeout


def translate_job(settings: RequestSettings) -> Job[str, Translation]:
    """The job of translating texts.

    Its calls raise TypeError for a text that is not a str, and InvalidArgument for a text with a lone surrogate, which
    no encoding of Unicode can carry. Both errors name the text.

    Raises:
        TypeError, ValueError: a setting is of the wrong type or range; the message names the setting.
    """
    without_texts = settings.without_texts()

    def call(batch: Batch[str]) -> Call[list[Translation]]:
        request = pb.TranslateRequest()
        request.CopyFrom(without_texts)
        request.texts.extend(
            checked_text(text, f"texts[{index}]") for index, text in enumerate(batch.items, batch.offset)
        )
        return Call("Translate", request, lambda response: translations_of(response, len(batch.items)), batch.offset)

    return Job(call, _bytes_of, without_texts.ByteSize())


def stream_call(text: str, settings: RequestSettings) -> tuple[Call[str], ReceivedStream]:
    """The call that translates `text` delta by delta, and what the call has received so far.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or range; the message names the argument.
        InvalidArgument: the text holds a lone surrogate.
    """
    request = pb.TranslateStreamRequest(text=checked_text(text, "text"), **settings.fields())
    received = ReceivedStream()
    return Call("TranslateStream", request, received.delta_of), received


def score_job(request: Mapping[str, Any]) -> Job[tuple[str, str], Score]:
    """The job of scoring pairs of source and target, by `ScoreOptions`; raises as `translate_job` does."""
    fields = {name: value for name, value in request.items() if name != "timeout"}
    if unknown := fields.keys() - _OF_SCORES:
        raise TypeError(f"unknown option {min(unknown)!r}")
    settings = pb.ScoreRequest(**fields)

    def call(batch: Batch[tuple[str, str]]) -> Call[list[Score]]:
        request = pb.ScoreRequest()
        request.CopyFrom(settings)
        request.inputs.extend(_score_input(pair, f"inputs[{n}]") for n, pair in enumerate(batch.items, batch.offset))
        return Call("Score", request, lambda response: scores_of(response, len(batch.items)), batch.offset)

    return Job(call, lambda pair: sum(map(_bytes_of, pair)) if is_pair(pair) else 0, settings.ByteSize())


def _score_input(pair: Any, field: str) -> pb.ScoreInput:
    source, target = checked_pair(pair, field)
    return pb.ScoreInput(source=source, target=target)


def _bytes_of(text: str) -> int:
    return len(text.encode(errors="surrogatepass")) if isinstance(text, str) else 0
