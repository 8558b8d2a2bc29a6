"""Read published curves of diagnostic probes, and model architectures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from posir_published.rows import read_rows
from posir_tasks.base.untrusted import read_csv_rows
from posir_tasks.base.wording import drop_organization

#: Columns of a user's file with architectures.
ARCHITECTURE_COLUMNS = ("model", "positional_encoding", "attention", "pooling")
BIAS_LEARNING = "Bias Learning, OpenReview 4GD7a9Bo9A, arXiv 2412.15241v3"
#: Source of the published curves, by the probe's name in `posir probe`.
SOURCES = {
    "segment_similarity_3": "arXiv 2505.13950v5, Table 4",
    "segment_similarity_10": "arXiv 2605.26578v1, Fig. 7",
    "permutation": "arXiv 2601.16934, results stored with its code",
    "controlled_pairs_effect": "arXiv 2503.05037, Fig. A.1 to A.4",
    "evidence_moving": "arXiv 2605.26578v1, Table 13",
    "mirror_reversal": "arXiv 2605.26578v1, Table 12",
    "gradient_saliency": "arXiv 2601.08363v1, Fig. 5",
    "query_types": "arXiv 2601.08363v1, Table 6",
    "needle_insertion": f"{BIAS_LEARNING}, Table 2",
    "text_removal": f"{BIAS_LEARNING}, Table 2",
    "sentence_regression": f"{BIAS_LEARNING}, Tables 3, 5 to 7",
}


@dataclass(frozen=True)
class PublishedCurve:
    """Published values of a probe for one model or model group."""

    probe: str
    model: str
    """Printed name with the training or test data; or the name of a model group or dataset."""
    positions: Sequence[str]
    values: Sequence[float]
    deviations: Sequence[float] = ()
    """Standard deviations of the averaged values; empty if not published."""
    encoding: str = ""
    """Positional encoding of a model group; empty for one model."""

    @property
    def source(self) -> str:
        """Paper, and its table or figure."""
        return f"published, {SOURCES[self.probe]}"


@cache
def read_published_curves(probe: str) -> Sequence[PublishedCurve]:
    """Read the published curves of a probe."""
    curves = []
    probe_rows = (row for row in read_rows("probes.csv") if row["probe"] == probe)
    for (model, encoding), group in groupby(probe_rows, key=itemgetter("model", "encoding")):
        rows = list(group)
        positions = [row["position"] for row in rows]
        values = [float(row["value"]) for row in rows]
        deviations = [float(row["sd"]) for row in rows if row["sd"]]
        curves.append(PublishedCurve(probe, model, positions, values, deviations, encoding))
    return curves


class ArchitectureProperty(StrEnum):
    """An architectural property to group models by."""

    POSITIONAL_ENCODING = "positional_encoding"
    ATTENTION = "attention"
    POOLING = "pooling"


@dataclass(frozen=True)
class Architecture:
    """Architecture of a model; unknown properties are empty."""

    positional_encoding: str
    """`APE`, `RoPE`, `ALiBi` or `none`."""
    attention: str
    """`bidirectional` or `causal`."""
    pooling: str
    """`CLS`, `mean` or `last`."""
    source: str = ""


def normalize_model_name(model: str) -> str:
    """Remove the organization and settings from a model's name, and convert it to lower case."""
    return drop_organization(model.split(" (")[0]).casefold()


def read_architectures(file: Path | None = None) -> Mapping[str, Architecture]:
    """Read model architectures, keyed by `normalize_model_name`.

    Args:
        file: CSV file with `ARCHITECTURE_COLUMNS`, which takes precedence over this package's
            `architectures.csv`.

    Raises:
        DataError: The file cannot be read, or a column is missing.
    """
    rows = list(read_rows("architectures.csv"))
    if file:
        rows += read_csv_rows(
            file, ARCHITECTURE_COLUMNS, f"a file with the columns {','.join(ARCHITECTURE_COLUMNS)}"
        )
    return {
        normalize_model_name(row["model"]): Architecture(
            row["positional_encoding"], row["attention"], row["pooling"], row.get("source", "")
        )
        for row in rows
    }
