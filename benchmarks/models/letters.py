"""A vocabulary for models of random weights."""

from __future__ import annotations

import io

import sentencepiece


def characters() -> bytes:
    """A SentencePiece model of the letters: most ids of the model have no piece, and no benchmark asks for one."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ"]),
        model_writer=model,
        model_type="char",
        vocab_size=1000,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        minloglevel=2,
    )
    return model.getvalue()
