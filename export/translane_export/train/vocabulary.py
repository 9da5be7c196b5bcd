"""SentencePiece vocabularies: training one, turning text into ids and back, and drawing segmentations.

Subword regularisation (Kudo 2018, https://arxiv.org/abs/1804.10959) trains on drawn segmentations. SentencePiece draws
too, but seeds its generator differently in each process, and a resumed run could not repeat itself.
"""

from __future__ import annotations

import io
import itertools
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from translane_export.core.checkpoint import Checkpoint
from translane_export.core.file_readers import load_sentencepiece
from translane_export.train.errors import DataError
from translane_export.train.normalization import rules_tsv
from translane_export.train.settings import SIMPLIFYING_SUFFIX, VocabularyKind
from translane_server.bundle.manifest import SentencePieceTokenizerEntry
from translane_server.core.files import replaced_whole
from translane_server.text.stand_ins import STAND_INS

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3


def has_own_ids(checkpoint: Checkpoint) -> bool:
    """Whether ids are those of the SentencePiece models, with the special pieces as training has them."""
    config, entry = checkpoint.config, checkpoint.tokenizer.entry
    if not isinstance(entry, SentencePieceTokenizerEntry) or entry.source_ids or entry.target_ids:
        return False
    special = (config.pad_id, config.unk_id, config.bos_id, config.eos_id, config.start_id)
    return special == (PAD_ID, UNK_ID, BOS_ID, EOS_ID, BOS_ID)


_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
_SPACE = "▁"  # SentencePiece's sign for a space

# SentencePiece sums over its threads' shares of the text, so the number of threads is part of the result.
_TRAINING_THREADS = 4
_QUIET = 2


@dataclass(frozen=True)
class Segmentation:
    """One way to cut a text into pieces, and its probability by the unigram model [nats]."""

    ids: list[int]
    log_probability: float


class Vocabulary:
    """A trained SentencePiece model."""

    def __init__(self, path: Path) -> None:
        """Load the model at `path`. Raises ExportError when it is missing or not a SentencePiece model."""
        self.path = path
        self._model = load_sentencepiece(path)
        self._scores = [float(self._model.get_score(index)) for index in range(len(self))]

    def __len__(self) -> int:
        return int(self._model.get_piece_size())

    def pieces(self) -> list[str]:
        """Return the text of each piece, by id."""
        return [str(self._model.id_to_piece(index)) for index in range(len(self))]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the best segmentation of each text as ids, without begin or end markers."""
        # A single thread: SentencePiece's pool starts as many as the host has cores, whatever this process may use.
        return [list(ids) for ids in self._model.encode(list(texts), num_threads=1)]

    def best_segmentations(self, text: str, count: int) -> list[Segmentation]:
        """Return up to `count` segmentations of the text, best first; only a unigram vocabulary knows more than one."""
        return [
            Segmentation(list(ids), sum(self._scores[index] for index in ids))
            for ids in self._model.nbest_encode(text, nbest_size=count)
        ]

    def normalize(self, text: str) -> str:
        """Return the text that the model sees: texts that it tells apart differ here, too."""
        return str(self._model.normalize(text)).replace(_SPACE, " ").strip()

    def decode(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each list of ids; special pieces are dropped."""
        return [str(self._model.decode(list(ids))) for ids in sentences]


def train_vocabulary(
    sentences: Iterable[str],
    path: Path,
    *,
    kind: VocabularyKind,
    size: int,
    normalization: str = "nmt_nfkc",
    character_coverage: float = 1.0,
    stand_ins: bool = False,
    seed: int = 1,
) -> Vocabulary:
    """Train a vocabulary on `sentences` and write it to `path`; the file appears complete or not at all.

    ``size`` counts the special pieces too, and stand-ins where there are ``stand_ins``.

    Raises:
        DataError: the text cannot carry a vocabulary of this size.
    """
    sentencepiece.set_random_generator_seed(seed)
    sentencepiece.set_min_log_level(_QUIET)
    written = io.BytesIO()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(sentences),
                model_writer=written,
                model_type=kind,
                vocab_size=size,
                character_coverage=character_coverage,
                # Characters and words are counted, not chosen: fewer than asked for is no mistake.
                hard_vocab_limit=kind in ("unigram", "bpe"),
                pad_id=PAD_ID,
                unk_id=UNK_ID,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                num_threads=_TRAINING_THREADS,
                shuffle_input_sentence=False,
                split_digits=True,  # a model copies digits one by one, and no number is rare
                # what comes in the place of names may have letters that the text has not
                user_defined_symbols=list(STAND_INS) if stand_ins else [],
                required_chars=_PRINTABLE if stand_ins else "",
                minloglevel=_QUIET,
                **_normalization_options(normalization, Path(scratch)),
            )
        except RuntimeError as error:
            reason = str(error).split("] ")[-1].strip() or str(error)
            raise DataError(f"no {kind} vocabulary of {size:,} pieces: {reason}") from error
    with replaced_whole(path) as new:
        new.write_bytes(written.getvalue())
    return Vocabulary(path)


def with_stand_ins(model: bytes) -> bytes:
    """Return a SentencePiece model with the stand-ins that it lacks as its last pieces."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    known = {piece.piece for piece in proto.pieces}
    for symbol in STAND_INS:
        if symbol not in known:
            proto.pieces.add(piece=symbol, score=0.0, type=proto.SentencePiece.USER_DEFINED)
            proto.trainer_spec.user_defined_symbols.append(symbol)
    proto.trainer_spec.vocab_size = len(proto.pieces)
    return bytes(proto.SerializeToString())


def _normalization_options(name: str, scratch: Path) -> dict[str, Any]:
    if not name.endswith(SIMPLIFYING_SUFFIX):
        return {"normalization_rule_name": name}
    table = scratch / "rules.tsv"
    table.write_text(rules_tsv(name), encoding="ascii")
    return {"normalization_rule_tsv": str(table)}


class SegmentationSampler:
    """The best segmentations of some texts, to draw one of each from."""

    def __init__(self, vocabulary: Vocabulary, texts: Sequence[str], *, alpha: float, nbest: int) -> None:
        """Find the `nbest` segmentations of each text by the unigram model; `alpha` smooths their distribution.

        A segmentation x is drawn with a probability proportional to P(x)^alpha: 0 is uniform, 1 is the model's own.
        """
        candidates = [vocabulary.best_segmentations(text, nbest) for text in texts]
        counts = np.array([len(segmentations) for segmentations in candidates])
        self._candidates = list(itertools.chain.from_iterable(candidates))
        self._starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
        self._owners = np.repeat(np.arange(len(counts)), counts)
        self._logits = alpha * np.array([segmentation.log_probability for segmentation in self._candidates])

    def draw(self, seed: Sequence[int]) -> list[list[int]]:
        """Return the ids of one segmentation of each text; the same seed draws the same ones."""
        # The largest of logits + Gumbel noise is a draw from their softmax, for all texts at once.
        keys = self._logits + np.random.default_rng(seed).gumbel(size=len(self._logits))
        best = np.maximum.reduceat(keys, self._starts)
        return [self._candidates[index].ids for index in np.flatnonzero(keys == best[self._owners])]
