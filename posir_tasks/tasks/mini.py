"""PosIR-Mini: a first run without a network."""

from mteb.abstasks.task_metadata import TaskMetadata

from posir_tasks.schemes import RelativePositions
from posir_tasks.sources.data import PositionData
from posir_tasks.sources.mini import REVISION, read_mini
from posir_tasks.tasks.base import SPLIT, PositionTask
from posir_tasks.tasks.posir import QUERY_PROMPT


class PosIRMini(PositionTask):
    """A small English set that ships inside the package."""

    scheme = RelativePositions()
    metadata = TaskMetadata(
        name="PosIR-Mini",
        description=(
            "A small position-aware retrieval set that ships inside the package `posir`: 72 documents about invented things "
            "of six kinds, easy to confuse, and 720 questions with exact spans, spread evenly over positions and lengths."
        ),
        dataset={"path": "posir/PosIR-Mini", "revision": REVISION},
        reference="https://pypi.org/project/posir/",
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=[SPLIT],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        date=("2026-11-20", "2026-11-20"),
        domains=["Fiction", "Written", "Constructed"],
        task_subtypes=["Article retrieval", "Question Answering Retrieval"],
        license="apache-2.0",
        annotations_creators="LM-generated",
        dialect=[],
        sample_creation="created",
        prompt={"query": QUERY_PROMPT},  # type: ignore[arg-type]
        bibtex_citation="",
    )

    def read_subset(self, subset: str) -> PositionData:  # noqa: ARG002
        """Read the texts in the package."""
        return read_mini()
