"""A finished run as one of mteb's search models, so that it is evaluated exactly as a model is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from posir_score.alignment import AlignedRun
from posir_tasks.models.names import legible_name
from posir_tasks.models.references import RUN

if TYPE_CHECKING:
    from datasets import Dataset
    from mteb.models import ModelMeta

#: Bytes of the digest of a run, written as twice as many hexadecimal digits.
DIGEST_BYTES = 8


class RunSearch:
    """Returns what a run retrieved; nothing is searched."""

    def __init__(self, name: str, run: AlignedRun) -> None:
        from mteb.models import ModelMeta

        self.run = run
        self.mteb_model_meta: ModelMeta = ModelMeta.create_empty(
            {"name": f"{RUN}/{legible_name(name)}", "revision": digest_run(run), "loader": None}
        )
        self.search_record: Mapping[str, int] = {}
        """Counts of what fits between the run and the subset that was last searched."""

    def index(self, corpus: Dataset, **_: Any) -> None:
        """Do nothing: the run was searched already."""

    def search(self, queries: Dataset, *, hf_subset: str, top_k: int, **_: Any) -> dict[str, dict[str, float]]:
        """Return the scores of the documents of each query, none if the run lacks it; at most `top_k`."""
        rankings = self.run.rankings[hf_subset]
        self.search_record = self.run.counts[hf_subset].to_json()
        return {query: dict(list(rankings.get(query, {}).items())[:top_k]) for query in queries["id"]}


def digest_run(run: AlignedRun) -> str:
    """Return 16 hexadecimal digits that identify the rankings, in whatever order the files had them."""
    content = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for subset, rankings in sorted(run.rankings.items()):
        for query in sorted(rankings):
            content.update(json.dumps([subset, query, rankings[query]]).encode())
    return content.hexdigest()
