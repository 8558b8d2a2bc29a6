"""The form of a result: its keys and its schema version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from posir_tasks.base.digests import digest

#: Version of a subset's scores, and of the profile in them. A reader refuses a newer one.
SCHEMA = 1
#: mteb rounds scores to this many decimals when it writes them.
DECIMALS = 6
#: The only split of posir's tasks.
SPLIT = "test"
#: Keys of a subset's scores: the profile, and the data and settings of the run.
PROFILE_KEY = "position_profile"
RUN_KEY = "position_run"
#: Keys of the ranks by document, of the places of the evidence in what the model reads, and of the
#: documents' digests.
RANKS_KEY = "document_ranks"
READ_RANKS_KEY = "read_ranks"
KEYS_KEY = "document_keys"
#: Keys for the part of a text that the model reads, and for the tokens of the corpus that it reads.
READ_KEY = "read"
TOKENS_READ_KEY = "tokens_read"
#: Suffix of the file that has both for each `SPLIT, SUBSET`, next to a result of mteb without
#: positions, instead of `.json`.
TOKENS_READ_SUFFIX = ".tokens_read"
#: Key of the places of queries with several places of evidence, and in it of their queries and
#: weights; absent without any.
PLACES_KEY = "places"
WEIGHTS_KEY = "weights"
#: Key of the ranks of rotated versions of a sample of documents; absent if none were asked for.
ROTATIONS_KEY = "rotations"
#: Key of the metrics of queries with plain judgments; absent where the evidence of each has one
#: place.
JUDGMENTS_KEY = "judgments"
#: Key of the run for the names of the scores that plugins gave.
SCORE_NAMES_KEY = "plugin_score_names"
#: Keys of the run for the revision of the data, and for the digests of its content: `corpus` and
#: `queries`.
REVISION_KEY = "data_revision"
DIGEST_KEY = "data_digest"
#: Key of the run for the number of documents, and of the vectors that they have in the index;
#: absent if they have one each, or none.
INDEX_KEY = "index"
#: Key of the run for the numbers of rows of the data that break a rule and are tolerated, by the
#: rule; those of subsets add.
TOLERATED_KEY = "tolerated"
#: Key of the run for a paper's protocol: what it asked for, and what the loaded model says of
#: itself; absent without one.
PROTOCOL_KEY = "protocol"
#: Key of the run for what commands name the model, its data and its settings by; absent where their
#: names alone do.
REFERENCE_KEY = "reference"
#: Key of the run for the counts that a search model states of its search, by name; absent for most
#: models.
SEARCH_KEY = "search"
#: Keys of a subset's entry that are no scores.
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
    """A commit of the Hub, `local-` and a digest of files, or the version of data in a package."""
    corpus: str = ""
    """Digest of the documents' content; "" if the result does not record it."""
    queries: str = ""
    """Digest of the content of queries and evidence; "" if the result does not record it."""

    @classmethod
    def from_run(cls, run: Mapping[str, Any]) -> DataVersion:
        """Return the data that a result names, given what it records of its run."""
        digests = run.get(DIGEST_KEY)
        parts = digests if isinstance(digests, dict) else {}
        return cls(
            str(run.get(REVISION_KEY, "unknown")),
            str(parts.get("corpus", "")),
            str(parts.get("queries", "")),
        )

    def differing_parts(self, other: DataVersion) -> tuple[str, ...]:
        """Return which of `corpus` and `queries` differ in content; `revision` if content is
        unknown and that differs.
        """
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
    """Return whether two results have subsets in common, and the same data in all of these."""
    common = left.keys() & right.keys()
    return bool(common) and not any(
        left[subset].differing_parts(right[subset]) for subset in common
    )


def average_vectors(runs: Iterable[Mapping[str, Any]]) -> float | None:
    """Return how many vectors a document has in the index, on average; None if the runs do not say,
    or not in valid counts.
    """
    sizes = [
        [size.get(name) for name in ("documents", "vectors")]
        for run in runs
        if isinstance(size := run.get(INDEX_KEY), dict)
    ]
    counts = [
        pair
        for pair in sizes
        if all(isinstance(count, int) and 0 < count < 2**53 for count in pair)
    ]
    documents, vectors = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
    return vectors / documents if documents else None


def identify_data(data: SubsetData) -> str:
    """Return a text that is equal for results with the same content, or of the same revision if
    that is unknown.
    """
    subsets = [
        f"{name}:{data[name].corpus}:{data[name].queries}"
        for name in sorted(data)
        if data[name].corpus
    ]
    unknown = [f"{name}@{data[name].revision}" for name in sorted(data) if not data[name].corpus]
    return digest(*subsets, *unknown).hex()


def round_floats(value: Any) -> Any:
    """Return JSON with all numbers rounded as mteb rounds scores."""
    return map_json(value, lambda part: round(part, DECIMALS) if isinstance(part, float) else part)


def map_json(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return JSON with every key and value that is no list or object changed."""
    if isinstance(value, list):
        return [map_json(item, change) for item in value]
    if isinstance(value, dict):
        return {change(key): map_json(item, change) for key, item in value.items()}
    return change(value)
