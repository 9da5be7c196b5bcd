"""An export of some languages translates as the whole model does."""

import dataclasses

import pytest
import torch

from helpers.commands import export as main
from helpers.driver import BundleDecoder
from helpers.foreign_folders import corpus
from helpers.foreign_models import FOREIGN_MODELS, export
from translane_export.bundle_writer import export_checkpoint
from translane_export.core.settings import ExportSettings
from translane_export.pruning.pruning import plan_pruning
from translane_export.sources.readers import find_reader
from translane_server.bundle.bundle import load_bundle
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence
from translane_server.translation.languages import LanguagePairs

TEXTS = list(dict.fromkeys(line.strip() for line in corpus()[::40] if line.strip()))
MAX_LENGTH = 24
NEVER = -1000.0
pytestmark = pytest.mark.slow  # an export takes seconds


def translations(bundle, beam_size):
    """The pieces and the score of each text's translation, from English to German."""
    with BundleDecoder(bundle, rows=32, source_capacity=128) as decoder:
        languages = LanguagePairs(bundle.manifest.languages, decoder.tokenizer)
        pair, wrong = languages.find("en", "de")
        assert not wrong
        options = DecodingOptions(max_length=MAX_LENGTH, beam_size=beam_size)
        sources = [ids[:120] for ids in pair.encode(TEXTS)]
        sentences = [Sentence(ids, options, pair.forced_ids, len(pair.forced_ids)) for ids in sources]
        found = [best for best, *_ in decoder.together(sentences)]
        return [(decoder.tokenizer.target_pieces(best.token_ids), best.score) for best in found]


@pytest.mark.parametrize("name", ["M2M100", "NLLB-200", "mBART-50"])
def test_translations_are_those_of_the_whole_model(name, tmp_path, capsys):
    """The whole model is one that never chooses pieces that are gone: then its scores are the same, too."""
    whole = export(FOREIGN_MODELS[name]).bundle
    reader = find_reader(whole.folder)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    settings = ExportSettings(
        checkpoint=whole.folder,
        output=tmp_path / "narrow",
        languages=("de", "en"),
        vocabulary_from=(tmp_path / "texts.txt",),
        threads=1,
    )
    checkpoint = reader.read(whole.folder)
    vocabulary = plan_pruning(settings, checkpoint).vocabulary
    assert vocabulary
    kept = set(vocabulary.target)
    gone = [id_ for id_ in range(checkpoint.config.target_vocab_size) if id_ not in kept]
    assert len(gone) > 100

    arguments = [str(whole.folder), "-o", str(settings.output), "--threads", "1", "--languages"]
    texts = ["--vocabulary-from", str(tmp_path / "texts.txt")]
    assert main([*arguments, "de,en", *texts]) == 0
    assert f"vocabulary: {checkpoint.config.source_vocab_size:,} source pieces become" in capsys.readouterr().err
    narrow = load_bundle(settings.output)
    assert len(narrow.manifest.source_languages) == len(narrow.manifest.target_languages) == 2
    assert narrow.manifest.architecture.target_vocab_size == len(kept)
    pruned_from = narrow.manifest.provenance.training["pruned_from"]
    assert pruned_from["source_vocab_size"] == checkpoint.config.source_vocab_size
    assert main([*arguments, "tlh", "--force"]) == 1
    assert "'tlh' is not a language of the model" in capsys.readouterr().err

    bias = checkpoint.state_dict["output_projection.bias"].clone()
    bias[torch.tensor(gone)] = NEVER
    changed = dataclasses.replace(
        checkpoint, state_dict={**checkpoint.state_dict, "output_projection.bias": bias}, ranges=None
    )
    chosen = settings.model_copy(update={"output": tmp_path / "whole", "languages": (), "vocabulary_from": ()})
    export_checkpoint(chosen, reader=dataclasses.replace(reader, load=lambda _folder: changed))
    for beam_size in (1, 4):
        old, new = (translations(load_bundle(tmp_path / output), beam_size) for output in ("whole", "narrow"))
        assert [pieces for pieces, _ in old] == [pieces for pieces, _ in new]
        assert max(abs(one - other) for (_, one), (_, other) in zip(old, new, strict=True)) < 1e-4
        assert len({tuple(pieces) for pieces, _ in old}) > 5
