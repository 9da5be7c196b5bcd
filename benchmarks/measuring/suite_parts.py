"""What `make bench` consists of: which benchmark runs with which arguments, and for how long at most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import places
from benchmarks.models.benchmarked import PRECISIONS

LENGTHS = ("quick", "usual", "full")
MINUTES = {"quick": 20.0, "usual": 90.0, "full": 600.0}  # of all benchmarks together
NAMES_OF_PARTS = (
    *("offline", "serving", "without_vnni", "students", "front-ends"),
    *("steps", "products", "scaling"),
)


@dataclass(frozen=True)
class Part:
    """A benchmark to run.

    Attributes:
        name: of what it measures.
        module: that is run.
        arguments: of the module.
        minutes: after which it is ended.
    """

    name: str
    module: str
    arguments: tuple[str, ...]
    minutes: float

    def __str__(self) -> str:
        return " ".join((self.module, *self.arguments))


_OFFLINE, _SERVING, _SCALING = (f"benchmarks.runs.{name}" for name in ("offline", "serving", "scaling"))
OFFLINE = {
    "quick": Part("offline", _OFFLINE, ("--quick", "--precisions", "int8", "--batches", "1", "32"), 10),
    "usual": Part("offline", _OFFLINE, ("--quick", "--batches", "1", "8", "32", "64"), 45),
    "full": Part("offline", _OFFLINE, (), 180),
}
HIDDEN: Mapping[str, tuple[tuple[str, ...], float]] = {  # the offline benchmark without VNNI
    "quick": (("--quick", "--precisions", "int8", "--searches", "greedy", "--batches", "1", "32"), 5),
    "usual": (("--quick", "--precisions", "int8", "--batches", "1", "8", "32"), 18),
    "full": (("--quick", "--batches", "1", "8", "32", "64"), 60),
}
SERVING = {
    "quick": Part(
        "serving", _SERVING, ("--plan", "quick", "--models", "demo", "--precisions", "int8", "--searches", "greedy"), 5
    ),
    "usual": Part("serving", _SERVING, ("--plan", "usual", "--precisions", "int8"), 45),
    "full": Part("serving", _SERVING, ("--precisions", *PRECISIONS), 150),
}
SCALING = {
    "quick": Part(
        "scaling",
        _SCALING,
        ("--models", "demo", "--rounds", "2", "--rows", "1", "8", "32", "128", "--lengths", "16", "64"),
        4,
    ),
    "usual": Part(
        "scaling", _SCALING, ("--rounds", "3", "--rows", "1", "8", "32", "128", "--lengths", "16", "64", "250"), 12
    ),
    "full": Part("scaling", _SCALING, (), 45),
}
STEPS = {  # and products
    "quick": ("--rounds", "2", "--rows", "1", "32"),
    "usual": ("--rounds", "3", "--rows", "1", "8", "32", "64"),
    "full": ("--rounds", "9"),
}
EACH = {"quick": 1.0, "usual": 3.0, "full": 10.0}  # minutes of steps and products
STUDENT = {"quick": ("1", 2.0), "usual": ("3", 4.0), "full": ("7", 10.0)}  # rounds, and minutes
FRONT_ENDS = "benchmarks.runs.front_ends"
FRONT_ENDS_MINUTES = 8.0


def parts(
    length: str,
    device: str,
    sentences: Path,
    bundles: Mapping[str, Path],
    *,
    student: Path | None = None,
    vnni: bool = False,
) -> Iterator[Part]:
    """What is run, in order.

    Args:
        length: one of `LENGTHS`.
        device: cpu or cuda.
        sentences: file of what is translated.
        bundles: of the models whose steps are measured, by name and precision.
        student: bundle of a student of the demo model, where there is one.
        vnni: whether the processor has VNNI.
    """
    texts = () if sentences == places.SENTENCES else ("--sentences", str(sentences))
    on = () if device == "cpu" else ("--device", device)
    scaling, offline, serving = (which[length] for which in (SCALING, OFFLINE, SERVING))
    yield replace(offline, arguments=(*offline.arguments, *texts, *on))
    if device == "cpu":
        yield replace(serving, arguments=(*serving.arguments, *texts))
        if vnni:
            cells, minutes = HIDDEN[length]
            output = ("-o", str(places.result("without_vnni")))
            yield Part(
                "without_vnni", "benchmarks.runs.avx2", ("python", "-m", _OFFLINE, *cells, *texts, *output), minutes
            )
        if student:
            rounds, minutes = STUDENT[length]
            bundles_of = (str(places.DEMO), str(student), "--rounds", rounds)
            yield Part("students", "benchmarks.runs.students", (*bundles_of, *texts), minutes)
        if length != "quick":
            yield Part("front-ends", FRONT_ENDS, ("--write",), FRONT_ENDS_MINUTES)  # into a page of its own
    for name, bundle in bundles.items():
        rows, minutes = STEPS[length], EACH[length]
        output = ("-o", str(places.result(f"steps-{name}", device)))
        yield Part("steps", "benchmarks.runs.costs", ("steps", str(bundle), *rows, *on, *output), minutes)
        if device == "cpu":
            output = ("-o", str(places.result(f"products-{name}")))
            yield Part("products", "benchmarks.runs.products", (str(bundle), *rows, *output), minutes)
    yield replace(scaling, arguments=(*scaling.arguments, *on))
