"""A bundle that translates requests in this process, without a server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helpers.driver import BundleDecoder
from translane.options import checked_options
from translane.requests import TranslationRequest
from translane.results import Translation
from translane_server.bundle.bundle import load_bundle
from translane_server.engine import offline
from translane_server.translation.limits import RequestLimits, TokenLimits
from translane_server.translation.reader import TranslateReader

_ROWS = 64
_SENTENCES = 100_000
_BEAMS = 8


class InProcess(BundleDecoder):
    """Translates texts with the bundle in a folder; use it in a `with` statement."""

    def __init__(self, folder: Path) -> None:
        bundle = load_bundle(folder)
        manifest, limits = bundle.manifest, bundle.manifest.limits
        super().__init__(bundle, rows=_ROWS, source_capacity=limits.source_tokens, target_capacity=limits.target_tokens)
        tokens = TokenLimits(limits.source_tokens, limits.target_tokens, manifest.decoding_defaults.max_length)
        self.reader = TranslateReader(manifest, self.tokenizer, RequestLimits(_SENTENCES, _SENTENCES, tokens, _BEAMS))

    def translations(self, texts: Sequence[str], **options: Any) -> list[Translation]:
        """Translate `texts` with these decoding options.

        Raises:
            InvalidRequestError: the request is wrong.
        """
        request = TranslationRequest(texts, options=checked_options(options))
        self.reader.check(request)
        prepared = self.reader.read(request)
        return prepared.translations(offline.decode(self.backend, self.vocabulary, prepared.sentences))

    def texts(self, texts: Sequence[str], **options: Any) -> list[str]:
        """Return the best translation of each of `texts`."""
        return [each.hypotheses[0].text for each in self.translations(texts, **options)]
