"""Which deployment answers a request, where each one has models of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from translane_server.bundle.manifest import Languages
from translane_server.models.choice import (
    names,
    no_model_for,
    no_model_to,
    no_such_model,
    several_models,
    sources_of,
    with_pair,
)
from translane_server.text.language_tags import is_auto

Groups = Mapping[str, Mapping[str, Languages]]
"""The languages of each model, by the names of the deployment and of the model."""


def group_of(groups: Groups, model: str, source: str, target: str) -> str:
    """Return the deployment that answers a request.

    It is the one that has the model; without a name, the only one with a model for the language pair, as a server
    chooses among its models. Where no model has the pair, it is the first deployment that may translate through a third
    language, with models of its own. For the source language ``auto``, it is the only one that translates to the
    target language. What is wrong with a request beyond that, the deployment says itself.

    Args:
        groups: the deployments.
        model: the name of a model, or "".
        source: tag of a request, or ``auto``.
        target: tag of a request.

    Raises:
        ModelNotFoundError: no model has the name, or the languages.
        InvalidRequestError: models of several deployments have the languages.
    """
    owners = {name: group for group, models in groups.items() for name in models}
    known = {name: languages for models in groups.values() for name, languages in models.items()}
    if model:
        if model not in owners:
            raise no_such_model(model, owners)
        return owners[model]
    if is_auto(source):
        found = [name for name, languages in known.items() if sources_of(languages, target)]
        if not found:
            raise no_model_to(target, owners)
    else:
        found = with_pair(known, source, target)
    chosen = {owners[name] for name in found}
    if len(chosen) > 1:
        raise several_models(found)
    if chosen:
        return chosen.pop()
    for group, models in groups.items():
        if _may_pivot(models.values(), source, target):
            return group
    raise no_model_for(source, target, owners)


def _may_pivot(models: Iterable[Languages], source: str, target: str) -> bool:
    """Whether one model reads the source language and one writes the target language."""
    known = list(models)
    return any(names(each.source, source) for each in known) and any(names(each.target, target) for each in known)
