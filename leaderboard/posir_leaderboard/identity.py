"""Look up submitted models: existence, spelling, and a trusted description.

A submitter's description is never shown. Models that mteb's registry lists in the submitted
revision are described by the registry, all others by the Hub.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, errors
from pydantic_core import to_jsonable_python

from posir_leaderboard.board.records import Metadata
from posir_leaderboard.submission import REQUEST_ERRORS
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.files import write_text
from posir_tasks.base.private_names import MODEL_REGISTRY
from posir_tasks.base.untrusted import InputError, read_json
from posir_tasks.base.wording import sanitize
from posir_tasks.models.hub import TIMEOUT, find_hub_problem, is_hub_model
from posir_tasks.models.registry import collect_plugin_resolvers

#: Identities by name and revision of the model.
Identities = Mapping[tuple[str, str], "Identity"]


@dataclass(frozen=True)
class Identity:
    """The result of looking up a model and its revision."""

    problem: str = ""
    """Why results of the model are rejected, or empty."""
    lookup_problem: str = ""
    """Why the lookup failed, or empty."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Description with the fields of mteb's `model_meta.json`; empty if unknown."""


def list_lookup_problems(identities: Identities) -> list[str]:
    """List the models that could not be looked up, with the reason."""
    return [
        f"{name}, {revision}: {identity.lookup_problem}"
        for (name, revision), identity in identities.items()
        if identity.lookup_problem
    ]


def identify_models(models: Iterable[tuple[str, str]], cache: Path) -> Identities:
    """Look up models by name and revision.

    The Hub's responses are cached permanently, since a commit does not change. Without access to
    the Hub, only the cache is used.

    Args:
        models: Names and revisions.
        cache: Folder of the cache.
    """
    registry = MODEL_REGISTRY.resolve()
    spellings = {name.casefold(): name for name in registry}
    identities = {}
    find_problem = lru_cache(find_hub_problem)
    for name, revision in dict.fromkeys(models):
        identity = None
        if spelling := spellings.get(name.casefold()):
            meta = dict.__getitem__(registry, spelling)
            identity = _identify_registered(name, revision, meta)
        file = cache / f"{digest(name, revision).hex()}.json"
        if identity is None and file.is_file():
            # Ignore a damaged cache file.
            with suppress(InputError, TypeError, ValueError):
                identity = Identity(meta=dict(read_json(file)))
        if identity is None:
            problem = find_problem()
            identity = (
                Identity(lookup_problem=problem) if problem else _look_up_on_hub(name, revision)
            )
            if identity.meta:
                write_text(file, json.dumps(identity.meta))
        identities[name, revision] = identity
    return identities


def _identify_registered(name: str, revision: str, meta: Any) -> Identity | None:
    """Look up a model in mteb's registry; None if the revision has to be looked up on the Hub."""
    if meta.name != name:
        return Identity(
            f"is spelled {meta.name} in mteb's registry; submit the results under that name"
        )
    if meta.revision != revision:
        if is_hub_model(meta):
            return None
        return Identity(
            f"is registered with mteb in the revision {meta.revision}, not {sanitize(revision)}, "
            "and is not on the Hub"
        )
    description = {key: getattr(meta, key, None) for key in Metadata.model_fields}
    return Identity(meta=to_jsonable_python(description, fallback=str))


def _find_variant_problem(name: str, base: str) -> str:
    """Explain why no installed package provides a variant of a model; empty if one does."""
    # Slow to import, and only needed for variants.
    from mteb.models import ModelMeta

    meta = ModelMeta.create_empty({"name": base, "revision": ""})
    for resolver in collect_plugin_resolvers():
        try:
            variant = resolver(name, {base: meta})
        except PosirError as error:
            return f"is not a variant of {base}: {sanitize(summarize_error(error), 300)}"
        if variant is not None:
            if variant.name == name:
                return ""
            return f"is spelled {variant.name}; submit the results under that name"
    return f"is a variant of {base} that no installed package provides"


def _look_up_on_hub(name: str, revision: str) -> Identity:
    # A variant's name starts with its model's name, such as `ORG/MODEL+both_orders`.
    repository, variant, _ = name.partition("+")
    if variant and (problem := _find_variant_problem(name, repository)):
        return Identity(problem)
    try:
        info = HfApi(library_name="posir").model_info(
            repository, revision=revision, timeout=TIMEOUT
        )
    except errors.GatedRepoError:
        return Identity(
            lookup_problem="is gated, so its name and revision cannot be looked up without access"
        )
    except errors.RevisionNotFoundError:
        return Identity(f"exists on the Hub, but not in the revision {sanitize(revision)}")
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        return Identity("is neither registered with mteb nor a public model on the Hub")
    except REQUEST_ERRORS as error:
        return Identity(
            lookup_problem=f"{constants.ENDPOINT} did not answer: "
            f"{sanitize(summarize_error(error), 200)}"
        )
    if info.id != repository:
        return Identity(
            f"is spelled {sanitize(info.id)} on the Hub; submit the results under that name"
        )
    if info.sha != revision:
        return Identity(
            f"has the revision {sanitize(revision)}, which is not a commit; run the model with "
            f"--model-revision {info.sha}"
        )
    return Identity(
        meta={
            "n_parameters": info.safetensors.total if info.safetensors else None,
            "open_weights": True,
            "license": info.card_data.get("license") if info.card_data else None,
            "reference": f"https://huggingface.co/{repository}",
        }
    )
