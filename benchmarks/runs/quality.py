"""How well estimates of quality follow chrF, and what an application can do with them.

    python -m benchmarks.runs.quality
    python -m benchmarks.runs.quality --bundle models/zh-en --fit valid.tsv.gz --test test.tsv.gz

Every estimate is fitted on the sentences of `--fit`, and compared with chrF on those of `--test`, and on FLORES-200,
whose sentences are of another kind. The tables of docs/quality.md are printed, and its picture is written into
docs/quality.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from benchmarks.measuring.quality import (
    FEATURES,
    MEAN,
    OF_SEVERAL,
    Feature,
    Numbers,
    Translated,
    area,
    bins,
    columns,
    kendall,
    logistic,
    pearson,
    scores,
    similarity,
    spearman,
    translate,
)
from benchmarks.places import DEMO, ROOT, SENTENCES
from benchmarks.report.plots import SERIES, STYLE, panels, save
from translane_export.quality_calibration import RatedSentences, fit
from translane_server.bundle import load_bundle
from translane_server.options import DecodingOptions, Sampling
from translane_server.quality_estimate import Calibration, combined_quality, estimated_quality

PICTURE = ROOT / "docs" / "quality" / "calibration.png"
FLORES = SENTENCES.parents[1] / "flores200"
GREEDY = DecodingOptions(128, alignment=True)
SEARCHES = {
    "greedy": GREEDY,
    "four beams": dataclasses.replace(GREEDY, beam_size=4, num_hypotheses=4),
    "five samples": DecodingOptions(128, num_hypotheses=5, sampling=Sampling(1)),
}
SOME = (MEAN, "least probability", "source tokens", "target over source tokens")
WEAKEST = 0.1
FLAGGED = (0.05, 0.1, 0.2, 0.3)
JOINED = (2, 3, 5, 10)
_TEXTS = 800

Pairs = Sequence[tuple[str, str]]


def read_pairs(path: Path) -> Pairs:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    return [(row[0], row[1]) for row in rows]


def read_flores(folder: Path) -> Pairs:
    sides = [(folder / f"{name}.devtest").read_text(encoding="utf-8").splitlines() for name in ("zho_Hans", "eng_Latn")]
    return list(zip(*sides, strict=True))


def correlations(estimates: Numbers, chrf: Numbers) -> str:
    return " | ".join(f"{measure(estimates, chrf):.2f}" for measure in (pearson, spearman, kendall))


def feature_rows(found: Mapping[str, Sequence[Translated]], features: Mapping[str, Feature]) -> Iterator[str]:
    """Rows of a table: how each feature alone follows chrF on every set but the first one."""
    for name, feature in features.items():
        of_sets = [
            correlations(columns(each, {name: feature})[:, 0], scores(each)) for each in list(found.values())[1:]
        ]
        yield f"| {name} | {' | '.join(of_sets)} |"


def combination_rows(
    found: Mapping[str, Sequence[Translated]], of: Mapping[str, Mapping[str, Feature]]
) -> Iterator[str]:
    """Rows of a table: how logistic functions of features follow chrF, fitted on the first set."""
    first, *others = found.values()
    for name, features in of.items():
        estimate = logistic(columns(first, features), scores(first))
        of_sets = [correlations(estimate(columns(each, features)), scores(each)) for each in others]
        yield f"| {name} | {' | '.join(of_sets)} |"


def estimates_of(translated: Iterable[Translated], calibration: Calibration) -> Numbers:
    return np.array([estimated_quality(each.best.token_log_probs, calibration) for each in translated])


def flag_rows(estimates: Numbers, chrf: Numbers) -> Iterator[str]:
    """Rows of a table: what is among the sentences with the lowest estimates."""
    weak = chrf <= np.quantile(chrf, WEAKEST)
    order = np.argsort(estimates, kind="stable")
    for share in FLAGGED:
        flagged, rest = np.split(order, [round(share * len(order))])
        yield (
            f"| {share:.0%} | {estimates[flagged[-1]]:.2f} | {weak[flagged].mean():.0%} |"
            f" {weak[flagged].sum() / weak.sum():.0%} | {chrf[flagged].mean():.2f} | {chrf[rest].mean():.2f} |"
        )


def joined_rows(translated: Sequence[Translated], calibration: Calibration) -> Iterator[str]:
    """Rows of a table: how estimates of texts of several sentences follow the texts' chrF, for each way to combine."""
    for count in JOINED:
        pick = random.Random(0)
        texts = [pick.sample(translated, count) for _ in range(_TEXTS)]
        chrf = np.array(
            [similarity(" ".join(t.text for t in text), " ".join(t.reference for t in text)) for text in texts]
        )
        sentences = [estimates_of(text, calibration) for text in texts]
        pooled = [[each for t in text for each in t.best.token_log_probs] for text in texts]
        ways = (
            [
                combined_quality(zip(each, [t.source_tokens for t in text], strict=True))
                for each, text in zip(sentences, texts, strict=True)
            ],
            [each.mean() for each in sentences],
            [each.min() for each in sentences],
            [estimated_quality(each, calibration) for each in pooled],
        )
        yield f"| {count} | {' | '.join(f'{pearson(np.array(way), chrf):.2f}' for way in ways)} |"


def draw(sets: Mapping[str, Numbers]) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure, grid = panels(len(sets), 3, 2.7)
        for number, (axes, (name, found)) in enumerate(zip(grid, sets.items(), strict=True)):
            x, y, low, high = found.T
            axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle="--")
            axes.fill_between(x, low, high, color=SERIES[number], alpha=0.2, linewidth=0)
            axes.plot(x, y, color=SERIES[number], marker="o")
            axes.set(title=name, xlim=(0, 1), ylim=(0, 1), xlabel="estimated quality", ylabel="chrF")
            axes.set_aspect("equal")
    return figure


def print_table(title: str, head: Sequence[str], rows: Iterable[str]) -> None:
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|---|{'---:|' * (len(head) - 1)}")
    for row in rows:
        print(row, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=DEMO)
    parser.add_argument("--fit", type=Path, default=SENTENCES.with_name("valid.tsv.gz"))
    parser.add_argument("--test", type=Path, default=SENTENCES)
    parser.add_argument("--flores", type=Path, default=FLORES, help="folder of FLORES-200")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    bundle = load_bundle(arguments.bundle)
    sets = {
        "fit": read_pairs(arguments.fit),
        "test": read_pairs(arguments.test),
        "flores": read_flores(arguments.flores),
    }
    found = {
        search: {name: translate(bundle, pairs, options, arguments.threads) for name, pairs in sets.items()}
        for search, options in SEARCHES.items()
    }
    greedy, beams, samples = found.values()
    # What samples agree with is the greedy translation.
    beside = {
        name: [
            dataclasses.replace(one, other_texts=[other.text, *other.other_texts])
            for one, other in zip(greedy[name], samples[name], strict=True)
        ]
        for name in sets
    }
    measures = [f"{name} {measure}" for name in ("test", "FLORES") for measure in ("Pearson", "Spearman", "Kendall")]
    agreeing = {"agreement with five samples": agreement_of_samples}
    print_table("Features, greedy", ["feature", *measures], feature_rows(beside, {**FEATURES, **agreeing}))
    print_table(
        "Features, four beams", ["feature", *measures], feature_rows(beams, {MEAN: FEATURES[MEAN], **OF_SEVERAL})
    )
    some = {name: FEATURES[name] for name in SOME}
    combinations: dict[str, Mapping[str, Feature]] = {
        MEAN: {MEAN: FEATURES[MEAN]},
        "four features": some,
        "all features of a decode": FEATURES,
        "mean probability and agreement of samples": {MEAN: FEATURES[MEAN], **agreeing},
    }
    print_table("Combinations, greedy", ["estimate", *measures], combination_rows(beside, combinations))
    fitted = greedy["fit"]
    calibration = fit(RatedSentences([each.best.token_log_probs for each in fitted], scores(fitted)))
    assert calibration is not None, "the probabilities do not rise with chrF"
    print(f"\nweight {calibration.weight:.3f}, bias {calibration.bias:.3f}")
    shown = {
        "Tatoeba, greedy": greedy["test"],
        "Tatoeba, four beams": beams["test"],
        "FLORES, greedy": greedy["flores"],
    }
    curves = {}
    for name, translated in shown.items():
        estimates, chrf = estimates_of(translated, calibration), scores(translated)
        curves[name] = bins(estimates, chrf)
        print_table(
            f"{name}: mean estimate {estimates.mean():.2f}, mean chrF {chrf.mean():.2f}, mean error"
            f" {np.abs(estimates - chrf).mean():.2f}, area under the ROC curve for the weakest {WEAKEST:.0%}"
            f" {area(estimates, chrf <= np.quantile(chrf, WEAKEST)):.2f}",
            ["tenth", "estimate", "chrF", "quarter", "three quarters"],
            (f"| {n} | {' | '.join(f'{each:.2f}' for each in row)} |" for n, row in enumerate(curves[name], 1)),
        )
    estimates, chrf = estimates_of(greedy["test"], calibration), scores(greedy["test"])
    head = [
        "flagged",
        "estimate up to",
        "weakest tenth among them",
        "of the weakest tenth",
        "their chrF",
        "chrF of the rest",
    ]
    print_table("Flags on the test set", head, flag_rows(estimates, chrf))
    both = [*greedy["test"], *greedy["flores"]]
    out = np.arange(len(both)) >= len(greedy["test"])
    estimates = estimates_of(both, calibration)
    print(
        f"\nTest and FLORES: {correlations(estimates, scores(both))} (Pearson, Spearman, Kendall), area under the ROC"
        f" curve for FLORES {area(estimates, out):.2f}"
    )
    head = ["sentences", "mean by source tokens", "mean", "least", "mean probability of all tokens"]
    print_table("Texts of several sentences", head, joined_rows(greedy["test"], calibration))
    save(draw(curves), arguments.picture)


def agreement_of_samples(one: Translated) -> float:
    return OF_SEVERAL["agreement of hypotheses"](one)


if __name__ == "__main__":
    main()
