"""Model families that were trained with prompts, and a warning if such a model has no prompt."""

from __future__ import annotations

import logging
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_tasks.base.logs import warn_once
from posir_tasks.models.references import find_endpoint, get_portable_reference, strip_organization

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

logger = logging.getLogger(__name__)

#: Maximum number of characters to read from a model card.
MAX_CARD = 100_000
ENGLISH_INSTRUCTION = "Represent this sentence for searching relevant passages: "
CHINESE_INSTRUCTION = "为这个句子生成表示以用于检索相关文章："


@dataclass(frozen=True)
class PrefixFamily:
    """Models whose cards specify the same prompts."""

    name: re.Pattern[str]
    """Pattern for lowercase model names without an organization."""
    query: str
    document: str
    """Empty if documents have no prompt."""


#: Prompts from the cards of intfloat/e5-base-v2, nomic-ai/nomic-embed-text-v1.5,
#: BAAI/bge-base-en-v1.5 and BAAI/bge-base-zh-v1.5. E5 models with instructions and BGE-M3 do not
#: use them.
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


def warn_about_missing_prompts(model: MTEBModels) -> None:
    """Warn once about each model that was trained with prompts but has none."""
    family = find_family(model)
    if family:
        warn_once(logger, describe_missing_prompts(str(model.mteb_model_meta.name), family))


def describe_missing_prompts(name: str, family: PrefixFamily) -> str:
    """Return the warning, with the family's prompts and the variables that set them."""
    expected_prefixes = f"{family.query!r} before queries"
    variables = f"POSIR_QUERY_PROMPT={shlex.quote(family.query)}"
    if family.document:
        expected_prefixes += f" and {family.document!r} before documents"
        variables += f" POSIR_DOCUMENT_PROMPT={shlex.quote(family.document)}"
    return (
        f"{name}: models of this family were trained with {expected_prefixes}, and no prompt is "
        f"configured. Set {variables} (or --query-prompt and --document-prompt); set an empty "
        "prompt to run without one."
    )


def find_family(model: Any) -> PrefixFamily | None:
    """Find the family of a model by its name or card, or return None if it has prompts."""
    # Importing the module loads torch.
    from posir_tasks.models.prompts import REPLACED_PROMPTS, has_model_prompts

    # Other classes may add prompts themselves.
    if hasattr(model, REPLACED_PROMPTS) or not has_model_prompts(model):
        return None
    # The server adds the prompts.
    if getattr(model, "has_query_fields", False):
        return None
    prompts = getattr(getattr(model, "model", None), "prompts", None) or {}
    if any([*(model.model_prompts or {}).values(), *prompts.values()]):
        return None
    meta = model.mteb_model_meta
    reference = get_portable_reference(meta)
    endpoint = find_endpoint(reference)
    for name in (str(meta.name), endpoint.model if endpoint else reference):
        lowercase_name = strip_organization(name.rstrip("/")).lower()
        for family in FAMILIES:
            if family.name.fullmatch(lowercase_name):
                return family
    card = Path(reference) / "README.md"
    if card.is_file():
        with card.open(encoding="utf-8", errors="replace") as file:
            text = file.read(MAX_CARD)
        # The document prompt identifies the family.
        for family in FAMILIES:
            if family.document and re.search(rf"(?<![\w]){re.escape(family.document)}", text):
                return family
    return None
