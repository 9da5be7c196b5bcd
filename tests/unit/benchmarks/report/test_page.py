"""The generated part of docs/benchmarks.md: tables, pictures, bounds, and what is missing."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("matplotlib")
import matplotlib as mpl
from PIL import Image

from benchmarks.places import ROOT
from benchmarks.report import bounds, page, plots, results

MACHINE = {
    "processor": "Some processor",
    "cores": 2,
    "system": "Some system",
    "python": "3",
    "versions": {"onnxruntime": "1.0", "ctranslate2": "4.0"},
    "load": 1.5,
    "time": "2026-01-01T00:00:00Z",
}
QUIET = {"seconds": 120.0, "load_start": 0.5, "load_end": 2.0, "others": 0.01}
BUSY = QUIET | {"others": 0.4}
LARGEST_PICTURE = 60_000  # bytes


def reached(rate):
    return {"setting": "2 × 1", "rate": rate, "cpu_rate": rate, "tokens": 9, "sentences": 3, "trials": {}, "rounds": {}}


def cell(ours, theirs, precision="fp32", batch=1, model="demo"):
    engines = {"translane": reached(ours), "ctranslate2": reached(theirs)}
    return {"model": model, "precision": precision, "search": "greedy", "batch": batch} | engines


def latency(seconds):
    quantiles = {"p50": seconds, "p95": seconds and 2 * seconds, "p99": seconds and 3 * seconds}
    return [{"latency_seconds": quantiles, "cpu_seconds_per_sentence": 0.004, "errors": {}}]


STEPS = {name: {"1": 0.001 * factor, "32": 0.004 * factor} for name, factor in (("translane", 1), ("ctranslate2", 2))}
SAMPLES = [{"seconds": 1.0 * n, "sentences": 10 * n, "bytes": 2e8, "files": 15} for n in range(20)]
RECORDS = {
    "offline": {"machine": MACHINE, "usage": QUIET, "cells": [cell(150, 100), cell(110, 100, "int8"), cell(90, 100)]},
    "serving": {
        "machine": MACHINE,
        "usage": BUSY,
        "bound": 0.5,
        "cells": [
            {
                "model": "demo",
                "precision": "fp32",
                "search": "greedy",
                "setting": "2 × 1 MKL",
                "highest_rate": {"translane": 90.0, "ctranslate2": 30.0},
                "grid": [
                    {"rate": 2.0, "translane": latency(0.02), "ctranslate2": latency(0.03)},
                    {"rate": 60.0, "translane": latency(0.1), "ctranslate2": latency(None)},
                ],
            }
        ],
    },
    "scaling": {
        "machine": MACHINE,
        "usage": QUIET,
        "threads": 1,
        "library": "oneDNN",
        "demo-fp32": {
            "rows": STEPS,
            "lengths": STEPS,
            "memory": {"1": {"translane": 2e8, "ctranslate2": 1e8}, "32": {"translane": 3e8, "ctranslate2": 2e8}},
            "start": {"translane": 0.5, "ctranslate2": 0.25},
        },
    },
    "products-demo-fp32": {
        "machine": MACHINE,
        "threads": 1,
        "rows": {"1": {"products": [0.001], "step": [0.0015]}, "32": {"products": [0.002], "step": [0.003]}},
    },
    "steps-demo-fp32": {
        "machine": MACHINE,
        "usage": QUIET,
        "model": "demo",
        "precision": "fp32",
        "steps": [{"load": "churn", "rows": 32, "step": 0.003, "outside": 0.12}],
    },
    "soak": {
        "machine": MACHINE,
        "usage": QUIET,
        "sentences": 190,
        "requests": 20,
        "first": SAMPLES[2],
        "last": SAMPLES[-1],
        "growth": 0.0,
        "samples": SAMPLES,
    },
}


def write(folder, records):
    for name, record in records.items():
        (folder / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")
    return results.read(folder)


def page_of(found, folder):
    with mpl.rc_context(plots.STYLE):
        return "\n".join(page.Page(found, folder / "pictures", "pictures").lines())


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    found = write(folder, RECORDS)
    return found, page_of(found, folder), folder


def test_every_benchmark_has_its_part(everything):
    found, page, _ = everything
    assert found.missing == []
    assert page.startswith("Measured on Some processor, 2 cores, Some system: Python 3, onnxruntime 1.0, ctran")
    assert re.findall(r"^### (.*)", page, re.MULTILINE) == ["Bounds", *results.TITLES.values()]
    assert "| demo | fp32 | greedy | 1 | 150 | 2 × 1 | 100 | 2 × 1 | **1.50** |" in page
    assert "| 90.0 | 30.0 | **3.00** | 20.0 | 30.0 | 0.67 |" in page
    assert "| 32 | 4.00 | 8.00 | 2.00 |" in page
    assert "| 1 | 1.00 | 1.50 | 1.50 |" in page


def test_pictures_are_there_and_small(everything):
    _, page, folder = everything
    shown = re.findall(r"!\[[^\]]+\]\((\S+)\)", page)
    assert len(shown) == len(set(shown)) == 8
    for name in shown:
        assert (folder / name).stat().st_size < LARGEST_PICTURE
        with Image.open(folder / name) as picture:
            assert picture.width > 1000
            assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)


def test_what_is_missing_is_said(tmp_path):
    found = write(tmp_path, {"soak": RECORDS["soak"], "offline": RECORDS["offline"] | {"cells": []}})
    (tmp_path / "scaling.json").write_text("{", encoding="utf-8")
    found = results.read(tmp_path)
    page = page_of(found, tmp_path)
    missing = page.split("### Not measured\n")[1]
    assert "- Latency under load: `python -m benchmarks.runs.serving` has written nothing yet." in missing
    assert "- offline.json has no cell yet" in missing
    assert "- scaling.json is not JSON" in missing
    assert "### Memory over many sentences" in page
    assert "### Offline throughput" not in page


def test_nothing_at_all_is_said_too(tmp_path):
    page = page_of(results.read(tmp_path), tmp_path)
    assert page.count("has written nothing yet") == len(results.COMMANDS)
    assert "### Bounds" not in page


def test_a_busy_machine_is_told():
    assert "others used 40% of the processors' time. **The machine was in use**" in results.circumstances(
        RECORDS["serving"]
    )
    assert "in use" not in results.circumstances(RECORDS["offline"])
    assert "load average 0.5 at the start and 2.0 at the end" in results.circumstances(RECORDS["offline"])
    assert "was not recorded" in results.circumstances({"machine": MACHINE})


def test_bounds_are_kept_or_missed(everything):
    found, page, _ = everything
    verdicts = {verdict.bound: verdict for verdict in bounds.verdicts(found)}
    assert verdicts[bounds.OFFLINE["int8"]].missed == {"demo int8 greedy batch 1": pytest.approx(1.1)}
    assert verdicts[bounds.SERVING].missed == {}
    where, worst = verdicts[bounds.LOW_LOAD].worst
    assert where == "demo fp32 greedy"
    assert worst == pytest.approx(2 / 3)
    assert verdicts[bounds.OUTSIDE].missed == {"demo fp32 churn": 0.12}
    assert verdicts[bounds.MEMORY].missed == {}
    assert "demo int8 greedy batch 1 1.10 (8%)" in page
    assert "demo fp32 churn 12.0% (20%)" in page


def test_a_gpu_is_named_and_the_bounds_of_a_cpu_do_not_bind_it(tmp_path):
    on_cuda = {"device": "cuda", "machine": MACHINE | {"gpus": ["Some GPU, 1.0, 9 MiB"]}}
    found = write(tmp_path, {"steps-demo-fp16": RECORDS["steps-demo-fp32"] | on_cuda})
    page = page_of(found, tmp_path)
    assert bounds.verdicts(found) == []
    assert page.startswith("Measured on GPU Some GPU, 1.0, 9 MiB; Some processor, 2 cores")
    assert "| step ms | not waiting for the GPU % |" in page


def test_a_server_that_answers_nothing_misses_its_bound(tmp_path):
    record = json.loads(json.dumps(RECORDS["serving"]))
    record["cells"][0]["grid"][0]["translane"] = latency(None)
    record["cells"][0]["highest_rate"] = {"translane": 0.0, "ctranslate2": 0.0}
    verdicts = {verdict.bound: verdict for verdict in bounds.verdicts(write(tmp_path, {"serving": record}))}
    assert verdicts[bounds.LOW_LOAD].missed
    assert verdicts[bounds.SERVING].missed


def test_only_what_is_between_the_markers_changes():
    begin, end = page.BEGIN.format(device="cpu"), page.END.format(device="cpu")
    text = f"before\n{begin}\nold\n{end}\nafter\n"
    replaced = page.replace_part(text, "cpu", "new\n")
    assert replaced == f"before\n{begin}\n\nnew\n\n{end}\nafter\n"
    assert page.replace_part(replaced, "cpu", "new") == replaced
    with pytest.raises(ValueError, match="there are no lines"):
        page.replace_part(text, "cuda", "new")


@pytest.mark.parametrize("name", ["benchmarks.md", "decoding-costs.md", "front-ends.md"])
def test_the_pages_links_lead_somewhere(name):
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page)
    assert [link for link in links if "://" not in link and not (ROOT / "docs" / link).exists()] == []


def test_the_page_has_a_part_for_each_device():
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for device in ("cpu", "cuda"):
        assert "new" in page.replace_part(text, device, "new")
