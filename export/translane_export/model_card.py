"""The model card: README.md of a bundle, for people."""

from __future__ import annotations

from typing import Any

from translane_server.bundle.manifest import Manifest, Precision, Provenance, Quality, QualityEstimation
from translane_server.core.terminal import printable

# what a parity report is of, where that is not the bundle itself
VERIFIED_AS: dict[Precision, str] = {
    "int8": " in fp32, before int8",
    "bf16": " in float32 with the weights rounded to bfloat16",
}
_SCORES = {"bleu": "BLEU", "chrf": "chrF"}


def model_card(manifest: Manifest) -> str:
    """Write the model card of a bundle from what its manifest says."""
    languages = f"{', '.join(manifest.source_languages)} → {', '.join(manifest.target_languages)}"
    sections = [
        f"# {manifest.name} {manifest.version}",
        f"A model for machine translation, {languages}, in the bundle format of Translane.",
        "## Model",
        _list(_model_facts(manifest)),
        "## Data",
        _list(_data_facts(manifest.provenance)),
    ]
    if scores := _score_facts(manifest.provenance.training):
        sections += ["## Scores", _list(scores)]
    sections += ["## Limits", _list(_limit_facts(manifest))]
    if manifest.parity:
        sections += ["## Parity with PyTorch", _list(_parity_facts(manifest))]
    if manifest.quality:
        sections += ["## int8 beside fp32", _list(_quality_facts(manifest.quality))]
    if manifest.quality_estimation:
        sections += ["## Estimated quality", _list(_estimation_facts(manifest.quality_estimation))]
    return "\n\n".join(sections) + "\n"


def _model_facts(manifest: Manifest) -> list[str]:
    sizes = manifest.architecture
    return [
        f"Licence: {manifest.license}",
        f"Architecture: {sizes.family}, {sizes.encoder_layers} encoder and {sizes.decoder_layers} decoder layers,"
        f" model size {sizes.d_model}, {sizes.heads} heads of {sizes.head_size}, feed-forward {sizes.ffn_size}",
        f"Parameters: {sizes.parameters:,}",
        f"Vocabulary: {sizes.source_vocab_size:,} source and {sizes.target_vocab_size:,} target pieces",
        f"Precision: computes in {manifest.precision}, weights stored as {manifest.weight_storage}",
        *_search_facts(manifest),
    ]


def _search_facts(manifest: Manifest) -> list[str]:
    search = str(manifest.decoding_defaults.search)
    return [] if search == "none" else [f"Search where a request sets nothing: {search.replace(',', ', ')}"]


def _data_facts(provenance: Provenance) -> list[str]:
    training = provenance.training
    facts = [f"Licence of the data: {training.get('data_licence') or 'not recorded'}"]
    if provenance.attribution:
        facts.append(f"Attribution: {provenance.attribution}")
    if pairs := training.get("training_pairs"):
        facts.append(f"Sentence pairs trained on: {f'{pairs:,}' if isinstance(pairs, int | float) else pairs}")
    return facts


def _score_facts(training: dict[str, Any]) -> list[str]:
    facts = []
    for key, value in training.items():
        split, _, metric = key.rpartition("_")
        if metric in _SCORES and isinstance(value, int | float):
            facts.append(f"{_SCORES[metric]} on the {split} split, greedy: {value}")
    if facts and (signature := training.get("bleu_signature")):
        facts.append(f"Signature: `{signature}`")
    return facts


def _limit_facts(manifest: Manifest) -> list[str]:
    return [
        f"At most {manifest.limits.source_tokens} source and {manifest.limits.target_tokens} target tokens a sentence.",
        "Sentence by sentence: it sees no context beyond the text it is given.",
        "It translates in the domain and style of its training data, and can be fluent and wrong:"
        " have a person check what matters.",
    ]


def _parity_facts(manifest: Manifest) -> list[str]:
    parity = manifest.parity
    assert parity
    facts = [
        f"{parity.sentences} sentences decoded greedily, {parity.tokens:,} tokens,"
        f" {parity.token_mismatches} different from PyTorch's{VERIFIED_AS.get(manifest.precision, '')}",
        f"Largest difference of a logit: {parity.max_logit_difference:.1e} (tolerance {parity.tolerance:.0e})",
    ]
    if activation := parity.max_activation:
        facts.append(f"Largest activation: {activation.value:,.4g}, the {activation.tensor}; float16 ends at 65,504")
    return facts


def _quality_facts(quality: Quality) -> list[str]:
    facts = [f"{quality.unchanged:,} of {quality.sentences:,} sentences translate to the same tokens"]
    if quality.bleu is not None and quality.fp32_bleu is not None:
        facts.append(f"BLEU {quality.bleu:.2f}, in fp32 {quality.fp32_bleu:.2f}, on {quality.tested:,} sentences")
    return facts


def _estimation_facts(estimation: QualityEstimation) -> list[str]:
    return [
        f"Calibrated with {estimation.fitted:,} sentences",
        f"On {estimation.tested:,} other sentences, the correlation of estimate and chrF is"
        f" {estimation.correlation:.2f}, and the mean error {estimation.mean_error:.2f}",
    ]


def _list(facts: list[str]) -> str:
    return "\n".join(f"- {printable(fact)}" for fact in facts)  # a checkpoint may say anything
