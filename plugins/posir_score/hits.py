"""A hit, as any system returns it: the reader of a retriever's answers, the order of hits, and a
check of that order.

What systems return is told apart by the names of its fields, and none of their libraries is
imported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

from posir_tasks.base.untrusted import GateError, require_distinct
from posir_tasks.base.wording import sanitize

#: Maximum number of hits of an answer without an order, such as a mapping.
MAX_HITS = 100_000
#: Maximum number of digits of a rank.
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
#: Texts of chunks without ids, in AutoRAG, ragas and deepeval, and the field for their ids.
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
    rank: int | None = None
    """Its stated rank or place, lower is better; None if the order of the hits means nothing."""
    text: str | None = None
    """The text of a chunk."""
    start: int | None = None
    """The chunk's place in the document as the system states it, in code points, half-open."""
    end: int | None = None
    chunk: str = ""
    """The id that the system states, if `document` is another one; else empty."""
    distance: float | None = None


class AnswerError(Exception):
    """A query has no ranking: the retriever failed in all attempts, or returned something else."""


def is_missing(value: object) -> bool:
    """Tell whether a field states nothing: null, an empty cell, or NaN, as data frames write
    null.
    """
    if isinstance(value, str):
        return value.strip().lower() in ("", "nan")
    return value is None or (isinstance(value, Real) and math.isnan(value))


def read_number(value: Any) -> float:
    """Read a score or a distance; raise ValueError, which says what is wrong with it, if it is
    not a finite number.
    """
    number = None
    # Python reads digits with `_` between them, which no other system writes.
    if not isinstance(value, bool) and not (isinstance(value, str) and "_" in value):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        except (TypeError, ValueError):
            pass
    if number is None:
        raise ValueError("must be a number")
    if not math.isfinite(number):
        raise ValueError("must be finite")
    return number


def _read_text(value: object) -> str:
    """Read a scalar as text; empty if it is none, or an integer of thousands of digits."""
    try:
        return "" if isinstance(value, bool) else str(value)
    except ValueError:
        return ""


def read_rank(value: object) -> int | None:
    """Read a rank; None if it is not a whole number from 0. Data frames write ranks with a null
    as 1.0.
    """
    text = _read_text(value).strip().removesuffix(".0")
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else None


def read_id(value: object) -> str | None:
    """Read the id of a query or document as a text; None if it can be none.

    trec_eval would read it up to a zero byte, and ends the process if it is not Unicode.
    """
    text = _read_text(value) if isinstance(value, str | Integral | UUID) else ""
    is_unicode = text == text.encode(errors="ignore").decode()
    return text if text and is_unicode and "\0" not in text else None


def find(value: Any, path: str) -> Any:
    """Find what is at a path of attributes or keys; None if nothing is."""
    for name in path.split("/") if path else ():
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value


def find_field(value: Any, places: Iterable[str], names: Iterable[str]) -> tuple[str, Any]:
    """Find the first field of several names that has a value, in the first of several places that
    has one: its path, and the value; both are empty if none has.
    """
    for place in places:
        base = find(value, place)
        for name in names:
            stated = find(base, name)
            if stated is not None:
                return (f"{place}/{name}" if place else name), stated
    return "", None


def find_first(value: Any, places: Iterable[str], names: Iterable[str]) -> Any:
    """Find the value of `find_field`."""
    return find_field(value, places, names)[1]


def is_frame(value: Any) -> bool:
    """Tell whether a value is a frame of polars, Arrow or pandas, or a search of LanceDB."""
    methods = ("to_dicts", "to_pylist", "to_list")
    return any(hasattr(value, name) for name in (*methods, "columns"))


def read_rows(value: Any) -> Any:
    """Convert a frame to its rows; anything else stays as it is.

    Raises:
        GateError: Two columns have one name.
    """
    if not is_frame(value):
        return value
    columns = getattr(value, "column_names", getattr(value, "columns", ()))
    require_distinct(columns if isinstance(columns, Iterable) else (), "a table of hits")
    for method in ("to_dicts", "to_pylist", "to_list"):
        if hasattr(value, method):
            return getattr(value, method)()
    return value.to_dict("records")


def list_hits(answer: Any) -> list[Any] | None:
    """List the hits of an answer that has them in a field, or in columns; None if it has not."""
    if isinstance(answer, list):
        # That of Milvus has columns, too, without fields of the user.
        return None
    columns: dict[str, list[Any]] = {}
    for part, names in COLUMNS.items():
        values = find_first(answer, ("",), names)
        values = values.tolist() if hasattr(values, "tolist") else values
        if isinstance(values, list | tuple):
            # Of a batch of one query, the only list in it.
            is_batch = len(values) == 1 and isinstance(values[0], list | tuple)
            columns[part] = [*values[0]] if is_batch else [*values]
    if "id" in columns:
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]
    for path in ANSWERS:
        values = find(answer, path)
        if isinstance(values, list | tuple):
            return [*values]
    for name, ids in TEXTS_ALONE.items():
        if isinstance(find(answer, name), list | tuple):
            raise AnswerError(
                f"field '{name}' has the texts of chunks without ids. Add these as the field "
                f"'{ids}'"
            )
    return None


class StatedHit(NamedTuple):
    """A hit before it is known which of its fields all hits of the answer are compared by."""

    place: int
    """Its place in the answer, or that of its group, from 1."""
    hit: Hit
    """The hit without score and distance, with its place as its rank."""
    form: HitForm
    values: dict[str, Any]
    """Its scores and distances, and its rank, by field."""
    field: str = ""
    """The place of its id; empty if it is one."""

    def describe(self) -> str:
        """Describe the type of the hit, the field of its id, and what it has of a chunk."""
        parts = [name for name in ("text", "start", "end") if getattr(self.hit, name) is not None]
        described = f"{self.form.systems}, id in `{self.field}`" if self.field else "ids"
        return " with ".join(filter(None, (described, " and ".join(parts))))


def read_hits(
    answer: object,
    k: int,
    document_field: str | None = None,
    order: Order | None = None,
    show_first: Callable[[StatedHit], object] = lambda _: None,
) -> list[Hit]:
    """Read an answer as hits, at most `k` where they are in order, of a mapping all; raise
    AnswerError if it is not a list of hits.

    The hits of a group, such as the chunks of one document, follow each other, and only the first
    has the rank of the group. All hits have a score or none has, unless the user says that ranks
    decide. `show_first` is called with the first hit.
    """
    try:
        answer = read_rows(answer)
        listed = list_hits(answer)
    except GateError as error:
        raise AnswerError(error.problem) from error
    except ValueError:
        raise AnswerError("the lists of ids, scores and texts have different lengths") from None
    if listed is None and isinstance(answer, Mapping):
        return _read_scores(answer, k, order, show_first)
    answer = answer if listed is None else listed
    if isinstance(answer, str | bytes) or not isinstance(answer, Iterable):
        raise AnswerError(
            f"{type(answer).__name__} is not a list of hits; each must be {HIT_KINDS}"
        )
    items = [*islice(answer, k)]
    if len(items) == 1 and isinstance(items[0], list):
        first = next(iter(items[0]), None)
        if not isinstance(first, str | Integral):
            # A batch of one query.
            items = items[0][:k]
    stated: list[StatedHit] = []
    for place, item in enumerate(items, start=1):
        stated += _list_group(item, place, document_field)
    if stated:
        show_first(stated[0])
    # Of the usual names, the first that any hit has a value of.
    forms = dict.fromkeys(item.form for item in stated)
    used = {name for item in stated for name in item.values}
    scores = (name for form in forms for name in (BEHIND, *form.score) if name in used)
    distances = (name for form in forms for name in form.distance if name in used)
    has_rank = any(read_rank(item.values.get(RANK)) is not None for item in stated)
    return _compare_by(stated, next(scores, None), next(distances, None), order, has_rank=has_rank)


def _read_scores(
    answer: Mapping[Any, Any],
    k: int,
    order: Order | None,
    show_first: Callable[[StatedHit], object],
) -> list[Hit]:
    """Read scores by id; their order means nothing, so that all scores are needed."""
    pairs = list(islice(answer.items(), MAX_HITS + 1))
    if len(pairs) > MAX_HITS:
        raise AnswerError(f"has more than {MAX_HITS:,} hits, and {k:,} were asked for")
    stated = [_read_item(pair, place, None) for place, pair in enumerate(pairs, start=1)]
    if stated:
        show_first(stated[0])
    return _compare_by(stated, BEHIND, None, order)


def _compare_by(
    stated: Sequence[StatedHit],
    score: str | None,
    distance: str | None,
    order: Order | None,
    *,
    has_rank: bool = False,
) -> list[Hit]:
    """Complete hits by the fields that they are compared by; raise AnswerError if one lacks what
    decides.
    """
    by_distance = distance is not None and (score is None or order == "distance")
    decisive = "distance" if by_distance else "score"
    fields = {"score": score, "distance": distance}
    hits: list[Hit] = []
    gaps: list[str] = []
    for place, hit, _, values, _ in stated:
        name = f"hit {place}, {_abbreviate(hit.document)}"
        numbers: dict[str, Any] = {"rank": hit.rank}
        for kind, key in fields.items():
            value = None if key is None else values.get(key)
            if value is None or (order == "rank" and is_missing(value)):
                continue
            try:
                numbers[kind] = read_number(value)
            except ValueError:
                # Next to a score that decides, another stage may have left anything.
                if kind == decisive:
                    raise AnswerError(
                        f"{name}, has the score {_abbreviate(value)}; it must be a finite number"
                    ) from None
        if decisive not in numbers:
            gaps.append(name)
        if has_rank and RANK in values:
            numbers["rank"] = read_rank(values[RANK])
            if numbers["rank"] is None:
                raise AnswerError(
                    f"{name}, has the rank {_abbreviate(values[RANK])}; it must be a whole number "
                    "from 0, as others of the query have"
                )
        hits.append(hit._replace(**numbers))
    if gaps and order != "rank" and fields[decisive] is not None:
        field_name = f" in `{fields[decisive]}`" if fields[decisive] else ""
        others = f"; {len(gaps):,} of {len(hits):,} lack one" if len(gaps) > 1 else ""
        raise AnswerError(f"{gaps[0]}, has no {decisive}{field_name}{others}. {GIVE_EACH}")
    return hits


def _list_group(item: Any, place: int, document_field: str | None) -> Iterator[StatedHit]:
    """Yield a hit, or the hits in a group of Qdrant or in the inner hits of Elasticsearch, as hits
    of the document.
    """
    inner = find(item, "inner_hits")
    chunks = find(item, "hits")
    if isinstance(inner, Mapping):
        chunks = find(next(iter(inner.values()), None), "hits/hits")
    if not isinstance(chunks, list) or not chunks:
        yield _read_item(item, place, place, document_field)
        return
    # The group of Qdrant has no fields of the user.
    group = _read_item(item, place, place, document_field if inner else None)
    for number, chunk in enumerate(chunks):
        stated = _read_item(chunk, place, None if number else place)
        values = {name: value for name, value in stated.values.items() if name != RANK}
        hit = stated.hit._replace(document=group.hit.document)
        yield stated._replace(hit=hit, values=values)


def _read_item(
    item: Any, place: int, rank: int | None, document_field: str | None = None
) -> StatedHit:
    """Read a hit as any system states it, perhaps with score, text and offsets behind it in a
    tuple; raise AnswerError if it has no document.
    """
    fields = item
    behind: list[Any] = []
    if isinstance(item, tuple | list) and item and not hasattr(item, "_fields"):
        fields, *behind = item
    if len(behind) == 3 and isinstance(behind[1], Integral):
        # A place without the text.
        behind.insert(1, None)
    if hasattr(fields, "_asdict"):
        fields = fields._asdict()
    elif hasattr(fields, "keys") and not isinstance(fields, Mapping):
        # A row of SQLite.
        fields = dict(fields)
    form = next(form for form in FORMS if not form.mark or find(fields, form.mark) is not None)
    is_id = isinstance(fields, str | Integral | UUID)
    field, value = "", fields
    if not is_id:
        field, value = _find_document(fields, form, place, document_field)
    document = read_id(value)
    if document is None or len(behind) > 4:
        raise AnswerError(f"hit {place} is {_abbreviate(item)}; it must be {HIT_KINDS}")
    score, text, start, end = (*behind, None, None, None, None)[:4]
    if not is_id:
        places = form.places[::-1]
        text = find_first(fields, places, TEXTS) if text is None else text
        start = find_first(fields, places, STARTS) if start is None else start
        end = find_first(fields, places, ENDS) if end is None else end
    names = () if is_id else (*form.score, *form.distance)
    values = {name: find(fields, name) for name in names} | {BEHIND: score}
    hit = Hit(
        document=document,
        rank=rank,
        text=text.encode("utf-8", "replace").decode() if isinstance(text, str) else None,
        start=_read_offset(start),
        end=_read_offset(end),
    )
    stated = {name: value for name, value in values.items() if value is not None}
    stated[RANK] = None if is_id else find(fields, RANK)
    return StatedHit(place, hit, form, stated, field)


def _find_document(
    fields: Any, form: HitForm, place: int, document_field: str | None
) -> tuple[str, Any]:
    """Find the id of a hit's document, after its field: the one that the user names, or the first
    of the usual ones.
    """
    if document_field is not None:
        field, name = find_field(fields, form.places, (document_field,))
        if name is None:
            bases = [find(fields, path) for path in form.places]
            keys = [
                sanitize(str(key)) for base in bases if isinstance(base, Mapping) for key in base
            ]
            raise AnswerError(
                f"hit {place} has no field {sanitize(document_field)} (--document-field); its "
                f"fields are {', '.join(keys) or 'none'}"
            )
        return field, name
    field, name = find_field(fields, ("",), form.document)
    for names in (PARENTS, IDS):
        if name is None:
            field, name = find_field(fields, form.places, names)
    if form.systems == "Vespa" and isinstance(name, str):
        matched = VESPA_ID.fullmatch(name)
        name = matched[1] if matched else name
    return field, name


def _read_offset(value: Any) -> int | None:
    """Read a place in a text; None if it is none, such as LangChain's -1 for a chunk that it did
    not find.
    """
    is_whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    return int(value) if is_whole and value >= 0 else None


def _abbreviate(value: object) -> str:
    """Write a value for a message; Python writes no integer of thousands of digits."""
    try:
        return sanitize(value if isinstance(value, str) else str(value))
    except ValueError:
        return "a very large number"
