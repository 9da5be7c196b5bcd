"""The generated part of docs/benchmarks.md: tables, pictures, bounds, and what is missing."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

pytest.importorskip("matplotlib")
import matplotlib as mpl
from PIL import Image

from benchmarks.places import ROOT
from benchmarks.report import bounds, details, page, plots, results, summary
from benchmarks.report.pictures import Pictures

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


def rates(*found):
    return [{"rate": rate, "failed": number} for number, rate in enumerate(found)]


STEPS = {name: {"1": 0.001 * factor, "32": 0.004 * factor} for name, factor in (("translane", 1), ("ctranslate2", 2))}
SAMPLES = [{"seconds": 1.0 * n, "sentences": 10 * n, "bytes": 2e8, "files": 15} for n in range(20)]
VNNI = MACHINE | {"processor": "Some processor (avx512_vnni)"}
RECORDS: dict[str, Any] = {
    "offline": {
        "machine": VNNI,
        "usage": QUIET,
        "cells": [cell(150, 100), cell(110, 100, "int8"), cell(90, 100, batch=8)],
    },
    "without_vnni": {"machine": MACHINE, "usage": QUIET, "cells": [cell(130, 100, "int8"), cell(80, 100, "int8", 64)]},
    "serving": {
        "machine": VNNI,
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
                "texts": [
                    {"texts": 1, "batch_size": 32, "translane": rates(90, 91), "ctranslate2": rates(60, 60)},
                    {"texts": 64, "batch_size": 64, "translane": rates(90, 90), "ctranslate2": rates(120, 120)},
                ],
                "trace": {
                    **{"requests": 40, "sentences": 80, "rate": 20.0, "seconds": 4.0},
                    **{"translane": latency(0.1), "ctranslate2": latency(0.08)},
                },
            }
        ],
    },
    "students": {
        "machine": MACHINE,
        "rows": [
            {"bundle": name, "precision": "int8", "parameters": 9, "rows": 1, "beams": 1, "bleu": 30.0}
            | {"milliseconds": 2.0, "ratio": ratio}
            for name, ratio in (("zh-en", 1.0), ("student", 2.5))
        ],
    },
    "front-ends": {"parts": {}},
    "scaling": {
        "machine": VNNI,
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
        return "\n".join(details.lines(found, Pictures(folder / "pictures", "pictures")))


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    found = write(folder, RECORDS)
    return found, page_of(found, folder), folder


def test_every_benchmark_has_its_part(everything):
    found, page, _ = everything
    assert found.missing == []
    assert page.startswith("Measured on Some processor (avx512_vnni), 2 cores, Some system: Python 3, onnxruntime 1.0")
    assert re.findall(r"^### (.*)", page, re.MULTILINE) == ["Bounds", *results.TITLES.values()]
    assert "| demo | fp32 | greedy | 1 | 150 | 2 × 1 | 100 | 2 × 1 | 1.50 |" in page
    assert "| 90.0 | 30.0 | 3.00 | 20.0 | 30.0 | 1.50 |" in page
    assert "| 32 | 4.00 / 8.00, 2.00 |" in page
    assert "| 1 | 200 / 100, **0.50** |" in page
    assert "| 1 | 1.50 (1.50) |" in page
    assert "| churn, 32 | 3.00, 12.0% |" in page
    assert "| demo | fp32 | greedy | 90 / 60, 1.51 | 90 / 120, **0.75** | 2 / 2 |" in page
    assert "| demo | fp32 | greedy | 40 | 20.0 | 100 / 200 / 300 | 4.0 | 0 | 80 / 160 / 240 | 4.0 | 0 | 1.00 |" in page
    assert "| student | int8 | 9 | 1 | 1 | 30.00 | 2.000 | 2.50 |" in page


def test_the_short_table_has_a_row_for_each_search_and_lists_what_is_lost(everything):
    found, _, _ = everything
    lines = list(summary.lines(summary.records_of(found, "vnni"), summary.scaling_of(found, "vnni")))
    assert lines[0] == "Some processor (avx512_vnni), 2 cores; measured on 2026-01-01."
    assert "in use" in lines[1]  # while the servers were measured
    assert "| demo | fp32 | greedy | 1.50 | **0.90** | – | 3.00 | 1.50 |" in lines
    assert "| demo | int8 | greedy | 1.10 | – | – | – | – |" in lines
    assert "Translane is as fast or faster in 2 of 3 offline comparisons; the median is 1.10." in lines
    assert "Translane is as fast or faster in 3 of 5 comparisons of servers; the median is 1.50." in lines
    assert lines[-2:] == [
        "- demo fp32 greedy: batch 8 **0.90**, 64 texts a request **0.75**, bursts: p95 **0.80**.",
        "- demo fp32 on 1 threads: start-up **0.50**, memory at worst **0.50**.",
    ]


def test_the_same_machine_without_vnni_has_a_short_table_of_its_own(everything):
    found, page, _ = everything
    lines = list(summary.lines(summary.records_of(found, "avx2"), summary.scaling_of(found, "avx2")))
    assert lines[:2] == ["Some processor, 2 cores; measured on 2026-01-01.", ""]
    assert "| demo | int8 | greedy | 1.30 | – | – | – | – |" in lines
    assert lines[-1] == "- demo int8 greedy: batch 64 **0.80**."
    assert "demo int8 greedy batch 64 without VNNI 0.80 (33%)" in page


def test_a_step_that_is_lost_in_noise_has_no_ratio(tmp_path):
    record = json.loads(json.dumps(RECORDS["scaling"]))
    record["demo-fp32"]["rows"]["translane"]["1"] = -0.002
    found = write(tmp_path, {"scaling": record})
    assert "| 1 | -2.00 / 2.00, – |" in page_of(found, tmp_path)
    (row,) = summary.ratios_of_growth(found["scaling"]).values()
    assert "step of 1 row" not in row
    assert row["step of 32 rows"] == pytest.approx(2.0)


def test_only_the_short_tables_of_what_was_measured_are_written(tmp_path):
    def text(part):
        return f"{page.BEGIN.format(part=part)}\nold\n{page.END.format(part=part)}\n"

    record = RECORDS["offline"] | {"machine": MACHINE}
    hidden = RECORDS["without_vnni"]
    found = write(tmp_path, {"offline": record, "without_vnni": hidden})
    written = page.rewritten("".join(map(text, ("vnni", "avx2", "cpu"))), found, "cpu", Pictures(tmp_path, "here"))
    vnni, avx2, _ = (part.partition(": end")[0] for part in written.split("begin;")[1:])
    assert "old" in vnni
    assert "| demo | fp32 | greedy | 1.50 | **0.90** |" in avx2
    assert "batch 64" not in avx2  # what a processor without VNNI has left from another one
    assert "This processor has no VNNI" in written


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
    assert "- Servers under load: `python -m benchmarks.runs.serving` has written nothing yet." in missing
    assert "- offline.json has no cell yet" in missing
    assert "- scaling.json is not JSON" in missing
    assert "### Memory over many sentences" in page
    assert "### Offline throughput" not in page


def test_nothing_at_all_is_said_too(tmp_path):
    page = page_of(results.read(tmp_path), tmp_path)
    assert page.count("has written nothing yet") == len(results.COMMANDS) - 2
    assert "there is no student here" in page
    assert "without VNNI" not in page  # nothing says that this processor has it
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
    assert verdicts[bounds.OFFLINE["int8"]].missed == {
        "demo int8 greedy batch 1": pytest.approx(1.1),
        "demo int8 greedy batch 64 without VNNI": pytest.approx(0.8),
    }
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
    assert "the share of it that is not waiting for the GPU." in page


def test_a_server_that_answers_nothing_misses_its_bound(tmp_path):
    record = json.loads(json.dumps(RECORDS["serving"]))
    record["cells"][0]["grid"][0]["translane"] = latency(None)
    record["cells"][0]["highest_rate"] = {"translane": 0.0, "ctranslate2": 0.0}
    verdicts = {verdict.bound: verdict for verdict in bounds.verdicts(write(tmp_path, {"serving": record}))}
    assert verdicts[bounds.LOW_LOAD].missed
    assert verdicts[bounds.SERVING].missed


def test_only_what_is_between_the_markers_changes():
    begin, end = page.BEGIN.format(part="cpu"), page.END.format(part="cpu")
    text = f"before\n{begin}\nold\n{end}\nafter\n"
    replaced = page.replace_part(text, "cpu", "new\n")
    assert replaced == f"before\n{begin}\n\nnew\n\n{end}\nafter\n"
    assert page.replace_part(replaced, "cpu", "new") == replaced
    with pytest.raises(ValueError, match="there are no lines"):
        page.replace_part(text, "cuda", "new")


@pytest.mark.parametrize("name", ["benchmarks.md", "decoding-costs.md", "front-ends.md", "scaling.md"])
def test_the_pages_links_lead_somewhere(name):
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page)
    assert [link for link in links if "://" not in link and not (ROOT / "docs" / link).exists()] == []


def test_the_page_has_a_part_for_each_device():
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for device in ("cpu", "cuda", *summary.FAMILIES):
        assert "new" in page.replace_part(text, device, "new")
