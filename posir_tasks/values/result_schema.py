"""The schema of results: keys and version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from posir_tasks.base.digests import digest

#: Schema version of a subset's entry and its profile. Newer versions are rejected.
SCHEMA = 1
#: Number of decimals of mteb's scores.
DECIMALS = 6
#: The only split of posir's tasks.
SPLIT = "test"
#: Keys of a subset's entry: the position profile, and the record of data and settings of the run.
PROFILE_KEY = "position_profile"
RUN_KEY = "position_run"
#: Keys of the ranks by document, of positions within the window, and of document digests.
RANKS_KEY = "document_ranks"
READ_RANKS_KEY = "read_ranks"
KEYS_KEY = "document_keys"
#: Keys of the window and of the counts of read and truncated tokens.
READ_KEY = "read"
TOKENS_READ_KEY = "tokens_read"
#: Suffix of the file that stores both, by `SPLIT, SUBSET`, next to a result without positions. It
#: replaces `.json`.
TOKENS_READ_SUFFIX = ".tokens_read"
#: Keys of the ranks of queries with several evidence spans, and of their query numbers and
#: weights. Absent if no query has several.
PLACES_KEY = "places"
WEIGHTS_KEY = "weights"
#: Key of the ranks of rotated documents. Absent if rotation is disabled.
ROTATIONS_KEY = "rotations"
#: Key of the metrics of all judged queries. Absent if each has one evidence span.
JUDGMENTS_KEY = "judgments"
#: Key in the run record: names of scores from plugins.
SCORE_NAMES_KEY = "plugin_score_names"
#: Keys in the run record: the data's revision, and its digests `corpus` and `queries`.
REVISION_KEY = "data_revision"
DIGEST_KEY = "data_digest"
#: Key in the run record: numbers of documents and vectors in the index. Absent if there are no
#: vectors, or one per document.
INDEX_KEY = "index"
#: Key in the run record: number of tolerated invalid rows by rule, additive over subsets.
TOLERATED_KEY = "tolerated"
#: Key in the run record: a paper's protocol, its settings, and the settings of the loaded model.
PROTOCOL_KEY = "protocol"
#: Key in the run record: command arguments for model, data and settings. Absent if their names are
#: sufficient.
REFERENCE_KEY = "reference"
#: Key in the run record: counts that a search model reports about its search, by name. Absent for
#: most models.
SEARCH_KEY = "search"
#: Keys of a subset's entry that are not scores.
NON_SCORE_KEYS = frozenset(
    {
        PROFILE_KEY,
        RANKS_KEY,
        READ_KEY,
        READ_RANKS_KEY,
        KEYS_KEY,
        TOKENS_READ_KEY,
        PLACES_KEY,
        RUN_KEY,
        JUDGMENTS_KEY,
        ROTATIONS_KEY,
        "main_score",
        "hf_subset",
        "languages",
        "mteb_version",
    }
)


@dataclass(frozen=True)
class DataVersion:
    """The data of a result on one subset."""

    revision: str
    """A commit on the Hub, `local-` plus a digest of the files, or the data version of a package.
    """
    corpus: str = ""
    """Digest of the documents; "" if not recorded."""
    queries: str = ""
    """Digest of the queries and the evidence; "" if not recorded."""

    @classmethod
    def from_run(cls, run: Mapping[str, Any]) -> DataVersion:
        """Read the data version from a run record."""
        digests = run.get(DIGEST_KEY)
        if not isinstance(digests, dict):
            digests = {}
        return cls(
            str(run.get(REVISION_KEY, "unknown")),
            str(digests.get("corpus", "")),
            str(digests.get("queries", "")),
        )

    def find_differences(self, other: DataVersion) -> tuple[str, ...]:
        """List what differs: `corpus`, `queries` or, if digests are missing, `revision`."""
        if self.corpus and other.corpus:
            return tuple(
                name
                for name in ("corpus", "queries")
                if getattr(self, name) != getattr(other, name)
            )
        return () if self.revision == other.revision else ("revision",)


#: Data version by subset.
SubsetData: TypeAlias = Mapping[str, DataVersion]


def has_same_data(left: SubsetData, right: SubsetData) -> bool:
    """Return True if two results have subsets in common and the data of all of these is equal."""
    common = left.keys() & right.keys()
    return bool(common) and not any(
        left[subset].find_differences(right[subset]) for subset in common
    )


def average_vectors(runs: Iterable[Mapping[str, Any]]) -> float | None:
    """Compute the mean number of vectors per document in the indexes; None without valid counts."""
    documents = 0
    vectors = 0
    for run in runs:
        size = run.get(INDEX_KEY)
        if not isinstance(size, dict):
            continue
        counts: list[Any] = [size.get("documents"), size.get("vectors")]
        if all(isinstance(count, int) and 0 < count < 2**53 for count in counts):
            documents += counts[0]
            vectors += counts[1]
    return vectors / documents if documents else None


def identify_data(data: SubsetData) -> str:
    """Compute a digest of the subsets' data, or of revisions if the data has no digest."""
    subsets = []
    revisions = []
    for name, version in sorted(data.items()):
        if version.corpus:
            subsets.append(f"{name}:{version.corpus}:{version.queries}")
        else:
            revisions.append(f"{name}@{version.revision}")
    return digest(*subsets, *revisions).hex()


def round_floats(value: Any) -> Any:
    """Round all floats in JSON like mteb's scores. Keys are strings."""
    if isinstance(value, float):
        return round(value, DECIMALS)
    if isinstance(value, list):
        # Most items are numbers, which need no call.
        return [
            round(item, DECIMALS) if type(item) is float else round_floats(item) for item in value
        ]
    if isinstance(value, dict):
        return {key: round_floats(item) for key, item in value.items()}
    return value


def map_json(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to all keys and leaves of JSON."""
    if isinstance(value, list):
        return [map_json(item, change) for item in value]
    if isinstance(value, dict):
        return {change(key): map_json(item, change) for key, item in value.items()}
    return change(value)
