"""A hit, as any system returns it: the reader of a retriever's answers, the order of hits, and a check of that order.

What systems return is told apart by the names of its fields, and none of their libraries is imported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, islice, pairwise
from numbers import Integral
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

from posir_tasks.display.wording import pluralize, sanitized
from posir_tasks.gate import require_distinct

#: Scores of unranked documents that rise in at least this share of queries, and by chance with less than this probability, are
#: taken for distances.
RISING_SHARE, RISING_CHANCE = 0.9, 1e-3
#: Most hits that are read of an answer whose order says nothing, such as a mapping.
MAX_HITS = 100_000
#: The order of a query's documents: the highest score first, as in trec_eval, the lowest, or that of the stated ranks, or else
#: of the rows or hits.
Order: TypeAlias = Literal["score", "distance", "rank"]

#: Names of fields by what they have, in order of preference. Of a document: those of ranx, BEIR, TREC and PyTerrier, whose
#: `docno` is the id and `docid` a number of its index, then those of LlamaIndex, Haystack and LangChain.
DOCUMENTS = ("document_id", "document-id", "doc_id", "docno", "docid", "corpus-id", "corpus_id")
PARENTS = (*DOCUMENTS, "ref_doc_id", "source_id", "parent_id", "source_uri", "sourceUri", "source", "doc")
#: What else identifies a hit: the id of a document that is indexed whole, or of a chunk, from which its document follows.
IDS = ("id", "_id", "uuid")
SCORES = ("_relevance_score", "score", "_score", "relevance", "@search.score", "sim", "similarity")
DISTANCES = ("_distance", "distance")
TEXTS = ("text", "chunk", "content", "page_content")
STARTS = ("start", "start_index", "split_idx_start", "start_char_idx")
ENDS = ("end", "end_index", "end_char_idx")


class HitForm(NamedTuple):
    """The places of the parts of a hit: paths of attributes or keys, with `/` between them, empty for the hit itself."""

    systems: str
    mark: str
    """A field that the hits of these systems have, and those of the forms below do not."""
    places: tuple[str, ...]
    """Places of ids, first the user's own fields, as metadata or payload; texts and offsets are looked for from the last."""
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
    HitForm("Weaviate", "properties", ("properties", ""), score=("metadata/score",), distance=("metadata/distance",)),
    # Its distance is a similarity for two of three metrics.
    HitForm("Milvus", "entity", ("entity", ""), score=(*SCORES, "distance"), distance=()),
    HitForm("Elasticsearch's _rank_eval", "hit", ("hit/_source", "hit"), document=("hit/_id",), score=("hit/_score",)),
    HitForm("Amazon Bedrock", "location", ("metadata", "content"), document=("location/s3Location/uri",)),
    HitForm("Chroma, Pinecone", "metadata", ("metadata", "")),
    HitForm("rows, such as LanceDB's", "", ("",)),
)
#: Where an answer has its hits: Elasticsearch and OpenSearch, Vespa, Qdrant and its groups, Weaviate, Pinecone, Haystack,
#: Amazon Bedrock, Vertex, Azure AI Search, LlamaIndex's query engines, sentence-transformers, pyvespa and `_rank_eval`.
ANSWERS = (
    "hits/hits", "root/children", "points", "groups", "objects", "matches", "documents", "retrievalResults",
    "contexts/contexts", "value", "source_nodes", "results", "hits",
)  # fmt: skip
#: Lists, one for each part of all hits, and the name of that part: Chroma, AutoRAG and ragas.
COLUMNS = {
    "id": ("ids", "retrieved_ids", "retrieved_context_ids"),
    "distance": ("distances",),
    "score": ("scores", "retrieve_scores"),
    "text": ("documents", "retrieved_contents", "retrieved_contexts", "retrieval_context"),
    "metadata": ("metadatas",),
}
#: Texts of chunks without ids, in AutoRAG, ragas and deepeval, and the field in which ids are read; deepeval itself has none.
TEXTS_ALONE = {
    "retrieved_contents": "retrieved_ids",
    "retrieved_contexts": "retrieved_context_ids",
    "retrieval_context": "retrieved_context_ids",
}
#: The id of a document in Vespa, `id:namespace:type:key:ID`.
VESPA_ID = re.compile(r"id:[^:]*:[^:]*:[^:]*:(.+)", re.DOTALL)
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
    """The chunk's place in the document as the system states it, in code points, half-open; None where it is not stated."""
    end: int | None = None
    is_distance: bool = False
    """Whether the score is minus a distance that the system states."""
    chunk: str = ""
    """The id that the system states, once `document` is that of the document."""


class AnswerError(Exception):
    """A query has no ranking: the retriever failed in all attempts, or returned something else."""


@dataclass
class OrderCheck:
    """Finds scores that contradict the order in which a system returned documents: distances, or those of an earlier stage."""

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
        """Compare the scores of a query's documents with their order."""
        scores = [hit.score for hit in hits if hit.score is not None]
        distinct = len(set(scores))
        if distinct < 2 or len(scores) < len(hits):
            return
        self.queries += 1
        ranked = sorted((hit.rank, score) for hit, score in zip(hits, scores, strict=True) if hit.rank is not None)
        if ranked:
            # Of the same rank, scores may be any.
            groups = [[score for _, score in group] for _, group in groupby(ranked, key=lambda item: item[0])]
            lowest = accumulate(map(min, groups), min)
            if any(max(group) > low for low, group in zip(lowest, groups[1:], strict=False)):
                self.contradicting.append(query)
            return
        self.unranked += 1
        if all(a <= b for a, b in pairwise(scores)):
            self.rising += 1
            self.log_chance -= math.lgamma(distinct + 1)

    def describe_problem(self) -> str:
        """Return a sentence if the scores cannot be trusted, which names the option that decides; else nothing."""
        if self.contradicting:
            problem = (
                f"in {len(self.contradicting):,} of {pluralize(self.queries, 'query', 'queries')}, first "
                f"{sanitized(self.contradicting[0])}, the scores contradict the ranks: a document with a higher score comes "
                "later"
            )
        elif self.rising >= RISING_SHARE * max(self.unranked, 1) and self.log_chance < math.log(RISING_CHANCE):
            problem = (
                f"in {self.rising:,} of {pluralize(self.unranked, 'query', 'queries')} the scores rise from the first document "
                "to the last, as distances do"
            )
        else:
            return ""
        return (
            f"{problem}. Say what decides: --order distance (the lowest score is best), --order rank (the order as it is "
            "stated), or --order score (the highest score is best)."
        )


def sort_hits(hits: Sequence[Hit], order: Order | None) -> list[Hit]:
    """Return the hits best first, each with a score, the higher the better. Chunks of one document remain several hits.

    Without an order, that of the scores counts, or of the ranks if there are no scores.
    """
    if order == "rank" or any(hit.score is None for hit in hits):
        placed = sorted(enumerate(hits), key=lambda item: (item[0] if item[1].rank is None else item[1].rank, item[0]))
        return [hit._replace(score=float(len(hits) - place)) for place, (_, hit) in enumerate(placed)]
    if order == "distance":
        hits = [hit if hit.is_distance else hit._replace(score=-(hit.score or 0.0)) for hit in hits]
    return sorted(hits, key=attrgetter("score"), reverse=True)


def read_id(value: object) -> str | None:
    """Return the id of a query or document as a text; None if it can be none.

    trec_eval would read it up to a zero byte, and ends the process if it is not Unicode.
    """
    try:
        text = str(value) if isinstance(value, str | Integral | UUID) and not isinstance(value, bool) else ""
        text.encode()
    except ValueError:  # half of a surrogate pair, or an integer of thousands of digits
        return None
    return text if text and "\0" not in text else None


def find(value: Any, path: str) -> Any:
    """Return what is at a path of attributes or keys; None if nothing is."""
    for name in path.split("/") if path else ():
        if isinstance(value, Mapping):
            value = value.get(name)
        elif (stated := getattr(value, name, None)) is None and hasattr(type(value), "__getitem__") and hasattr(value, "keys"):
            value = value[name] if name in value.keys() else None  # noqa: SIM118 (a row of SQLite contains its values)
        else:
            value = stated
    return value


def find_first(value: Any, places: Iterable[str], names: Iterable[str]) -> Any:
    """Return the first field of several names that has a value, in the first of several places that has one."""
    bases = [base for place in places if (base := find(value, place)) is not None]
    return next((stated for base in bases for name in names if (stated := find(base, name)) is not None), None)


def read_rows(value: Any) -> Any:
    """Return the rows of a frame of polars, Arrow, pandas or LanceDB; anything else as it is.

    Raises:
        GateError: Two columns have one name.
    """
    for method, arguments in (("to_dicts", ()), ("to_pylist", ()), ("to_list", ()), ("to_dict", ("records",))):
        if hasattr(value, method) and (method != "to_dict" or hasattr(value, "columns")):
            columns = getattr(value, "column_names", getattr(value, "columns", ()))
            require_distinct(columns if isinstance(columns, Iterable) else (), "a table of hits")
            return getattr(value, method)(*arguments)
    return value


def list_hits(answer: Any) -> list[Any] | None:
    """Return the hits of an answer that has them in a field, or in columns; None if it is no such answer."""
    columns = {part: _unwrap(find_first(answer, ("",), names)) for part, names in COLUMNS.items()}
    if columns["id"] is not None:
        stated = {part: values for part, values in columns.items() if values is not None}
        return [dict(zip(stated, row, strict=True)) for row in zip(*stated.values(), strict=True)]
    listed = next((values for path in ANSWERS if isinstance(values := find(answer, path), list | tuple)), None)
    alone = next((name for name in TEXTS_ALONE if isinstance(find(answer, name), list | tuple)), None)
    if listed is None and alone:
        raise AnswerError(f"field '{alone}' has the texts of chunks without ids. Add these as the field '{TEXTS_ALONE[alone]}'")
    return None if listed is None else [*listed]


def _unwrap(values: Any) -> list[Any] | None:
    """Return a list, or the only list in it, of a batch of one query; None if there is none."""
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, list | tuple):
        return None
    is_batch = len(values) == 1 and isinstance(values[0], list | tuple)
    return [*values[0]] if is_batch else [*values]


def read_hits(answer: object, k: int, document_field: str | None = None) -> list[Hit]:
    """Return an answer as hits, at most `k` where they are in order, of a mapping all; raise AnswerError if it is none.

    The hits of a group, such as the chunks of one document, follow each other, and the first alone has the rank of the group.
    """
    answer = read_rows(answer)
    try:
        listed = list_hits(answer)
    except ValueError:
        raise AnswerError("the lists of ids, scores and texts have different lengths") from None
    if listed is None and isinstance(answer, Mapping):
        pairs = list(islice(answer.items(), MAX_HITS + 1))
        if len(pairs) > MAX_HITS:
            raise AnswerError(f"has more than {MAX_HITS:,} hits, and {k:,} were asked for")
        return [_read_hit(pair, place, None, None) for place, pair in enumerate(pairs, start=1)]
    answer = answer if listed is None else listed
    if isinstance(answer, str | bytes) or not isinstance(answer, Iterable):
        raise AnswerError(f"{type(answer).__name__} is no list of hits; each must be {HIT_KINDS}")
    hits = [*islice(answer, k)]
    if len(hits) == 1 and isinstance(hits[0], list) and not isinstance(next(iter(hits[0]), None), str | Integral):
        hits = hits[0][:k]
    return [hit for place, item in enumerate(hits, start=1) for hit in _read_group(item, place, document_field)]


def _read_group(item: Any, place: int, document_field: str | None) -> Iterator[Hit]:
    """Yield a hit, or the hits in a group of Qdrant or in the inner hits of Elasticsearch, as hits of the document."""
    inner = find(item, "inner_hits")
    chunks = find(next(iter(inner.values()), None), "hits/hits") if isinstance(inner, Mapping) else find(item, "hits")
    if not isinstance(chunks, list) or not chunks:
        yield _read_hit(item, place, place, document_field)
        return
    document = _read_hit(item, place, place, document_field if inner else None).document
    for number, chunk in enumerate(chunks):
        yield _read_hit(chunk, place, None if number else place, None)._replace(document=document)


def _read_hit(item: Any, place: int, rank: int | None, document_field: str | None) -> Hit:
    """Return a hit as any system states it, perhaps with score, text and offsets behind it in a tuple."""
    behind: list[Any] = []
    stated = item
    if isinstance(item, tuple | list) and item and not hasattr(item, "_fields"):
        stated, *behind = item
    fields = stated._asdict() if hasattr(stated, "_fields") else stated
    form = next(form for form in FORMS if not form.mark or find(fields, form.mark) is not None)
    is_id = isinstance(fields, str | Integral | UUID)
    name = fields if is_id else _find_document(fields, form, place, document_field)
    if (document := read_id(name)) is None or len(behind) > 4:
        raise AnswerError(f"hit {place} is {_abbreviate(item)}; it must be {HIT_KINDS}")
    if len(behind) == 3 and isinstance(behind[1], Integral):
        # A place without the text.
        behind.insert(1, None)
    score, text, start, end = (behind + [None] * 4)[:4]
    distance = None
    if not is_id:
        score = find_first(fields, ("",), form.score) if score is None else score
        distance = find_first(fields, ("",), form.distance) if score is None else None
        places = form.places[::-1]
        text = find_first(fields, places, TEXTS) if text is None else text
        start = find_first(fields, places, STARTS) if start is None else start
        end = find_first(fields, places, ENDS) if end is None else end
    value = _read_score(score if distance is None else distance, place, document)
    return Hit(
        document=document,
        score=value if value is None or distance is None else -value,
        rank=rank,
        text=text.encode("utf-8", "replace").decode() if isinstance(text, str) else None,
        start=_read_offset(start),
        end=_read_offset(end),
        is_distance=distance is not None,
    )


def _find_document(fields: Any, form: HitForm, place: int, document_field: str | None) -> Any:
    """Return the id of a hit's document: the field that the user names, or the first that such fields are usually called."""
    if document_field is None:
        name = find_first(fields, ("",), form.document)
        name = find_first(fields, form.places, PARENTS) if name is None else name
        name = find_first(fields, form.places, IDS) if name is None else name
        matched = VESPA_ID.fullmatch(name) if form.systems == "Vespa" and isinstance(name, str) else None
        return matched[1] if matched else name
    name = find_first(fields, form.places, (document_field,))
    if name is None:
        own = [base for path in form.places if isinstance(base := find(fields, path), Mapping)]
        has = ", ".join(sanitized(str(key)) for base in own for key in base) or "none"
        raise AnswerError(f"hit {place} has no field {sanitized(document_field)} (--document-field); its fields are {has}")
    return name


def _read_score(score: Any, place: int, document: str) -> float | None:
    try:
        value = None if score is None else float(score)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if value is not None and not math.isfinite(value):
        raise AnswerError(
            f"hit {place}, {_abbreviate(document)}, has the score {_abbreviate(score)}; it must be a finite number"
        )
    return value


def _read_offset(value: Any) -> int | None:
    """Return a place in a text; None if it is none, such as LangChain's -1 for a chunk that it did not find."""
    is_whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    return int(value) if is_whole and value >= 0 else None


def _abbreviate(value: object) -> str:
    """Return a value for a message; Python writes no integer of thousands of digits."""
    try:
        return sanitized(value if isinstance(value, str) else str(value))
    except ValueError:
        return "a very large number"
