"""PosIR-Mini: a first run without a network."""

from posir_tasks.schemes import RelativePositions
from posir_tasks.sources.data import PositionData
from posir_tasks.sources.mini import REVISION, read_mini
from posir_tasks.tasks.base import PositionTask
from posir_tasks.tasks.metadata import build_metadata


class PosIRMini(PositionTask):
    """A small English set that ships inside the package."""

    scheme = RelativePositions()
    metadata = build_metadata(
        "PosIR-Mini",
        dataset="posir/PosIR-Mini",
        revision=REVISION,
        languages=["eng-Latn"],
        description=(
            "A small position-aware retrieval set that ships inside the package `posir`: 72 documents about invented things "
            "of six kinds, easy to confuse, and 720 questions with exact spans, spread evenly over positions and lengths."
        ),
        reference="https://pypi.org/project/posir/",
        date=("2026-11-20", "2026-11-20"),
        domains=["Fiction", "Written", "Constructed"],
        license="apache-2.0",
        annotations_creators="LM-generated",
        sample_creation="created",
    )

    def read_subset(self, subset: str) -> PositionData:  # noqa: ARG002
        """Read the texts in the package."""
        return read_mini()
