"""What a decoder step takes by the bits of its weights: 7, as the exporter writes them, 8, and float32.

    python -m benchmarks.runs.weight_bits models/zh-en --fp32 runs/bench/models/demo-fp32-bundle
    python -m benchmarks.runs.avx2 python -m benchmarks.runs.weight_bits models/zh-en -o runs/bench/avx2/bits.json

Both int8 forms run as the server runs them, so that sums are exact: without VNNI, weights of 8 bits take slower
kernels. The form with 8 bits is made of the one with 7, and gives the same translations. On one thread, times are
processor times; forms take turns.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import places
from benchmarks.machine import Usage, describe
from benchmarks.models.eight_bits import with_eight_bits
from benchmarks.report.results import write
from benchmarks.runs.products import bind_step, seconds_of
from translane_server.bundle import load_bundle
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions

SEVEN, EIGHT, FLOATS = "7 bits", "8 bits", "fp32"


def table(times: dict[int, dict[str, list[float]]]) -> str:
    """Medians by rows as Markdown, and how many times as long as with 7 bits the other forms take."""
    forms = list(next(iter(times.values())))
    others = [form for form in forms if form != SEVEN]
    titles = ["rows", *(f"{form}, ms" for form in forms), *(f"{form} / {SEVEN}" for form in others)]
    lines = [f"| {' | '.join(titles)} |", "|---:" * len(titles) + "|"]
    for rows, found in times.items():
        cells = [str(rows), *(f"{statistics.median(found[form]) * 1000:.2f}" for form in forms)]
        for form in others:
            ratio = statistics.median(one / seven for one, seven in zip(found[form], found[SEVEN], strict=True))
            cells.append(f"**{ratio:.2f}**")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, help="an int8 bundle with weights of 7 bits")
    parser.add_argument("--fp32", type=Path, metavar="BUNDLE", help="the same model in fp32")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    seven = load_bundle(arguments.bundle)
    if (bits := seven.manifest.int8_weight_bits) != 7 or seven.manifest.precision != "int8":
        parser.error(
            f"{arguments.bundle} is {seven.manifest.precision} with weights of {bits} bits; it takes int8 with 7"
        )
    output = arguments.output or places.result(f"weight_bits-{seven.manifest.name}")
    with tempfile.TemporaryDirectory() as folder:
        bundles = {SEVEN: seven, EIGHT: with_eight_bits(seven, Path(folder))}
        if arguments.fp32:
            bundles[FLOATS] = load_bundle(arguments.fp32)
        backends = {}
        for form, bundle in bundles.items():
            sessions = Sessions(bundle, threads=arguments.threads)
            backends[form] = OrtBackend(sessions, rows=max(arguments.rows), source_capacity=32, target_capacity=32)
            backends[form].warm_up()
    times: dict[int, dict[str, list[float]]] = {rows: {form: [] for form in bundles} for rows in arguments.rows}
    machine, usage = describe(), Usage()
    clock = time.thread_time if arguments.threads == 1 else time.perf_counter
    for _ in range(arguments.rounds):
        for rows, found in times.items():
            for form, backend in backends.items():
                found[form].append(seconds_of(bind_step(backend, bundles[form], rows), clock))
    for backend in backends.values():
        backend.close()
    record = {"machine": machine, "model": seven.manifest.name, "threads": arguments.threads, "rows": times}
    write(output, record | {"usage": usage.so_far()})
    print(f"{seven.manifest.name}, {arguments.threads} threads, {machine['processor']}\n\n{table(times)}")


if __name__ == "__main__":
    main()
