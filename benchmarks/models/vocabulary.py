"""Target vocabularies of sentences that the model ends, and of sentences that only their lengths end."""

from __future__ import annotations

from collections.abc import Sequence

from translane_server.bundle import Bundle
from translane_server.vocabulary import TargetVocabulary

NEVER = -1  # an end-of-sentence id that no model predicts


def target_vocabulary(bundle: Bundle, *, ends: bool, surfaces: Sequence[bytes] = ()) -> TargetVocabulary:
    """The target vocabulary of a bundle.

    Args:
        bundle: whose vocabulary it is.
        ends: whether the model ends sentences, or only their lengths do.
        surfaces: see `TargetVocabulary`.
    """
    ids = bundle.manifest.special_ids
    return TargetVocabulary(ids.decoder_start, ids.eos if ends else NEVER, surfaces)
