"""Requests of every kind, whose answers are a function of the request alone, and the answers as they are compared."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from translane.v1 import translation_pb2 as pb

SENTENCES = (
    "你好。", "他在哪里?", "我不知道该怎么办。", "今天天气很好,我们去公园吧。", "这本书是谁写的?",
    "她昨天晚上没有睡好。", "我们明天早上八点出发。", "请把门关上。", "他们为什么不来?", "我喜欢喝热的绿茶。",
    "火车什么时候到北京?", "你能帮我一个忙吗?", "这个问题比我想的难得多。", "汤姆说他从来没有去过波士顿。",
    "如果明天下雨,我就待在家里看书。", "孩子们在院子里玩。", "谢谢你的礼物!", "我把钥匙忘在办公室里了。",
    "那家餐馆的菜又便宜又好吃。", "没有人知道他叫什么名字。",
)  # fmt: skip

Request = pb.TranslateRequest | pb.TranslateStreamRequest | pb.ScoreRequest


@dataclass(frozen=True)
class Case:
    """A request of a kind; `name` tells it from all others."""

    name: str
    request: Request

    @property
    def is_stream(self) -> bool:
        return isinstance(self.request, pb.TranslateStreamRequest)


def make_cases(count: int, seed: int = 0) -> list[Case]:
    """Return `count` different requests, of all kinds in turn."""
    pick = random.Random(seed)
    kinds = (_greedy, _beams, _stream, _samples, _scores, _split, _many, _stream_of_beams)
    return [
        Case(f"{kinds[number % len(kinds)].__name__.strip('_')} {number}", kinds[number % len(kinds)](pick))
        for number in range(count)
    ]


def single(number: int = 0) -> Case:
    """A request for one short sentence, as a person sends it."""
    return Case("single", pb.TranslateRequest(texts=[SENTENCES[number % len(SENTENCES)]]))


def unary_answer(response: Any) -> tuple[bytes, ...]:
    """Return the answer of `Translate` or `Score`, without its times."""
    items = response.translations if isinstance(response, pb.TranslateResponse) else response.scores
    return tuple(item.SerializeToString(deterministic=True) for item in items)


def stream_answer(responses: Sequence[pb.TranslateStreamResponse]) -> tuple[str, bytes]:
    """Return the answer of `TranslateStream`: the text of all deltas, and the hypothesis.

    Raises:
        ValueError: not just the last message has a hypothesis, or the deltas are not its text.
    """
    if not responses or [each.HasField("hypothesis") for each in responses].index(True) != len(responses) - 1:
        raise ValueError("not just the last message of the stream has a hypothesis")
    text = "".join(response.text_delta for response in responses)
    hypothesis = responses[-1].hypothesis
    if text != hypothesis.text:
        raise ValueError("the deltas of the stream are not the text of its hypothesis")
    return text, hypothesis.SerializeToString(deterministic=True)


def _texts(pick: random.Random, count: int) -> list[str]:
    return ["".join(pick.sample(SENTENCES, pick.randint(1, 2))) for _ in range(count)]


def _greedy(pick: random.Random) -> Request:
    options = pb.DecodingOptions(return_token_scores=True)
    return pb.TranslateRequest(texts=_texts(pick, pick.randint(1, 3)), options=options)


def _many(pick: random.Random) -> Request:
    return pb.TranslateRequest(texts=_texts(pick, 24), options=pb.DecodingOptions(return_token_scores=True))


def _beams(pick: random.Random) -> Request:
    options = pb.DecodingOptions(beam_size=4, num_hypotheses=3, return_token_scores=True)
    return pb.TranslateRequest(texts=_texts(pick, 3), options=options)


def _samples(pick: random.Random) -> Request:
    options = pb.DecodingOptions(
        num_hypotheses=4, temperature=1.3, seed=pick.getrandbits(64), max_length=60, return_token_scores=True
    )
    return pb.TranslateRequest(texts=_texts(pick, 2), options=options)


def _split(pick: random.Random) -> Request:
    options = pb.DecodingOptions(split_sentences=True, return_token_scores=True)
    return pb.TranslateRequest(texts=["".join(_texts(pick, 6))], options=options)


def _scores(pick: random.Random) -> Request:
    targets = ("I do not know.", "Where is he?", "We leave at eight tomorrow morning.")
    return pb.ScoreRequest(inputs=[pb.ScoreInput(source=text, target=pick.choice(targets)) for text in _texts(pick, 4)])


def _stream(pick: random.Random) -> Request:
    return pb.TranslateStreamRequest(
        text="".join(_texts(pick, 2)), options=pb.DecodingOptions(return_token_scores=True)
    )


def _stream_of_beams(pick: random.Random) -> Request:
    options = pb.DecodingOptions(beam_size=3, split_sentences=True, return_token_scores=True)
    return pb.TranslateStreamRequest(text="".join(_texts(pick, 3)), options=options)
