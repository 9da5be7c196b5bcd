"""Whatever is wrong with a bundle is one sentence that says what and where."""

import json
import math
import os
import pickle
import shutil
import time

import msgspec
import pytest
from msgspec.structs import asdict

from fakes.serving import make_manifest
from helpers.refusals import refusal
from translane_server.bundle.bundle import file_entry, load_bundle
from translane_server.bundle.manifest import SCHEMA_VERSION
from translane_server.core.errors import BundleError

TENSOR = {"name": "x", "dtype": "float32", "shape": ["batch", 4]}
SIGNATURE = {"inputs": [TENSOR], "outputs": [TENSOR]}
FILES = ("encoder.onnx", "decoder.onnx", "source.spm", "target.spm")


def manifest(folder):
    graphs = {
        kind: {"file": f"{kind}.onnx", "inputs": [TENSOR], "outputs": [TENSOR]} for kind in ("encoder", "decoder")
    }
    files = {name: asdict(file_entry(folder / name)) for name in FILES}
    content = msgspec.to_builtins(make_manifest(name="zh-en", graphs=graphs, alignment=None, files=files))
    content["architecture"] |= {"d_model": 16, "heads": 2, "source_vocab_size": 10, "target_vocab_size": 10}
    content["special_ids"] |= {"unk": 1}
    return content


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "bundle"
    folder.mkdir()
    for name in FILES:
        (folder / name).write_bytes(name.encode())
    write(folder, manifest(folder))
    return folder


def write(folder, content):
    (folder / "manifest.json").write_text(json.dumps(content))


def error(folder):
    message = refusal(BundleError, load_bundle, folder)
    assert str(folder) in message
    return message


def removed(name):
    return lambda folder: (folder / name).unlink()


def written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def saying(**values):
    return lambda folder: write(folder, manifest(folder) | values)


def listing(name):
    """The manifest lists one more file."""
    entry = {"size": 0, "sha256": "0" * 64}
    return lambda folder: write(folder, manifest(folder) | {"files": manifest(folder)["files"] | {name: entry}})


def linked(name):
    def link(folder):
        outside = folder.with_name("outside")
        (folder / name).rename(outside)
        (folder / name).symlink_to(outside)

    return link


def a_circle(name):
    return lambda folder: ((folder / name).unlink(), (folder / name).symlink_to(name))


def a_pipe(name):
    return lambda folder: ((folder / name).unlink(), os.mkfifo(folder / name))


ANY = ("encoder.onnx", "manifest.json")
DAMAGES = [
    (shutil.rmtree, "there is no such folder"),
    (removed("manifest.json"), "it has no manifest.json"),
    (written("manifest.json", b'{"schema_version": 1,'), "manifest.json is not JSON"),
    (written("manifest.json", b'{"schema_version": ' + b"[" * 200_000), "is not JSON: recursion limit exceeded"),
    (written("manifest.json", b"[]"), "has no schema_version"),
    *((saying(schema_version=version), "has no schema_version") for version in ("1", True, None)),
    *((listing(name), "leaves the bundle") for name in ("../secret", "/etc/passwd", "a\\b")),
    *((listing(name), "is no name of a file") for name in ("a\0b", "\x1b[31m", "x" * 2000)),
    *((saying(**{key: "\x1b]0;title\x07"}), "manifest.json: ") for key in ("version", "license", "\x1b[31m")),
    (saying(source_languages=["\x1b]0;title\x07"]), "source_languages"),
    *((removed(name), f"{name} is missing") for name in FILES),
    *(
        (written("encoder.onnx", content), "encoder.onnx is not the file that was exported")
        for content in (b"encoder.onny", b"", b"encoder.onnx and more")
    ),
    *((linked(name), f"{name} is a link to ") for name in (*FILES, "manifest.json")),
    *((a_circle(name), f"{name} cannot be read: its links lead in a circle") for name in ANY),
    *((a_pipe(name), f"{name} cannot be read: it is a named pipe, not a file") for name in ANY),
]


@pytest.mark.parametrize(("damage", "problem"), DAMAGES, ids=[f"{n} {each[1]}" for n, each in enumerate(DAMAGES)])
def test_what_is_wrong_is_told_in_printable_characters(folder, damage, problem):
    damage(folder)
    assert problem in error(folder)


def test_the_path_of_a_file_in_the_place_of_the_folder(folder):
    assert "it is a file; name the folder that it lies in" in error(folder / "manifest.json")


@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_another_schema_version_says_to_export_again(folder, version):
    write(folder, manifest(folder) | {"schema_version": version})
    assert error(folder) == (
        f"model bundle {folder}: it is of schema version {version}, and this release reads version {SCHEMA_VERSION};"
        " 'translane export CHECKPOINT --output FOLDER' of this release writes it anew"
    )


def test_a_step_may_return_keys_and_values_it_does_not_change(folder):
    assert not load_bundle(folder).manifest.graphs.returns_cross
    content = manifest(folder)
    content["graphs"]["encoder"]["outputs"] = [TENSOR | {"dtype": "int8"}]
    content["graphs"]["decoder"]["outputs"] = [TENSOR, TENSOR | {"name": "present_cross_key_0", "dtype": "int8"}]
    write(folder, content)
    graphs = load_bundle(folder).manifest.graphs
    assert (graphs.cross_dtype, graphs.returns_cross) == ("int8", True)


def test_a_bundle_in_a_cache_of_downloads(folder, tmp_path):
    """As Hugging Face's cache lays it out: files in blobs, links in a snapshot."""
    repository = folder / "models--someone--zh-en"
    snapshot = repository / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for name in (*FILES, "manifest.json"):
        (folder / name).rename(repository / "blobs" / f"digest-of-{name}")
        (snapshot / name).symlink_to(f"../../blobs/digest-of-{name}")
    assert load_bundle(snapshot).path("source.spm").read_bytes() == b"source.spm"
    (tmp_path / "link").symlink_to(snapshot)
    load_bundle(tmp_path / "link")
    (snapshot / "source.spm").unlink()
    (folder / "source.spm").write_bytes(b"source.spm")
    (snapshot / "source.spm").symlink_to("../../../source.spm")
    assert f"source.spm is a link to {folder / 'source.spm'}, outside of the bundle" in error(snapshot)


def test_a_link_within_the_bundle(folder):
    (folder / "data").mkdir()
    (folder / "encoder.onnx").rename(folder / "data" / "encoder.onnx")
    (folder / "encoder.onnx").symlink_to("data/encoder.onnx")
    load_bundle(folder)


def flip(path):
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])  # the same file, of the same size


def replace(path):
    other = path.with_name("other")
    other.write_bytes(path.read_bytes()[::-1])
    other.replace(path)


HARMS = {
    "flipped": (flip, "has changed since it was checked"),
    "cut": (lambda path: os.truncate(path, 3), "has changed since it was checked"),
    "replaced": (replace, "has changed since it was checked"),
    "removed": (os.unlink, "is missing"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "cannot be read: it is a folder"),
}


@pytest.fixture(params=[True, False], ids=["settled", "new"])
def checked(folder, request):
    """A checked bundle, as another process has it. Its files have an age, or they are as new as their check."""
    if request.param:
        time.sleep(2.1)
    return pickle.loads(pickle.dumps(load_bundle(folder)))


def test_files_that_have_changed_since_they_were_checked_are_refused(checked):
    path = checked.path("decoder.onnx")
    kept = path.read_bytes()
    for harm, problem in HARMS.values():
        harm(path)
        with pytest.raises(BundleError, match=f"decoder.onnx {problem}"), checked.unchanged(FILES):
            raise AssertionError
        with checked.unchanged(["encoder.onnx"]):  # others are as they were
            pass
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        path.write_bytes(kept)
        with checked.unchanged(FILES):  # it is back, although it is another file
            pass
    write(checked.folder, {"schema_version": SCHEMA_VERSION})  # another version comes
    with checked.unchanged(FILES):
        pass


@pytest.mark.parametrize("harm", ["flipped", "cut", "replaced", "removed"])
@pytest.mark.parametrize("fails", [False, True])
def test_files_that_change_while_they_are_read_are_refused(folder, harm, fails):
    bundle = load_bundle(folder)

    def read():
        with bundle.unchanged(FILES):
            HARMS[harm][0](bundle.path("decoder.onnx"))
            if fails:
                raise RuntimeError("what was read is nonsense")

    with pytest.raises(BundleError, match=r"decoder.onnx has changed since it was checked"):
        read()


# What a manifest says, beyond what every manifest does


def with_more(content, folder, *names):
    """Let the manifest list more files."""
    for name in names:
        (folder / name).write_bytes(b"")
        content["files"][name] = asdict(file_entry(folder / name))
    return content


def with_shortlist(folder):
    content = with_more(manifest(folder), folder, "shortlist.onnx", "shortlist.dat") | {"shortlist": "shortlist.dat"}
    content["graphs"]["shortlist"] = {"file": "shortlist.onnx"} | SIGNATURE
    return content


def with_alignment(folder):
    content = with_more(manifest(folder), folder, "alignment.onnx") | {"alignment": {"layer": 0, "heads": [0, 1]}}
    content["graphs"]["alignment"] = {"file": "alignment.onnx"} | SIGNATURE
    return content


def multilingual(folder):
    templates = {
        "source": {"zh": {"source_prefix": [4]}},
        "target": {"fr": {"source_prefix": [5], "forced": [6]}},
        "pair_prefixes": {"zh": {"en": "x"}},
    }
    languages = {"source_languages": ["zh", "ja"], "target_languages": ["en", "fr"]}
    return manifest(folder) | languages | {"language_templates": templates}


def half_precision(folder):
    content = manifest(folder) | {"precision": "fp16", "weight_storage": "float16"}
    tensors = [{"name": name, "dtype": "float16", "shape": ["rows", 2, 4, 8]} for name in ("self_key_0", "x")]
    for name in ("encoder", "decoder"):
        content["graphs"][name] |= {"inputs": tensors[:1], "outputs": tensors[1:]}
    content["graphs"]["greedy"] = content["graphs"]["decoder"]
    return content


def in_blocks(folder):
    content = half_precision(folder)
    content["graphs"]["decoder"]["inputs"].append({"name": "num_blocks", "dtype": "int64", "shape": [1]})
    content["graphs"]["vocabulary_blocks"] = 2
    return content


def measured(folder):
    parity = {"sentences": 1, "tokens": 9, "max_logit_difference": 1e-5, "tolerance": 1e-4, "token_mismatches": 0}
    estimation = {"weight": 1.1, "bias": -1.4, "fitted": 500, "tested": 500, "correlation": 0.6, "mean_error": 0.2}
    quality = {"sentences": 1, "unchanged": 1}
    return manifest(folder) | {"parity": parity, "quality": quality, "quality_estimation": estimation}


def searching(folder):
    search = {"beam_size": 4, "length_penalty": 0.6, "early_stopping": True}
    return manifest(folder) | {"decoding_defaults": {"max_length": 9} | search}


GONE = object()
OF_SPM = {"kind": "sentencepiece", "source": "source.spm", "target": "target.spm"}
TYPES = "encoder.outputs: keys and values are all float32, float16, bfloat16 or int8, not "
# A manifest, a place in it, what is put there, and what the error says.
WRONG = [
    (manifest, "architecture/head_size", GONE, "architecture: object missing required field head_size"),
    (manifest, "architecture/kv_heads", 3, "kv_heads: 3 does not divide 2 heads"),
    (manifest, "architecture/decoder_unit", "lstm", "architecture.decoder_unit: invalid enum value 'lstm'"),
    *(
        (manifest, f"architecture/{name}", 8 * 10**8, f"architecture.{name}: expected int <= ")
        for name in ("encoder_layers", "heads", "head_size", "d_model", "target_vocab_size")
    ),
    (manifest, "provenance/model", GONE, "manifest.json: provenance: object missing required field model"),
    (manifest, "colour", "blue", "colour"),
    (manifest, "limits/source_tokens", "16", "limits.source_tokens"),
    (manifest, "precision", "fp8", "precision"),
    *(
        (manifest, f"special_ids/{name}", number, f"special_ids.{name}: {number} is not one of 10")
        for name in ("pad", "unk", "bos", "eos", "decoder_start")
        for number in (10, 10**12)
    ),
    *(
        (manifest, "graphs/encoder/outputs", [TENSOR | {"dtype": dtype} for dtype in types], TYPES + named)
        for types, named in [((), "none"), (("int64",), "int64"), (("float32", "int8"), "float32, int8")]
    ),
    (manifest, "tokenizer", {"kind": "tokenizers", "file": "a.json"}, "files: no entry for a.json"),
    (manifest, "tokenizer", OF_SPM | {"source_ids": "a.json"}, "files: no entry for a.json"),
    (manifest, "tokenizer", OF_SPM | {"source": "other.spm"}, "files: no entry for other.spm"),
    (manifest, "tokenizer", {"kind": "words", "source": "source.spm"}, "tokenizer"),
    (manifest, "a[...]b", 1, "manifest.json: Object contains unknown field a[...]b"),
    (manifest, "files/a[...]b", {"size": -1, "sha256": "0" * 64}, "files.a[...]b.size: expected int >= 0"),
    (manifest, "decoding_defaults/temperature", 1.0, "decoding_defaults: object contains unknown field temperature"),
    (manifest, "decoding_defaults/use_shortlist", True, "decoding_defaults.use_shortlist: the bundle has no shortlist"),
    (with_shortlist, "shortlist", None, "must be given together with graphs.shortlist"),
    (with_shortlist, "shortlist", "other.dat", "no entry for other.dat"),
    (with_shortlist, "precision", "bf16", "bf16"),
    (with_alignment, "alignment", GONE, "must be given together with graphs.alignment"),
    (with_alignment, "graphs/alignment", GONE, "must be given together with graphs.alignment"),
    (with_alignment, "files/alignment.onnx", GONE, "files: no entry for alignment.onnx"),
    (with_alignment, "alignment/layer", 1, "alignment.layer: 1"),
    (with_alignment, "alignment/layer", -1, "alignment.layer"),
    (with_alignment, "alignment/heads", [], "alignment.heads"),
    (with_alignment, "alignment/heads", [0, 2], "alignment.heads: [0, 2]"),
    (with_alignment, "alignment/heads", [1, 1], "alignment.heads: [1, 1]"),
    (with_alignment, "alignment/head", 1, "alignment: object contains unknown field head"),
    *(
        (multilingual, f"language_templates/{place}", value, f"language_templates{problem}")
        for place, value, problem in (
            ("source/de", {}, ": de is not one of source_languages"),
            ("target/zh", {}, ": zh is not one of target_languages"),
            ("pair_prefixes/zh/de", "x", ": de is not one of target_languages"),
            ("source/zh/source_suffix", [10], ".source.zh: the model has no id 10"),
            ("target/fr/forced", [99], ".target.fr: the model has no id 99"),
            ("target/fr/forced", [-1], ".target.fr.forced[0]: "),
            ("target/fr/prefix", [1], ".target.fr: object contains unknown field prefix"),
        )
    ),
    (half_precision, "graphs/greedy", None, "graphs.greedy: it is missing, and fp16 bundles have one"),
    (half_precision, "precision", "bf16", "graphs.decoder: self_key_0 is float16, and precision bf16 comp"),
    (half_precision, "precision", "int8", "graphs.decoder: self_key_0 is float16, and precision int8 comp"),
    (half_precision, "graphs/vocabulary_blocks", 7, "graphs.vocabulary_blocks: must be given together with"),
    (in_blocks, "graphs/vocabulary_blocks", None, "graphs.vocabulary_blocks: must be given together with"),
    (in_blocks, "graphs/vocabulary_blocks", 10**9, "graphs.vocabulary_blocks: 1000000000 exceeds the size"),
    (measured, "parity/max_logit_difference", math.nan, "parity.max_logit_difference: "),
    (measured, "parity/attention_tolerance", -math.inf, "parity.attention_tolerance: "),
    (measured, "parity/max_activation", {"tensor": "x", "value": math.inf}, "parity.max_activation.value: "),
    (measured, "quality/bleu", math.nan, "quality.bleu: "),
    *(
        (measured, f"quality_estimation/{name}", value, f"quality_estimation.{name}")
        for name, values in {
            "weight": (0, -1.0, 1e9, math.nan),
            "bias": (math.inf, math.nan, -1e9),
            "correlation": (1.5, math.nan),
            "mean_error": (-0.1,),
            "fitted": (0,),
            "tested": ("many",),
        }.items()
        for value in values
    ),
    *(
        (searching, f"decoding_defaults/{name}", value, f"decoding_defaults.{name}")
        for name, values in {
            "beam_size": (0, 4097, "four"),
            "length_penalty": (11, math.nan),
            "early_stopping": ("never",),
            "repetition_penalty": (0, math.inf),
            "no_repeat_ngram_size": (-1,),
            "min_length": (-1, 2**40),
        }.items()
        for value in values
    ),
]


@pytest.mark.parametrize(("base", "place", "value", "problem"), WRONG)
def test_what_is_wrong_in_a_manifest_is_named(folder, base, place, value, problem):
    content = inner = base(folder)
    *parents, name = place.split("/")
    for parent in parents:
        inner = inner[parent]
    if value is GONE:
        del inner[name]
    else:
        inner[name] = value
    write(folder, content)
    assert problem in error(folder)
