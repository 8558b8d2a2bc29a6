"""A hit, as any system returns it: the reader of a retriever's answers, the order of hits, and a
check of that order.

What systems return is told apart by the names of its fields, and none of their libraries is
imported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, islice, pairwise
from numbers import Integral, Real
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

from posir_tasks.base.untrusted import require_distinct
from posir_tasks.base.wording import pluralize, sanitized

#: Scores of unranked documents that rise in at least this share of queries, and by chance with less
#: than this probability, are taken for distances.
RISING_SHARE, RISING_CHANCE = 0.9, 1e-3
#: Most hits that are read of an answer whose order says nothing, such as a mapping.
MAX_HITS = 100_000
#: Most digits of a rank.
MAX_DIGITS = 18
#: What to do if some hits lack what others have.
GIVE_EACH = "Give each hit one, or say --order rank (the order as it is stated)"
#: The order of a query's documents: the highest score first, as in trec_eval, the lowest, or that
#: of the stated ranks, or else of the rows or hits.
Order: TypeAlias = Literal["score", "distance", "rank"]

#: Names of fields by what they have, in order of preference. Of a document: those of ranx, BEIR,
#: TREC and PyTerrier, whose `docno` is the id and `docid` a number of its index, then those of
#: LlamaIndex, Haystack and LangChain.
DOCUMENTS = ("document_id", "document-id", "doc_id", "docno", "docid", "corpus-id", "corpus_id")
PARENTS = (
    *DOCUMENTS,
    "ref_doc_id",
    "source_id",
    "parent_id",
    "source_uri",
    "sourceUri",
    "source",
    "doc",
)
#: What else identifies a hit: the id of a document that is indexed whole, or of a chunk, from which
#: its document follows.
IDS = ("id", "_id", "uuid")
SCORES = ("_relevance_score", "score", "_score", "relevance", "@search.score", "sim", "similarity")
DISTANCES = ("_distance", "distance")
RANK = "rank"
TEXTS = ("text", "chunk", "content", "page_content")
STARTS = ("start", "start_index", "split_idx_start", "start_char_idx")
ENDS = ("end", "end_index", "end_char_idx")


class HitForm(NamedTuple):
    """The places of the parts of a hit: paths of attributes or keys, with `/` between them, empty
    for the hit itself.
    """

    systems: str
    mark: str
    """A field that the hits of these systems have, and those of the forms below do not."""
    places: tuple[str, ...]
    """Places of ids, first the user's own fields, as metadata or payload; texts and offsets are
    looked for from the last.
    """
    document: tuple[str, ...] = ()
    """The document's id if the user names no field."""
    score: tuple[str, ...] = SCORES
    distance: tuple[str, ...] = DISTANCES


FORMS = (
    HitForm("LlamaIndex", "node", ("node/metadata", "node"), document=("node/ref_doc_id",)),
    HitForm("LlamaIndex", "ref_doc_id", ("metadata", ""), document=("ref_doc_id",)),
    HitForm("LangChain", "page_content", ("metadata", "")),
    HitForm("Haystack", "meta", ("meta", "")),
    HitForm("Qdrant", "payload", ("payload", "payload/metadata", "")),
    HitForm("Elasticsearch, OpenSearch", "_source", ("_source", ""), document=("_id",)),
    HitForm("Vespa", "relevance", ("fields", ""), document=("fields/documentid", "id")),
    HitForm(
        "Weaviate",
        "properties",
        ("properties", ""),
        score=("metadata/score",),
        distance=("metadata/distance",),
    ),
    # Its distance is a similarity for two of three metrics.
    HitForm("Milvus", "entity", ("entity", ""), score=(*SCORES, "distance"), distance=()),
    HitForm(
        "Elasticsearch's _rank_eval",
        "hit",
        ("hit/_source", "hit"),
        document=("hit/_id",),
        score=("hit/_score",),
    ),
    HitForm(
        "Amazon Bedrock", "location", ("metadata", "content"), document=("location/s3Location/uri",)
    ),
    HitForm("Chroma, Pinecone", "metadata", ("metadata", "")),
    HitForm("rows, such as LanceDB's", "", ("",)),
)
#: Where an answer has its hits: Elasticsearch and OpenSearch, Vespa, Qdrant and its groups,
#: Weaviate, Pinecone, Haystack, Amazon Bedrock, Vertex, Azure AI Search, LlamaIndex's query
#: engines, sentence-transformers, pyvespa and `_rank_eval`.
ANSWERS = (
    "hits/hits",
    "root/children",
    "points",
    "groups",
    "objects",
    "matches",
    "documents",
    "retrievalResults",
    "contexts/contexts",
    "value",
    "source_nodes",
    "results",
    "hits",
)
#: Lists, one for each part of all hits, and the name of that part: Chroma, AutoRAG and ragas.
COLUMNS = {
    "id": ("ids", "retrieved_ids", "retrieved_context_ids"),
    "distance": ("distances",),
    "score": ("scores", "retrieve_scores"),
    "text": ("documents", "retrieved_contents", "retrieved_contexts", "retrieval_context"),
    "metadata": ("metadatas",),
}
#: Texts of chunks without ids, in AutoRAG, ragas and deepeval, and the field in which ids are read;
#: deepeval itself has none.
TEXTS_ALONE = {
    "retrieved_contents": "retrieved_ids",
    "retrieved_contexts": "retrieved_context_ids",
    "retrieval_context": "retrieved_context_ids",
}
#: The id of a document in Vespa, `id:namespace:type:key:ID`.
VESPA_ID = re.compile(r"id:[^:]*:[^:]*:[^:]*:(.+)", re.DOTALL)
#: The place of a score that follows an id in a tuple, and has no name.
BEHIND = ""
HIT_KINDS = "an id, (id, score), or a hit of LangChain, LlamaIndex, Haystack or a vector database"


class Hit(NamedTuple):
    """A retrieved document or chunk as a system states it."""

    document: str
    """Its id, perhaps that of a chunk, such as `d1#3`."""
    score: float | None = None
    """None if the order alone is stated."""
    rank: int | None = None
    """Its stated rank or place, lower is better; None if the order of the hits means nothing."""
    text: str | None = None
    """The text of a chunk; None if it is not stated."""
    start: int | None = None
    """The chunk's place in the document as the system states it, in code points, half-open; None
    where it is not stated.
    """
    end: int | None = None
    is_distance: bool = False
    """Whether the score is minus a distance that the system states."""
    chunk: str = ""
    """The id that the system states, once `document` is that of the document."""
    distance: float | None = None
    """A distance that the system states next to the score."""


class AnswerError(Exception):
    """A query has no ranking: the retriever failed in all attempts, or returned something else."""


@dataclass
class OrderCheck:
    """Finds what keeps scores from deciding: hits without one, distances, and scores that
    contradict the stated order.
    """

    order: Order | None = None
    """The order that the user chose. If it is None, scores may not contradict the stated order."""
    scored: int = 0
    """Hits with a score or a distance."""
    unscored: int = 0
    """Hits without one."""
    first_unscored: tuple[str, str] = ("", "")
    """Document and query of the first of these."""
    distances: int = 0
    """Hits that are ranked by a distance."""
    queries: int = 0
    """Queries of which at least two documents have different scores."""
    contradicting: list[str] = field(default_factory=list)
    """Queries in which a document with a higher score has a later rank."""
    unranked: int = 0
    """Queries without ranks."""
    rising: int = 0
    """Queries without ranks whose scores rise from the first document to the last."""
    log_chance: float = 0.0
    """Natural logarithm of the probability that as many scores rise in random order."""

    def add(self, query: str, hits: Sequence[Hit]) -> None:
        """Count the hits of a query, and compare their scores with their order."""
        for hit in hits:
            if read_value(hit, self.order) is None:
                self.first_unscored = (
                    self.first_unscored if self.unscored else (hit.document, query)
                )
                self.unscored += 1
            else:
                self.scored += 1
                self.distances += uses_distance(hit, self.order)
        if self.order is None:
            self._compare(query, hits)

    def _compare(self, query: str, hits: Sequence[Hit]) -> None:
        scores = [hit.score for hit in hits if hit.score is not None]
        distinct = len(set(scores))
        if distinct < 2 or len(scores) < len(hits):
            return
        self.queries += 1
        ranked = sorted(
            (hit.rank, score)
            for hit, score in zip(hits, scores, strict=True)
            if hit.rank is not None
        )
        if ranked:
            # Of the same rank, scores may be any.
            groups = [
                [score for _, score in group]
                for _, group in groupby(ranked, key=lambda item: item[0])
            ]
            lowest = accumulate(map(min, groups), min)
            if any(max(group) > low for low, group in zip(lowest, groups[1:], strict=False)):
                self.contradicting.append(query)
            return
        self.unranked += 1
        if all(a <= b for a, b in pairwise(scores)):
            self.rising += 1
            self.log_chance -= math.lgamma(distinct + 1)

    def describe_problem(self) -> str:
        """Return a sentence if the scores cannot decide, which names the option that does; else
        nothing.
        """
        if problem := self._describe_gap():
            return problem
        if self.contradicting:
            problem = (
                f"in {len(self.contradicting):,} of "
                f"{pluralize(self.queries, 'query', 'queries')}, first "
                f"{sanitized(self.contradicting[0])}, the scores contradict the ranks: a "
                "document with a higher score comes later"
            )
        elif self.rising >= RISING_SHARE * max(self.unranked, 1) and self.log_chance < math.log(
            RISING_CHANCE
        ):
            problem = (
                f"in {self.rising:,} of {pluralize(self.unranked, 'query', 'queries')} the "
                "scores rise from the first document to the last, as distances do"
            )
        else:
            return ""
        return (
            f"{problem}. Say what decides: --order distance (the lowest score is best), --order "
            "rank (the order as it is stated), or --order score (the highest score is best)."
        )

    def _describe_gap(self) -> str:
        """Return which hits lack the score that others have; nothing if ranks decide."""
        if self.order == "rank":
            return ""
        value = "distance" if self.order == "distance" else "score"
        if self.unscored and self.scored:
            lacking = pluralize(self.unscored, "hit has", "hits have")
            first = "document {} of query {}".format(*map(sanitized, self.first_unscored))
            return (
                f"{lacking} no {value}, first {first}, and {self.scored:,} have one. {GIVE_EACH}."
            )
        if self.unscored and self.order is not None:
            return (
                f"no hit has a {value}, which --order {self.order} needs. Omit --order, or give "
                "--order rank."
            )
        if 0 < self.distances < self.scored:
            return (
                f"{pluralize(self.distances, 'hit has', 'hits have')} a distance and "
                f"{self.scored - self.distances:,} a score, "
                f"which cannot be compared. {GIVE_EACH}."
            )
        return ""

    @property
    def ranked_by(self) -> Order:
        """The value that hits are ranked by."""
        if self.order == "rank" or not self.scored:
            return "rank"
        return (
            "distance"
            if self.order == "distance" or (self.distances and self.order is None)
            else "score"
        )

    def describe_guess(self) -> str:
        """Return a sentence if what ranks documents was inferred from a field that is called
        distance; else nothing.
        """
        if self.order is not None or not self.distances:
            return ""
        return (
            "the lowest distance is best, as its field is called distance; --order score makes "
            "the highest best"
        )


def read_value(hit: Hit, order: Order | None) -> float | None:
    """Return the value that decides about a hit, the higher the better; None if it has none."""
    if order == "distance":
        if hit.distance is not None:
            return -hit.distance
        if hit.score is None or hit.is_distance:
            return hit.score
        return -hit.score
    if order == "score" and hit.is_distance and hit.score is not None:
        # The user says that what the system calls a distance is a similarity.
        return -hit.score
    return hit.score


def uses_distance(hit: Hit, order: Order | None) -> bool:
    """Return whether a distance that the system states decides about a hit, and not a score."""
    return hit.is_distance or (order == "distance" and hit.distance is not None)


def has_gap(hits: Sequence[Hit], order: Order | None) -> bool:
    """Return whether some hits lack the score or the distance that decides about others."""
    kinds = {(read_value(hit, order) is not None, uses_distance(hit, order)) for hit in hits}
    return order != "rank" and len(kinds) > 1


def sort_hits(hits: Sequence[Hit], order: Order | None) -> list[Hit]:
    """Return the hits best first, each with a score, the higher the better. Chunks of one document
    remain several hits.

    Without an order, that of the scores counts, or of the ranks if there are no scores. Some hits
    without a score, which `has_gap` finds, are a ValueError.
    """
    values = [read_value(hit, order) for hit in hits]
    if order == "rank" or all(value is None for value in values):
        return _place_hits(hits)
    scored = [
        hit._replace(score=value)
        for hit, value in zip(hits, values, strict=True)
        if value is not None
    ]
    if len(scored) < len(hits):
        raise ValueError("some hits have no score")
    return sort_by_score(scored)


def sort_by_score(hits: Iterable[Hit]) -> list[Hit]:
    """Return hits that all have a score, the highest first."""
    return sorted(hits, key=attrgetter("score"), reverse=True)


def _place_hits(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits in the order of their ranks, or as they are. In a group, the first hit has
    the rank of all.
    """
    ranks: list[int] = []
    for hit in hits:
        before = ranks[-1] if ranks else 0
        ranks.append(before if hit.rank is None else hit.rank)
    placed = sorted(range(len(hits)), key=ranks.__getitem__)
    return [hits[row]._replace(score=float(len(hits) - place)) for place, row in enumerate(placed)]


def is_missing(value: object) -> bool:
    """Return whether a field states nothing: null, an empty cell, or NaN, as data frames write
    null.
    """
    if isinstance(value, str):
        return value.strip().lower() in ("", "nan")
    return value is None or (isinstance(value, Real) and math.isnan(value))


def read_number(value: Any) -> float:
    """Return a score or a distance; raise ValueError, which says what is wrong with it, if it is
    not a finite number.
    """
    try:
        # Python reads digits with `_` between them, which no other system writes.
        number = (
            None
            if isinstance(value, bool) or (isinstance(value, str) and "_" in value)
            else float(value)
        )
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        number = None
    if number is None:
        raise ValueError("must be a number")
    if not math.isfinite(number):
        raise ValueError("must be finite")
    return number


def read_rank(value: object) -> int | None:
    """Return a rank; None if it is not a whole number from 0. Data frames write ranks with a null
    as 1.0.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Integral):
        return None
    text = (
        str(value).strip().removesuffix(".0")
        if not isinstance(value, int) or value < 10**MAX_DIGITS
        else ""
    )
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else None


def read_id(value: object) -> str | None:
    """Return the id of a query or document as a text; None if it can be none.

    trec_eval would read it up to a zero byte, and ends the process if it is not Unicode.
    """
    try:
        text = (
            str(value)
            if isinstance(value, str | Integral | UUID) and not isinstance(value, bool)
            else ""
        )
        text.encode()
    except ValueError:  # half of a surrogate pair, or an integer of thousands of digits
        return None
    return text if text and "\0" not in text else None


def find(value: Any, path: str) -> Any:
    """Return what is at a path of attributes or keys; None if nothing is."""
    for name in path.split("/") if path else ():
        if isinstance(value, Mapping):
            value = value.get(name)
        elif (
            (stated := getattr(value, name, None)) is None
            and hasattr(type(value), "__getitem__")
            and hasattr(value, "keys")
        ):
            value = value[name] if name in value.keys() else None  # noqa: SIM118 (a row of SQLite contains its values)
        else:
            value = stated
    return value


def find_first(value: Any, places: Iterable[str], names: Iterable[str]) -> Any:
    """Return the first field of several names that has a value, in the first of several places that
    has one.
    """
    bases = [base for place in places if (base := find(value, place)) is not None]
    return next(
        (stated for base in bases for name in names if (stated := find(base, name)) is not None),
        None,
    )


def read_rows(value: Any) -> Any:
    """Return the rows of a frame of polars, Arrow, pandas or LanceDB; anything else as it is.

    Raises:
        GateError: Two columns have one name.
    """
    for method, arguments in (
        ("to_dicts", ()),
        ("to_pylist", ()),
        ("to_list", ()),
        ("to_dict", ("records",)),
    ):
        if hasattr(value, method) and (method != "to_dict" or hasattr(value, "columns")):
            columns = getattr(value, "column_names", getattr(value, "columns", ()))
            require_distinct(columns if isinstance(columns, Iterable) else (), "a table of hits")
            return getattr(value, method)(*arguments)
    return value


def list_hits(answer: Any) -> list[Any] | None:
    """Return the hits of an answer that has them in a field, or in columns; None if it is no such
    answer.
    """
    columns = {part: _unwrap(find_first(answer, ("",), names)) for part, names in COLUMNS.items()}
    if columns["id"] is not None:
        stated = {part: values for part, values in columns.items() if values is not None}
        return [dict(zip(stated, row, strict=True)) for row in zip(*stated.values(), strict=True)]
    listed = next(
        (values for path in ANSWERS if isinstance(values := find(answer, path), list | tuple)), None
    )
    alone = next(
        (name for name in TEXTS_ALONE if isinstance(find(answer, name), list | tuple)), None
    )
    if listed is None and alone:
        raise AnswerError(
            f"field '{alone}' has the texts of chunks without ids. Add these as the field "
            f"'{TEXTS_ALONE[alone]}'"
        )
    return None if listed is None else [*listed]


def _unwrap(values: Any) -> list[Any] | None:
    """Return a list, or the only list in it, of a batch of one query; None if there is none."""
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, list | tuple):
        return None
    is_batch = len(values) == 1 and isinstance(values[0], list | tuple)
    return [*values[0]] if is_batch else [*values]


def find_repeated_column(table: Any) -> str | None:
    """Return the first name that several columns of a frame have; None if there is none, as in
    anything that is no frame.
    """
    names = getattr(table, "column_names", None) or getattr(table, "columns", None)
    if names is None or isinstance(table, Mapping) or callable(names):
        return None
    stated = [str(name) for name in names]
    return next((name for place, name in enumerate(stated) if name in stated[:place]), None)


class StatedHit(NamedTuple):
    """A hit, taken apart."""

    item: Any
    """The hit as the system returns it."""
    fields: Any
    """The object with its fields; an id is its own."""
    form: HitForm
    behind: tuple[Any, ...]
    """Its score, text, start and end, if it is first in a tuple."""
    place: int
    """Its place in the answer, or that of its group, from 1."""
    rank: int | None
    """Its place, None if it has none or another hit of its group has it."""
    document: str | None = None
    """The document of its group."""

    @property
    def is_id(self) -> bool:
        """Whether the system states the id alone."""
        return isinstance(self.fields, str | Integral | UUID)

    def find_field(self, name: str) -> Any:
        """Return what a field states, or what follows the hit in a tuple; None if nothing."""
        if name == BEHIND:
            return next(iter(self.behind), None)
        return None if self.is_id else find(self.fields, name)


class AnswerFields(NamedTuple):
    """The fields that all hits of an answer are compared by; None where no hit has one."""

    score: str | None
    distance: str | None
    rank: str | None

    @classmethod
    def choose(cls, hits: Sequence[StatedHit]) -> AnswerFields:
        """Choose, of the usual names, the first that any hit has a value of."""
        forms = dict.fromkeys(hit.form for hit in hits)
        scores = dict.fromkeys((BEHIND, *(name for form in forms for name in form.score)))
        distances = dict.fromkeys(name for form in forms for name in form.distance)
        has_rank = any(
            read_rank(hit.find_field(RANK)) is not None for hit in hits if hit.document is None
        )
        return cls(
            _find_used(hits, scores), _find_used(hits, distances), RANK if has_rank else None
        )


def _find_used(hits: Sequence[StatedHit], names: Iterable[str]) -> str | None:
    return next(
        (name for name in names if any(hit.find_field(name) is not None for hit in hits)), None
    )


def read_hits(
    answer: object, k: int, document_field: str | None = None, order: Order | None = None
) -> list[Hit]:
    """Return an answer as hits, at most `k` where they are in order, of a mapping all; raise
    AnswerError if it is none.

    The hits of a group, such as the chunks of one document, follow each other, and the first alone
    has the rank of the group. All hits have a score or none has, unless the user says that ranks
    decide.
    """
    if (repeated := find_repeated_column(answer)) is not None:
        raise AnswerError(f"has several columns {sanitized(repeated)}. Leave one of them")
    answer = read_rows(answer)
    try:
        listed = list_hits(answer)
    except ValueError:
        raise AnswerError("the lists of ids, scores and texts have different lengths") from None
    if listed is None and isinstance(answer, Mapping):
        pairs = list(islice(answer.items(), MAX_HITS + 1))
        if len(pairs) > MAX_HITS:
            raise AnswerError(f"has more than {MAX_HITS:,} hits, and {k:,} were asked for")
        # The order of a mapping means nothing, so that its scores are needed.
        scored = AnswerFields(BEHIND, None, None)
        return _read_all(
            [_take_apart(pair, place, None) for place, pair in enumerate(pairs, start=1)],
            scored,
            None,
            order,
        )
    answer = answer if listed is None else listed
    if isinstance(answer, str | bytes) or not isinstance(answer, Iterable):
        raise AnswerError(f"{type(answer).__name__} is no list of hits; each must be {HIT_KINDS}")
    hits = [*islice(answer, k)]
    if (
        len(hits) == 1
        and isinstance(hits[0], list)
        and not isinstance(next(iter(hits[0]), None), str | Integral)
    ):
        hits = hits[0][:k]
    stated = [
        hit
        for place, item in enumerate(hits, start=1)
        for hit in _list_group(item, place, document_field)
    ]
    return _read_all(stated, AnswerFields.choose(stated), document_field, order)


def _read_all(
    stated: Sequence[StatedHit],
    chosen: AnswerFields,
    document_field: str | None,
    order: Order | None,
) -> list[Hit]:
    """Return hits that are compared by the fields of the answer; raise AnswerError if one lacks
    what decides.
    """
    hits = [_read_hit(hit, chosen, document_field, order) for hit in stated]
    by_distance = chosen.distance is not None and (chosen.score is None or order == "distance")
    name = chosen.distance if by_distance else chosen.score
    values = [hit.distance if by_distance and not hit.is_distance else hit.score for hit in hits]
    if order != "rank" and name is not None and None in values:
        gap, number = values.index(None), values.count(None)
        called = f" in `{name}`" if name else ""
        others = f"; {number:,} of {len(hits):,} lack one" if number > 1 else ""
        raise AnswerError(
            f"hit {stated[gap].place}, {_abbreviate(hits[gap].document)}, has no "
            f"{'distance' if by_distance else 'score'}{called}{others}. {GIVE_EACH}"
        )
    return hits


def _list_group(item: Any, place: int, document_field: str | None) -> Iterator[StatedHit]:
    """Yield a hit, or the hits in a group of Qdrant or in the inner hits of Elasticsearch, as hits
    of the document.
    """
    inner = find(item, "inner_hits")
    chunks = (
        find(next(iter(inner.values()), None), "hits/hits")
        if isinstance(inner, Mapping)
        else find(item, "hits")
    )
    if not isinstance(chunks, list) or not chunks:
        yield _take_apart(item, place, place)
        return
    document = _read_document(_take_apart(item, place, place), document_field if inner else None)
    for number, chunk in enumerate(chunks):
        yield _take_apart(chunk, place, None if number else place)._replace(document=document)


def _take_apart(item: Any, place: int, rank: int | None) -> StatedHit:
    behind: list[Any] = []
    stated = item
    if isinstance(item, tuple | list) and item and not hasattr(item, "_fields"):
        stated, *behind = item
    fields = stated._asdict() if hasattr(stated, "_fields") else stated
    form = next(form for form in FORMS if not form.mark or find(fields, form.mark) is not None)
    if len(behind) == 3 and isinstance(behind[1], Integral):
        # A place without the text.
        behind.insert(1, None)
    return StatedHit(item, fields, form, tuple(behind), place, rank)


def _read_document(hit: StatedHit, document_field: str | None) -> str:
    """Return the id of a hit's document; raise AnswerError if it has none."""
    name = (
        hit.fields if hit.is_id else _find_document(hit.fields, hit.form, hit.place, document_field)
    )
    if (document := read_id(name)) is None or len(hit.behind) > 4:
        raise AnswerError(f"hit {hit.place} is {_abbreviate(hit.item)}; it must be {HIT_KINDS}")
    return document


def _read_hit(
    hit: StatedHit, chosen: AnswerFields, document_field: str | None, order: Order | None
) -> Hit:
    """Return a hit as any system states it, perhaps with score, text and offsets behind it in a
    tuple.
    """
    document = _read_document(hit, None if hit.document is not None else document_field)
    _, text, start, end = (*hit.behind, None, None, None, None)[:4]
    if not hit.is_id:
        places = hit.form.places[::-1]
        text = find_first(hit.fields, places, TEXTS) if text is None else text
        start = find_first(hit.fields, places, STARTS) if start is None else start
        end = find_first(hit.fields, places, ENDS) if end is None else end
    score = _read_score(hit, chosen.score, document, order)
    is_needed = chosen.score is None or order == "distance"
    distance = (
        _read_score(hit, chosen.distance, document, order)
        if is_needed
        else _read_unused(hit, chosen.distance)
    )
    is_distance = chosen.score is None and distance is not None
    return Hit(
        document=document if hit.document is None else hit.document,
        score=-distance if is_distance and distance is not None else score,
        rank=hit.rank
        if chosen.rank is None or hit.document is not None
        else _read_stated_rank(hit, document),
        text=text.encode("utf-8", "replace").decode() if isinstance(text, str) else None,
        start=_read_offset(start),
        end=_read_offset(end),
        is_distance=is_distance,
        distance=None if is_distance else distance,
    )


def _find_document(fields: Any, form: HitForm, place: int, document_field: str | None) -> Any:
    """Return the id of a hit's document: the field that the user names, or the first that such
    fields are usually called.
    """
    if document_field is None:
        name = find_first(fields, ("",), form.document)
        name = find_first(fields, form.places, PARENTS) if name is None else name
        name = find_first(fields, form.places, IDS) if name is None else name
        matched = (
            VESPA_ID.fullmatch(name) if form.systems == "Vespa" and isinstance(name, str) else None
        )
        return matched[1] if matched else name
    name = find_first(fields, form.places, (document_field,))
    if name is None:
        own = [base for path in form.places if isinstance(base := find(fields, path), Mapping)]
        has = ", ".join(sanitized(str(key)) for base in own for key in base) or "none"
        raise AnswerError(
            f"hit {place} has no field {sanitized(document_field)} (--document-field); its fields "
            f"are {has}"
        )
    return name


def _read_score(
    hit: StatedHit, name: str | None, document: str, order: Order | None
) -> float | None:
    """Return the number in a field, None if it has none; NaN is a mistake unless ranks decide."""
    if name is None:
        return None
    value = hit.find_field(name)
    if value is None or (order == "rank" and is_missing(value)):
        return None
    try:
        return read_number(value)
    except ValueError:
        raise AnswerError(
            f"hit {hit.place}, {_abbreviate(document)}, has the score {_abbreviate(value)}; it "
            "must be a finite number"
        ) from None


def _read_unused(hit: StatedHit, name: str | None) -> float | None:
    """Return the distance next to a score that decides, None where it is none: another stage found
    the hit.
    """
    try:
        return None if name is None else read_number(hit.find_field(name))
    except ValueError:
        return None


def _read_stated_rank(hit: StatedHit, document: str) -> int:
    """Return the rank in a hit's field, which others of the answer have."""
    value = hit.find_field(RANK)
    if (rank := read_rank(value)) is None:
        raise AnswerError(
            f"hit {hit.place}, {_abbreviate(document)}, has the rank {_abbreviate(value)}; it "
            "must be a whole number from 0, as others of the query have"
        )
    return rank


def _read_offset(value: Any) -> int | None:
    """Return a place in a text; None if it is none, such as LangChain's -1 for a chunk that it did
    not find.
    """
    is_whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    return int(value) if is_whole and value >= 0 else None


def _abbreviate(value: object) -> str:
    """Return a value for a message; Python writes no integer of thousands of digits."""
    try:
        return sanitized(value if isinstance(value, str) else str(value))
    except ValueError:
        return "a very large number"
