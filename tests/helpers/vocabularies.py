"""Vocabularies for tests."""

import io
from collections.abc import Iterable
from typing import Any

import sentencepiece


def vocabulary(lines: Iterable[str], size: int, **options: Any) -> bytes:
    """Return a SentencePiece model of `lines`. It has `size` pieces, or fewer where the lines do not give so many."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return model.getvalue()
