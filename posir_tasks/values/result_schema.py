"""The schema of results: keys and version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from posir_tasks.base.digests import digest

#: Schema version of a subset's scores and its profile. Newer versions are rejected.
SCHEMA = 1
#: Number of decimals of mteb's scores.
DECIMALS = 6
#: The only split of posir's tasks.
SPLIT = "test"
#: Keys of a subset's scores: the profile, and the data and settings of the run.
PROFILE_KEY = "position_profile"
RUN_KEY = "position_run"
#: Keys of the ranks by document, of positions within the window, and of document digests.
RANKS_KEY = "document_ranks"
READ_RANKS_KEY = "read_ranks"
KEYS_KEY = "document_keys"
#: Keys of the window, and of the numbers of read and truncated tokens.
READ_KEY = "read"
TOKENS_READ_KEY = "tokens_read"
#: Suffix, instead of `.json`, of the file next to a result without positions that stores both for
#: each `SPLIT, SUBSET`.
TOKENS_READ_SUFFIX = ".tokens_read"
#: Keys of the ranks of queries with several places of evidence, and of query numbers and weights
#: within; absent without such queries.
PLACES_KEY = "places"
WEIGHTS_KEY = "weights"
#: Key of the ranks of rotated documents; absent if rotation is off.
ROTATIONS_KEY = "rotations"
#: Key of the metrics of all judged queries; absent if each has one place of evidence.
JUDGMENTS_KEY = "judgments"
#: Key in the run record: names of the plugins' scores.
SCORE_NAMES_KEY = "plugin_score_names"
#: Keys in the run record: the data's revision, and its digests `corpus` and `queries`.
REVISION_KEY = "data_revision"
DIGEST_KEY = "data_digest"
#: Key in the run record: numbers of documents and vectors in the index; absent if there are no
#: vectors or one per document.
INDEX_KEY = "index"
#: Key in the run record: numbers of tolerated invalid rows by rule; additive over subsets.
TOLERATED_KEY = "tolerated"
#: Key in the run record: a paper's protocol, with its settings and those of the loaded model.
PROTOCOL_KEY = "protocol"
#: Key in the run record: command arguments for model, data and settings; absent if their names are
#: enough.
REFERENCE_KEY = "reference"
#: Key in the run record: counts that a search model reports about its search, by name; absent for
#: most models.
SEARCH_KEY = "search"
#: Keys of a subset's entry that are not scores.
NO_SCORES = frozenset(
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
    """A commit on the Hub, `local-` with a digest of files, or the version of a package's data."""
    corpus: str = ""
    """Digest of the documents' content; "" if not recorded."""
    queries: str = ""
    """Digest of the content of queries and evidence; "" if not recorded."""

    @classmethod
    def from_run(cls, run: Mapping[str, Any]) -> DataVersion:
        """Read the data version from the record of a run."""
        digests = run.get(DIGEST_KEY)
        parts = digests if isinstance(digests, dict) else {}
        return cls(
            str(run.get(REVISION_KEY, "unknown")),
            str(parts.get("corpus", "")),
            str(parts.get("queries", "")),
        )

    def differing_parts(self, other: DataVersion) -> tuple[str, ...]:
        """List the differing parts: `corpus` and `queries` by content, or else `revision`."""
        if self.corpus and other.corpus:
            return tuple(
                part
                for part in ("corpus", "queries")
                if getattr(self, part) != getattr(other, part)
            )
        return () if self.revision == other.revision else ("revision",)


#: The data of each subset.
SubsetData: TypeAlias = Mapping[str, DataVersion]


def share_data(left: SubsetData, right: SubsetData) -> bool:
    """Return True if two results have common subsets, all with the same data."""
    common = left.keys() & right.keys()
    return bool(common) and not any(
        left[subset].differing_parts(right[subset]) for subset in common
    )


def average_vectors(runs: Iterable[Mapping[str, Any]]) -> float | None:
    """Average the number of vectors per document in the index; None without valid counts."""
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
    """Digest the content of subsets, or their revisions if the content is unknown."""
    subsets = []
    revisions = []
    for name, version in sorted(data.items()):
        if version.corpus:
            subsets.append(f"{name}:{version.corpus}:{version.queries}")
        else:
            revisions.append(f"{name}@{version.revision}")
    return digest(*subsets, *revisions).hex()


def round_floats(value: Any) -> Any:
    """Round all floats in JSON like mteb's scores."""
    return map_json(value, lambda leaf: round(leaf, DECIMALS) if isinstance(leaf, float) else leaf)


def map_json(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to all keys and leaves of JSON."""
    if isinstance(value, list):
        return [map_json(item, change) for item in value]
    if isinstance(value, dict):
        return {change(key): map_json(item, change) for key, item in value.items()}
    return change(value)
