"""Makes the folders beside this file: OpenNMT-tf saves them, and says with CTranslate2 what their models translate.

    pip install tensorflow-cpu tf_keras tensorboard pyonmttok pyyaml rouge sacrebleu sentencepiece ctranslate2
    pip install --no-deps OpenNMT-tf
    python make.py

Made with OpenNMT-tf 2.32.0, TensorFlow 2.21.0 and CTranslate2 4.8.5. OpenNMT-tf needs Keras 2, and of TensorFlow Addons
nothing that a Transformer has, so that an empty module stands in for it. Weights are drawn from a seed. Attention is
drawn sharp, so that translations differ with their sources.
"""

from __future__ import annotations

import io
import json
import os
import random
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

os.environ |= {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
FOLDER = Path(__file__).parent
SENTENCES, FORCED, MAX_LENGTH, BEAMS = 200, 8, 16, 4
EPSILON = 1e-3  # of Keras's norms; CTranslate2's converter leaves its own 1e-5
SOURCE_LINES = ["the cat sat on the mat", "a dog ran to the house", "she reads old books at night", "two birds sing"]
TARGET_LINES = ["die Katze saß auf der Matte", "ein Hund lief zum Haus", "nachts liest sie alte Bücher", "Vögel singen"]

MODELS = {
    "base": ("num_layers=(2, 1), num_units=16, num_heads=4, ffn_inner_dim=24", "separate"),
    "post_norm": (
        "num_layers=(1, 2), num_units=16, num_heads=2, ffn_inner_dim=24, pre_norm=False, output_layer_bias=False,"
        " mha_bias=False, ffn_activation=layers.gelu, share_embeddings=models.EmbeddingsSharingLevel.ALL",
        "joint",
    ),
    "relative": (
        "num_layers=1, num_units=16, num_heads=2, ffn_inner_dim=24, position_encoder_class=None,"
        " maximum_relative_position=3, ffn_activation=tf.nn.swish,"
        " share_embeddings=models.EmbeddingsSharingLevel.TARGET",
        "separate",
    ),
    "learned": (
        "num_layers=1, num_units=16, num_heads=2, ffn_inner_dim=24, position_encoder_class=layers.PositionEmbedder,"
        " share_embeddings=models.EmbeddingsSharingLevel.SOURCE_TARGET_INPUT",
        "joint",
    ),
}
MARKED = {"post_norm": "end: true", "learned": "{start: true, end: true}"}  # symbols around sources


class Absent(types.ModuleType):
    """Stands in for TensorFlow Addons: whatever is looked up in it is another one."""

    __path__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(name)


def main() -> None:
    for name in ("", ".optimizers", ".optimizers.weight_decay_optimizers"):
        sys.modules[f"tensorflow_addons{name}"] = Absent("tensorflow_addons")
    for name, (arguments, vocabularies) in MODELS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        make(FOLDER / name, arguments, vocabularies, MARKED.get(name))
    make_types(FOLDER / "types")


def make(folder: Path, arguments: str, vocabularies: str, marked: str | None) -> None:
    import opennmt
    import tensorflow as tf

    folder.mkdir(exist_ok=True)
    tf.keras.backend.clear_session()
    controls = f"  source_sequence_controls: {marked}\n" if marked and "{" in marked else ""
    if marked and not controls:
        controls = f"  source_sequence_controls:\n    {marked}\n"
    if vocabularies == "joint":
        names = ["joint.vocab"] * 2
        train_pieces(folder / "joint", SOURCE_LINES + TARGET_LINES, 60)
    else:
        names = ["source.vocab", "target.vocab"]
        train_pieces(folder / "source", SOURCE_LINES, 40)
        train_pieces(folder / "target", TARGET_LINES, 52)
    (folder / "data.yml").write_text(
        f"model_dir: run\n\ndata:\n  source_vocabulary: {names[0]}\n  target_vocabulary: {names[1]}\n{controls}"
        "  train_features_file: train.en\nparams:\n  beam_width: 4\n"
    )
    (folder / "model_description.py").write_text(
        f"{'import tensorflow as tf' if 'tf.' in arguments else ''}\n"
        f"from opennmt import {'layers, ' if 'layers.' in arguments else ''}models\n\n\n"
        f"def model():\n    return models.Transformer({arguments})\n"
    )
    model = description(folder)
    config = opennmt.load_config([str(folder / "data.yml")])["data"]
    data = {key: str(folder / value) if "vocabulary" in key else value for key, value in config.items()}
    model.initialize(data, params={"maximum_decoding_length": 1})  # it also decodes where it is given targets
    model.create_variables()
    draw(model, sum(map(ord, folder.name)))
    for stale in folder.glob("ckpt-*"):
        stale.unlink()
    opennmt.utils.checkpoint.Checkpoint(model, model_dir=str(folder)).save(step=5)
    source, target = ([*(folder / name).read_text().splitlines(), "<unk>"] for name in names)
    pick = random.Random(1)
    sentences = [pick.choices(source[3:], k=pick.randint(1, 15)) for _ in range(SENTENCES)]
    found = {
        "sources": [" ".join(sentence) for sentence in sentences],
        "forced": [forced(model, sentence, target) for sentence in sentences[:FORCED]],
        "ctranslate2": translations(model, sentences),
    }
    (folder / "expected.json").write_text(json.dumps(found, ensure_ascii=False) + "\n")
    print(folder.name, len({tuple(each) for each in found["ctranslate2"]["1"]}), "translations")


def make_types(folder: Path) -> None:
    """Write a tensor of each type in the files of a checkpoint, and their numbers beside it."""
    import tensorflow as tf

    folder.mkdir(exist_ok=True)
    numbers = [[0.5, -1.25, 3.0], [1024.0, 0.0, -0.125]]
    types = (tf.float32, tf.float64, tf.float16, tf.bfloat16)
    tensors = {f"layer/{dtype.name}": tf.constant(numbers, dtype) for dtype in types}
    tensors["layer/scalar"] = tf.constant(2.5)
    others = {"count": tf.constant(7, tf.int64), "text": tf.constant("abc")}
    written = {**tensors, **others}
    tf.raw_ops.SaveV2(
        prefix=str(folder / "ckpt"),
        tensor_names=sorted(written),
        shape_and_slices=[""] * len(written),
        tensors=[written[name] for name in sorted(written)],
    )
    expected = {
        name: [tensor.dtype.name, tf.cast(tensor, tf.float64).numpy().tolist()] for name, tensor in tensors.items()
    }
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


def description(folder: Path) -> Any:
    content: dict[str, Any] = {}
    exec((folder / "model_description.py").read_text(), content)
    return content["model"]()


def train_pieces(path: Path, lines: list[str], size: int) -> None:
    """Write a SentencePiece model, and its pieces as OpenNMT-tf's onmt-build-vocab writes them."""
    import sentencepiece

    written = io.BytesIO()  # a file's name would stand in the model
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 3),
        model_writer=written,
        vocab_size=size,
        model_type="unigram",
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        minloglevel=2,
    )
    Path(f"{path}.model").write_bytes(written.getvalue())
    model = sentencepiece.SentencePieceProcessor(model_file=f"{path}.model")
    pieces = [model.id_to_piece(number) for number in range(len(model))]
    words = ["<blank>", "<s>", "</s>", *(piece for piece in pieces if piece not in ("<unk>", "<s>", "</s>"))]
    path.with_suffix(".vocab").write_text("".join(f"{word}\n" for word in words))


def draw(model: Any, seed: int) -> None:
    import numpy as np

    generator = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        spread = 0.8 if "multi_head" in variable.name and "relative" not in variable.name else 0.4
        values = generator.standard_normal(variable.shape) * (spread if len(variable.shape) == 2 else 0.1)
        variable.assign(values + (1.0 if "gamma" in variable.name else 0.0))
    bias = model.decoder.output_layer.bias
    if bias is not None:
        bias.assign(bias.numpy() + np.eye(len(bias.numpy()))[2] * 1.5)


def forced(model: Any, sentence: list[str], target: list[str]) -> dict[str, Any]:
    """What OpenNMT-tf's own model thinks of a random target after a source: logits of each step."""
    import tensorflow as tf

    pick = random.Random(len(sentence))
    words = pick.choices(target[3:], k=5)
    tokens = {"tokens": tf.constant([sentence]), "length": tf.constant([len(sentence)])}
    features = model.features_inputter.make_features(features=tokens)
    labels = {"ids": tf.constant([[1, *(target.index(word) for word in words)]]), "length": tf.constant([6])}
    outputs, _ = model(features, labels=labels, training=False)
    logits = outputs["logits"].numpy()[0]
    return {"target": " ".join(words), "logits": [[round(float(value), 5) for value in row] for row in logits]}


def translations(model: Any, sentences: list[list[str]]) -> dict[str, list[str]]:
    """Translations by CTranslate2's conversion, for each number of beams."""
    import ctranslate2
    from ctranslate2.converters import OpenNMTTFConverter

    class Converter(OpenNMTTFConverter):  # type: ignore[misc]
        def _load(self) -> Any:
            spec = super()._load()
            spec.config.layer_norm_epsilon = EPSILON
            return spec

    with tempfile.TemporaryDirectory() as scratch:
        Converter(model).convert(f"{scratch}/converted")
        translator = ctranslate2.Translator(
            f"{scratch}/converted", device="cpu", compute_type="float32", intra_threads=1
        )
        return {
            str(beams): [
                " ".join(result.hypotheses[0])
                for result in translator.translate_batch(
                    sentences,
                    beam_size=beams,
                    max_decoding_length=MAX_LENGTH,
                    min_decoding_length=0,
                    length_penalty=1.0,
                )
            ]
            for beams in (1, BEAMS)
        }


if __name__ == "__main__":
    main()
