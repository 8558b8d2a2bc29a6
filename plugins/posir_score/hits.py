"""Hits, and the parser for the response formats of all supported search systems.

Formats are recognized by field name; no vendor library is imported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

from posir_tasks.base.untrusted import InputError, require_distinct
from posir_tasks.base.wording import sanitize

#: Maximum number of hits in an unordered answer, such as a mapping.
MAX_HITS = 100_000
#: Maximum number of digits in a rank.
MAX_DIGITS = 18
#: Remedy for hits that lack a score or distance.
GIVE_EACH = "Give each hit one, or give --order rank (the ranks or the order of the hits)"
#: The best hit has the highest score (as in trec_eval), the lowest distance, or the lowest rank.
#: Without ranks, `rank` means the order of the rows or hits.
Order: TypeAlias = Literal["score", "distance", "rank"]
#: The order that the user gives; None to infer it.
OrderChoice: TypeAlias = Order | None
#: Names or paths of fields, in order of preference.
Names: TypeAlias = tuple[str, ...]

#: Names of fields, in order of preference. For documents: ranx, BEIR, TREC and PyTerrier (`docno`
#: is the id, `docid` an index number), then LlamaIndex, Haystack and LangChain.
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
#: Ids of chunks, or of documents that are indexed whole.
IDS = ("id", "_id", "uuid")
SCORES = ("_relevance_score", "score", "_score", "relevance", "@search.score", "sim", "similarity")
DISTANCES = ("_distance", "distance")
RANK = "rank"
TEXTS = ("text", "chunk", "content", "page_content")
STARTS = ("start", "start_index", "split_idx_start", "start_char_idx")
ENDS = ("end", "end_index", "end_char_idx")


class HitLayout(NamedTuple):
    """The fields of a system's hits. A path consists of attributes or keys, separated by `/`; the
    empty path is the hit itself.
    """

    systems: str
    mark: str
    """A field that identifies these systems. Layouts further down `LAYOUTS` do not contain it."""
    paths: Names
    """Paths to search for ids, starting with metadata and payload. Texts and offsets are searched
    in reverse order.
    """
    document: Names = ()
    """Paths of the document id."""
    score: Names = SCORES
    distance: Names = DISTANCES


LAYOUTS = (
    HitLayout("LlamaIndex", "node", ("node/metadata", "node"), document=("node/ref_doc_id",)),
    HitLayout("LlamaIndex", "ref_doc_id", ("metadata", ""), document=("ref_doc_id",)),
    HitLayout("LangChain", "page_content", ("metadata", "")),
    HitLayout("Haystack", "meta", ("meta", "")),
    HitLayout("Qdrant", "payload", ("payload", "payload/metadata", "")),
    HitLayout("Elasticsearch, OpenSearch", "_source", ("_source", ""), document=("_id",)),
    HitLayout("Vespa", "relevance", ("fields", ""), document=("fields/documentid", "id")),
    HitLayout(
        "Weaviate",
        "properties",
        ("properties", ""),
        score=("metadata/score",),
        distance=("metadata/distance",),
    ),
    # For two of three metrics, this distance is a similarity.
    HitLayout("Milvus", "entity", ("entity", ""), score=(*SCORES, "distance"), distance=()),
    HitLayout(
        "Elasticsearch's _rank_eval",
        "hit",
        ("hit/_source", "hit"),
        document=("hit/_id",),
        score=("hit/_score",),
    ),
    HitLayout(
        "Amazon Bedrock", "location", ("metadata", "content"), document=("location/s3Location/uri",)
    ),
    HitLayout("Chroma, Pinecone", "metadata", ("metadata", "")),
    HitLayout("rows, such as LanceDB's", "", ("",)),
)
#: Paths to the list of hits in an answer: Elasticsearch and OpenSearch, Vespa, Qdrant and its
#: groups, Weaviate, Pinecone, Haystack, Amazon Bedrock, Vertex, Azure AI Search, LlamaIndex's query
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
#: Column names for each kind of value in answers with one list per field: Chroma, AutoRAG, ragas.
COLUMNS = {
    "id": ("ids", "retrieved_ids", "retrieved_context_ids"),
    "distance": ("distances",),
    "score": ("scores", "retrieve_scores"),
    "text": ("documents", "retrieved_contents", "retrieved_contexts", "retrieval_context"),
    "metadata": ("metadatas",),
}
#: Field of the ids that belong to each field of chunk texts, in AutoRAG, ragas and deepeval.
TEXTS_WITHOUT_IDS = {
    "retrieved_contents": "retrieved_ids",
    "retrieved_contexts": "retrieved_context_ids",
    "retrieval_context": "retrieved_context_ids",
}
#: A document id in Vespa, `id:namespace:type:key:ID`.
VESPA_ID = re.compile(r"id:[^:]*:[^:]*:[^:]*:(.+)", re.DOTALL)
#: Key of the score in a tuple of id and score.
UNNAMED = ""
#: Data frame methods that return rows.
ROW_METHODS = ("to_dicts", "to_pylist", "to_list")
HIT_KINDS = "an id, (id, score), or a hit of LangChain, LlamaIndex, Haystack or a vector database"


class Hit(NamedTuple):
    """A retrieved document or chunk."""

    document: str
    """Id of the document, or of a chunk, such as `d1#3`."""
    score: float | None = None
    rank: int | None = None
    """Rank, or index in the answer (lower is better); None if the order has no meaning."""
    text: str | None = None
    """Text of a chunk."""
    start: int | None = None
    """First character of the chunk in its document."""
    end: int | None = None
    """One past the last character of the chunk."""
    chunk: str = ""
    """Id of the chunk if `document` differs from it, else empty."""
    distance: float | None = None


class AnswerError(Exception):
    """A query has no ranking: all attempts failed, or the answer has no valid hits."""


def is_missing(value: object) -> bool:
    """Return True for null, empty strings and NaN."""
    if isinstance(value, str):
        return value.strip().lower() in ("", "nan")
    return value is None or (isinstance(value, Real) and math.isnan(value))


def read_number(value: Any) -> float:
    """Read a score or a distance.

    Raises:
        ValueError: The value is not a finite number.
    """
    number = None
    # float() accepts `_` between digits.
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
    """Convert a scalar to text; empty for booleans and for integers with thousands of digits."""
    try:
        return "" if isinstance(value, bool) else str(value)
    except ValueError:
        return ""


def read_rank(value: object) -> int | None:
    """Read a rank, or return None if it is not an integer of at least 0.

    1.0 counts as a rank, since data frames convert integer columns with nulls to floats.
    """
    text = _read_text(value).strip().removesuffix(".0")
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else None


def read_id(value: object) -> str | None:
    """Read the id of a query or document, or return None if it is invalid.

    Ids with zero bytes or invalid Unicode are invalid: trec_eval truncates an id at a zero byte,
    and crashes on invalid Unicode.
    """
    text = _read_text(value) if isinstance(value, str | Integral | UUID) else ""
    is_unicode = text == text.encode(errors="ignore").decode()
    return text if text and is_unicode and "\0" not in text else None


def find(value: Any, path: str) -> Any:
    """Return the value at a path of attributes or keys, or None."""
    for name in path.split("/") if path else ():
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value


def find_field(value: Any, paths: Iterable[str], names: Iterable[str]) -> tuple[str, Any]:
    """Find the first field with a value among `names`, path by path.

    Returns:
        The path of the field and its value, or `""` and None.
    """
    for path in paths:
        base = find(value, path)
        for name in names:
            field_value = find(base, name)
            if field_value is not None:
                return (f"{path}/{name}" if path else name), field_value
    return "", None


def is_frame(value: Any) -> bool:
    """Return True for a polars, Arrow or pandas frame, and for a LanceDB search."""
    return any(hasattr(value, name) for name in (*ROW_METHODS, "columns"))


def read_rows(value: Any) -> Any:
    """Convert a frame to rows. Other values are returned unchanged.

    Raises:
        InputError: Two columns have the same name.
    """
    if not is_frame(value):
        return value
    columns = getattr(value, "column_names", getattr(value, "columns", ()))
    require_distinct(columns if isinstance(columns, Iterable) else (), "a table of hits")
    for method in ROW_METHODS:
        if hasattr(value, method):
            return getattr(value, method)()
    return value.to_dict("records")


def list_hits(answer: Any) -> list[Any] | None:
    """List the hits of an answer that stores them in a field or in columns; else None."""
    if isinstance(answer, list):
        # Milvus returns a list with attributes that look like columns.
        return None
    columns = {}
    for kind, names in COLUMNS.items():
        _, values = find_field(answer, ("",), names)
        values = values.tolist() if hasattr(values, "tolist") else values
        if isinstance(values, list | tuple):
            # A batch with one query: use its only list.
            is_batch = len(values) == 1 and isinstance(values[0], list | tuple)
            columns[kind] = [*values[0]] if is_batch else [*values]
    if "id" in columns:
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]
    for path in ANSWERS:
        values = find(answer, path)
        if isinstance(values, list | tuple):
            return [*values]
    for name, ids in TEXTS_WITHOUT_IDS.items():
        if isinstance(find(answer, name), list | tuple):
            raise AnswerError(
                f"field '{name}' contains chunk texts without ids. Add the ids as field '{ids}'"
            )
    return None


class RawHit(NamedTuple):
    """A hit with all its scores and distances, before one of them is chosen for the ranking."""

    number: int
    """Number of the hit, or of its group, in the answer, starting at 1."""
    hit: Hit
    """The hit without score and distance. Its rank is its number."""
    layout: HitLayout
    values: dict[str, Any]
    """Values of the fields for scores, distances and rank."""
    field: str = ""
    """Path of the id; empty if the hit itself is an id."""

    def describe(self) -> str:
        """Describe the format of the hit."""
        names = [name for name in ("text", "start", "end") if getattr(self.hit, name) is not None]
        id_format = f"{self.layout.systems}, id in `{self.field}`" if self.field else "ids"
        return " with ".join(filter(None, (id_format, " and ".join(names))))


def read_hits(
    answer: object,
    k: int,
    document_field: str | None = None,
    order: OrderChoice = None,
    show_first: Callable[[RawHit], object] = lambda _: None,
) -> list[Hit]:
    """Parse an answer into hits.

    The hits of a group, such as the chunks of one document, stay together, and only the first hit
    gets the rank of the group. Either all hits have a score or none, unless `order` is `rank`.

    Args:
        answer: A list of hits, scores by id, or the response of a search system.
        k: Maximum number of hits in a list; a mapping of scores by id is read completely.
        document_field: Field with the document id.
        order: Order of the hits.
        show_first: Called with the first hit.

    Raises:
        AnswerError: The answer is not a list of hits, or a hit is invalid.
    """
    try:
        answer = read_rows(answer)
        items = list_hits(answer)
    except InputError as error:
        raise AnswerError(error.problem) from error
    except ValueError:
        raise AnswerError("the lists of ids, scores and texts have different lengths") from None
    is_ranked = items is not None or not isinstance(answer, Mapping)
    items = _list_items(answer if items is None else items, k)
    raw_hits: list[RawHit] = []
    for number, item in enumerate(items, start=1):
        raw_hits += _list_group(item, number, number if is_ranked else None, document_field)
    if not raw_hits:
        return []
    show_first(raw_hits[0])
    layout = raw_hits[0].layout
    # Use the first field, in order of preference, that has a value in any hit.
    names = {name for hit in raw_hits for name, value in hit.values.items() if value is not None}
    scores = (name for name in (UNNAMED, *layout.score) if name in names)
    score = next(scores, None if is_ranked else UNNAMED)
    distance = next((name for name in layout.distance if name in names), None)
    return _complete(raw_hits, score, distance, order)


def _list_items(answer: Any, k: int) -> list[Any]:
    """List the first k items, or all scores by id, since they have no order."""
    if isinstance(answer, str | bytes) or not isinstance(answer, Iterable):
        raise AnswerError(
            f"expected a list of hits, got {type(answer).__name__}; each must be {HIT_KINDS}"
        )
    if isinstance(answer, Mapping):
        if len(answer) > MAX_HITS:
            raise AnswerError(f"has more than {MAX_HITS:,} hits instead of {k:,}")
        return [*answer.items()]
    items = [*islice(answer, k)]
    if len(items) == 1 and isinstance(items[0], list):
        first = next(iter(items[0]), None)
        if not isinstance(first, str | Integral):
            # A batch with one query.
            return items[0][:k]
    return items


def _complete(
    raw_hits: Sequence[RawHit],
    score: str | None,
    distance: str | None,
    order: OrderChoice,
) -> list[Hit]:
    """Fill in the score, distance and rank of hits from the fields `score`, `distance` and `rank`.

    Raises:
        AnswerError: A hit lacks the value that ranks the hits, or the value is invalid.
    """
    by_distance = distance is not None and (score is None or order == "distance")
    decisive = "distance" if by_distance else "score"
    fields = {"score": score, "distance": distance}
    has_rank = any(read_rank(hit.values.get(RANK)) is not None for hit in raw_hits)
    hits = []
    gaps = []
    for number, hit, _, values, _ in raw_hits:
        name = f"hit {number}, {_abbreviate(hit.document)}"
        numbers: dict[str, Any] = {"rank": hit.rank}
        for kind, key in fields.items():
            value = None if key is None else values.get(key)
            if value is None or (order == "rank" and is_missing(value)):
                continue
            try:
                numbers[kind] = read_number(value)
            except ValueError:
                # The other field may be left over from an earlier stage.
                if kind == decisive:
                    raise AnswerError(
                        f"{name}, has the score {_abbreviate(value)}; it must be a finite number"
                    ) from None
        if decisive not in numbers:
            gaps.append(name)
        if has_rank and hit.rank is not None:
            numbers["rank"] = read_rank(values[RANK])
            if numbers["rank"] is None:
                raise AnswerError(
                    f"{name}, has the rank {_abbreviate(values[RANK])}; it must be an integer of "
                    "at least 0, like the other ranks of the query"
                )
        hits.append(hit._replace(**numbers))
    if gaps and order != "rank" and fields[decisive] is not None:
        field_name = f" in `{fields[decisive]}`" if fields[decisive] else ""
        gap_count = f"; {len(gaps):,} of {len(hits):,} lack one" if len(gaps) > 1 else ""
        raise AnswerError(f"{gaps[0]}, has no {decisive}{field_name}{gap_count}. {GIVE_EACH}")
    return hits


def _list_group(
    item: Any, number: int, rank: int | None, document_field: str | None
) -> Iterator[RawHit]:
    """Yield a hit, the hits of a Qdrant group, or the inner hits of Elasticsearch."""
    inner = find(item, "inner_hits")
    chunks = find(item, "hits")
    if isinstance(inner, Mapping):
        chunks = find(next(iter(inner.values()), None), "hits/hits")
    if not isinstance(chunks, list) or not chunks:
        yield _read_item(item, number, rank, document_field)
        return
    # Qdrant groups have no metadata.
    group = _read_item(item, number, rank, document_field if inner else None)
    for chunk in chunks:
        raw_hit = _read_item(chunk, number, rank)
        yield raw_hit._replace(hit=raw_hit.hit._replace(document=group.hit.document))
        rank = None


def _read_item(
    item: Any, number: int, rank: int | None, document_field: str | None = None
) -> RawHit:
    """Parse a hit of any system, or a tuple of a hit with score, text and offsets.

    Raises:
        AnswerError: The hit has no valid id.
    """
    fields = item
    extras: list[Any] = []
    if isinstance(item, tuple | list) and item and not hasattr(item, "_fields"):
        fields, *extras = item
    if len(extras) == 3 and isinstance(extras[1], Integral):
        # Offsets without a text.
        extras.insert(1, None)
    if hasattr(fields, "_asdict"):
        fields = fields._asdict()
    elif hasattr(fields, "keys") and not isinstance(fields, Mapping):
        # An SQLite row.
        fields = dict(fields)
    layout = next(
        layout for layout in LAYOUTS if not layout.mark or find(fields, layout.mark) is not None
    )
    is_id = isinstance(fields, str | Integral | UUID)
    field, value = "", fields
    if not is_id:
        field, value = _find_document(fields, layout, number, document_field)
    document = read_id(value)
    if document is None or len(extras) > 4:
        raise AnswerError(f"hit {number} is {_abbreviate(item)}; it must be {HIT_KINDS}")
    score, *content = (*extras, None, None, None, None)[:4]
    names: Names = ()
    if not is_id:
        names = (*layout.score, *layout.distance, RANK)
        for index, content_names in enumerate((TEXTS, STARTS, ENDS)):
            if content[index] is None:
                _, content[index] = find_field(fields, layout.paths[::-1], content_names)
    text, start, end = content
    hit = Hit(
        document=document,
        rank=rank,
        text=text.encode("utf-8", "replace").decode() if isinstance(text, str) else None,
        start=_read_offset(start),
        end=_read_offset(end),
    )
    values = {name: find(fields, name) for name in names} | {UNNAMED: score}
    return RawHit(number, hit, layout, values, field)


def _find_document(
    fields: Any, layout: HitLayout, number: int, document_field: str | None
) -> tuple[str, Any]:
    """Find the path and value of the document id, in `document_field` or in the usual fields.

    Raises:
        AnswerError: The hit has no `document_field`.
    """
    searches = [(("",), layout.document), (layout.paths, PARENTS), (layout.paths, IDS)]
    if document_field is not None:
        searches = [(layout.paths, (document_field,))]
    matches = (find_field(fields, *search) for search in searches)
    field, name = next((match for match in matches if match[0]), ("", None))
    if document_field is not None and not field:
        bases = [find(fields, path) for path in layout.paths]
        keys = [sanitize(str(key)) for base in bases if isinstance(base, Mapping) for key in base]
        raise AnswerError(
            f"hit {number} has no field {sanitize(document_field)} (--document-field); its fields "
            f"are {', '.join(keys) or 'none'}"
        )
    if document_field is None and layout.systems == "Vespa" and isinstance(name, str):
        match = VESPA_ID.fullmatch(name)
        name = match[1] if match else name
    return field, name


def _read_offset(value: Any) -> int | None:
    """Read an offset, or return None if it is invalid, such as LangChain's -1 for an unlocated
    chunk.
    """
    is_integer = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    return int(value) if is_integer and value >= 0 else None


def _abbreviate(value: object) -> str:
    """Format a value for a message. Python cannot format integers with thousands of digits."""
    try:
        return sanitize(value if isinstance(value, str) else str(value))
    except ValueError:
        return "a very large number"
