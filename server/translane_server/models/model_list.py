"""Describes the models of a server, for ListModels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from translane.conversions import options_message
from translane.v1 import translation_pb2 as pb
from translane_server.bundle.manifest import Manifest
from translane_server.core.cpus import int8_kernels
from translane_server.text.stored_glossaries import StoredGlossaries
from translane_server.translation.limits import RequestLimits
from translane_server.translation.options import decoding_defaults

_VERSION = version("translane")  # reading it takes longer than all the rest of a call


@dataclass(frozen=True)
class ModelDescription:
    """A model as callers see it: the version that is loaded, or the last one that was, or the first one to be."""

    name: str
    manifest: Manifest
    device: str
    limits: RequestLimits


def kernels_of(manifest: Manifest, device: str) -> str:
    """Return in words what multiplies int8 on this processor; empty where nothing does."""
    computes = manifest.precision == "int8" and device == "cpu"
    return int8_kernels() if computes else ""


def model_message(model: ModelDescription, state: pb.ModelState, stored: StoredGlossaries) -> pb.Model:
    """Return the message that describes a model. `stored` are the glossaries of the server."""
    manifest, limits = model.manifest, model.limits
    return pb.Model(
        name=model.name,
        version=manifest.version,
        source_languages=manifest.source_languages,
        target_languages=manifest.target_languages,
        precision=manifest.precision,
        device=model.device,
        license=manifest.license,
        parameters=manifest.architecture.parameters,
        max_source_tokens=limits.tokens.source,
        max_target_tokens=limits.tokens.target,
        default_max_length=limits.tokens.default_max_length,
        state=state,
        max_beam_size=limits.beam_size,
        sentences_waiting=limits.sentences_waiting,
        decoding_defaults=options_message(decoding_defaults(limits)),
        glossaries=stored.names(tuple(manifest.source_languages), tuple(manifest.target_languages)),
        int8_kernels=kernels_of(manifest, model.device),
    )


def model_list(models: Sequence[pb.Model], texts_per_request: int) -> pb.ListModelsResponse:
    """Return the models of the server, and the limits that hold for all of them."""
    limits = pb.Limits(
        texts_per_request=texts_per_request,
        sentences_waiting=min((model.sentences_waiting for model in models), default=0),
        beam_size=min((model.max_beam_size for model in models), default=0),
    )
    return pb.ListModelsResponse(models=models, server_version=_VERSION, limits=limits)
