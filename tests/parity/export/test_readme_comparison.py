"""README compares the bundled model with its own weights under other programs: each row is what they print."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers
from sentencepiece import SentencePieceProcessor

from benchmarks.models.benchmarked import converter_of_demo
from translane import Translator
from translane_export.model.positions import sinusoid_table
from translane_export.sources.bundle import read_bundle

ROOT = Path(__file__).parents[3]
MODEL = ROOT / "models" / "zh-en"
# What Pegasus, which has the architecture, calls the parts of a layer.
PEGASUS = {
    "self_attention_residual.norm": "self_attn_layer_norm",
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
    "feed_forward_residual.norm": "final_layer_norm",
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
    "feed_forward.up_proj": "fc1",
    "feed_forward.down_proj": "fc2",
    "final_norm": "layer_norm",
}


def rows():
    """The texts of README's table by the first cell: of the head, the source; of the rows, greedy and four beams."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = re.search(r"\n\| `([^`]+)` \| greedy .*?\n\|---.*?\n(.*?)\n\n", readme, re.DOTALL)
    assert table
    cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in table[2].splitlines())
    return table[1], {first: texts for first, *texts in cells}


def of_transformers():
    """The bundled model's weights as a model of transformers, and the number that its target ids begin with.

    Pegasus has one vocabulary, so the target's follows the source's, which is never written.
    """
    checkpoint = read_bundle(MODEL)
    config, state = checkpoint.config, {name: weight.float() for name, weight in checkpoint.state_dict.items()}
    first, size = config.source_vocab_size, config.source_vocab_size + config.target_vocab_size
    sizes: dict[str, Any] = {
        "vocab_size": size,
        "d_model": config.d_model,
        "max_position_embeddings": config.max_positions,
        "activation_function": config.activation,
        "scale_embedding": config.scale_embeddings,
        "pad_token_id": config.pad_id,
        "eos_token_id": first + config.eos_id,
        "forced_eos_token_id": None,
        "decoder_start_token_id": first + config.start_id,
    }
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        sizes[f"{side}_layers"] = layers
        sizes[f"{side}_attention_heads"] = config.heads
        sizes[f"{side}_ffn_dim"] = config.ffn_size
    model = transformers.PegasusForConditionalGeneration(transformers.PegasusConfig(**sizes)).eval()
    embeddings = [state.pop(f"{side}.embedding.tokens.weight") for side in ("encoder", "decoder")]
    bias = torch.full((1, size), -torch.inf)
    bias[0, first:] = state.pop("output_projection.bias")
    del state["output_projection.weight"]  # the decoder's embeddings
    renamed = {"model.shared.weight": torch.cat(embeddings), "final_logits_bias": bias}
    for name, weight in state.items():
        for ours, theirs in PEGASUS.items():
            name = name.replace(ours, theirs)
        renamed[f"model.{name}"] = weight
    for side in ("encoder", "decoder"):
        renamed[f"model.{side}.embed_positions.weight"] = sinusoid_table(config.max_positions, config.d_model)
        renamed[f"model.{side}.embed_tokens.weight"] = renamed["model.shared.weight"]
    model.load_state_dict(renamed | {"lm_head.weight": renamed["model.shared.weight"]})
    return model, first


def test_each_row_is_what_a_program_prints(tmp_path):
    source, table = rows()
    with Translator(MODEL) as translator:
        ours = [translator.translate(source, beam_size=beams).text for beams in (1, 4)]
    model, first = of_transformers()
    pieces, written = (SentencePieceProcessor(model_file=str(MODEL / f"{side}.spm")) for side in ("source", "target"))
    ids = torch.tensor([[*pieces.encode(source), model.config.eos_token_id - first]])
    theirs = []
    for beams in (1, 4):
        (answer,) = model.generate(ids, num_beams=beams, max_new_tokens=64).tolist()
        theirs.append(written.decode([number - first for number in answer if number >= first]))
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
