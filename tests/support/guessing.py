"""A search model with random scores, and its results as mteb writes them: real result files in half
a second.
"""

import random
from collections.abc import Iterable
from pathlib import Path

import mteb
from mteb.cache import ResultCache
from mteb.models import ModelMeta

MODEL, REVISION = "org/guessing", "f" * 40


class GuessingModel:
    """Retrieves random documents, mostly of the first third of the corpus; its metadata has a
    window of 256 tokens.
    """

    def __init__(
        self, name: str = MODEL, revision: str = REVISION, window: int | None = 256, seed: int = 0
    ) -> None:
        self.mteb_model_meta = ModelMeta.create_empty(
            {"name": name, "revision": revision, "max_tokens": window}
        )
        self.random = random.Random(seed)

    def index(self, corpus, **_):
        self.documents = list(corpus["id"])

    def search(self, queries, *, top_k, **_):
        few = self.documents[: max(len(self.documents) // 3, 1)]
        return {
            query: {
                document: self.random.random()
                for document in self.random.sample(
                    self.documents if self.random.random() < 0.3 else few, k=min(top_k, len(few))
                )
            }
            for query in queries["id"]
        }


def write_guesses(output: Path, tasks: Iterable[object], **model: object) -> Path:
    """Run tasks with a random model; return the folder of its results below `output`."""
    guessing = GuessingModel(**model)
    mteb.evaluate(guessing, list(tasks), cache=ResultCache(output), show_progress_bar=False)
    meta = guessing.mteb_model_meta
    return output / "results" / meta.name.replace("/", "__") / meta.revision
