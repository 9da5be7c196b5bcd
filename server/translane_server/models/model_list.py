"""Describes the models of a server, for ListModels."""

from __future__ import annotations

from dataclasses import dataclass

from translane.options import Options
from translane.results import ModelInfo, ModelState
from translane_server.bundle.manifest import Manifest
from translane_server.text.stored_glossaries import StoredGlossaries
from translane_server.translation.limits import RequestLimits
from translane_server.translation.options import decoding_defaults


@dataclass(frozen=True)
class ModelDescription:
    """A model as callers see it: the version that is loaded, or the last one that was, or the first one to be."""

    name: str
    manifest: Manifest
    device: str
    limits: RequestLimits

    def info(self, state: ModelState, stored: StoredGlossaries) -> ModelInfo:
        """Return what callers are told of the model in this state. `stored` are the glossaries of the server."""
        manifest, limits = self.manifest, self.limits
        return ModelInfo(
            name=self.name,
            version=manifest.version,
            source_languages=tuple(manifest.source_languages),
            target_languages=tuple(manifest.target_languages),
            precision=manifest.precision,
            device=self.device,
            license=manifest.license,
            parameters=manifest.architecture.parameters,
            max_source_tokens=limits.tokens.source,
            max_target_tokens=limits.tokens.target,
            default_max_length=limits.tokens.default_max_length,
            decoding_defaults=_set_options(decoding_defaults(limits)),
            glossaries=tuple(stored.names(tuple(manifest.source_languages), tuple(manifest.target_languages))),
            state=state,
            max_beam_size=limits.max_beam_size,
            max_queue_size=limits.max_queue_size,
        )


def _set_options(options: Options) -> dict[str, object]:
    return {name: value for name in Options.__slots__ if (value := getattr(options, name)) is not None}
