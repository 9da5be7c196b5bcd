"""What translane explain shows: attention, operators' times, positions and tensors."""

import json
import re

import pytest
import torch

from helpers.architectures import ARCHITECTURES, TRAINED
from helpers.bundles import SMALL_SIZES, random_model
from helpers.commands import explain as main
from helpers.demo import DEMO
from helpers.foreign_models import FOREIGN_MODELS, export
from translane_export.core.torch_model import build_model
from translane_export.explain.operators import summarise
from translane_export.explain.tensors import follow_token, position_tables, record_translation
from translane_export.explain.translation import read_source, translate
from translane_export.model import TransformerConfig
from translane_export.model.positions import sinusoid_table
from translane_export.sources.bundle import read_bundle
from translane_server.text.tokenizer import load_tokenizer

TEXT = "我有一只猫。"
FILES = {"index.html", "explain.json"}


@pytest.fixture
def explain(tmp_path, capsys):
    """Run the command; return its exit code, what it prints, and its last line on standard error."""

    def run(*arguments):
        code = main([*map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, (captured.err.splitlines() or [""])[-1].removeprefix("translane explain: ")

    return run


@pytest.mark.slow
def test_it_writes_a_folder_and_prints_a_report(explain, tiny, tmp_path):
    output = tmp_path / "seen"
    code, report, _ = explain(tiny, TEXT, "-o", output, "--threads", 1)
    assert code == 0
    assert {path.name for path in output.iterdir()} == FILES
    assert re.search(rf"^text +{TEXT}$", report, re.MULTILINE)
    assert [line for line in report.splitlines() if re.match("(en|de)coder layer", line)] == [
        "encoder layer 0",
        "decoder layer 0",
    ]
    assert re.search(r"^decoder step: a run takes [\d,]+ µs", report, re.MULTILINE)
    assert re.search(
        r"^The step chooses “.+”. Its probability is (\S+); the graphs give it \1\.$", report, re.MULTILINE
    )
    content = json.loads((output / "explain.json").read_text(encoding="utf-8"))
    assert content["text"] == TEXT
    assert set(content["files"]) == FILES - {"explain.json"}
    assert content["largest_difference"] < 1e-4


@pytest.mark.slow
@pytest.mark.skipif(not DEMO.exists(), reason="the bundled model is not in this tree")
def test_the_bundled_model(explain, tmp_path):
    code, report, _ = explain(DEMO, TEXT, "-o", tmp_path / "seen", "--threads", 1, "--beam-size", 4)
    assert code == 0
    assert re.search("^translation +I have a cat.$", report, re.MULTILINE)
    assert "zh-en 1, int8; 3 encoder and 3 decoder layers, 4 heads of 64" in report
    difference = json.loads((tmp_path / "seen" / "explain.json").read_text(encoding="utf-8"))["largest_difference"]
    assert difference < 0.05  # int8 rounds what PyTorch does not


@pytest.mark.slow
def test_only_its_own_output_is_replaced(explain, tiny, tmp_path):
    output = tmp_path / "seen"
    output.mkdir()
    (output / "index.html").write_bytes(b"old")
    (output / "explain.json").write_text('{"schema_version": 1, "files": {"index.html": {}}}')
    problem = f"output {output}: there is an output of explain already; --force replaces it"
    assert explain(tiny, TEXT, "-o", output)[::2] == (1, problem)
    assert explain(tiny, TEXT, "-o", output, "--threads", 1, "--force")[0] == 0
    assert {path.name for path in output.iterdir()} == FILES
    assert explain(tiny, TEXT, "-o", tiny, "--force")[2] == (
        f"output {tiny}: it holds other files than an output of explain, which are left alone"
    )


@pytest.mark.slow
def test_bad_input_is_one_sentence(explain, tiny, tmp_path):
    output = ("-o", tmp_path / "seen")
    for arguments, code, sentence in (
        ((), 2, "BUNDLE is required"),
        ((tiny, *output), 2, "TEXT is required"),
        ((tiny, TEXT), 2, "--output is required"),
        ((tiny, "", *output), 2, "TEXT: string should have at least 1 character, not ''"),
        ((tiny, "\udcff", *output), 2, "TEXT: "),
        ((tiny, " ", *output), 2, "TEXT: it has no tokens, so there is nothing to translate"),
        ((tiny, "好" * 40, *output), 2, "TEXT: it has 42 tokens, and the model takes 16; give one shorter sentence"),
        ((tiny, "好" * 2000, *output), 2, "TEXT: it has 2,000 characters, at most 1,024 are read"),
        ((tiny, TEXT, *output, "--target-language", "tlh"), 2, "--target-language: 'tlh' is not a language of the"),
        ((tiny, TEXT, *output, "--beam-size", "0"), 2, "--beam-size: "),
        ((tiny, TEXT, *output, "--max-length", "99"), 2, "--max-length: it is 99, and the model writes at most 16"),
        ((tmp_path / "none", TEXT, *output), 1, "there is no such folder"),
        ((tmp_path, TEXT, *output), 1, "it has no manifest.json"),
    ):
        found = explain(*arguments)
        assert (found[0], found[1]) == (code, "")
        assert sentence in found[2]
        assert not (tmp_path / "seen").exists()


def run(start, duration):
    return {"cat": "Session", "name": "model_run", "ts": start, "dur": duration, "args": {}}


def node(operator, start, duration):
    name = f"node_{operator}_kernel_time"
    return {"cat": "Node", "name": name, "ts": start, "dur": duration, "args": {"op_name": operator}}


def test_it_adds_up_by_operator():
    events = [
        run(0, 900), node("Add", 1, 800),  # warm-up
        run(1000, 100), node("Add", 1010, 20), node("MatMul", 1040, 50), node("Add", 1091, 10),
        run(2000, 500), node("Add", 2010, 400),  # the slower half
        {"cat": "Session", "name": "session_initialization", "ts": 0, "dur": 5, "args": {}},
    ]  # fmt: skip
    found = summarise("decoder step", events, 70.0, left_out=1)
    assert (found.runs, found.profiled_microseconds, found.microseconds) == (1, 100, 70.0)
    assert [(each.operator, each.nodes, each.microseconds) for each in found.operators] == [
        ("MatMul", 1, 50),
        ("Add", 2, 30),
    ]
    assert [each.share for each in found.operators] == [0.625, 0.375]


def test_a_node_within_a_node_counts_once():
    within = [node("Add", 12, 8), node("If", 10, 40), node("Loop", 25, 20), node("Add", 30, 10), node("Mul", 60, 5)]
    found = summarise("decoder step", [run(0, 100), *within], 1.0, left_out=0)
    times = {each.operator: (each.nodes, each.microseconds) for each in found.operators}
    assert times == {"If": (1, 12), "Loop": (1, 10), "Add": (2, 18), "Mul": (1, 5)}


@pytest.mark.slow
def test_a_bundles_graphs_are_profiled(findings):
    step, encoder = findings.graphs
    assert (step.graph, encoder.graph) == ("decoder step", "encoder")
    for graph in findings.graphs:
        assert sum(each.share for each in graph.operators) == pytest.approx(1)
        assert sum(each.microseconds for each in graph.operators) <= graph.profiled_microseconds
        assert all(each.nodes == int(each.nodes) >= 1 for each in graph.operators)
    nodes = {each.operator: each.nodes for each in step.operators}
    assert nodes["GroupQueryAttention"] == 6  # of three layers, one for each attention
    assert "GroupQueryAttention" in {each.operator for each in encoder.operators}


def tables(**config):
    model = random_model(TransformerConfig(**{**SMALL_SIZES, **config}))
    return model, position_tables(model)


@pytest.mark.parametrize(("most", "shown"), [(8, 8), (300, 128)])
def test_sinusoids_are_shown_once(most, shown):
    _, (table,) = tables(max_positions=most)
    torch.testing.assert_close(torch.from_numpy(table.values), sinusoid_table(shown, 16))


def test_learned_ones_are_shown_for_each_stack():
    model, (encoder, decoder) = tables(positions="learned")
    for table, stack in ((encoder, model.encoder), (decoder, model.decoder)):
        torch.testing.assert_close(torch.from_numpy(table.values), stack.embedding.positions.embedding.weight)


def test_biases_are_shown_by_distance():
    model, (encoder, decoder) = tables(**ARCHITECTURES["T5"])
    cpu = torch.device("cpu")
    bias = model.encoder.view(20, None, cpu).whole.bias[0]  # [H, T, T]
    for distance in (-12, -3, 0, 1, 12):  # the key's place less the query's
        column = distance - encoder.first_column
        expected = bias[:, max(0, -distance), max(0, -distance) + distance]
        torch.testing.assert_close(torch.from_numpy(encoder.values[:, column]), expected.detach())
    assert (decoder.first_column, decoder.values.shape) == (-12, (2, 13))
    expected = model.decoder.view(20, None, cpu).whole.bias[0, :, 12, :13]
    torch.testing.assert_close(torch.from_numpy(decoder.values), expected.detach())


def test_what_attention_knows_of_positions_is_shown():
    _, (rotary,) = tables(positions="rotary", max_positions=20)
    assert rotary.values.shape == (20, 4)
    _, (encoder, decoder) = tables(positions="alibi")
    assert encoder.values[:, -encoder.first_column].tolist() == [0, 0]
    assert decoder.values.argmax(1).tolist() == [128, 128]  # the query's own place
    _, found = tables(positions="none", relative_window=3)
    assert [table.values.shape for table in found] == [(8, 7)]
    assert tables(positions="none")[1] == ()


SOURCE, FED = [5, 6, 7, 3], [2, 9, 11]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["BART", "T5"])
@torch.inference_mode()
def test_the_weights_are_those_of_hugging_face(name):
    exported = export(FOREIGN_MODELS[name])
    theirs = exported.model.eval()
    theirs.set_attn_implementation("eager")
    bundle = exported.bundle
    languages = {"source_language": "en", "target_language": "fr"} if name == "T5" else {}
    source = read_source(bundle, load_tokenizer(bundle), "a cat", **languages)
    translated = translate(bundle, source, 1, max_length=6)
    found = record_translation(build_model(read_bundle(bundle.folder)), translated)
    source_ids, fed = torch.tensor([source.ids]), torch.tensor([translated.fed_ids])
    expected = theirs(input_ids=source_ids, decoder_input_ids=fed, output_attentions=True)
    of_hugging_face = (expected.cross_attentions, expected.encoder_attentions, expected.decoder_attentions)
    for kind, layers in zip(found.kinds, of_hugging_face, strict=True):
        torch.testing.assert_close(torch.from_numpy(kind.weights), torch.cat(layers), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", [*ARCHITECTURES, *TRAINED])
def test_every_shape_is_what_its_letters_say(name):
    config = {**ARCHITECTURES, **TRAINED}[name]
    model, _ = tables(**{key: value for key, value in config.items() if key != "joint"})
    way = follow_token(model, SOURCE, FED)  # compares the letters' numbers with the tensors
    with torch.inference_mode():
        logits = model(torch.tensor([SOURCE]), torch.tensor([4]), torch.tensor([FED]))
    torch.testing.assert_close(way.probabilities, logits[0, -1].softmax(-1))
    assert [step.shape for step in way.steps][-1] == (1, 1, model.config.target_vocab_size)
