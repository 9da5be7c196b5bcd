"""The schedule of a load: when requests are sent, and what is in them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from google.protobuf.message import Message

from translane.v1 import translation_pb2 as pb


@dataclass(frozen=True, slots=True)
class Text:
    """A text to translate."""

    text: str
    max_length: int | None = None
    """The max_length of its translation; None for that of the settings."""


def arrivals(requests_per_second: float, seed: int) -> Iterator[float]:
    """The times of a Poisson process without end, in seconds from its beginning; the same seed gives the same times."""
    pick = random.Random(seed)  # noqa: S311 - nothing secret
    at = 0.0
    while True:
        at += pick.expovariate(requests_per_second)
        yield at


def serialized_requests(
    texts: Sequence[Text], texts_per_request: int, settings: pb.TranslateRequest, seed: int
) -> Iterator[bytes]:
    """Serialised TranslateRequests of these texts, without end.

    All texts are sent equally often. A request's max_length is that of its longest text. No request is serialised
    twice.

    Args:
        texts: What to send.
        texts_per_request: Texts in each request.
        settings: A request without texts, which every request extends.
        seed: The same seed gives the same order of the texts.
    """
    order = random.Random(seed).sample(texts, len(texts))  # noqa: S311 - nothing secret
    made = list[bytes]()
    endless = cycle(order)
    for _ in range(len(order)):  # after as many requests as there are texts, the same requests come again
        made.append(_request(list(islice(endless, texts_per_request)), settings).SerializeToString())
        yield made[-1]
    yield from cycle(made)


def _request(texts: Sequence[Text], settings: pb.TranslateRequest) -> Message:
    request = pb.TranslateRequest()
    request.CopyFrom(settings)
    request.texts.extend(each.text for each in texts)
    lengths = [each.max_length for each in texts if each.max_length is not None]
    if lengths:
        request.options.max_length = max(lengths)
    return request
