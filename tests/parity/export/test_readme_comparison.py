"""README compares the bundled model with its own weights under other programs: each row is what they print."""

import re
from importlib.util import find_spec
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from benchmarks.models.benchmarked import converter_of_demo
from helpers.demo import DEMO
from helpers.generate_oracle import GenerateOracle
from translane import Translator
from translane_export.core.torch_model import build_model
from translane_export.sources.bundle import read_bundle
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence

ROOT = Path(__file__).parents[3]


def rows():
    """The texts of README's table by the first cell: of the head, the source; of the rows, greedy and four beams."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = re.search(r"\n\| `([^`]+)` \| greedy .*?\n\|---.*?\n(.*?)\n\n", readme, re.DOTALL)
    assert table
    cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in table[2].splitlines())
    return table[1], {first: texts for first, *texts in cells}


def test_each_row_is_what_a_program_prints(tmp_path):
    source, table = rows()
    with Translator(DEMO) as translator:
        ours = [translator.translate(source, beam_size=beams).text for beams in (1, 4)]
    pieces, written = (SentencePieceProcessor(model_file=str(DEMO / f"{side}.spm")) for side in ("source", "target"))
    oracle = GenerateOracle(build_model(read_bundle(DEMO)))
    ids = (*pieces.encode(source), oracle.eos)
    searches = [Sentence(ids, DecodingOptions(max_length=64, beam_size=beams)) for beams in (1, 4)]
    theirs = [written.decode(list(found.hypotheses[0].token_ids)) for found in oracle.generate(searches)]
    assert table["Translane"] == ours
    assert table["CTranslate2 4.8.5, and `generate` of transformers 5.23"] == theirs
    assert ours != theirs
    if find_spec("ctranslate2"):
        import ctranslate2

        converter_of_demo().convert(str(tmp_path / "converted"), quantization="float32")
        engine = ctranslate2.Translator(str(tmp_path / "converted"))
        tokens = [*(f"t{number}" for number in pieces.encode(source)), "</s>"]
        found = [engine.translate_batch([tokens], beam_size=beams)[0].hypotheses[0] for beams in (1, 4)]
        assert [written.decode([int(token[1:]) for token in each]) for each in found] == theirs
