"""Settings name the languages that a checkpoint does not, in everything that goes by languages."""

import json
import shutil
from pathlib import Path

import pytest

from helpers import foreign_folders
from helpers.commands import export as main
from translane_export.errors import ExportError
from translane_export.languages import choose_languages, is_tag
from translane_export.sources import foreign_tokenizers
from translane_server.bundle.bundle import load_bundle
from translane_server.bundle.manifest import Languages, LanguageTemplates, LanguageTokens

WHERE = Path("model")
PREFIXES = {"en": {"de": "translate English to German: ", "fr": "translate English to French: "}}
T5 = Languages(source=("en",), target=("de", "fr"), templates=LanguageTemplates(pair_prefixes=PREFIXES))


def choose(languages, **settings):
    return choose_languages(languages, checkpoint=WHERE, **settings)


@pytest.mark.parametrize(
    "tag", ["zh", "pt-BR", "zh-Hant-TW", "sr-Latn", "es-419", "ast", "zh-cmn", "de-CH-1901", "en-x-mine", "und", "EN"]
)
def test_tags(tag):
    assert is_tag(tag)


@pytest.mark.parametrize(
    "text", ["", "z", "zh_CN", "zh-", "-zh", "zh Hans", "chinese-and-more-", "x", "汉", "zh\n", "1a"]
)
def test_what_is_no_tag(text):
    assert not is_tag(text)


def test_nothing_changes_where_nothing_is_set():
    assert choose(T5) == T5


def test_templates_are_of_the_new_tags():
    tokens = LanguageTokens(source_prefix=(0,)), LanguageTokens(forced=(3,))
    templates = LanguageTemplates(source={"und": tokens[0]}, target={"und": tokens[1]})
    found = choose(Languages(source=("und",), target=("und",), templates=templates), source="en", target="pt-BR")
    assert (found.source, found.target) == (("en",), ("pt-BR",))
    assert found.templates.source == {"en": tokens[0]}
    assert found.templates.target == {"pt-BR": tokens[1]}


def test_pairs_are_of_the_new_source():
    assert choose(T5, source="en-GB").templates.pair_prefixes == {"en-GB": PREFIXES["en"]}


@pytest.mark.parametrize("prefix", [PREFIXES["en"]["fr"], "translate English to French:"])
def test_the_prefix_of_a_pair_is_of_its_languages(prefix):
    found = choose(T5, source_prefix=prefix)
    assert (found.source, found.target) == (("en",), ("fr",))
    assert found.templates == LanguageTemplates(text_prefix=prefix)


@pytest.mark.parametrize("prefix", ["translate English to Dutch: ", ""])
def test_another_prefix_is_of_languages_that_settings_name(prefix):
    assert choose(T5, source_prefix=prefix).target == ("und",)
    found = choose(T5, source_prefix=prefix, source="en", target="nl")
    assert (found.source, found.target, found.templates.text_prefix) == (("en",), ("nl",), prefix)


def test_a_prefix_before_the_sources_of_one_pair():
    found = choose(Languages(source=("zh",), target=("en",)), source_prefix="a ")
    assert (found.source, found.templates.text_prefix) == (("zh",), "a ")


def test_one_tag_does_not_stand_for_several_languages(tmp_path):
    languages = foreign_tokenizers.m2m100(foreign_folders.m2m100(tmp_path), {}).languages
    with pytest.raises(ExportError, match="--source-language is en, and the model translates from 100 languages"):
        choose(languages, source="en")
    with pytest.raises(ExportError, match="--target-language is nl, and the model translates to 2 languages"):
        choose(T5, target="nl")


def test_a_checkpoint_that_names_no_language():
    nameless = Languages(source=("zh Hans",), target=("en",))
    with pytest.raises(ExportError, match=r"model: its source_language is 'zh Hans'.*--source-language sets another"):
        choose(nameless)
    assert choose(nameless, source="zh-Hans").source == ("zh-Hans",)


@pytest.mark.slow
def test_a_bundle_is_named_by_the_languages_that_are_set(checkpoint, tmp_path, capsys):
    folder, output = shutil.copytree(checkpoint, tmp_path / "model"), tmp_path / "bundle"
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"source_language": "", "target_language": "und"}))
    flags = ["--source-language", "zh-Hans", "--target-language", "en-GB", "--source-prefix", "好"]
    assert main([str(folder), "-o", str(output), *flags]) == 0, capsys.readouterr().err
    manifest = load_bundle(output).manifest
    assert (manifest.name, manifest.source_languages, manifest.target_languages) == (
        "zh-Hans-en-GB",
        ("zh-Hans",),
        ("en-GB",),
    )
    assert manifest.language_templates.text_prefix == "好"
    assert "zh-Hans → en-GB" in (output / "README.md").read_text(encoding="utf-8")
    assert main([str(folder), "-o", str(output), "--force", "--target-language", "en_GB"]) == 2
    problem = "--target-language: it should be a BCP-47 tag such as zh or pt-BR, not 'en_GB'"
    assert problem in capsys.readouterr().err
