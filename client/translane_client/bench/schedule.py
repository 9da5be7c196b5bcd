"""When requests are sent, and what is in them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from google.protobuf.message import Message

from translane.v1 import translation_pb2 as pb
from translane_client.lines import FileError


@dataclass(frozen=True, slots=True)
class Text:
    """A text to translate, and where that is fixed, the max_length it is translated with."""

    text: str
    max_length: int | None = None


def text_with_length(line: str, place: str) -> Text:
    """The text of a line that holds one, a tab and its max_length; FileError names `place` where it does not."""
    text, tab, number = line.rpartition("\t")
    if not tab or not number.strip().isdecimal() or not 0 < int(number) < 2**31:
        raise FileError(f"{place}: a text, a tab and a positive number are needed")
    return Text(text, int(number))


def arrivals(requests_per_second: float, seed: int) -> Iterator[float]:
    """The times of a Poisson process, in seconds from its beginning, without end; `seed` settles them."""
    pick = random.Random(seed)  # noqa: S311 - nothing secret
    at = 0.0
    while True:
        at += pick.expovariate(requests_per_second)
        yield at


def serialized_requests(
    texts: Sequence[Text], texts_per_request: int, settings: pb.TranslateRequest, seed: int
) -> Iterator[bytes]:
    """Serialised TranslateRequests with `settings` and these texts, without end.

    All texts are sent equally often, in an order that `seed` settles. A request's max_length is that of its longest
    text. What was serialised once is not serialised again.
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
