"""Folders of Hugging Face models: tiny tokenizers that are trained in a second."""

import json
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers

from helpers.bundles import SOURCES, TARGETS
from helpers.vocabularies import vocabulary

FIXTURE = Path(__file__).parents[3] / "shared" / "data" / "fixtures" / "opus-mt-zh-en"

# Text about software. It does not change with the documents, so the pieces of a trained vocabulary stay the same.
_LINES = Path(__file__).parents[1] / "data" / "lines.txt"
_SCRIPTS = (
    "Быстрая коричневая лиса перепрыгивает через ленивую собаку.",
    "الثعلب البني السريع يقفز فوق الكلب الكسول",
    "השועל החום המהיר קופץ מעל הכלב העצלן",
    "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है",
    "いろはにほへと ちりぬるを わかよたれそ つねならむ",
    "다람쥐 헌 쳇바퀴에 타고파",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Portez ce vieux whisky au juge blond qui fume ; dès Noël, où un zéphyr haï me vêt de glaçons würmiens.",
    "🙂 😀 👍🏽 👩‍👩‍👧 <s> </s> <unk> >>fra<< [a] {b} @ # $ % ^ & * ~ ` | \\ /",
)


def corpus() -> list[str]:
    """Return lines in English and Chinese, and a sentence in each of some other scripts."""
    lines = _LINES.read_text(encoding="utf-8").splitlines()
    return [*lines, *SOURCES * 3, *TARGETS * 3, *_SCRIPTS * 3]


def train(path: Path, kind: str, size: int = 800, **options: Any) -> Path:
    """Write a SentencePiece model. Special pieces are SentencePiece's own unless `options` say otherwise."""
    path.write_bytes(vocabulary(corpus(), size, model_type=kind, **options))
    return path


def _describe(folder: Path, tokenizer_class: str, **more: Any) -> Path:
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": tokenizer_class, **more}))
    return folder


def _pieces(path: Path) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [processor.id_to_piece(id_) for id_ in range(len(processor))]


def marian(folder: Path, codes: tuple[str, ...] = ()) -> Path:
    """Ids are in alphabetical order of the pieces. One piece in seven has no id."""
    source = train(folder / "source.spm", "unigram")
    target = train(folder / "target.spm", "unigram", 600, character_coverage=0.98)
    pieces = sorted({*_pieces(source)[3:], *_pieces(target)[3:]})
    kept = [piece for place, piece in enumerate(pieces) if place % 7]
    ids = {name: id_ for id_, name in enumerate(["</s>", "<unk>", *kept, *(f">>{code}<<" for code in codes), "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(ids))
    return _describe(folder, "MarianTokenizer", source_lang="zho", target_lang="mul" if codes else "eng")


def m2m100(folder: Path) -> Path:
    """Ids are in alphabetical order of the pieces."""
    pieces = _pieces(train(folder / "sentencepiece.bpe.model", "bpe"))
    ids = {name: id_ for id_, name in enumerate(["<s>", "<pad>", "</s>", "<unk>", *sorted(pieces[3:])])}
    (folder / "vocab.json").write_text(json.dumps(ids))
    return _describe(folder, "M2M100Tokenizer")


def nllb(folder: Path) -> Path:
    """SentencePiece's file alone."""
    train(folder / "sentencepiece.bpe.model", "bpe", normalization_rule_name="nmt_nfkc")
    return _describe(folder, "NllbTokenizer")


def mbart50(folder: Path) -> Path:
    """SentencePiece's file alone."""
    train(folder / "sentencepiece.bpe.model", "unigram", normalization_rule_name="nmt_nfkc")
    return _describe(folder, "MBart50Tokenizer")


def mbart(folder: Path) -> Path:
    """SentencePiece's file alone."""
    train(folder / "sentencepiece.bpe.model", "unigram", normalization_rule_name="nmt_nfkc")
    return _describe(folder, "MBartTokenizer")


def t5(folder: Path) -> Path:
    """SentencePiece's file alone."""
    train(folder / "spiece.model", "unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    return _describe(folder, "T5Tokenizer")


def bart(folder: Path) -> Path:
    """A byte-level BPE in two files."""
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer.train_from_iterator(corpus(), vocab_size=800, special_tokens=special, show_progress=False)
    tokenizer.save_model(str(folder))
    return _describe(folder, "BartTokenizer")
