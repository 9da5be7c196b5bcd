"""Languages and pieces that a pruned model keeps."""

import dataclasses
import itertools
import json
import random
import re
from typing import Any

import pytest
import torch

from helpers import foreign_folders
from helpers.bundles import SMALL_SIZES
from helpers.nasty_texts import FRAGMENTS
from helpers.refusals import refusal
from translane_export.core.checkpoint import Checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.settings import ExportSettings
from translane_export.core.tokenizer_files import TokenizerFiles, sentencepiece_files
from translane_export.model import Transformer, TransformerConfig
from translane_export.pruning.pruning import keep_languages, plan_pruning, summary
from translane_export.sources import foreign_tokenizers, language_codes
from translane_server.bundle.manifest import JsonTokenizerEntry, Languages, LanguageTemplates, LanguageTokens

TEXTS = [line.strip() for line in foreign_folders.corpus() if line.strip()][::9]
OTHERS = [
    "",
    " ",
    *FRAGMENTS,
    *foreign_folders.corpus()[::5],
    *map("".join, itertools.product(FRAGMENTS[::3], repeat=2)),
]


def folder_of(kind, folder):
    """A tokenizer's folder; "-json" after a kind means transformers' tokenizer.json instead."""
    kind, _, form = kind.partition("-")
    getattr(foreign_folders, kind)(folder)
    if form:
        import transformers

        special = {"extra_special_tokens": list(language_codes.NLLB200)} if kind == "nllb" else {}
        (folder / "config.json").write_text(json.dumps({"model_type": {"nllb": "m2m_100"}.get(kind, "mbart")}))
        loaded = transformers.AutoTokenizer.from_pretrained(folder, **special)
        next(folder.glob("*.model")).unlink()
        loaded.save_pretrained(folder)
    return kind


def checkpoint_of(kind, folder, **fields):
    read = getattr(foreign_tokenizers, folder_of(kind, folder))
    tokenizer, languages = read(folder, {"bos_token_id": 0})
    ids: dict[str, Any] = {"pad_id": 1, "unk_id": 3, "bos_id": 0, "eos_id": 2}
    if kind == "marian":
        pieces = json.loads((folder / "vocab.json").read_text())
        ids = {"pad_id": pieces["<pad>"], "unk_id": 1, "bos_id": 0, "eos_id": 0}
    if kind == "t5":
        ids = {"pad_id": 0, "unk_id": 2, "bos_id": 1, "eos_id": 1}
    return make(tokenizer, languages, **{**ids, **fields})


def make(tokenizer, languages, size=1200, tie_embeddings="three-way", **fields):
    sizes = {"source_vocab_size": size, "target_vocab_size": size, "tie_embeddings": tie_embeddings}
    config = TransformerConfig(**SMALL_SIZES | sizes | fields)
    torch.manual_seed(0)
    state = dict(Transformer(config).state_dict())
    return Checkpoint(
        config=config, state_dict=state, tokenizer=tokenizer, languages=languages, samples=(), metadata={}
    )


def settings(tmp_path, texts=TEXTS, **values):
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    return ExportSettings(checkpoint=tmp_path, output=tmp_path, vocabulary_from=(tmp_path / "texts.txt",), **values)


def plan(chosen, whole):
    """The pruning, and its vocabulary."""
    pruning = plan_pruning(chosen, whole)
    assert pruning.vocabulary
    return pruning, pruning.vocabulary


def loaded(checkpoint):
    return checkpoint.tokenizer.load(checkpoint.config, checkpoint.languages)


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("kind", ["marian", "m2m100", "nllb", "nllb-json", "mbart50", "mbart50-json", "t5", "bart"])
def test_texts_are_split_as_before_and_no_others_become_unknown(kind, tmp_path):
    whole = checkpoint_of(kind, tmp_path)
    several = len(whole.languages.source) > 1
    pruning, vocabulary = plan(settings(tmp_path, languages=("de", "en") if several else ()), whole)
    order = vocabulary.source
    small = pruning.apply(whole)
    assert small.config.source_vocab_size == len(order) < 0.95 * 1200
    before, after = loaded(whole), loaded(small)
    for text in TEXTS:
        ids = after.encode([text])[0]
        assert [order[id_] for id_ in ids] == before.encode([text])[0]
        assert after.source_pieces(ids) == before.source_pieces(before.encode([text])[0])
        assert after.decode([after.encode_target([text])[0]]) == before.decode([before.encode_target([text])[0]])
    fewer = 0
    for text in OTHERS:
        ids, old = after.encode([text])[0], before.encode([text])[0]
        if kind != "marian":  # one of its pieces in seven has no id, and may spell what is left
            assert ids.count(small.config.unk_id) <= old.count(whole.config.unk_id)
        if whole.config.unk_id not in old and small.config.unk_id not in ids:
            assert after.decode([after.encode_target([text])[0]]) == before.decode([before.encode_target([text])[0]])
        fewer += [order[id_] for id_ in ids] != old
    assert fewer, "some text is spelled with smaller pieces"
    if several:
        assert len(small.languages.source) == len(small.languages.templates.target) == 2
        for side in (small.languages.templates.source, small.languages.templates.target):
            for tokens in side.values():
                assert all(id_ < len(order) for id_ in (*tokens.source_prefix, *tokens.forced))


def test_rows_follow_their_ids_and_tied_tables_stay_one(tmp_path):
    whole = checkpoint_of("nllb", tmp_path, suppressed_ids=(1, 1150))
    pruning, vocabulary = plan(settings(tmp_path, languages=("de", "en")), whole)
    small, order = pruning.apply(whole), torch.tensor(vocabulary.source)
    tables = [small.state_dict[name] for name in ("encoder.embedding.tokens.weight", "output_projection.weight")]
    assert torch.equal(tables[0], whole.state_dict["encoder.embedding.tokens.weight"][order])
    assert tables[0].data_ptr() == tables[1].data_ptr()
    bias = whole.state_dict["output_projection.bias"][order]
    assert torch.equal(small.state_dict["output_projection.bias"], bias)
    assert small.config.suppressed_ids == (1,)
    assert small.metadata["pruned_from"] == {"source_vocab_size": 1200, "target_vocab_size": 1200}
    german = whole.languages.templates.target["deu_Latn"].forced[0]
    assert order[small.languages.templates.target["deu_Latn"].forced[0]] == german
    layer = "decoder.layers.0.feed_forward.up_proj.weight"
    assert small.state_dict[layer] is whole.state_dict[layer]
    line = summary(whole, small)
    saved = (1200 - len(order)) * 17  # a vector of 16 and a bias
    assert f" {saved:,} of " in line
    assert f"1,200 source pieces become {len(order):,}" in line


def test_two_vocabularies_of_ours(tmp_path):
    """Ids are SentencePiece's own; the two sides differ."""
    special: dict[str, Any] = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
    source = foreign_folders.train(tmp_path / "a.spm", "bpe", 700, **special)
    target = foreign_folders.train(tmp_path / "b.spm", "unigram", 650, **special)
    languages = Languages(source=("zh",), target=("en",))
    whole = make(sentencepiece_files(source, target), languages, 700, tie_embeddings="two-way")
    pruning, vocabulary = plan(settings(tmp_path), whole)
    small = pruning.apply(whole)
    assert vocabulary.source[:4] == vocabulary.target[:4] == (0, 1, 2, 3)
    assert small.config.source_vocab_size != small.config.target_vocab_size
    before, after = loaded(whole), loaded(small)
    for text in TEXTS:
        assert [vocabulary.source[id_] for id_ in after.encode([text])[0]] == before.encode([text])[0]
        target_ids = after.encode_target([text])[0]
        assert [vocabulary.target[id_] for id_ in target_ids] == before.encode_target([text])[0]
    assert small.state_dict["decoder.embedding.tokens.weight"] is small.state_dict["output_projection.weight"]
    rows = whole.state_dict["output_projection.weight"][torch.tensor(vocabulary.target)]
    assert torch.equal(small.state_dict["output_projection.weight"], rows)


def test_languages_without_texts_leave_the_vocabulary_as_it_is(tmp_path):
    whole = checkpoint_of("nllb", tmp_path)
    narrowed = plan_pruning(ExportSettings(checkpoint=tmp_path, output=tmp_path, languages=("de", "en")), whole).apply(
        whole
    )
    assert narrowed.config == whole.config
    assert narrowed.state_dict is whole.state_dict
    french = whole.languages.templates.target["fra_Latn"].forced[0]
    assert loaded(narrowed).target_surfaces[french] == b"", "a language that is gone is still no text"


def test_a_random_text_is_split_as_before(tmp_path):
    """Any sentences may be what the pieces are chosen by."""
    whole = checkpoint_of("m2m100", tmp_path)
    before, pick = loaded(whole), random.Random(2)
    for _ in range(5):
        texts = ["".join(pick.choices([*FRAGMENTS, " ", *TEXTS[0]], k=12)) for _ in range(20)]
        texts = [" ".join(text.split()) for text in texts]
        pruning, vocabulary = plan(settings(tmp_path, texts, languages=("de", "en")), whole)
        after = loaded(pruning.apply(whole))
        for line in (tmp_path / "texts.txt").read_text().split("\n"):
            ids = after.encode([line.strip()])[0]
            assert [vocabulary.source[id_] for id_ in ids] == before.encode([line.strip()])[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"^--vocabulary-from: the files have no text$"),
        (b"ok\n\xff\n", r"^--vocabulary-from .*texts.txt: line 2 is not UTF-8 text$"),
        (None, r"^--vocabulary-from .*texts.txt: it cannot be read: No such file or directory$"),
    ],
)
def test_a_file_that_has_no_texts(content, message, tmp_path):
    whole = checkpoint_of("nllb", tmp_path)
    chosen = settings(tmp_path)
    (tmp_path / "texts.txt").unlink()
    if content is not None:
        (tmp_path / "texts.txt").write_bytes(content)
    with pytest.raises(ExportError, match=message):
        plan_pruning(chosen, whole)


def test_words_have_no_smaller_pieces(tmp_path):
    from translane_export.sources.notebook import word_tokenizer

    content = word_tokenizer(["<pad>", "<unk>", "<s>", "</s>", "a"], lowercase=False)
    files = TokenizerFiles(JsonTokenizerEntry(file="t.json"), {"t.json": content})
    whole = make(files, Languages(source=("a",), target=("b",)), 5)
    with pytest.raises(ExportError, match=r"^--vocabulary-from: t.json is a model of the kind 'WordLevel', and only"):
        plan_pruning(settings(tmp_path), whole)
    entry = JsonTokenizerEntry(file="t.json", target="t.json")
    whole = dataclasses.replace(whole, tokenizer=TokenizerFiles(entry, files.files))
    with pytest.raises(ExportError, match=r"with a tokenizer.json for each side are not supported"):
        plan_pruning(settings(tmp_path), whole)


NLLB = Languages(
    source=language_codes.NLLB200,
    target=language_codes.NLLB200,
    templates=LanguageTemplates(
        source={code: LanguageTokens(source_prefix=(id_,)) for id_, code in enumerate(language_codes.NLLB200)},
        target={code: LanguageTokens(forced=(id_,)) for id_, code in enumerate(language_codes.NLLB200)},
    ),
)
T5 = Languages(
    source=("en",),
    target=("de", "fr", "ro"),
    templates=LanguageTemplates(
        pair_prefixes={"en": {"de": "to German: ", "fr": "to French: ", "ro": "to Romanian: "}}
    ),
)
MARIAN = Languages(
    source=("zh",),
    target=("fra", "deu"),
    templates=LanguageTemplates(target={"fra": LanguageTokens(source_prefix=(7,)), "deu": LanguageTokens()}),
)
PAIR = Languages(source=("zh",), target=("en",))


GERMAN_ENGLISH = ("deu_Latn", "eng_Latn")
ENGLISH_CHINESE = ("eng_Latn", "zho_Hant")


@pytest.mark.parametrize(
    ("languages", "wanted", "source", "target"),
    [
        (PAIR, ("en", "zh"), ("zh",), ("en",)),
        (NLLB, ("de", "en"), GERMAN_ENGLISH, GERMAN_ENGLISH),
        (NLLB, ("deu", "eng_Latn"), GERMAN_ENGLISH, GERMAN_ENGLISH),
        (NLLB, ("de-AT", "en-US"), GERMAN_ENGLISH, GERMAN_ENGLISH),
        (NLLB, ("DE", "en", "de"), GERMAN_ENGLISH, GERMAN_ENGLISH),
        (NLLB, ("en", "zh-TW"), ENGLISH_CHINESE, ENGLISH_CHINESE),  # the first tag is the first language
        (MARIAN, ("fr",), ("zh",), ("fra",)),  # a side with one language keeps it
        (MARIAN, ("zh", "fr"), ("zh",), ("fra",)),
        (T5, ("de", "en"), ("en",), ("de",)),
    ],
)
def test_languages_that_stay_keep_their_templates(languages, wanted, source, target):
    found, before = keep_languages(languages, wanted), languages.templates
    assert (found.source, found.target) == (source, target)
    assert found.templates.source == {code: before.source[code] for code in source if code in before.source}
    assert found.templates.target == {code: before.target[code] for code in target if code in before.target}
    pairs = {code: {other: prefixes[other] for other in target} for code, prefixes in before.pair_prefixes.items()}
    assert found.templates.pair_prefixes == pairs


@pytest.mark.parametrize(
    ("languages", "wanted", "message"),
    [
        (NLLB, ("de", "tlh"), r"^--languages: 'tlh' is not a language of the model, which has: ace_Arab, .* and 196"),
        (MARIAN, ("zh",), r"^--languages: the model translates to none of them, but to fra, deu$"),
        (MARIAN, ("es",), r"^--languages: 'es' is not a language of the model, which has: zh, fra, deu$"),
        (PAIR, ("zh",), r"^--languages: the model has one pair of languages, zh to en; leave it out$"),
        (PAIR, ("en",), r"^--languages: the model has one pair of languages, zh to en; leave it out$"),
        (T5, ("en\x1b",), r"^--languages: .* is not a language of the model, which has: en, de, fr, ro$"),
    ],
)
def test_what_there_is_not(languages, wanted, message):
    assert re.search(message, refusal(ExportError, keep_languages, languages, wanted))
