"""Marian students as Firefox ships them, exported: a reference in NumPy and fxtranslate 0.5.0 translate the same.

Of lines whose numbers are close, rounding decides. fxtranslate computes in int8, so float32 agrees with it on a part of
the lines; the reference in float32 agrees on all but those where two tokens are as good.
"""

from __future__ import annotations

import sys
from importlib import import_module

import numpy as np
import pytest

from helpers.driver import BundleDecoder
from helpers.marian_students import NAMES, SHARED, lexicon, needs_students, recorded, student_folder
from translane_export.bundle_writer import export_checkpoint
from translane_export.settings import ExportSettings
from translane_server.bundle.bundle import load_bundle
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence

pytestmark = [needs_students, pytest.mark.slow, pytest.mark.xdist_group("marian_students")]

LINES = 100
LEAST = {"de-en-shared": 0.6, "zh-en-split": 0.6}  # share of lines on which float32 agrees with fxtranslate
LONGEST = 256
TOOLS = ("marianfile", "reference", "shortlist")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    made = {}

    def export(name, shortlist=""):
        if (name, shortlist) not in made:
            folder = tmp_path_factory.mktemp(name)
            student = student_folder(folder / "student", name, unknowns=True)
            if shortlist:
                write_shortlist(student, name)
            (folder / "samples").write_text("\n".join(source for source, _ in recorded(name)[:4]), encoding="utf-8")
            settings = ExportSettings(
                checkpoint=student, output=folder / "bundle", threads=1, samples=folder / "samples"
            )
            made[name, shortlist] = student, export_checkpoint(settings), load_bundle(folder / "bundle")
        return made[name, shortlist]

    return export


@pytest.fixture
def tools(monkeypatch):
    """The modules of the reference: of Marian's files, of decoding and of shortlists."""
    monkeypatch.syspath_prepend(str(SHARED / "tools/marian-student"))
    yield [import_module(name) for name in TOOLS]
    for name in TOOLS:
        sys.modules.pop(name)


def write_shortlist(student, name):
    sizes = {"de-en-shared": (2000, 2000), "zh-en-split": (3000, 1504)}[name]
    draw = np.random.default_rng(3)
    lists = [sorted({*draw.integers(0, sizes[1], draw.integers(0, 50)).tolist()}) for _ in range(sizes[0])]
    path = student / f"lex.50.50.{name[:2]}{name[3:5]}.s2t.bin"
    path.write_bytes(lexicon(lists, first=50))


def translated(bundle, sources, *, shortlist=False):
    """Tokens and texts, under fxtranslate's rule of length."""
    with BundleDecoder(bundle, rows=16, source_capacity=LONGEST, target_capacity=LONGEST) as decoder:
        encoded = decoder.tokenizer.encode(sources)
        options = [DecodingOptions(max_length=min(2 * len(ids) + 4, LONGEST), shortlist=shortlist) for ids in encoded]
        found = decoder.together([Sentence(ids, each) for ids, each in zip(encoded, options, strict=True)])
        ids = [list(best.token_ids) for best, *_ in found]
        return encoded, ids, decoder.tokenizer.decode(ids)


@pytest.mark.parametrize("name", NAMES)
def test_fxtranslate_translates_the_same_but_for_int8(exported, name):
    _, manifest, bundle = exported(name)
    assert (manifest.source_languages, manifest.target_languages) == ((name[:2],), (name[3:5],))
    assert manifest.decoding_defaults.length_factor == 2
    lines = recorded(name)
    _, _, texts = translated(bundle, [source for source, _ in lines])
    agreed = sum(text == wanted for text, (_, wanted) in zip(texts, lines, strict=True))
    assert agreed >= LEAST[name] * len(lines), agreed
    assert len(set(texts)) > len(lines) // 2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("with_list", [False, True])
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of the reference
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_reference_in_float_chooses_the_same_tokens(exported, tools, name, with_list):
    marianfile, reference, shortlist = tools
    student, manifest, bundle = exported(name, "lex" if with_list else "")
    assert bool(manifest.decoding_defaults.use_shortlist) == with_list
    net = reference.Net(marianfile.load(str(next(student.glob("model.*.bin")))), "float")
    lists = shortlist.Shortlist(str(next(student.glob("lex.*.bin")))) if with_list else None
    encoded, found, _ = translated(bundle, [source for source, _ in recorded(name)[:LINES]], shortlist=with_list)
    wanted, margins = [], []
    for ids in encoded:
        allowed = lists and lists.candidates(ids, net.vt, "shared" in name)
        wanted.append(net.greedy(ids, cand=allowed))
        margins.append(min(net.gaps))
    different = [margin for ours, theirs, margin in zip(found, wanted, margins, strict=True) if ours != theirs]
    assert all(margin < 1e-3 for margin in different), different
    assert len(different) <= LINES // 50
    assert len({tuple(each) for each in wanted}) > LINES // 2
