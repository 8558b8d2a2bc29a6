"""References that name other models: hybrids, methods and multi-vector heads."""

from __future__ import annotations

import re
from pathlib import Path

from posir_tasks.models.folder import is_model_folder

#: A reference with a plugin's method, as in `A+chunks(64)`.
METHOD_REFERENCE = re.compile(r"(?P<base>.+)\+[a-z_]+(?:\([^()]*\))?", re.DOTALL)
#: Hybrids fuse the rankings of several models by reciprocal rank.
HYBRID_START = "hybrid("
HYBRID_END = ")"
#: End of a reference to the multi-vector head of a model.
HEAD_SUFFIX = ":colbert"
#: Names in the PosQ papers.
PAPER_NAMES = {
    "bge-m3-colbert": "BAAI/bge-m3:colbert",
    "BAAI/bge-m3-colbert": "BAAI/bge-m3:colbert",
}


def split_reference(reference: str) -> list[str]:
    """Return the models in a reference: the members of a hybrid, or the base model of a method or a
    multi-vector head.
    """
    if is_model_folder(Path(reference).expanduser()):
        return [reference]
    if method := METHOD_REFERENCE.fullmatch(reference):
        return split_reference(method["base"])
    if members := split_hybrid(reference):
        return [name for member in members for name in split_reference(member)]
    return [PAPER_NAMES.get(reference, reference).removesuffix(HEAD_SUFFIX)]


def split_hybrid(reference: str) -> list[str]:
    """Return the models in a hybrid, or an empty list for any other reference."""
    if not (reference.startswith(HYBRID_START) and reference.endswith(HYBRID_END)):
        return []
    return split_models(reference.removeprefix(HYBRID_START).removesuffix(HYBRID_END))


def split_models(text: str) -> list[str]:
    """Split model references at commas outside parentheses."""
    models: list[str] = []
    for part in text.split(","):
        if models and models[-1].count("(") > models[-1].count(")"):
            models[-1] += f",{part}"
        else:
            models.append(part)
    return [model.strip() for model in models]
