"""The same questions to every format of checkpoints. What only one format has is asked beside this file."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from helpers import hugging_face
from helpers.checkpoint_formats import FORMATS, Subject
from helpers.marian_files import marian_mt
from helpers.pickled_checkpoints import Calls, train_pieces
from helpers.tiny_bundle import put_bundle
from translane_export.bundle_writer import export_checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.settings import ExportSettings
from translane_export.sources.readers import READERS, find_reader
from translane_server.bundle.bundle import load_bundle

ONE_OF_EACH = ("fairseq", "OpenNMT-py", "Marian .npz", "Marian .bin", "T5", "BART", "Translane")
BUNDLE = "model bundle"
FOREIGN = ONE_OF_EACH[:-1]
WITH_VOCABULARIES = ("fairseq", "OpenNMT-py", "Marian .npz")
JOINT_OR_TWO = ("fairseq, norms first", "Marian .npz, two vocabularies, gelu")
EMBEDDINGS = ("encoder.embedding.tokens.weight", "decoder.embedding.tokens.weight", "output_projection.weight")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Folders that are not to be written to."""
    made: dict[str, Subject] = {}
    folder = tmp_path_factory.mktemp("formats")

    def keep(name: str) -> Subject:
        if name not in made:
            made[name] = FORMATS[name](folder / str(len(made)))
        return made[name]

    return keep


@pytest.fixture
def changing(tmp_path):
    """Folders to change."""
    return lambda name: FORMATS[name](tmp_path / "folder")


@pytest.mark.parametrize("name", FORMATS)
def test_the_model_computes_what_the_original_does(kept, name):
    kept(name).assert_same()


@pytest.mark.parametrize("name", FORMATS)
def test_tables_that_were_one_are_one(kept, name):
    checkpoint = kept(name).read()
    source, target, projection = (checkpoint.state_dict[each] for each in EMBEDDINGS)
    tying = checkpoint.config.tie_embeddings
    for equal, tied in ((target, tying != "none"), (source, tying == "three-way")):
        same = equal.shape == projection.shape and torch.equal(equal, projection)
        assert same == tied == (equal.data_ptr() == projection.data_ptr())


@pytest.mark.parametrize("name", [*FORMATS, BUNDLE])
def test_one_reader_recognises_a_folder(kept, name, tmp_path):
    folder = put_bundle(tmp_path / "bundle") if name == BUNDLE else kept(name).folder
    assert [reader for reader in READERS if reader.recognises(folder)] == [find_reader(folder)]
    assert not any(reader.recognises(folder.parent) for reader in READERS)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_tensors_that_are_missing_left_over_or_of_another_shape_or_type(changing, name):
    subject = changing(name)
    good = subject.weights.pop(subject.broken)
    assert subject.broken in (problem := subject.refused())
    assert "issing" in problem
    shapes = (good[:3], "[3, "), (good[:, :, None].repeat(1, 1, 2), ", 2]"), (good[0, 0], "[]")
    for wrong, what in (*shapes, (good.char(), "int8")):
        subject.weights[subject.broken] = wrong.contiguous()
        assert subject.broken in (problem := subject.refused()) or "its weights are int8" in problem
        assert what in problem or f"[{good.shape[1]}, 3]" in problem  # Marian stores [in, out]
    subject.weights |= {subject.broken: good, "one_more.weight": torch.ones(2, 2)}
    assert "one_more.weight" in subject.refused()


@pytest.mark.parametrize("name", FOREIGN)
def test_half_precision_becomes_float32(changing, name):
    subject = changing(name)
    whole = subject.read()
    before = {key: tensor.clone() for key, tensor in whole.state_dict.items()}  # of the file that is written again
    for key, tensor in subject.weights.items():
        subject.weights[key] = tensor.half() if tensor.is_floating_point() else tensor
    subject.save()
    half = subject.read()
    assert half.config == whole.config
    for key, tensor in half.state_dict.items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, before[key], rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("name", [*ONE_OF_EACH, BUNDLE])
def test_a_file_that_is_cut_off(changing, name, tmp_path):
    path = put_bundle(tmp_path / "bundle") / "decoder.onnx"
    if name != BUNDLE:
        subject = changing(name)
        path = subject.folder / subject.file
    content = path.read_bytes()
    for size in (0, 5, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(ExportError, match=path.name):
            find_reader(path.parent).read(path.parent)


@pytest.mark.parametrize(("name", "file"), [("fairseq", ""), ("OpenNMT-py", ""), ("BART", "pytorch_model.bin")])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_of_code_is_refused_and_not_run(changing, name, file, zipped):
    subject = changing(name)
    path = subject.folder / subject.file
    if file:
        path = path.rename(path.with_name(file))
    torch.save({"model": Calls(Path.touch, subject.folder / "harm")}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ExportError, match=rf"{path.name}: it (is refused|holds more than)"):
        subject.read()
    assert not (subject.folder / "harm").exists()


UNSUPPORTED: dict[str, dict[str, tuple[Any, str]]] = {
    "fairseq": {
        "task": ("multilingual", "task is 'multilingual', and only translation is supported"),
        "encoder_layers_to_keep": ("0,1", "encoder_layers_to_keep is '0,1', which is not supported"),
        "adaptive_softmax_cutoff": ([100], "adaptive_softmax_cutoff is [100], which is not supported"),
        "no_cross_attention": (True, "no_cross_attention is True, which is not supported"),
        "activation_fn": ("tanh", "activation_fn is 'tanh', and only relu, gelu, gelu_accurate, gelu_fast are supp"),
        "encoder_attention_heads": (4, "encoder_attention_heads is 4 and decoder_attention_heads is 2, and that they"),
        "decoder_normalize_before": (True, "encoder_normalize_before and decoder_normalize_before differ"),
        "decoder_output_dim": (16, "decoder_output_dim is not the 32 of decoder_embed_dim"),
        "encoder_ffn_embed_dim": (41, "encoder_ffn_embed_dim is 41 and decoder_ffn_embed_dim is 40"),
    },
    "OpenNMT-py": {
        "copy_attn": (True, "copy_attn is True, which is not supported"),
        "max_relative_positions": (20, "max_relative_positions is 20, which is not supported"),
        "num_kv": (2, "num_kv is 2, which is not supported"),
        "parallel_residual": (True, "parallel_residual is True, which is not supported"),
        "encoder_type": ("brnn", "encoder_type is 'brnn', and only transformer is supported"),
        "model_task": ("lm", "model_task is 'lm', and only seq2seq is supported"),
        "self_attn_type": ("average", "self_attn_type is 'average', and only scaled-dot, scaled-dot-flash are supp"),
        "layer_norm": ("rms", "layer_norm is 'rms', and only standard is supported"),
        "generator_function": ("sparsemax", "generator_function is 'sparsemax', and only softmax is supported"),
        "position_encoding": (False, "position_encoding is false, and only models that have it are supported"),
        "pos_ffn_activation_fn": ("gelu_new", "pos_ffn_activation_fn is 'gelu_new', and only relu, gelu, silu, gat"),
    },
    "Marian .npz": {
        "type": ("s2s", "type is 's2s', and only transformer is supported"),
        "transformer-decoder-autoreg": ("average-attention", "is 'average-attention', and only self-attention, rnn"),
        "transformer-ffn-depth": (3, "transformer-ffn-depth is 3, and only 2 is supported"),
        "transformer-no-projection": (True, "transformer-no-projection is True, which is not supported"),
        "transformer-train-positions": (True, "transformer-train-positions is True, which is not supported"),
        "transformer-tied-layers": ([1, 1], "transformer-tied-layers is [1, 1], which is not supported"),
        "transformer-ffn-activation": ("tanh", "transformer-ffn-activation is 'tanh', and only relu, swish, gelu are"),
        "transformer-postprocess": ("dhn", "'hn', '' and '' without dropout, and supported are"),
        "transformer-heads": (5, "transformer-heads is 5, which does not divide the model's size of 32"),
    },
    "BART": {
        "activation_function": ("tanh", "activation_function is 'tanh', and only relu, gelu, gelu_new, gelu_pytorch"),
        "decoder_attention_heads": (2, "encoder_attention_heads is 4 and decoder_attention_heads is 2"),
        "decoder_ffn_dim": (64, "encoder_ffn_dim is 48 and decoder_ffn_dim is 64"),
        "d_model": (30, "encoder_attention_heads is 4, which does not divide the model's size of 30"),
    },
    "T5": {"feed_forward_proj": ("gated-tanh", "feed_forward_proj is 'gated-tanh', and only relu, gelu, gelu_new")},
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_all_that_is_not_supported_is_said_at_once(changing, name):
    subject = changing(name)
    subject.settings |= {key: value for key, (value, _) in UNSUPPORTED[name].items()}
    problem = subject.refused()
    assert problem.startswith(str(subject.folder))
    assert [said for _, said in UNSUPPORTED[name].values() if said not in problem] == []


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("fairseq", {"encoder_layers": "2", "scale_fc": True}, "scale_fc is True, which is not supported; encoder_l"),
        ("fairseq", {"decoder_layers": None}, "the setting decoder_layers is missing"),
        ("fairseq", {"share_all_embeddings": "yes"}, "share_all_embeddings is 'yes', not true or false"),
        ("fairseq", {"source_lang": None}, "source_lang is None, and it says which dict.LANGUAGE.txt is whose"),
        ("fairseq", {"target_lang": "fr"}, "dict.fr.txt: the file is missing; it numbers the model's symbols"),
        ("OpenNMT-py", {"norm_eps": "small"}, "norm_eps is 'small', not a number"),
        ("OpenNMT-py", {"heads": 5}, "heads is 5, which does not divide the model's size of 32"),
        ("Marian .npz", {"enc-depth": 3}, "the tensor encoder_l3_self_Wq is missing"),
        ("Marian .npz", {"dec-depth": 2}, "and 25 more has no place in the model"),
        ("Marian .npz", {"dim-emb": 10**12}, "dim-emb is 1000000000000, not a whole number"),
        ("Marian .npz", {"transformer-dim-ffn": 64}, "encoder_l1_ffn_W1 is [48, 32], where its settings make it"),
        (
            "Marian .npz",
            {"transformer-decoder-autoreg": "rnn", "lemma-dim-emb": 8, "right-left": True, "skip": True},
            "lemma-dim-emb is 8, which is not supported; right-left is True, which is not supported;"
            " dec-cell is 'gru', and only ssru is supported; skip is True, which is not supported",
        ),
        (
            "Marian .npz",
            {
                "transformer-decoder-autoreg": "rnn",
                "dec-cell": "ssru",
                "transformer-preprocess": "n",
                "transformer-postprocess": "da",
                "transformer-postprocess-top": "n",
                "layer-normalization": True,
                "transformer-decoder-dim-ffn": 7,
            },
            "layer-normalization is True, which is not supported; norms before sublayers with an SSRU are not supported"
            "; transformer-decoder-dim-ffn is 7, and only 0, 48 are supported",
        ),
        ("Marian .npz", {"transformer-preprocess": "n"}, "'n', 'an', '' and '' without dropout, and supported are"),
        ("BART", {"d_model": None}, "the setting d_model is missing"),
        ("BART", {"encoder_layers": 3}, "the tensor model.encoder.layers.2.self_attn.q_proj.weight is missing"),
        ("BART", {"encoder_layers": 1}, "the tensor model.encoder.layers.1.fc1.bias and 15 more has no place in"),
        ("T5", {"feed_forward_proj": "twice-gated-gelu"}, "feed_forward_proj is 'twice-gated-gelu', and only relu"),
    ],
)
def test_a_setting_that_is_wrong(changing, name, settings, said):
    subject = changing(name)
    subject.settings |= settings
    problem = subject.refused()
    assert problem.startswith(str(subject.folder))
    assert said in problem


@pytest.mark.parametrize("name", WITH_VOCABULARIES + JOINT_OR_TWO)
def test_texts_become_ids_as_the_vocabularies_number_them(kept, name):
    subject = kept(name)
    checkpoint = subject.read()
    tokenizer = checkpoint.tokenizer.load(checkpoint.config, checkpoint.languages)
    (ids,) = tokenizer.encode(["the cat sat"])
    pieces = tokenizer.source_pieces(ids)
    assert [subject.symbols[0][number] for number in ids] == pieces
    end = "" if "OpenNMT" in name else "</s>"
    assert "".join(pieces).replace("\u2581", " ") == f" the cat sat{end}"
    (written,) = tokenizer.encode_target(["ein Hund lief weit weg"])
    assert [subject.symbols[1][number] for number in written] == tokenizer.target_pieces(written)
    tags = ("en", "de") if "fairseq" in name else ("und", "und")
    assert (checkpoint.languages.source, checkpoint.languages.target) == ((tags[0],), (tags[1],))


@pytest.mark.parametrize("name", WITH_VOCABULARIES)
def test_pieces_and_their_models_belong_together(changing, name):
    subject = changing(name)
    models = sorted([*subject.folder.glob("*.spm"), *subject.folder.glob("*.model")])
    for number, path in enumerate(models):
        path.rename(path.with_name(f"pieces{number}.spm"))
    assert "it is not clear which is the source side's SentencePiece model" in subject.refused()
    for path in subject.folder.glob("*.spm"):
        path.unlink()
    assert "it has no SentencePiece model, a file that ends in .model or .spm" in subject.refused()
    (subject.folder / "bpecodes").write_text("t h 5\n")
    assert "bpecodes: subword-nmt, fastBPE and byte-level merges are not supported" in subject.refused()
    (subject.folder / "x.model").write_bytes(b"none")
    assert "x.model: it is not a SentencePiece model" in subject.refused()
    train_pieces(subject.folder / "x.model", ("быстрая коричневая лиса", "прыгает через ленивую собаку"))
    assert "so that is of another tokenizer" in subject.refused()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fairseq", "Marian .npz", "Marian .npz, an output of its own in 16 bits"])
def test_a_bundle_translates_as_the_original(tmp_path, name):
    """tests/parity asks this of other formats; transformers' `generate` searches."""
    subject, pick = FORMATS[name](tmp_path / "a"), random.Random(0)
    export_checkpoint(ExportSettings(checkpoint=subject.folder, output=tmp_path / "bundle", threads=1))
    if name == "fairseq":
        model, first, end = subject.made.model, 4, 2
        model.generation_config = GenerationConfig(
            bos_token_id=0, pad_token_id=1, eos_token_id=end, decoder_start_token_id=2, suppress_tokens=[1]
        )
    else:
        model, first, end = marian_mt(subject.made, subject.pad + 1), 2, 0
    ids = range(first, len(subject.symbols[0]))
    batch = [[*pick.choices(ids, k=pick.randint(1, 12)), end] for _ in range(100)]
    for beam_size in (1, 4):
        found = hugging_face.compare(load_bundle(tmp_path / "bundle"), model, batch, beam_size, max_length=16)
        assert found.mismatches == []
        assert found.ties <= 1
        assert 0 < found.ended < len(batch)
