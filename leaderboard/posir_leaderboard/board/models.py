"""What the board says of a model. Whatever a submitter wrote of it is read as data of doubtful kind."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Kinds of model, as visitors filter by them; of mteb's `model_type`, and BM25 by its name.
BM25, UNKNOWN = "BM25", "Unknown"
KINDS = {
    "dense": "Dense",
    "sparse": "Sparse",
    "late-interaction": "Late interaction",
    "cross-encoder": "Cross-encoder",
}
#: Longest licence and longest address that are shown.
MAX_TEXT = 300
ADDRESS = re.compile(r"https://[^\s<>\"'\\^`{|}\x00-\x20]+")


@dataclass(frozen=True)
class Model:
    """A model in one revision, or a model of a paper. None where nothing is known."""

    name: str
    """Full name, such as `Qwen/Qwen3-Embedding-0.6B`; of a paper's model as printed."""
    revision: str
    """Empty for a paper's model."""
    published: bool = False
    """Whether its results are a paper's."""
    kind: str = UNKNOWN
    parameters: int | None = None
    window: int | None = None
    """Tokens of a text that it reads at most."""
    dimensions: int | None = None
    """Of an embedding; the most, where there is a choice."""
    open_weights: bool | None = None
    license: str | None = None
    reference: str | None = None
    """Address that begins with https://."""

    @property
    def id(self) -> str:
        """Name for files and links, of twelve hexadecimal digits: no two models share it, and no name can choose it."""
        identity = "\0".join(("published" if self.published else "result", self.name, self.revision))
        return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def model_of(name: str, revision: str, meta: Mapping[str, Any], *, published: bool = False) -> Model:
    """Return a model as its metadata describes it.

    Args:
        name: Its full name.
        revision: Its revision.
        meta: mteb's `model_meta.json`. What is not of the right type is taken as unknown.
        published: Whether its results are a paper's.
    """
    return Model(
        name=name,
        revision=revision,
        published=published,
        kind=_kind(name, meta.get("model_type")),
        parameters=_count(meta.get("n_parameters")),
        window=_count(meta.get("max_tokens")),
        dimensions=_dimensions(meta.get("embed_dim")),
        open_weights=meta.get("open_weights") if isinstance(meta.get("open_weights"), bool) else None,
        license=_text(meta.get("license")),
        reference=_address(meta.get("reference")),
    )


def _kind(name: str, types: Any) -> str:
    if "bm25" in name.lower():
        return BM25
    known = [KINDS[one] for one in types if isinstance(one, str) and one in KINDS] if isinstance(types, list) else []
    return known[0] if known else UNKNOWN


def _count(value: Any) -> int | None:
    """Return a number above 0 as an integer; JSON of mteb has some counts as floats, and 0 for BM25's parameters."""
    whole = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 2**53
    return int(value) if whole else None


def _dimensions(value: Any) -> int | None:
    return max(filter(None, map(_count, value)), default=None) if isinstance(value, list) else _count(value)


def _text(value: Any) -> str | None:
    return value[:MAX_TEXT] if isinstance(value, str) and value else None


def _address(value: Any) -> str | None:
    return value if isinstance(value, str) and len(value) <= MAX_TEXT and ADDRESS.fullmatch(value) else None
