"""Responses as the client's results."""

from __future__ import annotations

import io

from translane import conversions
from translane.errors import Internal, Unavailable
from translane.results import Score, StreamedTranslation, Translation
from translane.v1 import translation_pb2 as pb


def translations_of(response: pb.TranslateResponse, expected: int) -> list[Translation]:
    """The translations of `expected` texts.

    Raises:
        Internal: the server answered another number of translations, or one without a hypothesis.
    """
    if len(response.translations) != expected:
        raise Internal(f"the server answered {len(response.translations)} translations to {expected} texts")
    translations = conversions.translations_of(response)
    if not all(translation.hypotheses for translation in translations):
        raise Internal("the server answered a translation without a hypothesis")
    return translations


def scores_of(response: pb.ScoreResponse, expected: int) -> list[Score]:
    """The scores of `expected` pairs. Internal: the server answered another number of scores."""
    if len(response.scores) != expected:
        raise Internal(f"the server answered {len(response.scores)} scores to {expected} inputs")
    return conversions.scores_of(response)


class ReceivedStream:
    """What has arrived of a streamed translation, by one call, or by several if calls break off.

    Each call gives the translation from its beginning. So text that a call before has given is compared, and left out.
    """

    def __init__(self) -> None:
        self.translation: StreamedTranslation | None = None
        """The whole translation, once the last message has arrived."""
        self._text = io.StringIO()  # all that was handed out; its position is how far the running call has come

    def begin(self) -> None:
        """Notes that a call begins."""
        self._text.seek(0)

    def delta_of(self, response: pb.TranslateStreamResponse) -> str:
        """Takes one message; returns what is new of the message's delta, which may be nothing.

        Raises:
            Unavailable: an earlier call has given another text, so the stream cannot go on.
        """
        known = self._text.read(len(response.text_delta))
        if not response.text_delta.startswith(known):
            raise _another_translation()
        new = response.text_delta[len(known) :]
        self._text.write(new)
        if response.HasField("hypothesis"):
            if self._text.read(1):
                raise _another_translation()
            self.translation = StreamedTranslation(
                conversions.hypothesis_of(response.hypothesis),
                conversions.timing_of(response),
                conversions.treatment_of(response),
                tuple(response.models),
                dict(response.model_versions),
            )
        return new

    def end(self) -> None:
        """Notes that the stream has ended. Internal: the whole translation has not arrived."""
        if self.translation is None:
            raise Internal("the server ended the stream without its translation")


def _another_translation() -> Unavailable:
    return Unavailable("the stream broke off, and its repetition is another translation")
