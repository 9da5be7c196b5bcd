"""Tokenizers read from Hugging Face's folders against transformers' own, on nasty texts.

transformers is told to leave special tokens in texts alone (`split_special_tokens`), as ours always does: what a user
writes is text. What else differs is deliberate, and in `Pair.expected`.
"""

import itertools
import json
import random
import shutil
import warnings

import pytest
import sentencepiece
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers import foreign_folders
from helpers.nasty_texts import FRAGMENTS, SPELLED
from translane_export.sources import foreign_tokenizers, language_codes
from translane_server.bundle.manifest import SentencePieceTokenizerEntry, SpecialIds
from translane_server.text.tokenizer import ModelIds, make_tokenizer
from translane_server.translation.languages import LanguagePairs

TEXTS = ["", " ", *FRAGMENTS, *map("".join, itertools.product(FRAGMENTS, FRAGMENTS))]
NAMES = {"de": "German", "fr": "French"}

MODEL_TYPES = {"opus-mt-zh-en": "marian", "m2m100": "m2m_100", "nllb": "m2m_100", "mbart50": "mbart"}
CLASSES = {
    "mbart": transformers.MBartTokenizer,
    "marian": transformers.MarianTokenizer,
    "opus-mt-zh-en": transformers.MarianTokenizer,
    "m2m100": transformers.M2M100Tokenizer,
    "nllb": transformers.NllbTokenizer,
    "mbart50": transformers.MBart50Tokenizer,
    "t5": transformers.T5Tokenizer,
    "bart": transformers.BartTokenizer,
}
SENTENCEPIECE = ["marian", "opus-mt-zh-en", "m2m100", "nllb", "mbart50", "t5"]
RUST = ["nllb", "mbart50", "t5"]  # transformers' are of the library tokenizers
JSON = ["nllb", "mbart50", "t5", "bart"]


class Pair:
    """A tokenizer of ours and the one that transformers' AutoTokenizer makes of the same folder.

    The `form` of the folder: as `foreign_folders` has it, with "both" that and a tokenizer.json, or that alone as
    "json".
    """

    def __init__(self, kind, folder, form="folder", config=None):
        self.kind = kind
        self.options = {"extra_special_tokens": list(language_codes.NLLB200)} if kind == "nllb" else {}
        (folder / "config.json").write_text(json.dumps({"model_type": MODEL_TYPES.get(kind, kind)}))
        self.theirs = self.load(folder)
        models = [*folder.glob("*.model"), *folder.glob("source.spm")]
        self.processor = sentencepiece.SentencePieceProcessor(model_file=str(models[0])) if models else None
        if form != "folder":
            before = {path: path.read_bytes() for path in (*models, *folder.glob("vocab.json"))}
            self.theirs.save_pretrained(folder)
            for path, content in before.items():
                path.unlink(missing_ok=True)
                if form == "both":
                    path.write_bytes(content)
            assert (folder / "tokenizer.json").is_file()
            self.theirs = self.load(folder)
        read = getattr(foreign_tokenizers, "marian" if kind == "opus-mt-zh-en" else kind)
        files, self.languages = read(folder, config or {})
        self.uses_sentencepiece = isinstance(files.entry, SentencePieceTokenizerEntry)
        ids = self.theirs
        self.special = set(ids.all_special_ids) - {ids.unk_token_id}
        special_ids = SpecialIds(
            pad=ids.pad_token_id,
            unk=ids.unk_token_id,
            bos=ids.eos_token_id if ids.bos_token_id is None else ids.bos_token_id,
            eos=ids.eos_token_id,
            decoder_start=ids.pad_token_id,
        )
        self.size = len(ids) + 250  # languages that transformers numbers as it likes where there is no tokenizer.json
        model = ModelIds(special_ids, self.size, self.size, self.languages.templates)
        self.ours = make_tokenizer(files.entry, model, files.read)

    def load(self, folder):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **self.options)
        assert isinstance(tokenizer, CLASSES[self.kind])
        return tokenizer

    def expected(self, text):
        """transformers' ids of a text, less what is deliberately different; None where nothing can be said."""
        if self.theirs.__class__ is transformers.MarianTokenizer and text.startswith(">>"):
            text = " " + text  # no language code: the target's comes with the request, and this is text
        if self.kind in ("mbart50", "t5") and any(name in text for name in SPELLED):
            return None  # its vocabulary has the names, and takes them for the tokens all the same
        ids = self.theirs(text, add_special_tokens=False, split_special_tokens=True).input_ids
        if not self.uses_sentencepiece:
            return ids if text.strip() else []
        if self.kind in RUST and not self.normalize_alike(text):
            return None
        if self.kind in ("nllb", "mbart50") and ids[-1:] == [self.theirs.convert_tokens_to_ids("\u2581")]:
            return ids[:-1]  # of white space at the end, which SentencePiece drops and the model never saw
        return ids

    def normalize_alike(self, text):
        """Whether SentencePiece and the library tokenizers make the same normal form of a text, but for white space.

        The library drops what follows in a grapheme after a character that has one (U+00A0 U+200D is a space), and T5's
        takes U+0085 for white space. Ours is SentencePiece's.
        """
        normal = self.theirs.backend_tokenizer.normalizer.normalize_str(text).replace("\u2581", " ")
        assert self.processor is not None
        words = self.processor.normalize(text).replace("\u2581", " ").split(" ")
        return list(filter(None, words)) == list(filter(None, normal.split(None if self.kind == "t5" else " ")))

    def encoded(self, text):
        ids = self.ours.encode([text])[0]
        assert ids[-1:] in ([], [self.theirs.eos_token_id])
        return ids[:-1]


def make_pair(kind, folder, form="folder"):
    if kind != "opus-mt-zh-en":
        return Pair(kind, getattr(foreign_folders, kind)(folder), form)
    if not foreign_folders.FIXTURE.is_dir():
        pytest.skip("the tokenizer of opus-mt-zh-en is not there")
    return Pair(kind, shutil.copytree(foreign_folders.FIXTURE, folder, dirs_exist_ok=True))


@pytest.fixture(
    scope="module",
    params=[
        *((kind, "folder") for kind in [*SENTENCEPIECE, "bart"]),
        *((kind, form) for kind in JSON for form in ("json", "both")),
    ],
    ids="-".join,
)
def pair(request, tmp_path_factory):
    kind, form = request.param
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Recommended. pip install sacremoses")
        return make_pair(kind, tmp_path_factory.mktemp(kind), form)


def check_text(pair, text):
    """Whether transformers says the ids of a text; they are asserted."""
    ids = pair.encoded(text)
    assert pair.special.isdisjoint(ids), "a text makes no special tokens"
    assert len(pair.ours.source_spans(text)) == len(pair.ours.encode([text])[0])
    if (expected := pair.expected(text)) is not None:
        assert ids == expected
    elif pair.uses_sentencepiece:
        known = {pair.processor.id_to_piece(id_) for id_ in range(len(pair.processor))}
        pieces = pair.processor.encode(text, out_type=str)
        assert pair.ours.source_pieces(ids) == [piece if piece in known else "<unk>" for piece in pieces]
    return expected is not None


def check_decoding(pair, ids):
    """transformers drops unknown tokens and the white space around the text."""
    ids = [id_ for id_ in ids if id_ != pair.theirs.unk_token_id]
    theirs = pair.theirs.decode(ids, skip_special_tokens=True)
    ours = pair.ours.decode([ids])[0]
    assert ours == b"".join(pair.ours.target_surfaces[i] for i in ids).removeprefix(b" ").decode(errors="replace")
    assert ours.strip() == theirs.strip()


@pytest.mark.slow  # thousands of texts
def test_ids_are_transformers_ids_and_decode_to_what_transformers_decodes_them_to(pair):
    assert len(TEXTS) > 4000
    said = {text: check_text(pair, text) for text in TEXTS}
    plain = [said[text] for text in TEXTS if not any(name in text for name in SPELLED)]
    assert sum(plain) > 0.9 * len(plain), "little is left out"
    for text in TEXTS:
        check_decoding(pair, pair.ours.encode_target([text])[0])


def test_any_ids_decode_to_what_transformers_decodes_them_to(pair):
    ids, draw = sorted(pair.theirs.get_vocab().values()), random.Random(1)
    ids = [id_ for id_ in ids if id_ < pair.size]
    for _ in range(2000):
        check_decoding(pair, draw.choices(ids, k=draw.randrange(12)))


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text() | st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3)).map("".join))
def test_any_text_is_as_in_transformers(pair, text):
    check_text(pair, text)
    check_decoding(pair, pair.ours.encode_target([text])[0])


def test_names_are_transformers_names(pair):
    first = len(pair.processor) if pair.processor else len(pair.theirs)
    ids = sorted(id_ for name, id_ in pair.theirs.get_vocab().items() if id_ < first and name != "<mask>")
    assert len(ids) > 500
    assert pair.ours.source_pieces(ids) == pair.theirs.convert_ids_to_tokens(ids)


TEXT = "The quick brown fox jumps over the lazy dog."


@pytest.mark.parametrize("kind", ["m2m100", "mbart50", "mbart50-both", "nllb", "nllb-json", "nllb-both"])
@pytest.mark.parametrize(("source", "target"), [("zh", "en"), ("en", "zh-Hans"), ("ar", "ru")])
def test_languages_are_told_as_transformers_tells_them(kind, source, target, tmp_path):
    kind, _, form = kind.partition("-")
    pair = make_pair(kind, tmp_path, form or "folder")
    found, wrong = LanguagePairs(pair.languages, pair.ours).find(source, target)
    assert not wrong
    if kind == "nllb" and not form:  # transformers numbers the languages in its own way here, after <mask>
        assert found.tokenizer.source_pieces(found.encode([TEXT])[0])[0] == found.source
        assert found.tokenizer.target_pieces(found.forced_ids) == [found.target]
        return
    pair.theirs.src_lang = found.source
    assert found.encode([TEXT])[0] == pair.theirs(TEXT).input_ids
    told = f"__{found.target}__" if kind == "m2m100" else found.target
    assert found.forced_ids == (pair.theirs.convert_tokens_to_ids(told),)
    assert found.tokenizer.decode([found.forced_ids]) == [""]


def test_the_released_sizes_of_vocabularies_give_the_released_ids_of_languages():
    """Of facebook/m2m100_418M, nllb-200 and mbart-large-50, by their numbers of pieces."""
    assert 128_004 + language_codes.M2M100.index("en") == 128_022
    assert 256_001 + language_codes.NLLB200.index("eng_Latn") == 256_047
    assert 250_001 + language_codes.MBART50.index("en_XX") == 250_004
    assert 250_001 + language_codes.MBART50.index("sl_SI") == 250_052
    assert (len(language_codes.M2M100), len(language_codes.NLLB200)) == (100, 202)


def test_mbart_puts_the_source_language_last_and_has_one_target(tmp_path):
    folder = foreign_folders.mbart(tmp_path)
    start = transformers.MBartTokenizer.from_pretrained(folder).convert_tokens_to_ids("ro_RO")
    pair = Pair("mbart", folder, config={"decoder_start_token_id": start})
    found, wrong = LanguagePairs(pair.languages, pair.ours).find("de", "")
    assert not wrong
    assert (found.source, found.target, found.forced_ids) == ("de_DE", "ro_RO", ())
    pair.theirs.src_lang = "de_DE"
    assert found.encode([TEXT])[0] == pair.theirs(TEXT).input_ids
    assert found.encode([""]) == [[]]


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_marian_has_the_target_language_before_the_source(tmp_path):
    folder = foreign_folders.marian(tmp_path, codes=("fra", "cmn_Hans", "cmn_Hant"))
    pair = Pair("marian", folder)
    assert pair.languages.target == ("fra", "cmn_Hans", "cmn_Hant")
    for wanted, code in (("fr", "fra"), ("zh-TW", "cmn_Hant"), ("zh", "cmn_Hans")):
        found, wrong = LanguagePairs(pair.languages, pair.ours).find("", wanted)
        assert not wrong
        assert found.encode([TEXT])[0] == pair.theirs(f">>{code}<< {TEXT}").input_ids
    assert found.tokenizer.source_pieces(found.encode(["a"])[0])[0] == ">>cmn_Hans<<"


def test_t5_translates_between_the_pairs_of_its_tasks(tmp_path):
    tasks = {f"translation_en_to_{code}": {"prefix": f"translate English to {name}: "} for code, name in NAMES.items()}
    config = {"task_specific_params": {**tasks, "summarization": {"prefix": "summarize: "}}}
    pair = Pair("t5", foreign_folders.t5(tmp_path), config=config)
    assert (pair.languages.source, pair.languages.target) == (("en",), ("de", "fr"))
    found, wrong = LanguagePairs(pair.languages, pair.ours).find("en", "fr-CA")
    assert not wrong
    ids = found.encode([TEXT, " ", ""])
    assert ids == [pair.theirs(f"translate English to French: {TEXT}").input_ids, [], []]
    spans = found.source_spans(TEXT)
    assert len(spans) == len(ids[0])
    assert "".join(TEXT[slice(*span)] for span in spans if span) == TEXT


def test_bart_has_a_beginning(tmp_path):
    pair = Pair("bart", foreign_folders.bart(tmp_path), config={"bos_token_id": 0})
    found = LanguagePairs(pair.languages, pair.ours).default()
    assert found.encode([TEXT])[0] == pair.theirs(TEXT).input_ids


def test_bart_may_put_a_space_before_every_text(tmp_path):
    folder = foreign_folders.bart(tmp_path)
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "add_prefix_space": True}))
    pair = Pair("bart", folder)
    assert pair.encoded("world") == pair.expected("world") == pair.encoded(" world")
    assert pair.ours.decode([pair.encoded("world")]) == ["world"]
