"""Model metadata on the leaderboard. A submitter's metadata is not trusted: invalid fields count as unknown."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from posir_tasks.digests import digest
from posir_tasks.models.references import model_origin

#: Kinds of model that visitors filter by: mteb's `model_type`, and BM25 by its name.
BM25, UNKNOWN = "BM25", "Unknown"
KINDS = {"dense": "Dense", "sparse": "Sparse", "late-interaction": "Late interaction", "cross-encoder": "Cross-encoder"}
#: Longest license and longest address that are shown.
MAX_TEXT = 300


def _none_if_invalid(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


T = TypeVar("T")
Known = Annotated[T | None, WrapValidator(_none_if_invalid)]
#: mteb writes some counts as floats.
Count = Annotated[
    int,
    BeforeValidator(lambda value: int(value) if isinstance(value, float) and value.is_integer() else value),
    Field(gt=0, lt=2**53),
]


class Metadata(BaseModel):
    """The fields of mteb's `model_meta.json` that are shown; None if missing or invalid."""

    model_config = ConfigDict(strict=True)

    model_type: Known[list[Any]] = None
    n_parameters: Known[Count] = None
    max_tokens: Known[Count] = None
    embed_dim: Known[Count | list[Known[Count]]] = None
    open_weights: Known[bool] = None
    license: Known[Annotated[str, Field(min_length=1)]] = None
    reference: Known[Annotated[str, Field(max_length=MAX_TEXT, pattern=r"^https://[^\s<>\"'\\^`{|}\x00-\x20]+$")]] = None


@dataclass(frozen=True)
class BoardModel:
    """A model in one revision, or a model of a paper. None if unknown."""

    name: str
    """Full name, such as `Qwen/Qwen3-Embedding-0.6B`; for a paper's model, as printed."""
    revision: str
    """Empty for a paper's model."""
    published: bool = False
    """Whether its results are published in a paper."""
    kind: str = UNKNOWN
    parameters: int | None = None
    """0 for BM25."""
    window: int | None = None
    """Most tokens of a text that it reads."""
    dimensions: int | None = None
    """Dimensions of an embedding; the largest number, if there is a choice."""
    open_weights: bool | None = None
    license: str | None = None
    reference: str | None = None
    """Address that starts with https://."""

    @property
    def origin(self) -> str | None:
        """`local` or `endpoint` for a model that visitors cannot run; such results are not submitted."""
        return None if self.published else model_origin(self.name)

    @property
    def id(self) -> str:
        """Identifier in files and links: twelve hexadecimal digits of a hash, so that a name cannot choose it.

        The Hub's names differ in more than case, and the papers write one name in several cases.
        """
        return digest("published" if self.published else "result", self.name.casefold(), self.revision, size=6).hex()


def read_board_model(name: str, revision: str, meta: Mapping[str, Any], *, published: bool = False) -> BoardModel:
    """Return a model, perhaps published in a paper only, as mteb's `model_meta.json` describes it."""
    given = Metadata.model_validate(meta)
    kinds = [KINDS[kind] for kind in given.model_type or () if isinstance(kind, str) and kind in KINDS]
    dimensions = given.embed_dim if isinstance(given.embed_dim, list) else [given.embed_dim]
    return BoardModel(
        name=name,
        revision=revision,
        published=published,
        kind=BM25 if "bm25" in name.lower() else next(iter(kinds), UNKNOWN),
        parameters=0 if "bm25" in name.lower() else given.n_parameters,
        window=given.max_tokens,
        dimensions=max(filter(None, dimensions), default=None),
        open_weights=given.open_weights,
        license=given.license[:MAX_TEXT] if given.license else None,
        reference=given.reference,
    )
