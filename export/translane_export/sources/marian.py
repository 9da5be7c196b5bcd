"""Reads Transformers that Marian trained, as Marian saves them: the native files of OPUS-MT, and Firefox's students.

A folder has the model (``.npz``, or ``.bin`` as Firefox ships it, with its settings inside), a vocabulary
(``vocab.yml``) or SentencePiece models as vocabularies, the SentencePiece models that split the texts, and often
``decoder.yml`` or a shortlist. What differs from the paper's Transformer: the decoder starts with a vector of zeros,
sinusoids are all sines before all cosines with fairseq's frequencies, norms add 1e-6, and ``gelu`` is
x · sigmoid(1.702 x). A decoder may have an SSRU in place of self-attention. An unknown word is not generated.

https://marian-nmt.github.io, https://github.com/marian-nmt/marian-dev (src/models/transformer.h)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace
from torch import Tensor

from translane_export.core.checkpoint import Checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.file_readers import ids_of_pieces, is_there, load_sentencepiece, read_json, read_text
from translane_export.core.ranges import Ranges
from translane_export.core.tokenizer_files import TokenizerFiles, sentencepiece_files
from translane_export.model.config import Activation, TransformerConfig
from translane_export.sources.foreign_tokenizers import MARIAN_CODE, languages_of_pieces
from translane_export.sources.huggingface import read_search
from translane_export.sources.marian_bin import Container, fixed_units, is_container, read_container, read_lexicon
from translane_export.sources.marian_files import read_ids, read_npz, read_settings
from translane_export.sources.model_settings import ModelSettings
from translane_export.sources.numbered_pieces import find_sentencepiece, find_sides, numbered_pieces
from translane_export.sources.placed_tensors import POSITIONS, find_table, place_tensors, sinusoids
from translane_export.sources.weight_files import stored_tensors
from translane_server.bundle.manifest import MOST_PIECES, Languages
from translane_server.bundle.shortlist import Shortlist
from translane_server.core.terminal import printable, shown

_SETTINGS = "special:model.yml"
_ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "swish": "silu", "gelu": "silu"}
_GELU = 1.702  # x · sigmoid(1.702 x) is silu(1.702 x) / 1.702
_MOST_POSITIONS = 512  # Marian has no limit; what models of sentences are trained with has
_NEVER = -10_000.0  # logit of ids that stand for nothing: no share of the probability, and a number of float16
_UNSUPPORTED = (
    "transformer-no-projection",
    "transformer-no-bias",
    "transformer-no-affine",
    "transformer-train-position-embeddings",
    "transformer-train-positions",
    "transformer-tied-layers",
    "transformer-pool",
    "transformer-rnn-projection",
    "lemma-dim-emb",
    "right-left",
    "ulr",
)
_CHOICES: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
}
_UNSUPPORTED_IN_CELLS = ("layer-normalization", "skip")
_LENGTH_FACTOR = 2.0  # of Firefox: a translation has at most so many tokens for each of its source
_NO_WEIGHT = re.compile("^special:|_QuantMultA$")  # the settings, and ranges of int8
_PAIR = re.compile(r"model\.(?:([a-z]{2})([a-z]{2})|([a-z]{3})en|en([a-z]{3}))\.intgemm\..*")
_EOS, _UNK = "</s>", "<unk>"
_SIDES = ({"source", "src", "srcvocab"}, {"target", "tgt", "trg", "trgvocab"})
_EMBEDDINGS = ("Wemb", "encoder_Wemb", "decoder_Wemb", "decoder_ff_logit_out_Wt")
_BIAS = "decoder_ff_logit_out_b"
_MATRIX = re.compile(r"(en|de)coder_(l\d+_((self|context|ffn)_W[qkvo12]|rnn_Wf?)|ff_logit_out_W)")


class MarianVocabularies(NamedTuple):
    """What the vocabularies of a folder say; ``sizes`` are one more than the largest id of the source, the target."""

    tokenizer: TokenizerFiles
    languages: Languages
    sizes: tuple[int, int]
    eos: int
    unk: int
    is_shared: bool


def is_marian(folder: Path) -> bool:
    """Whether there is an .npz file, or a .bin file of Marian's."""
    return bool(_model_files(folder))


def read_marian(folder: Path) -> Checkpoint:
    """Read the folder. Its languages are those of Firefox's names of files, and of its tokens ``>>fra<<``."""
    decoder = _decoder_settings(folder)
    path = _model_file(folder, decoder)
    stored = Container(read_npz(path), {}) if path.suffix == ".npz" else read_container(path)
    tensors = stored.arrays
    settings = _settings(tensors, path)
    sizes = _sizes(settings)
    vocabularies = _vocabularies(folder, decoder)
    tensors = {name: _oriented(name, tensor) for name, tensor in tensors.items() if not _NO_WEIGHT.search(name)}
    rows = _rows(vocabularies, tensors, path)
    fields = sizes | _special_ids(vocabularies, rows, unknowns=bool(decoder.get("allow-unk")))
    _scale_gelu(settings, tensors)
    tensors = _with_start(tensors, fields["pad_id"] + 1, path)
    table = partial(sinusoids, 0, fields["max_positions"], fields["d_model"])
    model = place_tensors(
        stored_tensors(tensors, path),
        fields,
        _names(settings),
        path=path,
        tables=dict.fromkeys(POSITIONS.values(), table),
        unbiased=r".*\.(q_proj|k_proj|v_proj|out_proj)",
    )
    generation = generation_settings(decoder)
    search = read_search(ModelSettings({folder / "decoder.yml": generation}))
    shortlist = _shortlist(folder, vocabularies)
    found = replace(search.defaults, use_shortlist=True) if shortlist else search.defaults
    defaults: dict[str, Any] = {"decoding_defaults": found}
    if _is_recurrent(settings):
        defaults["default_length_factor"] = _LENGTH_FACTOR
    if ranges := _int8(stored, settings, model.config, path):
        defaults["precision"] = "int8"
    return Checkpoint(
        **model._asdict(),
        tokenizer=vocabularies.tokenizer,
        languages=_with_names(vocabularies.languages, path.name),
        metadata={"generation": generation} if generation else {},
        settings=defaults,
        left_out_search=search.left_out,
        shortlist=shortlist,
        ranges=ranges,
    )


def _int8(stored: Container, settings: ModelSettings, config: TransformerConfig, path: Path) -> Ranges | None:
    """The int8 that the file has, if it has all of it, and no activation whose weights are changed."""
    if settings.get("transformer-ffn-activation") == "gelu":
        return None
    try:
        return fixed_units(stored, _names(settings), config)
    except ValueError as error:
        raise ExportError(f"{path}: {error}") from None


def generation_settings(decoder: Mapping[str, Any]) -> dict[str, Any]:
    """How decoder.yml has translations generated, in the terms of Hugging Face's generation_config.json.

    Marian divides a hypothesis's score by its length to the power of ``normalize``, as ``length_penalty`` does. Without
    ``normalize`` it divides by nothing.
    """
    found: dict[str, Any] = {}
    beams, power = decoder.get("beam-size"), decoder.get("normalize", 0)
    if isinstance(beams, int) and not isinstance(beams, bool) and beams > 0:
        found["num_beams"] = beams
        if isinstance(power, int | float) and power >= 0:
            found["length_penalty"] = float(power)
    return found


def _with_names(languages: Languages, file: str) -> Languages:
    """The languages, with those that are not known yet from the name of the model: model.deen.intgemm.alphas.bin.

    Where one code has three letters, the other one is English.
    """
    if languages.templates.target or not (named := _PAIR.fullmatch(file)):
        return languages
    source, target = named[1] or named[3], named[2] or named[4]
    return Languages(source=(source or "en",), target=(target or "en",))


def _model_files(folder: Path) -> list[str]:
    packed = (path.name for path in folder.glob("*.bin") if path.match("model.*.intgemm*.bin") or is_container(path))
    return sorted([*(path.name for path in folder.glob("*.npz")), *packed])


def _model_file(folder: Path, decoder: Mapping[str, Any]) -> Path:
    files = _model_files(folder)
    named = decoder.get("models")
    if isinstance(named, list) and len(named) > 1:
        raise ExportError(f"{folder / 'decoder.yml'}: it names {len(named)} models, and ensembles are not supported")
    if isinstance(named, list) and named and Path(str(named[0])).name in files:
        return folder / Path(str(named[0])).name
    if len(files) != 1:
        raise ExportError(
            f"checkpoint {folder}: it has {len(files)} models, {shown(', '.join(files))}; leave the one to export"
        )
    return folder / files[0]


def _settings(tensors: Mapping[str, Tensor], path: Path) -> ModelSettings:
    if _SETTINGS not in tensors or tensors[_SETTINGS].element_size() != 1:
        raise ExportError(f"{path}: it is no model of Marian's, which has its settings in {_SETTINGS}")
    try:
        text = tensors[_SETTINGS].flatten().view(torch.uint8).numpy().tobytes().rstrip(b"\0").decode()
        settings = ModelSettings({path: read_settings(text)})
    except ValueError as error:
        raise ExportError(f"{path}: {_SETTINGS}: {printable(str(error), 200)}") from None
    if any(tensor.dtype in (torch.int8, torch.uint8) for name, tensor in tensors.items() if name != _SETTINGS):
        raise ExportError(f"{path}: its weights are int8, and only those of float32 and float16 are read")
    return settings


def _oriented(name: str, tensor: Tensor) -> Tensor:
    """The weight of a projection as [out, in]: Marian stores [in, out]."""
    return tensor.t().contiguous() if _MATRIX.fullmatch(name) and tensor.ndim == 2 else tensor


def _sizes(settings: ModelSettings) -> dict[str, Any]:
    """What the settings say of the fields of `TransformerConfig`. Refuses what is not supported."""
    settings.refuse(_UNSUPPORTED)
    for name, supported in _CHOICES.items():
        settings.choice(name, supported, supported[0])
    pre, embedding = _norms(settings)
    is_recurrent = _is_recurrent(settings)
    if is_recurrent:
        settings.choice("dec-cell", ("ssru",), "gru")
        settings.refuse(_UNSUPPORTED_IN_CELLS)
        if pre:
            settings.unsupported("transformer-preprocess", "norms before sublayers with an SSRU are not supported")
    width, inner = settings.whole("dim-emb"), settings.whole("transformer-dim-ffn")
    settings.choice("transformer-decoder-dim-ffn", (0, inner), 0)
    sizes = {
        "d_model": width,
        "encoder_layers": settings.whole("enc-depth"),
        "decoder_layers": settings.whole("dec-depth"),
        "heads": settings.heads("transformer-heads", settings.whole("transformer-heads"), width),
        "ffn_size": inner,
        "activation": settings.activation("transformer-ffn-activation", _ACTIVATIONS, "swish"),
        "norm": "pre" if pre else "post",
        "embedding_norm": embedding,
        "positions": "learned",
        "max_positions": _MOST_POSITIONS,
        "layer_norm_eps": 1e-6,
    }
    settings.check_supported()
    return sizes | ({"decoder_unit": "ssru"} if is_recurrent else {})


def _rows(vocabularies: MarianVocabularies, tensors: Mapping[str, Tensor], path: Path) -> tuple[int, int]:
    """How many pieces the model embeds, of the source and of the target."""
    rows: list[int] = []
    for side, stack, pieces in zip(("source", "target"), POSITIONS, vocabularies.sizes, strict=True):
        rows.append(len(find_table(tensors, "Wemb" if "Wemb" in tensors else f"{stack}_Wemb", path)))
        if rows[-1] < pieces:
            raise ExportError(f"{path}: its {side} vocabulary has {pieces:,} pieces, and the model embeds {rows[-1]:,}")
    return rows[0], rows[1]


def _shortlist(folder: Path, vocabularies: MarianVocabularies) -> Shortlist | None:
    """The shortlist that the folder has, if it has one."""
    found = sorted(folder.glob("lex.*.bin"))
    if len(found) > 1:
        raise ExportError(f"checkpoint {folder}: it has {len(found)} shortlists, lex.*.bin; leave the one to export")
    return read_lexicon(found[0], *vocabularies.sizes, is_shared=vocabularies.is_shared) if found else None


def _special_ids(vocabularies: MarianVocabularies, rows: tuple[int, int], *, unknowns: bool) -> dict[str, Any]:
    """The fields of `TransformerConfig` about vocabularies: decoders start with a vector of zeros beyond both."""
    start = max(rows)
    return {
        "source_vocab_size": start + 1,
        "target_vocab_size": start + 1,
        "pad_id": start,
        "unk_id": vocabularies.unk,
        "bos_id": start,
        "eos_id": vocabularies.eos,
        "decoder_start_id": start,
        "suppressed_ids": (*(() if unknowns else (vocabularies.unk,)), *range(rows[1], start + 1)),
    }


def _is_recurrent(settings: ModelSettings) -> bool:
    return bool(settings.get("transformer-decoder-autoreg") == "rnn")


def _norms(settings: ModelSettings) -> tuple[bool, bool]:
    """Whether norms come before sublayers, and whether one comes after the embeddings. Dropout (d) is for training."""
    names = ("preprocess", "postprocess", "postprocess-top", "postprocess-emb")
    before, after, top, embedding = (str(settings.get(f"transformer-{name}") or "").replace("d", "") for name in names)
    if embedding not in ("", "n") or (before, after, top) not in (("", "an", ""), ("n", "a", "n")):
        settings.unsupported(
            "transformer-preprocess",
            "transformer-preprocess, -postprocess, -postprocess-top and -postprocess-emb are"
            f" {shown(before)}, {shown(after)}, {shown(top)} and {shown(embedding)} without dropout, and supported are"
            " norms after each sublayer ('', 'an', '') and before it ('n', 'a', 'n'), with '' or 'n' for embeddings",
        )
    return before == "n", embedding == "n"


def _scale_gelu(settings: ModelSettings, tensors: dict[str, Tensor]) -> None:
    """Make feed-forward networks with Marian's gelu ones with silu."""
    if settings.get("transformer-ffn-activation") != "gelu":
        return
    for name, tensor in tensors.items():
        if re.fullmatch(r"(en|de)coder_l\d+_ffn_[Wb]1", name):
            tensors[name] = tensor.double() * _GELU
        elif re.fullmatch(r"(en|de)coder_l\d+_ffn_W2", name):
            tensors[name] = tensor.double() / _GELU


def _with_start(tensors: Mapping[str, Tensor], size: int, path: Path) -> dict[str, Tensor]:
    """The tensors, with embeddings of `size` ids; those that Marian lacks are zeros, and never generated."""
    changed = dict(tensors)
    for name in (*_EMBEDDINGS, "decoder_ff_logit_out_W"):
        if name in tensors:
            find_table(tensors, name, path)  # refuses what is none
    for name in (*_EMBEDDINGS, "decoder_ff_logit_out_W", _BIAS):
        if name in tensors and tensors[name].numel() and (rows := _pieces(tensors[name], name)) >= size:
            raise ExportError(f"{path}: {name} has {rows:,} pieces, and the embeddings have {size - 1:,}")
    for name in (*_EMBEDDINGS, "decoder_ff_logit_out_W"):
        if name in tensors and tensors[name].ndim == 2:
            table = tensors[name]
            changed[name] = torch.cat([table, table.new_zeros(size - len(table), table.shape[1])])  # [V, M]
    rows = len(next(tensors[name] for name in ("decoder_Wemb", "Wemb") if name in tensors))
    bias = tensors.get(_BIAS, torch.zeros(1, rows)).flatten()
    changed[_BIAS] = torch.cat([bias, bias.new_full((size - len(bias),), _NEVER)])
    return changed


def _pieces(tensor: Tensor, name: str) -> int:
    return tensor.numel() if name == _BIAS else len(tensor)


def _names(settings: ModelSettings) -> dict[str, str | tuple[str, ...]]:
    """Our parameters to theirs; ``**`` is the number of a layer, counted from 1."""
    pre, _ = _norms(settings)
    suffix = "_pre" if pre else ""
    tables = ("decoder_Wemb", "Wemb")
    names: dict[str, str | tuple[str, ...]] = {
        "encoder.embedding.tokens.weight": ("encoder_Wemb", "Wemb"),
        "decoder.embedding.tokens.weight": tables,
        "output_projection.weight": ("decoder_ff_logit_out_Wt", "decoder_ff_logit_out_W", *tables),
        "output_projection.bias": _BIAS,
    }

    def norm(ours: str, theirs: str) -> None:
        names[f"{ours}.weight"], names[f"{ours}.bias"] = (theirs.format(part) for part in ("scale", "bias"))

    if is_recurrent := _is_recurrent(settings):
        norm("decoder.layers.*.ssru_residual.norm", "decoder_l**_rnn_ffn_ln_{}")
        names["decoder.layers.*.ssru.cell_proj.weight"] = "decoder_l**_rnn_W"
        names["decoder.layers.*.ssru.forget_proj.weight"] = "decoder_l**_rnn_Wf"
        names["decoder.layers.*.ssru.forget_proj.bias"] = "decoder_l**_rnn_bf"
    for side, parts in (("encoder", ("self",)), ("decoder", ("context",) if is_recurrent else ("self", "context"))):
        ours, theirs = f"{side}.layers.*", f"{side}_l**"
        norm(f"{side}.final_norm", f"{side}_top_ln_{{}}")
        norm(f"{side}.embedding.norm", f"{side}_emb_ln_{{}}_pre")
        norm(f"{ours}.feed_forward_residual.norm", f"{theirs}_ffn_ffn_ln_{{}}{suffix}")
        for one, other in (("up", "1"), ("down", "2")):
            names[f"{ours}.feed_forward.{one}_proj.weight"] = f"{theirs}_ffn_W{other}"
            names[f"{ours}.feed_forward.{one}_proj.bias"] = f"{theirs}_ffn_b{other}"
        for part in parts:
            attention = "self_attention" if part == "self" else "cross_attention"
            norm(f"{ours}.{attention}_residual.norm", f"{theirs}_{part}_Wo_ln_{{}}{suffix}")
            for one, other in (("q", "q"), ("k", "k"), ("v", "v"), ("out", "o")):
                names[f"{ours}.{attention}.{one}_proj.weight"] = f"{theirs}_{part}_W{other}"
                names[f"{ours}.{attention}.{one}_proj.bias"] = f"{theirs}_{part}_b{other}"
    return names


def _decoder_settings(folder: Path) -> dict[str, Any]:
    """What decoder.yml says; nothing where there is none."""
    path = folder / "decoder.yml"
    if not is_there(path):
        return {}
    try:
        return read_settings(read_text(path))
    except ValueError as error:
        raise ExportError(f"{path}: {error}") from None


def _vocabularies(folder: Path, decoder: Mapping[str, Any]) -> MarianVocabularies:
    """The vocabularies that decoder.yml names, or else those that the folder has."""
    source, target = paths = _vocabulary_files(folder, decoder)
    if source.suffix == ".spm":
        models = [load_sentencepiece(path) for path in paths]
        ids = [ids_of_pieces(model) for model in models]
        special = [{_EOS: model.eos_id(), _UNK: model.unk_id()} for model in models]
        tokenizer = sentencepiece_files(source, target)
    else:
        ids = [_read_ids(path) for path in paths]
        special = [{name: pieces.get(name, -1) for name in (_EOS, _UNK)} for pieces in ids]
        tokenizer = numbered_pieces(*find_sentencepiece(folder, _SIDES), *ids, source_eos=True)
    for name in (_EOS, _UNK):
        for path, numbers in zip(paths, special, strict=True):
            if numbers[name] < 0:
                raise ExportError(f"{path}: it has no {name}")
        if special[0][name] != special[1][name]:
            raise ExportError(f"{target}: {name} is not the same id as in {source.name}, which is not supported")
    languages = languages_of_pieces(ids[0], MARIAN_CODE)
    sizes = 1 + max(ids[0].values()), 1 + max(ids[1].values())
    special_ids = special[0][_EOS], special[0][_UNK]
    return MarianVocabularies(tokenizer, languages, sizes, *special_ids, is_shared=ids[0] == ids[1])


def _vocabulary_files(folder: Path, decoder: Mapping[str, Any]) -> tuple[Path, Path]:
    named = decoder.get("vocabs")
    if isinstance(named, list) and len(named) == 2:
        source, target = (folder / Path(str(name)).name for name in named)
    else:
        found = sorted(path for path in folder.iterdir() if re.search(r"vocab.*\.(ya?ml|json|spm)$", path.name))
        if not found:
            raise ExportError(f"checkpoint {folder}: it has no vocabulary, such as vocab.yml or vocab.spm")
        source, target = find_sides(folder, found, _SIDES, "vocabulary")
    for path in (source, target):
        if not path.is_file():
            raise ExportError(f"{path}: the file is missing, a vocabulary")
        if path.suffix not in (".yml", ".yaml", ".json", ".spm") or path.suffix != source.suffix:
            raise ExportError(f"{path}: vocabularies are .yml, .json or .spm files, both of one kind")
    return source, target


def _read_ids(path: Path) -> dict[str, int]:
    try:
        ids: dict[str, Any] = read_json(path) if path.suffix == ".json" else read_ids(read_text(path))
    except ValueError as error:
        raise ExportError(f"{path}: {error}") from None
    if not ids or not all(type(id_) is int and 0 <= id_ < MOST_PIECES for id_ in ids.values()):
        raise ExportError(f"{path}: it is no vocabulary, which gives pieces their ids")
    return ids
