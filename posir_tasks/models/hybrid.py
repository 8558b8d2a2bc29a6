"""References to hybrids of several models, `hybrid(MODEL,MODEL)`, such as `hybrid(mteb/baseline-bm25s,all-MiniLM-L6-v2)`.

Every model searches the whole corpus, and their rankings are fused by reciprocal rank (`posir_tasks.search.dispatch`). Results
are filed under the full names of the models in the given order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from posir_tasks.digests import digest
from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.models.references import portable_name, unknown_model

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

START, END = "hybrid(", ")"
FORM = "Write hybrid(MODEL,MODEL), such as 'hybrid(mteb/baseline-bm25s,all-MiniLM-L6-v2)'; in a shell it needs quotes."


class HybridLoader:
    """Loads the models of a hybrid, in place of a class of mteb. (pydantic would dump a dataclass.)"""

    def __init__(self, parts: Sequence[ModelMeta]) -> None:
        self.parts = parts
        # What mteb records as the loader.
        self.__name__ = "HybridSearch"
        self.reference = f"{START}{','.join(map(portable_name, parts))}{END}"

    def __call__(self, name: str, revision: str | None = None, **options: Any) -> MTEBModels:  # noqa: ARG002
        """Load the models; each has the settings of the run, such as a query prompt."""
        from posir_tasks.search.dispatch import HybridSearch

        return HybridSearch([part.load_model(**options) for part in self.parts])


def resolve_hybrid(name: str, registered: Mapping[str, ModelMeta]) -> ModelMeta | None:
    """Resolve `hybrid(MODEL,MODEL)`; None if the name is of another kind.

    Raises:
        PosirError: There are not at least two models, one of them does not exist, occurs twice, or only reranks.
    """
    if not name.startswith(START):
        return None
    if not name.endswith(END):
        # With a method after it, `hybrid(A,B)+chunks(64)`, it is of another kind.
        if name.count("(") > name.count(")"):
            raise PosirError(f"{name}: a parenthesis is not closed. {FORM}")
        return None
    from mteb.models import ModelMeta

    from posir_tasks.models.references import MISSING_REVISIONS
    from posir_tasks.models.run_settings import CROSS_ENCODER

    given = split_models(name.removeprefix(START).removesuffix(END))
    if len(given) < 2 or not all(given):
        raise PosirError(f"{name}: a hybrid has at least two models. {FORM}")
    parts = [_find_part(part, registered) for part in given]
    names = [str(part.name) for part in parts]
    for part in parts:
        if CROSS_ENCODER in part.model_type:
            raise PosirError(
                f"{name}: {part.name} reranks and does not search. Give the hybrid as its POSIR_FIRST_STAGE instead."
            )
        if names.count(str(part.name)) > 1:
            raise PosirError(f"{name}: {part.name} occurs more than once, which changes nothing. {FORM}")
    revisions = [part.revision for part in parts]
    values: dict[str, Any] = {
        "loader": HybridLoader(parts),
        "name": f"{START}{','.join(names)}{END}",
        "revision": None if {*MISSING_REVISIONS} & {*revisions} else digest(*revisions).hex(),
        "framework": list(dict.fromkeys(framework for part in parts for framework in part.framework)),
    }
    return ModelMeta.create_empty(values)


def split_models(text: str) -> list[str]:
    """Return the parts of a text between the commas that are not inside of parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _find_part(name: str, registered: Mapping[str, ModelMeta]) -> ModelMeta:
    if name in registered:
        return registered[name]
    import mteb

    try:
        return mteb.get_model_meta(name, fetch_from_hf=True)
    except PosirError:
        raise
    except Exception as error:  # the Hub's client has its own errors, and so has its HTTP library
        raise unknown_model(name, registered, f"the Hub does not provide it ({summarize_error(error)})") from error
