"""What folders say of their tokenizers and languages, and what is wrong with them; `tests/parity` has the ids."""

import json

import pytest

from helpers import foreign_folders
from helpers.refusals import refusal
from translane_export.core.errors import ExportError
from translane_export.sources import foreign_tokenizers, language_codes
from translane_server.bundle.manifest import SentencePieceTokenizerEntry


@pytest.fixture
def marian(tmp_path):
    for name in ("source.spm", "target.spm"):
        foreign_folders.train(tmp_path / name, "char", 300)
    (tmp_path / "vocab.json").write_text(json.dumps({"</s>": 0, "<unk>": 1, "a": 2, "<pad>": 3}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"source_lang": "zho", "target_lang": "pt_BR"}))
    return tmp_path


def fails(read, folder, config=None):
    return refusal(ExportError, read, folder, config or {})


def test_marian_names_its_two_languages(marian):
    tokenizer, languages = foreign_tokenizers.marian(marian, {})
    assert (languages.source, languages.target) == (("zh",), ("pt",))
    assert set(tokenizer.files) == tokenizer.entry.files == {"source.spm", "target.spm", "pieces.json"}


@pytest.mark.parametrize(
    ("name", "languages"),
    [("opus-mt-en-de", ("en", "de")), ("opus-mt-tc-big-fr-en", ("fr", "en")), ("mine", ("und", "und"))],
)
def test_marian_is_named_by_its_folder_where_nothing_else_does(marian, name, languages):
    (marian / "tokenizer_config.json").unlink()
    found = foreign_tokenizers.marian(marian.rename(marian.with_name(name)), {}).languages
    assert (*found.source, *found.target) == languages


def test_marian_may_have_two_vocabularies(marian):
    (marian / "target_vocab.json").write_text(json.dumps({"</s>": 0, "<unk>": 1, "b": 2, "<pad>": 3}))
    (marian / "tokenizer_config.json").write_text(json.dumps({"separate_vocabs": True}))
    tokenizer, _ = foreign_tokenizers.marian(marian, {})
    entry = tokenizer.entry
    assert isinstance(entry, SentencePieceTokenizerEntry)
    assert entry.target_ids is not None
    assert json.loads(tokenizer.read(entry.target_ids)) != json.loads(tokenizer.read("pieces.json"))


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        *((name, None, "the file is missing") for name in ("source.spm", "target.spm", "vocab.json")),
        ("source.spm", "x", "it is not a SentencePiece model"),
        ("target.spm", "version https://git-lfs.github.com/spec/v1\n", "it is a pointer of git-lfs, not the Sentence"),
        ("vocab.json", "version https://git-lfs.github.com/spec/v1\n", "it is a pointer of git-lfs, not the JSON file"),
        ("vocab.json", "{", "it is not JSON"),
        ("vocab.json", "[1]", "it is not a JSON object"),
        ("vocab.json", '{"a": "b"}', "it is not a JSON object of ids by piece"),
        ("tokenizer_config.json", "[]", "it is not a JSON object"),
    ],
)
def test_a_missing_or_broken_file_is_named(marian, name, content, sentence):
    (marian / name).unlink()
    if content is not None:
        (marian / name).write_text(content)
    assert f"{marian / name}: {sentence}" in fails(foreign_tokenizers.marian, marian)


def test_m2m100_may_be_of_wmt21(tmp_path):
    foreign_folders.m2m100(tmp_path)
    assert foreign_tokenizers.m2m100(tmp_path, {}).languages.target == language_codes.M2M100
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"language_codes": "wmt21"}))
    languages = foreign_tokenizers.m2m100(tmp_path, {}).languages
    assert languages.source == language_codes.WMT21
    pieces = len(json.loads((tmp_path / "vocab.json").read_text()))
    assert languages.templates.target["en"].forced == (pieces,)


def test_fairseq_languages_have_to_fit_the_model(tmp_path):
    foreign_folders.nllb(tmp_path)
    assert "and the model has 900" in fails(foreign_tokenizers.nllb, tmp_path, {"vocab_size": 900})


def test_fairseq_pieces_begin_as_sentencepiece_has_them(tmp_path):
    foreign_folders.train(tmp_path / "sentencepiece.bpe.model", "char", 300, pad_id=0, unk_id=1, bos_id=2, eos_id=3)
    assert "its first pieces are ['<pad>', '<unk>', '<s>']" in fails(foreign_tokenizers.nllb, tmp_path)


def test_mbart_needs_to_know_its_target(tmp_path):
    foreign_folders.mbart(tmp_path)
    assert "decoder_start_token_id is 2" in fails(foreign_tokenizers.mbart, tmp_path, {"decoder_start_token_id": 2})


@pytest.mark.parametrize("read", [foreign_tokenizers.nllb, foreign_tokenizers.mbart50, foreign_tokenizers.t5])
def test_a_folder_without_a_tokenizer(tmp_path, read):
    assert "it has no tokenizer: s" in fails(read, tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    assert f"{tmp_path / 'tokenizer.json'}: it is not a tokenizer.json" in fails(read, tmp_path)


def test_bart_needs_both_of_its_files(tmp_path):
    foreign_folders.bart(tmp_path)
    (tmp_path / "merges.txt").unlink()
    assert fails(foreign_tokenizers.bart, tmp_path) == f"{tmp_path / 'merges.txt'}: the file is missing"
    (tmp_path / "merges.txt").write_text("a b c")
    assert "they are no vocabulary and merges" in fails(foreign_tokenizers.bart, tmp_path)


def test_t5_of_no_translations_says_nothing_of_languages(tmp_path):
    languages = foreign_tokenizers.t5(foreign_folders.t5(tmp_path), {"task_specific_params": None}).languages
    assert (languages.source, languages.target, languages.templates.pair_prefixes) == (("und",), ("und",), {})


def test_t5_may_have_pieces_for_target_languages(tmp_path):
    codes = {"user_defined_symbols": ["<2fr>", "<2zh_Latn>"]}
    foreign_folders.train(tmp_path / "spiece.model", "char", 300, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, **codes)
    languages = foreign_tokenizers.t5(tmp_path, {}).languages
    assert languages.target == ("fr", "zh_Latn")
    assert languages.templates.target["fr"].source_prefix == (3,)
