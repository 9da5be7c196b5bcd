"""The sentences that are measured: texts, as a request of the server makes sentences of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

from translane.v1 import translation_pb2 as pb
from translane_client.bench.sentences import built_in
from translane_plan.errors import PlanError
from translane_server.bundle import Bundle
from translane_server.errors import InvalidRequestError
from translane_server.files import read_regular
from translane_server.manifest import Manifest
from translane_server.models.limits import limits_of
from translane_server.requests.limits import RequestLimits
from translane_server.requests.translate import TranslateReader
from translane_server.sentence import Sentence
from translane_server.settings import ServerSettings
from translane_server.text.tokenizer import load_tokenizer

_MOST_BYTES = 1 << 24  # of a file of texts
MOST_SAMPLES = 256


@dataclass(frozen=True)
class Sample:
    """A text that is one sentence.

    Attributes:
        text: the text.
        sentence: the sentence that the server makes of it, for greedy search. Its translation has a bound, so that a
            model that ends no sentence can be measured, too.
    """

    text: str
    sentence: Sentence


@dataclass(frozen=True)
class Samples:
    """The sentences that are measured, and the limits of the server.

    Attributes:
        samples: the sentences.
        limits: the limits of requests to the model.
        source_language: of the texts; empty for a model of one.
        target_language: to translate to; empty for a model of one.
    """

    samples: Sequence[Sample]
    limits: RequestLimits
    source_language: str = ""
    target_language: str = ""

    def requests(self, texts: int, sent: list[Sample]) -> Iterator[bytes]:
        """Serialised requests of `texts` sentences each, without end. What is taken is added to `sent`."""
        endless = cycle(self.samples)
        while True:
            taken = [next(endless) for _ in range(texts)]
            sent += taken
            yield self._request(taken).SerializeToString()

    def _request(self, samples: Sequence[Sample]) -> pb.TranslateRequest:
        longest = max(sample.sentence.options.max_length for sample in samples)
        return greedy_request(
            [sample.text for sample in samples], self.source_language, self.target_language, max_length=longest
        )


def greedy_request(texts: Sequence[str], source: str, target: str, max_length: int = 0) -> pb.TranslateRequest:
    """A request for greedy search; `max_length` 0 takes the model's default."""
    options = pb.DecodingOptions(beam_size=1)
    if max_length:
        options.max_length = max_length
    return pb.TranslateRequest(texts=texts, source_language=source, target_language=target, options=options)


def read_samples(bundle: Bundle, texts: Path | None, source: str, target: str) -> Samples:
    """Read the texts, and make sentences of them.

    Args:
        bundle: the model.
        texts: the file of texts; None takes built-in sentences.
        source: language of the texts; empty for a model of one.
        target: language to translate to; empty for a model of one.

    Raises:
        PlanError: there are no texts, or the model cannot take them.
    """
    manifest = bundle.manifest
    settings = ServerSettings.model_validate({"model": str(bundle.folder), "decoding_defaults": False})
    limits = limits_of(settings, manifest)
    reader = TranslateReader(manifest, load_tokenizer(bundle), limits)
    samples: list[Sample] = []
    for text in _texts(texts, manifest, source):
        request = greedy_request([text], source, target)
        try:
            reader.check(request)
            sentences = reader.read(request).sentences
        except InvalidRequestError as error:
            fields = {violation.field for violation in error.violations}
            if fields <= {"texts[0]"}:
                continue  # too long for the model
            raise PlanError(f"the model cannot be asked to translate: {error}") from None
        if len(sentences) == 1:
            samples.append(Sample(text, _bounded(sentences[0], limits.tokens.target)))
        if len(samples) == MOST_SAMPLES:
            break
    if not samples:
        raise PlanError(f"{texts or 'the built-in texts'}: no text of it is one sentence of the model")
    return Samples(samples, limits, source, target)


def _bounded(sentence: Sentence, most: int) -> Sentence:
    length = min(2 * len(sentence.source_ids) + 8, most - len(sentence.forced_ids))
    return sentence._replace(options=replace(sentence.options, max_length=length))


def _texts(path: Path | None, manifest: Manifest, source: str) -> Sequence[str]:
    if path is None:
        languages = [source] if source else manifest.source_languages
        return built_in(languages) or _fail("--texts: there are no built-in texts in the model's language; give a file")
    try:
        lines = read_regular(path, _MOST_BYTES).decode("utf-8").splitlines()
    except OSError as error:
        raise PlanError(f"--texts: {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PlanError(f"--texts: {path}: it is not UTF-8") from None
    return [line for line in lines if line.strip()] or _fail(f"--texts: {path}: it has no text")


def _fail(message: str) -> Sequence[str]:
    raise PlanError(message)
