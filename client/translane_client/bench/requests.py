"""When the requests of a load are sent, and what is in them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import NamedTuple

from translane.v1 import translation_pb2 as pb


class Text(NamedTuple):
    """A text to translate, and the max_length of its translation, where that is not the one of the settings."""

    text: str
    max_length: int | None = None


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

    All texts are sent equally often, in the order that the seed gives. A request's max_length is that of its longest
    text. `settings` is a request without texts, which every request extends. No request is serialised twice.
    """
    order = random.Random(seed).sample(texts, len(texts))  # noqa: S311 - nothing secret
    made = list[bytes]()
    endless = cycle(order)
    for _ in range(len(order)):  # after as many requests as there are texts, the same requests come again
        request = pb.TranslateRequest()
        request.CopyFrom(settings)
        of_request = list(islice(endless, texts_per_request))
        request.texts.extend(each.text for each in of_request)
        if lengths := [each.max_length for each in of_request if each.max_length is not None]:
            request.options.max_length = max(lengths)
        made.append(request.SerializeToString())
        yield made[-1]
    yield from cycle(made)


BUILT_IN: Mapping[str, Sequence[str]] = {
    "zh": (
        "今天下午我们去公园散步吧。",
        "你能告诉我去火车站怎么走吗？",
        "我昨天晚上没有睡好觉。",
        "她的汉语说得比我好得多。",
        "请把窗户关上，外面太冷了。",
        "我们已经等了半个多小时，公共汽车还没有来。",
        "别担心，一切都会好的。",
        "你家有几口人？",
        "谢谢。",
        "孩子们在院子里一边唱歌一边跳舞。",
    ),
    "en": (
        "Let's go for a walk in the park this afternoon.",
        "Could you tell me how to get to the station?",
        "I did not sleep well last night.",
        "She speaks Chinese much better than I do.",
        "Please close the window, it is too cold outside.",
        "We have been waiting for more than half an hour, and the bus has still not come.",
        "Do not worry, everything will be fine.",
        "How many people are there in your family?",
        "Thank you.",
        "The children are singing and dancing in the yard.",
    ),
    "de": (
        "Lass uns heute Nachmittag im Park spazieren gehen.",
        "Können Sie mir sagen, wie ich zum Bahnhof komme?",
        "Ich habe letzte Nacht nicht gut geschlafen.",
        "Sie spricht viel besser Chinesisch als ich.",
        "Bitte mach das Fenster zu, draußen ist es zu kalt.",
        "Wir warten schon über eine halbe Stunde, und der Bus ist immer noch nicht da.",
        "Keine Sorge, alles wird gut.",
        "Wie viele seid ihr in der Familie?",
        "Danke.",
        "Die Kinder singen und tanzen im Hof.",
    ),
}
"""Language (the first subtag of a BCP-47 tag) → sentences."""


def built_in(languages: Sequence[str]) -> Sequence[str]:
    """The sentences in the first of the languages (BCP-47 tags) that has any; none where no language has."""
    return next((BUILT_IN[tag] for tag in (each.split("-")[0] for each in languages) if tag in BUILT_IN), ())
