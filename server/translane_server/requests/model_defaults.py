"""The decoding options of requests that set none: those of the model, as far as the server's limits allow."""

from __future__ import annotations

from translane.v1 import translation_pb2 as pb
from translane_server.requests.limits import RequestLimits
from translane_server.requests.option_checks import is_sampled


def search_options(limits: RequestLimits) -> pb.DecodingOptions:
    """Return the defaults of the options that choose and shape a search. The lengths are not among them.

    Beams are as many as the limit allows. A single beam is greedy search, which needs no default: `terminology` may
    then take beams of its own.
    """
    search = limits.search
    values = search.model_dump(exclude={"beam_size", "min_length"}, exclude_none=True)
    beams = min(search.beam_size or 1, limits.beam_size)
    return pb.DecodingOptions(**values, beam_size=beams if beams > 1 else None)


def decoding_defaults(limits: RequestLimits) -> pb.DecodingOptions:
    """Return all defaults of a model, for ListModels."""
    options, tokens = search_options(limits), limits.tokens
    options.max_length = tokens.default_max_length
    if tokens.default_min_length:
        options.min_length = tokens.default_min_length
    return options


def with_defaults(options: pb.DecodingOptions, defaults: pb.DecodingOptions) -> pb.DecodingOptions:
    """Return `options` with `defaults` for the options that are unset.

    A request that samples or asks for alternatives has chosen its search, so it takes no beams. A default must never be
    the reason to refuse a request.
    """
    merged = pb.DecodingOptions()
    merged.CopyFrom(defaults)
    merged.MergeFrom(options)
    if not options.HasField("beam_size") and (is_sampled(options) or options.return_alternatives):
        merged.ClearField("beam_size")
    return merged
