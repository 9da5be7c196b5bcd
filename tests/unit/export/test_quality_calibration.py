"""`--quality-data`: what is fitted, what is stored, and what is refused."""

import dataclasses
import gzip

import numpy as np
import pytest
from unit.export.conftest import SMALL

from helpers.bundles import SOURCES, random_bundle
from helpers.commands import export as main
from helpers.driver import BundleDecoder
from helpers.real_server import AS_THEY_ARE
from translane.options import checked_options
from translane.requests import TranslationRequest
from translane_export.combinations import check_checkpoint
from translane_export.core.checkpoint import load_checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.settings import ExportSettings
from translane_export.quality_calibration import (
    FEWEST_SENTENCES,
    MOST_SENTENCES,
    RatedSentences,
    calibrate,
    correlation,
    fit,
    rate,
    read_quality_data,
)
from translane_export.train.data import SentencePair
from translane_server.bundle.bundle import load_bundle
from translane_server.bundle.manifest import Languages
from translane_server.core.quality import Calibration, estimated_quality
from translane_server.engine.sequence import SentenceResult, Timing
from translane_server.text.tokenizer import load_tokenizer
from translane_server.translation.languages import LanguagePairs
from translane_server.translation.limits import RequestLimits, TokenLimits
from translane_server.translation.reader import TranslateReader

WRONG = "zzz"  # nothing that the model writes


def sentences(count, seed=0):
    """Different sentences of the characters that random models know."""
    random = np.random.default_rng(seed)
    characters = list("".join(SOURCES))
    return ["".join(random.choice(characters, size=random.integers(1, 12))) for _ in range(count)]


def pair_of(bundle):
    return LanguagePairs(bundle.manifest.languages, load_tokenizer(bundle)).default()


def translations(bundle, texts, *, together=True, **options):
    """The answers of a server."""
    limits = RequestLimits(len(texts), len(texts), TokenLimits(16, 16, 16), max_beam_size=4)
    reader = TranslateReader(bundle.manifest, load_tokenizer(bundle), limits)
    prepared = reader.read(TranslationRequest(texts, options=checked_options({**AS_THEY_ARE, **options})))
    with BundleDecoder(bundle) as decoder:
        found = (decoder.together if together else decoder.one_by_one)(prepared.sentences)
    return prepared.translations([SentenceResult(each, Timing(0, 0, 0)) for each in found])


def write(path, pairs):
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(f"{source}\t{target}\n" for source, target in pairs)
    return path


def rated_as(calibration, count=2000, noise=0.0):
    """Sentences whose chrF is what `calibration` estimates, plus noise."""
    random = np.random.default_rng(0)
    log_probs = [
        (random.normal(-1, 1) + random.normal(0, 0.3, random.integers(1, 20))).clip(max=-0.01).tolist()
        for _ in range(count)
    ]
    chrf = np.array([estimated_quality(each, calibration) for each in log_probs])
    return RatedSentences(log_probs, (chrf + random.normal(0, noise, count)).clip(0, 1) if noise else chrf)


@pytest.mark.parametrize(("weight", "bias", "noise"), [(1, 0, 0.0), (0.5, -2, 0.0), (2, 1.5, 0.0), (0.8, -0.5, 0.1)])
def test_the_calibration_behind_the_scores_is_found_below_noise_too(weight, bias, noise):
    rated = rated_as(Calibration(weight, bias), noise=noise)
    found = fit(rated)
    assert found is not None
    assert tuple(found) == pytest.approx((weight, bias), rel=0.05 + noise / 2)
    assert rated.estimates(found).mean() == pytest.approx(rated.chrf.mean(), abs=1e-3)
    assert correlation(rated.estimates(found), rated.chrf) > 0.8


def test_scores_that_fall_with_probability_have_no_calibration():
    rated = rated_as(Calibration(1, 0))
    assert fit(RatedSentences(rated.log_probs, 1 - rated.chrf)) is None


@pytest.mark.parametrize("chrf", [0.0, 1.0])
def test_scores_that_are_all_the_same_have_finite_parameters(chrf):
    rated = rated_as(Calibration(1, 0), count=100)
    found = fit(RatedSentences(rated.log_probs, np.full(100, chrf)))
    assert found is None or np.isfinite(found).all()
    assert correlation(rated.chrf, np.full(100, chrf)) == 0


def test_a_long_file_is_sampled_evenly(tmp_path):
    path = write(tmp_path / "long.tsv.gz", ((f"s{number}", "t") for number in range(3 * MOST_SENTENCES)))
    found = [int(pair.source[1:]) for pair in read_quality_data(path)]
    assert found == list(range(0, 3 * MOST_SENTENCES, 3))


@pytest.mark.parametrize("count", [1, FEWEST_SENTENCES - 1])
def test_a_short_file_is_refused(tmp_path, count):
    path = write(tmp_path / "short.tsv.gz", [("s", "t")] * count)
    with pytest.raises(ExportError, match=f"--quality-data has {count} sentences"):
        read_quality_data(path)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A bundle without calibration."""
    return load_bundle(random_bundle(tmp_path_factory.mktemp("plain") / "bundle", **SMALL))


@pytest.fixture(scope="module")
def rated_pairs(plain):
    """Sentences, their translations, and whether a translation is among the more probable half."""
    sources = sentences(2 * FEWEST_SENTENCES)
    found = translations(plain, sources, return_quality=True)
    kept = [(source, each.hypotheses[0]) for source, each in zip(sources, found, strict=True)]
    middle = np.median([each.quality for _, each in kept])
    return [(source, each.text, each.quality > middle) for source, each in kept if each.text]


@pytest.fixture(scope="module")
def data(rated_pairs, tmp_path_factory):
    """Text in which the probable translations of a random model are right, and the improbable ones are wrong."""
    path = tmp_path_factory.mktemp("quality") / "data.tsv.gz"
    return write(path, ((source, text if probable else WRONG) for source, text, probable in rated_pairs))


@pytest.fixture(scope="module")
def calibrated(checkpoint, data, tmp_path_factory):
    output = tmp_path_factory.mktemp("calibrated") / "bundle"
    assert main([str(checkpoint), "-o", str(output), "--threads", "1", "--quality-data", str(data)]) == 0
    return output


@pytest.mark.slow
def test_the_calibration_is_in_the_manifest_and_the_model_card(calibrated):
    found = load_bundle(calibrated).manifest.quality_estimation
    assert found is not None
    assert found.fitted + found.tested >= FEWEST_SENTENCES
    assert 0.3 < found.correlation <= 1
    card = (calibrated / "README.md").read_text(encoding="utf-8")
    assert f"correlation of estimate and chrF is {found.correlation:.2f}" in card


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"beam_size": 3, "num_hypotheses": 3}], ids=["greedy", "beams"])
def test_the_server_estimates_as_the_exporter_does_alone_and_in_a_batch(calibrated, options):
    bundle = load_bundle(calibrated)
    estimation = bundle.manifest.quality_estimation
    assert estimation is not None
    calibration = Calibration(estimation.weight, estimation.bias)
    sources = sentences(20, seed=1)
    asked = {"return_quality": True, "return_token_scores": True, **options}
    batched = translations(bundle, sources, **asked)
    for each in (hypothesis for translation in batched for hypothesis in translation.hypotheses):
        assert each.quality == pytest.approx(estimated_quality(each.token_log_probs, calibration), rel=1e-5)
    assert translations(bundle, sources, together=False, **asked) == batched
    if not options:
        rated = rate(bundle, pair_of(bundle), [SentencePair(source, WRONG) for source in sources], threads=1)
        assert [each.hypotheses[0].quality for each in batched] == rated.estimates(calibration).tolist()


@pytest.mark.slow
def test_an_exported_bundle_keeps_its_calibration(calibrated, tmp_path):
    assert main([str(calibrated), "-o", str(tmp_path / "again"), "--threads", "1"]) == 0
    again = load_bundle(tmp_path / "again").manifest
    assert again.quality_estimation == load_bundle(calibrated).manifest.quality_estimation


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_other_precisions_are_calibrated_by_their_own_probabilities(checkpoint, data, calibrated, tmp_path, precision):
    flags = ["--precision", precision, "--threads", "1", "--quality-data", str(data)]
    assert main([str(checkpoint), "-o", str(tmp_path / "bundle"), *flags]) == 0
    found = load_bundle(tmp_path / "bundle").manifest.quality_estimation
    assert found is not None
    assert found != load_bundle(calibrated).manifest.quality_estimation


def test_probabilities_that_say_nothing_are_not_calibrated(plain, rated_pairs):
    turned = [SentencePair(source, WRONG if probable else text) for source, text, probable in rated_pairs]
    lines: list[str] = []
    assert calibrate(plain, pair_of(plain), turned, 1, lines.append) is None
    assert "no calibration is stored" in lines[-1]


def test_a_model_of_several_pairs_is_refused(checkpoint, data, tmp_path):
    read = load_checkpoint(checkpoint)
    several = dataclasses.replace(read, languages=Languages(source=("zh",), target=("en", "fr")))
    settings = ExportSettings(checkpoint=checkpoint, output=tmp_path, quality_data=data)
    check_checkpoint(settings, read)
    with pytest.raises(ExportError, match="--quality-data is for models of one pair of languages"):
        check_checkpoint(settings, several)


@pytest.mark.parametrize(("target", "problem"), [("", "have the same chrF"), (None, "are equally probable")])
def test_sentences_that_do_not_differ_are_refused(plain, target, problem):
    (source,) = sentences(1)
    sources = sentences(FEWEST_SENTENCES) if target is not None else [source] * FEWEST_SENTENCES
    pairs = [SentencePair(each, "" if target == "" else f"{number}") for number, each in enumerate(sources)]
    with pytest.raises(ExportError, match=f"^--quality-data: the translations of its 100 sentences all {problem}"):
        calibrate(plain, pair_of(plain), pairs, 1, print)
