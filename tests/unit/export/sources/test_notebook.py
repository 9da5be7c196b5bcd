"""A notebook's model and its lists of words, brought as a checkpoint."""

import random
import re
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from helpers.refusals import refusal
from translane_export.core.checkpoint import load_checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.torch_model import build_model
from translane_export.sources.notebook import END, PAD, START, UNK, SpecialWords, bring, number_words, word_tokenizer
from translane_server.bundle.manifest import JsonTokenizerEntry, SpecialIds
from translane_server.text.tokenizer import ModelIds, make_tokenizer

M = 16
SOURCE_WORDS = ["der", "<pad>", "hund", "<unk>", "</s>", "<s>"]
TARGET_WORDS = ["<unk>", "a", "</s>", "dog", "<s>", "<pad>", "cat"]
SOURCE, TARGET = torch.tensor([[5, 0, 3, 2, 4]]), torch.tensor([[4, 1, 3, 6]])  # by the places in the lists
OURS = torch.tensor([[2, 4, 1, 5, 3]]), torch.tensor([[2, 4, 5, 6]])

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")


class Parts:
    """A notebook's model, norms first."""

    def __init__(self, **options: Any) -> None:
        generator_bias = options.pop("generator_bias", True)
        options = {"norm_first": True, "batch_first": True, **options}
        self.transformer = nn.Transformer(M, 2, 1, 2, 24, **options).eval()
        with torch.no_grad():
            for parameter in self.transformer.parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape))
        self.source_embedding = nn.Embedding(len(SOURCE_WORDS), M)
        self.target_embedding = nn.Embedding(len(TARGET_WORDS), M)
        self.generator = nn.Linear(M, len(TARGET_WORDS), bias=generator_bias)
        self.positions = torch.randn(9, M)

    def logits(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        hidden = self.transformer(
            self.source_embedding(source) + self.positions[: source.shape[1]],
            self.target_embedding(target) + self.positions[: target.shape[1]],
            tgt_mask=torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1),
        )
        logits: torch.Tensor = self.generator(hidden)
        return logits

    def bring(self, folder: Any, **more: Any) -> Any:
        arguments = {
            **vars(self), "source_words": SOURCE_WORDS, "target_words": TARGET_WORDS, "languages": ("de", "en"),
            "scale_embeddings": False,
        }  # fmt: skip
        bring(folder / "made", **{**arguments, **more})
        return load_checkpoint(folder / "made")


@pytest.fixture(autouse=True)
def _one_seed():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def logits(checkpoint, source=OURS[0], target=OURS[1]):
    with torch.inference_mode():
        return build_model(checkpoint)(source, torch.tensor([source.shape[1]]), target)


@pytest.mark.parametrize(
    "options",
    [
        *({"bias": bias, "generator_bias": more} for bias in (True, False) for more in (True, False)),
        {"norm_first": False, "layer_norm_eps": 1e-3},
        *({"activation": function} for function in (functional.gelu, functional.silu)),
        {"activation": partial(functional.gelu, approximate="tanh"), "norm_first": False},
        {"final_norm": False},
    ],
)
def test_the_model_computes_what_it_did(tmp_path, options):
    """With the norm after each stack that nn.Transformer always has, or without it."""
    parts = Parts(**{name: value for name, value in options.items() if name != "final_norm"})
    if "final_norm" in options:
        parts.transformer.encoder.norm = parts.transformer.decoder.norm = None
    checkpoint = parts.bring(tmp_path)
    assert checkpoint.config.biases is (options.get("bias", True) or options.get("generator_bias", True))
    with torch.inference_mode():
        expected = parts.logits(SOURCE, TARGET)
    torch.testing.assert_close(logits(checkpoint), expected[..., [5, 0, 4, 2, 1, 3, 6]], rtol=0, atol=1e-5)


def test_texts_are_read_as_the_notebook_reads_them(tmp_path):
    checkpoint = Parts().bring(tmp_path, lowercase=True, samples=["Der Hund"])
    assert checkpoint.samples == ("Der Hund",)
    assert (checkpoint.languages.source, checkpoint.languages.target) == (("de",), ("en",))
    assert checkpoint.languages.templates.source["de"].source_prefix == (START,)
    tokenizer = checkpoint.tokenizer.load(checkpoint.config, checkpoint.languages)
    assert tokenizer.encode(["Der Hund bellt"]) == [[4, 5, UNK, END]]
    assert tokenizer.decode([[4, 5]]) == ["a dog"]


def test_a_folder_of_other_things_stays(tmp_path):
    parts = Parts()
    parts.bring(tmp_path)
    parts.bring(tmp_path)  # a checkpoint alone is replaced
    thesis = tmp_path / "made" / "thesis.txt"
    thesis.write_text("three years")
    for _ in ("beside a checkpoint", "without one"):
        with pytest.raises(ExportError, match="made: it holds other files than a checkpoint"):
            parts.bring(tmp_path)
        assert thesis.exists()
        (tmp_path / "made" / "config.json").unlink(missing_ok=True)


def test_tables_of_positions(tmp_path):
    """With a dimension for the batch, and one for each side; the shorter one says how long sentences are."""
    parts = Parts()
    expected = logits(parts.bring(tmp_path))
    for positions in (parts.positions[None], parts.positions[:, None]):
        assert torch.equal(logits(parts.bring(tmp_path, positions=positions)), expected)
    checkpoint = parts.bring(tmp_path, target_positions=parts.positions[:7] + 1)
    assert checkpoint.config.max_positions == 7
    assert not torch.equal(logits(checkpoint), expected)


def test_a_generator_that_is_tied_stays_tied(tmp_path):
    parts = Parts()
    parts.generator.weight = parts.target_embedding.weight
    checkpoint = parts.bring(tmp_path)
    assert checkpoint.config.tie_embeddings == "two-way"
    model = build_model(checkpoint)
    assert model.output_projection.weight is model.decoder.embedding.tokens.weight


def test_lists_without_unknown_words(tmp_path):
    """A source that is not known is a vector of zeros; the target's unknown word has no probability."""
    for generator_bias in (True, False):
        parts = Parts(generator_bias=generator_bias)
        parts.source_embedding, parts.target_embedding = nn.Embedding(3, M), nn.Embedding(6, M)
        parts.generator = nn.Linear(M, 6, bias=generator_bias)
        lists = {"source_words": ["a", "<pad>", "b"], "target_words": ["x", "<pad>", "<s>", "</s>", "y", "z"]}
        checkpoint = parts.bring(tmp_path, **lists, source_start=False, source_end=False)
        assert not checkpoint.state_dict["encoder.embedding.tokens.weight"][UNK].any()
        found = logits(checkpoint, torch.tensor([[4, 5]]), torch.tensor([[2, 5]]))
        assert not found.softmax(-1)[..., UNK].any()
        with torch.inference_mode():
            expected = parts.logits(torch.tensor([[0, 2]]), torch.tensor([[2, 4]])).log_softmax(-1)
        ours = found.log_softmax(-1)[..., [4, 0, 2, 3, 5, 6]]
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"source_words": SOURCE_WORDS[:-1]}, "source_words: the special word"),
        ({"source_words": [*SOURCE_WORDS, "x"]}, "source_embedding has 6 rows, and its list has 7 words"),
        ({"target_words": [*TARGET_WORDS, "x"]}, "target_embedding has 7 rows, and its list has 8 words"),
        ({"generator": nn.Linear(M, 8)}, "generator has 8 rows, and its list has 7 words"),
        ({"generator": nn.Linear(12, 7)}, "generator.weight is [7, 12], where its settings make it [7, 16]"),
        ({"source_embedding": nn.Embedding(6, 12)}, "source_embedding.weight is [6, 12], where its settings make it"),
        ({"source_embedding": nn.Embedding(6, M, max_norm=1.0)}, "source_embedding has max_norm"),
        ({"positions": torch.ones(9, 12)}, "positions is [9, 12], and it should be [positions, 16]"),
        ({"positions": torch.ones(2, 9, M)}, "positions is [2, 9, 16]"),
        ({"positions": torch.ones(9, M, dtype=torch.long)}, "positions is int64"),
        ({"positions": torch.ones(0, M)}, "its settings make no model: max_positions: input should be greater than"),
        ({"special_words": SpecialWords(pad="?")}, "source_words: the special word '?' is not there"),
        ({"source_end": True, "pattern": "["}, "pattern: '[' is no regular expression"),
        ({"pattern": "a" * 1001}, "1,001 characters"),
    ],
)
def test_parts_that_do_not_fit(tmp_path, changes, sentence):
    assert sentence in refusal(ExportError, Parts().bring, tmp_path, **changes)
    assert list(tmp_path.iterdir()) == []


class OwnLayer(nn.TransformerEncoderLayer):
    pass


LAYERS = "encoder.layers.0 decoder.layers.0 decoder.layers.1"


@pytest.mark.parametrize(
    ("places", "name", "value", "sentence"),
    [
        ("decoder.layers.1.self_attn", "num_heads", 4, "its layers differ in heads"),
        ("decoder.layers.1.multihead_attn", "add_zero_attn", True, "layers.1.multihead_attn has add_zero_attn or"),
        ("encoder.layers.0.self_attn", "bias_k", nn.Parameter(torch.ones(1, 1, M)), "layers.0.self_attn has add_zero_"),
        ("encoder.layers", "0", OwnLayer(M, 2), "encoder.layers.0 is of the class OwnLayer, and only an nn.Transform"),
        ("decoder", "layers", nn.ModuleList(), "its encoder or decoder has no layers"),
        ("encoder", "norm", None, "only one of encoder.norm and decoder.norm is there"),
        # PyTorch's decoder layers fall back to relu when they are copied with an activation that is a module.
        ("encoder.layers.0", "activation", nn.SiLU(), "its layers differ in heads, norm_f"),
        (LAYERS, "activation", torch.tanh, "encoder.layers.0: its activation is none of relu"),
        ("encoder.layers.0", "norm9", nn.LayerNorm(M), "the tensor transformer.encoder.layers.0.norm9.bias and 1 more"),
        ("encoder.layers.0", "linear2", nn.Linear(23, M), "linear2.weight is [16, 23]"),
    ],
)
def test_modules_that_are_not_supported(tmp_path, places, name, value, sentence):
    parts = Parts()
    for place in places.split():
        setattr(parts.transformer.get_submodule(place), name, value)
    assert sentence in refusal(ExportError, parts.bring, tmp_path)
    assert list(tmp_path.iterdir()) == []


SPECIAL = SpecialWords(pad="PAD", unk="?", start="BOS", end="EOS")
SOURCE_LIST = ("PAD", "?", "BOS", "EOS", "der", "hund", ".", "über")
TARGET_LIST = ("PAD", "?", "BOS", "EOS", "the", "dog", "!", " ", "a b")
IDS = SpecialIds(pad=PAD, unk=UNK, bos=START, eos=END, decoder_start=START)


def make(*, lowercase=False, source_eos=True, **options):
    files = {
        "s.json": word_tokenizer(SOURCE_LIST, lowercase=lowercase, **options),
        "t.json": word_tokenizer(TARGET_LIST, lowercase=lowercase, **options),
    }
    entry = JsonTokenizerEntry(file="s.json", target="t.json", source_eos=source_eos)
    return make_tokenizer(entry, ModelIds(IDS, len(SOURCE_LIST), len(TARGET_LIST)), files.__getitem__)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("der hund .", [4, 5, 6, END]),
        ("the dog", [UNK, UNK, END]),  # each side has its own words
        ("x y der, hund", [UNK, UNK, UNK, 5, END]),
        ("PAD der EOS ?", [UNK, 4, UNK, UNK, END]),  # special words of a text are unknown
        ("", []),
        (" \t\u3000", []),
    ],
)
def test_words_are_numbered_by_their_places(text, ids):
    tokenizer = make()
    assert tokenizer.encode([text]) == [ids]
    assert make(source_eos=False).encode([text]) == [ids[:-1]]
    assert tokenizer.encode_target(["the dog !", "der"]) == [[4, 5, 6], [UNK]]
    assert tokenizer.source_pieces([4, 3]) == ["der", "EOS"]
    assert tokenizer.target_pieces([4, 3]) == ["the", "EOS"]
    assert tokenizer.source_spans("") == []


def test_words_have_their_places_and_are_joined_by_spaces():
    tokenizer = make()
    written = ["the dog !", "⁇ dog ⁇", "", "a b   dog"]
    assert tokenizer.decode([[4, 5, 6], [UNK, 5, UNK], [], [8, PAD, 7, 5]]) == written
    assert make(lowercase=True).source_spans("Der  ÜBER x") == [(0, 3), (5, 9), (10, 11), None]


# Of every kind: letters, accents, signs, spaces, controls, and characters beyond the first plane.
CHARACTERS = [chr(code) for code in (*range(1, 0x3000), *range(0x3000, 0xD800, 37), *range(0xE000, 0x20000, 113))]


def tokenizer_of(words, **options):
    vocabulary = list(dict.fromkeys(["PAD", "?", "BOS", "EOS", *words]))
    content, special = word_tokenizer(vocabulary, **options), ModelIds(IDS, len(vocabulary), len(vocabulary))
    return make_tokenizer(JsonTokenizerEntry(file="w"), special, lambda _: content), vocabulary


@pytest.mark.parametrize("lowercase", [False, True])
def test_texts_split_as_python_splits_them(lowercase):
    """All but Σ, which Python writes in two ways."""
    pick = random.Random(0)
    for _ in range(200):
        text = "".join(pick.choice([*CHARACTERS[:160], pick.choice(CHARACTERS)]) for _ in range(40)).replace("Σ", "s")
        words = (text.lower() if lowercase else text).split()
        tokenizer, vocabulary = tokenizer_of(words, lowercase=lowercase)
        expected = [vocabulary.index(word) for word in words]
        assert tokenizer.encode_target([text]) == [[UNK if number < 4 else number for number in expected]]


@pytest.mark.parametrize("pattern", [r"\w+|[^\w\s]", r"[a-zäöüß]+|[.!?]", r"\d+|\D"])
def test_patterns_find_what_re_finds(pattern):
    text = "Der Hund, 12 Jahre — über… alles! 3.5"
    words = re.findall(pattern, text.lower())
    tokenizer, _ = tokenizer_of(words, lowercase=True, pattern=pattern)
    assert tokenizer.target_pieces(tokenizer.encode_target([text])[0]) == words


@pytest.mark.parametrize(
    ("words", "special", "sentence"),
    [
        (["PAD", "?", "BOS", "EOS", "a", "a"], SPECIAL, "source_words: 'a' is there twice, as words 4 and 5"),
        (["PAD", "?", "EOS"], SPECIAL, "source_words: the special word 'BOS' is not there"),
        (["PAD", "?", "BOS", "EOS", 3], SPECIAL, "source_words: word 4 is 3, and words are strings"),
        (["PAD"], SpecialWords(end="<s>"), "special_words: <pad>, <unk>, <s>, <s> are not four different words"),
    ],
)
def test_what_is_wrong_with_a_list(words, special, sentence):
    assert refusal(ExportError, number_words, words, special, side="source") == sentence
