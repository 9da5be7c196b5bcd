"""A folder with random weights of every format of checkpoints, and the model of another library that is in it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from helpers import hugging_face
from helpers.bundles import random_checkpoint
from helpers.marian_files import MarianFolder, MarianModel, changed, marian_folder, marian_mt, settings_of
from helpers.marian_students import FLOAT16, FLOAT32, INT8, Array, container
from helpers.pickled_checkpoints import Made, fairseq_checkpoint, opennmt_checkpoint
from translane_export.core.checkpoint import Checkpoint, load_checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.torch_model import build_model
from translane_export.model import Transformer
from translane_export.sources.huggingface import model_type
from translane_export.sources.readers import ARCHITECTURES, find_reader, hugging_face_reader

Logits = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Source ids [B, S], their lengths [B] and target ids [B, T] to logits [B, T, V]."""


@dataclass
class Subject:
    """A folder, and what is in it.

    Attributes:
        settings: the settings by the names of the format, or some of them. After a change, `save` writes them.
        symbols: the pieces of source and target by id, where the format has a vocabulary.
    """

    folder: Path  # with one checkpoint
    file: str  # name of the file that has the weights
    weights: dict[str, Tensor]  # the tensors by the names of the format. After a change, `save` writes them.
    settings: dict[str, Any]
    write: Callable[[Subject], None]  # writes weights and settings
    logits: Logits  # what the original computes
    broken: str  # name of a weight of the decoder, a matrix
    pad: int = 1  # the id that fills up sources
    symbols: tuple[list[str], list[str]] = ([], [])
    made: Any = None  # what the folder was made of, to change what is no weight and no setting

    def save(self) -> None:
        """Write the folder's weights and settings again."""
        self.write(self)

    def read(self) -> Checkpoint:
        """Read the folder as the exporter does; a folder of Hugging Face's has a tokenizer of letters."""
        reader, kind = find_reader(self.folder), model_type(self.folder)
        for architecture in ARCHITECTURES:
            if architecture.model_type == kind:
                reader = hugging_face_reader(dataclasses.replace(architecture, tokenizer=hugging_face._letters))
        return reader.read(self.folder)

    def model(self) -> Transformer:
        """Read the folder, and return the model."""
        return build_model(self.read())

    def assert_same(self) -> None:
        """Check that the model of the folder computes what the original does."""
        source = torch.tensor([[7, 9, 10, 4, 12], [5, 6, 8, self.pad, self.pad]])
        lengths, target = torch.tensor([5, 3]), torch.tensor([[2, 9, 11, 5], [2, 7, 6, 7]])
        with torch.inference_mode():
            expected = self.logits(source, lengths, target)
            found = self.model()(source, lengths, target)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-5)

    def refused(self) -> str:
        """Save the folder, and return why the exporter refuses it: one printable sentence."""
        self.save()
        with pytest.raises(ExportError) as caught:
            self.model()
        assert str(caught.value).isprintable()
        return str(caught.value)


def _of_transformers(model: Any) -> Logits:
    def logits(source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        mask = (torch.arange(source.shape[1]) < lengths[:, None]).long()
        found = model(input_ids=source, attention_mask=mask, decoder_input_ids=target, use_cache=False)
        return found.logits  # type: ignore[no-any-return]

    return logits


def _fairseq(folder: Path, kind: str) -> Subject:
    made = fairseq_checkpoint(folder, kind)
    return Subject(
        *(folder, made.path.name, made.content["model"], vars(made.content["args"])),
        write=lambda _subject: made.save(),
        logits=_of_transformers(made.model),
        broken="decoder.layers.1.encoder_attn.k_proj.weight",
        symbols=(made.source_symbols, made.target_symbols),
        made=made,
    )


def _opennmt(folder: Path, **how: Any) -> Subject:
    made = opennmt_checkpoint(folder, **how)
    weights = {**made.content["model"], **{f"generator.{name}": t for name, t in made.content["generator"].items()}}
    return Subject(
        *(folder, made.path.name, weights, vars(made.content["opt"])),
        write=lambda subject: _save_opennmt(made, subject.weights),
        logits=made.model,
        broken="decoder.transformer_layers.1.context_attn.linear_keys.weight",
        symbols=(made.source_symbols, made.target_symbols),
        made=made,
    )


def _save_opennmt(made: Made, weights: Mapping[str, Tensor]) -> None:
    made.content["generator"] = {n.removeprefix("generator."): t for n, t in weights.items() if n.startswith("gen")}
    made.content["model"] = {name: tensor for name, tensor in weights.items() if not name.startswith("gen")}
    made.save()


def _marian(folder: Path, model: MarianModel, *, joint: bool = True) -> Subject:
    made = marian_folder(folder, model, joint=joint)
    start = max(len(made.source), len(made.target))
    return Subject(
        *(folder, made.path.name, {name: torch.from_numpy(a.copy()) for name, a in made.arrays.items()}, {}),
        write=lambda subject: _save_marian(made, subject),
        logits=_of_transformers(marian_mt(made, start + 1)),
        broken="decoder_l2_ffn_W1",
        pad=start,
        symbols=(made.source, made.target),
        made=made,
    )


def _save_marian(made: MarianFolder, subject: Subject) -> None:
    made.arrays = {name: tensor.numpy() for name, tensor in subject.weights.items() if ":" not in name}
    text = settings_of(changed(made.model, **subject.settings)).encode() + b"\0"
    made.arrays["special:model.yml"] = np.frombuffer(text, np.int8)
    made.save()


def _marian_bin(folder: Path) -> Subject:
    subject = _marian(folder, MarianModel())
    subject.made.path.unlink()
    subject.file, subject.write = "model.ende.intgemm.alphas.bin", _save_marian_bin
    subject.save()
    return subject


def _save_marian_bin(subject: Subject) -> None:
    kinds = {torch.float32: FLOAT32, torch.float16: FLOAT16, torch.int8: INT8}
    text = settings_of(changed(subject.made.model, **subject.settings)).encode() + b"\0"
    arrays: list[Array] = [
        (name, kinds[tensor.dtype], tensor.shape, tensor.numpy().tobytes())
        for name, tensor in sorted(subject.weights.items())
        if ":" not in name
    ]
    arrays.append(("special:model.yml", INT8, (len(text),), text))
    (subject.folder / subject.file).write_bytes(container(arrays))


def _hugging_face(folder: Path, name: str) -> Subject:
    model = hugging_face.draw(hugging_face.MODELS[name])
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    t5 = "T5" in name
    return Subject(
        *(folder, "model.safetensors", _safetensors(folder), config),
        write=_save_safetensors,
        logits=_of_transformers(model),
        broken="decoder.block.1.layer.1.EncDecAttention.k.weight" if t5 else "model.decoder.layers.1.fc1.weight",
        pad=model.config.pad_token_id,
    )


def _translane(folder: Path) -> Subject:
    random_checkpoint(folder)
    checkpoint = load_checkpoint(folder)
    model = Transformer(checkpoint.config).eval()
    model.load_state_dict(checkpoint.state_dict)
    return Subject(
        *(folder, "model.safetensors", _safetensors(folder), json.loads((folder / "config.json").read_text())),
        write=_save_safetensors,
        logits=model,
        broken="decoder.layers.1.cross_attention.k_proj.weight",
        pad=0,
    )


def _safetensors(folder: Path) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}


def _save_safetensors(subject: Subject) -> None:
    save_file(subject.weights, subject.folder / subject.file, metadata=_header(subject))
    (subject.folder / "config.json").write_text(json.dumps(subject.settings))


def _header(subject: Subject) -> dict[str, str]:
    content = (subject.folder / subject.file).read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return header.get("__metadata__", {})  # type: ignore[no-any-return]


FORMATS: dict[str, Callable[[Path], Subject]] = {
    "fairseq": lambda folder: _fairseq(folder, "FSMT"),
    "fairseq, norms first": lambda folder: _fairseq(folder, "M2M100"),
    "fairseq, learned positions, norm of embeddings": lambda folder: _fairseq(folder, "Bart"),
    "OpenNMT-py": _opennmt,
    "OpenNMT-py 2": lambda folder: _opennmt(folder, version=2),
    "OpenNMT-py, attention without biases": lambda folder: _opennmt(folder, biases=False),
    "Marian .npz": lambda folder: _marian(folder, MarianModel()),
    "Marian .npz, two vocabularies, gelu": lambda folder: _marian(
        folder, MarianModel(tying="target", activation="gelu"), joint=False
    ),
    "Marian .npz, an output of its own": lambda folder: _marian(folder, MarianModel(tying="source", transposed=True)),
    "Marian .npz, an output of its own in 16 bits": lambda folder: _marian(
        folder, MarianModel(tying="source", float16=True)
    ),
    "Marian .bin": _marian_bin,
    "Translane": _translane,
    **{name: partial(_hugging_face, name=name) for name in hugging_face.MODELS},
}
