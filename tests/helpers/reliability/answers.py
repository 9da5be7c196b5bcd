"""Answers in a form that is compared to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc

from helpers.reliability.cases import Case
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

# All that the caller gets, but the times: bytes of messages, and the text of a stream's deltas.
Answer = tuple[bytes | str, ...]


def unary_answer(response: Any) -> Answer:
    """Return the answer of `Translate` or `Score`."""
    items = response.translations if isinstance(response, pb.TranslateResponse) else response.scores
    return tuple(item.SerializeToString(deterministic=True) for item in items)


def stream_answer(responses: Sequence[pb.TranslateStreamResponse]) -> Answer:
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


class Oracle:
    """The undisturbed answers of cases: each is decoded alone.

    Args:
        address: of a server that does nothing else.
        cases: the cases.
    """

    def __init__(self, address: str, cases: Sequence[Case]) -> None:
        self.cases = list(cases)
        self._answers: dict[str, Answer] = {}
        with grpc.insecure_channel(address) as channel:
            stub = translation_pb2_grpc.TranslationServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
            for case in cases:
                self._answers[case.name] = _ask(stub, case)

    def is_right(self, case: Case, answer: Answer) -> bool:
        """Whether `answer` is the undisturbed one, to the bit."""
        return self._answers[case.name] == answer


def _ask(stub: Any, case: Case) -> Answer:
    if isinstance(case.request, pb.TranslateStreamRequest):
        return stream_answer(list(stub.TranslateStream(case.request, timeout=60)))
    method = stub.Score if isinstance(case.request, pb.ScoreRequest) else stub.Translate
    return unary_answer(method(case.request, timeout=60))
