"""Families of models that were trained with a text before queries and documents, and a hint where a
model puts none there.
"""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_tasks.base.errors import summarize_error
from posir_tasks.models.references import find_endpoint, portable_name

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

logger = logging.getLogger(__name__)

#: Most characters of a model card that are read.
MAX_CARD = 100_000
ENGLISH_INSTRUCTION = "Represent this sentence for searching relevant passages: "
CHINESE_INSTRUCTION = "为这个句子生成表示以用于检索相关文章："


@dataclass(frozen=True)
class PrefixFamily:
    """Models with the same texts before queries and documents, as their cards state them."""

    name: re.Pattern[str]
    """Matches the name of a model of the family, in lower case, without its organization."""
    query: str
    document: str
    """Empty if documents have none."""

    def is_stated_in(self, card: str) -> bool:
        """Return whether a model card has the texts of the family; one of documents alone tells
        families apart.
        """
        return (
            bool(self.document)
            and re.search(rf"(?<![\w]){re.escape(self.document)}", card) is not None
        )


#: The cards of intfloat/e5-base-v2, nomic-ai/nomic-embed-text-v1.5, BAAI/bge-base-en-v1.5 and
#: BAAI/bge-base-zh-v1.5. Those of E5 that take instructions, and BGE-M3, have none of these texts.
FAMILIES = (
    PrefixFamily(
        re.compile(r"(?=.*(?:^|[-_]|nano)e5(?:[-_]|$))(?!.*(?:instruct|mistral|omni)).*"),
        "query: ",
        "passage: ",
    ),
    PrefixFamily(
        re.compile(r".*(?:nomic-embed-text|nomic-bert|modernbert-embed).*"),
        "search_query: ",
        "search_document: ",
    ),
    PrefixFamily(
        re.compile(r".*bge-(?:micro|small|base|large)(?!.*(?:rerank|zh)).*"),
        ENGLISH_INSTRUCTION,
        "",
    ),
    PrefixFamily(re.compile(r".*bge-(?:small|base|large)-zh.*"), CHINESE_INSTRUCTION, ""),
)


def hint_prefixes(model: MTEBModels) -> None:
    """Warn, once for a model, if it was trained with texts before queries and documents, and puts
    none there.
    """
    try:
        family = None if applies_prompts(model) else find_family(model)
    except Exception as error:  # a hint is no reason not to run a model
        logger.debug("no hint on prompts: %s", summarize_error(error))
        return
    if family:
        _warn_once(str(model.mteb_model_meta.name), family)


@cache
def _warn_once(name: str, family: PrefixFamily) -> None:
    logger.warning("%s", describe_family(name, family))


def describe_family(name: str, family: PrefixFamily) -> str:
    """Return which texts a model expects, and the options that put them there."""
    prompts = {"query": family.query, "document": family.document}
    texts = {kind: text for kind, text in prompts.items() if text}
    expected = " and ".join(
        f"{text!r} before {'queries' if kind == 'query' else 'documents'}"
        for kind, text in texts.items()
    )
    variables = " ".join(
        f"POSIR_{kind.upper()}_PROMPT={shlex.quote(text)}" for kind, text in texts.items()
    )
    options = " ".join(f"--{kind}-prompt {shlex.quote(text)}" for kind, text in texts.items())
    return (
        f"{name}: models of this family were trained with {expected}, and no prompt is "
        f"configured. Set {variables}, or give {options}; set an empty one to run without."
    )


def applies_prompts(model: Any) -> bool:
    """Return whether a loaded model puts any text before texts, by its settings or in its class, or
    a run set its prompts.
    """
    # It imports torch.
    from posir_tasks.models.prompts import REPLACED, has_model_prompts

    # Other classes may have texts of their own.
    if hasattr(model, REPLACED) or not has_model_prompts(model):
        return True
    settings: Mapping[str, str | None] = (
        getattr(getattr(model, "model", None), "prompts", None) or {}
    )
    return any([*(model.model_prompts or {}).values(), *settings.values()])


def find_family(model: MTEBModels) -> PrefixFamily | None:
    """Return the family of a model by its name, its folder, its name behind an endpoint, or the
    card in its folder.
    """
    names = [name.lower() for name in _list_names(model)]
    for family in FAMILIES:
        if any(family.name.fullmatch(name) for name in names):
            return family
    card = _read_card(Path(portable_name(model.mteb_model_meta)))
    return next((family for family in FAMILIES if family.is_stated_in(card)), None)


def _list_names(model: MTEBModels) -> Iterator[str]:
    """Yield the names of a model without organization or path."""
    reference = portable_name(model.mteb_model_meta)
    endpoint = find_endpoint(reference)
    for name in (str(model.mteb_model_meta.name), endpoint.model if endpoint else reference):
        yield name.rstrip("/").rpartition("/")[2]


def _read_card(folder: Path) -> str:
    card = folder / "README.md"
    if not card.is_file():
        return ""
    with card.open(encoding="utf-8", errors="replace") as file:
        return file.read(MAX_CARD)
