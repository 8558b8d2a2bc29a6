"""Results of probes: small JSON files in the folder `probes` beside mteb's results, one per data and probe."""

from __future__ import annotations

import json
import logging
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_probe.sums import ProbeSums
from posir_tasks.cells import reading_json
from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.files import atomic_write, find_files

if TYPE_CHECKING:
    from mteb.models import ModelMeta

logger = logging.getLogger(__name__)

#: Version of the files. A reader refuses a newer one.
SCHEMA = 1
FOLDER = "probes"


@dataclass(frozen=True)
class SubsetSums:
    """The measurements of one subset so far."""

    data_revision: str
    selection: str
    """Selection by which the documents of the sample were drawn."""
    sampled: int
    """Documents of the sample that are to be measured."""
    done: int
    """Documents of the sample that have been measured, in order."""
    sums: ProbeSums
    tokens: int | None = None
    """Median length of the sample's documents in tokens of the model; None in older files."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to measure."""
        return self.done >= self.sampled


@dataclass(frozen=True)
class ProbeResult:
    """A model's result of one probe on one dataset."""

    model: str
    revision: str
    experiment: str | None
    """mteb's name of the model's settings; None if they are its own."""
    data: str
    """A task, or the name of a folder."""
    probe: str
    subsets: Mapping[str, SubsetSums]
    window: int | None = None
    """Most tokens of a text that the model reads, its special ones included; None where that is unknown."""

    @property
    def sums(self) -> ProbeSums:
        """The pooled sums of all subsets."""
        return reduce(add, (subset.sums for subset in self.subsets.values()))

    @property
    def is_complete(self) -> bool:
        """Whether all subsets in it are complete."""
        return all(subset.is_complete for subset in self.subsets.values())

    @property
    def share_read(self) -> float | None:
        """The share of a median document within the model's window, below 1; None where all is read, or that is unknown."""
        lengths = [subset.tokens for subset in self.subsets.values() if subset.tokens]
        share = self.window / statistics.median(lengths) if self.window and lengths else 1.0
        return share if share < 1 else None

    def with_subset(self, name: str, subset: SubsetSums) -> ProbeResult:
        """Return the result with a subset replaced or added."""
        return replace(self, subsets={**self.subsets, name: subset})

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "revision": self.revision,
            "experiment": self.experiment,
            "data": self.data,
            "probe": self.probe,
            "window": self.window,
            "subsets": {
                name: {
                    "data_revision": subset.data_revision,
                    "selection": subset.selection,
                    "sampled": subset.sampled,
                    "done": subset.done,
                    "tokens": subset.tokens,
                    "sums": subset.sums.to_json(),
                }
                for name, subset in self.subsets.items()
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProbeResult:
        """Read a result.

        Raises:
            ProfileError: The JSON is damaged.
            NewerSchemaError: A newer version of posir wrote it.
        """
        with reading_json(data, SCHEMA, "result of a probe"):
            subsets = {
                str(name): SubsetSums(
                    str(subset["data_revision"]),
                    str(subset["selection"]),
                    int(subset["sampled"]),
                    int(subset["done"]),
                    ProbeSums.from_json(subset["sums"]),
                    subset.get("tokens"),
                )
                for name, subset in data["subsets"].items()
            }
            model, revision = str(data["model"]), str(data["revision"])
            names = str(data["data"]), str(data["probe"])
            return cls(model, revision, data["experiment"], *names, subsets, data.get("window"))


def result_folder(output: Path, meta: ModelMeta) -> Path:
    """Return the folder of a model's results of probes below an `--output`."""
    from mteb import ResultCache

    return ResultCache(output).get_task_result_path("task", meta).parent / FOLDER


def result_file(folder: Path, data: str, probe: str) -> Path:
    """Return the file of a probe on a dataset."""
    return folder / f"{data}.{probe}.json"


def save_result(folder: Path, result: ProbeResult) -> None:
    """Write a result atomically; raise PosirError if the folder is not writable or the disk is full."""
    with atomic_write(result_file(folder, result.data, result.probe)) as part:
        part.write_text(json.dumps(result.to_json()), encoding="utf-8")


def load_result(file: Path) -> ProbeResult:
    """Read a result; raise PosirError if it is damaged or of a newer schema."""
    try:
        return ProbeResult.from_json(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, PosirError) as error:
        raise PosirError(f"{file}: not a result of a probe ({summarize_error(error)}). Remove it, and run again.") from error


def read_results(output: Path) -> Iterator[ProbeResult]:
    """Yield the results below a folder that have values, with a warning for each file that is none."""
    if not output.is_dir():
        raise PosirError(f"{output}: no such folder. Give the --output of `posir probe`.")
    for file in find_files(output, ".json"):
        if file.parent.name != FOLDER:
            continue
        try:
            result = load_result(file)
        except PosirError as error:
            logger.warning("%s", error)
            continue
        if result.subsets:
            yield result
