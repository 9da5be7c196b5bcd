"""The protocol's messages, built from the engine's results and the model's manifest."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from google.protobuf.duration_pb2 import Duration

from translane.v1 import translation_pb2 as pb
from translane_server.bundle import Manifest
from translane_server.request import FinishReason, SentenceResult
from translane_server.validation import RequestLimits

_FINISH_REASONS = {
    FinishReason.END_OF_SENTENCE: pb.FINISH_REASON_END_OF_SENTENCE,
    FinishReason.MAX_LENGTH: pb.FINISH_REASON_MAX_LENGTH,
}


def translations(
    results: Sequence[SentenceResult], texts: Sequence[str], sources: Sequence[Sequence[int]]
) -> list[pb.Translation]:
    """A message for each result; `texts` are those of all hypotheses, one after the other."""
    remaining = iter(texts)
    return [
        pb.Translation(
            hypotheses=[
                pb.Hypothesis(text=next(remaining), score=each.score, finish_reason=_FINISH_REASONS[each.finish_reason])
                for each in result.hypotheses
            ],
            source_tokens=len(source),
        )
        for result, source in zip(results, sources, strict=True)
    ]


def timing(results: Sequence[SentenceResult], total: float) -> pb.Timing:
    """The slowest sentence of each phase, and `total` seconds in all."""
    return pb.Timing(
        queue=_duration(max(result.timing.queue for result in results)),
        encode=_duration(max(result.timing.encode for result in results)),
        decode=_duration(max(result.timing.decode for result in results)),
        total=_duration(total),
    )


def model_list(manifest: Manifest, device: str, limits: RequestLimits) -> pb.ListModelsResponse:
    """The one model this server has, and what requests are held to."""
    model = pb.Model(
        name=manifest.name,
        version=manifest.version,
        source_languages=manifest.source_languages,
        target_languages=manifest.target_languages,
        precision=manifest.precision,
        device=device,
        license=manifest.license,
        parameters=manifest.architecture.parameters,
        max_source_tokens=limits.tokens.source,
        max_target_tokens=limits.tokens.target,
        default_max_length=limits.tokens.default_max_length,
    )
    requests = pb.Limits(
        texts_per_request=limits.texts_per_request, sentences_waiting=limits.sentences_waiting, beam_size=1
    )
    return pb.ListModelsResponse(models=[model], server_version=version("translane"), limits=requests)


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration
