"""Parser for the responses of all supported search systems.

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
MAX_RANK_DIGITS = 18
#: Advice if hits lack a score or distance.
SCORE_ADVICE = "Give each hit one, or use --order rank (the ranks or the order of the hits)"
#: The best hit has the highest score (as in trec_eval), the lowest distance, or the lowest rank.
#: Without ranks, `rank` means the order of the rows or hits.
Order: TypeAlias = Literal["score", "distance", "rank"]
#: The order that the user gives; None to infer it.
OrderChoice: TypeAlias = Order | None
#: Names or paths of fields, in order of preference.
FieldNames: TypeAlias = tuple[str, ...]

#: Fields of document ids in ranx, BEIR, TREC and PyTerrier (`docno` is the id, `docid` an index
#: number), then LlamaIndex, Haystack and LangChain.
DOC_FIELDS = (
    "document_id",
    "document-id",
    "doc_id",
    "doc-id",
    "docno",
    "docid",
    "corpus-id",
    "corpus_id",
)
PARENT_FIELDS = (
    *DOC_FIELDS,
    "ref_doc_id",
    "source_id",
    "parent_id",
    "source_uri",
    "sourceUri",
    "source",
    "doc",
)
#: Ids of chunks, or of documents that are indexed as a whole.
ID_FIELDS = ("id", "_id", "uuid")
SCORE_FIELDS = (
    "_relevance_score",
    "score",
    "_score",
    "relevance",
    "@search.score",
    "sim",
    "similarity",
)
DISTANCE_FIELDS = ("_distance", "distance")
RANK_FIELD = "rank"
TEXT_FIELDS = ("text", "chunk", "content", "page_content")
START_FIELDS = ("start", "start_index", "split_idx_start", "start_char_idx")
END_FIELDS = ("end", "end_index", "end_char_idx")


class HitLayout(NamedTuple):
    """The fields of a system's hits. A path consists of attributes or keys, separated by `/`. An
    empty path refers to the hit itself.
    """

    systems: str
    marker: str
    """A field that identifies these systems. Later items of `LAYOUTS` do not have it."""
    paths: FieldNames
    """Paths to search for ids, starting with metadata and payload. Texts and offsets are searched
    in reverse order.
    """
    document: FieldNames = ()
    """Paths of the document id."""
    score: FieldNames = SCORE_FIELDS
    distance: FieldNames = DISTANCE_FIELDS


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
    HitLayout("Milvus", "entity", ("entity", ""), score=(*SCORE_FIELDS, "distance"), distance=()),
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
HIT_LIST_PATHS = (
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
#: Column names by kind of value, in answers with one list per field (Chroma, AutoRAG, ragas).
COLUMN_NAMES = {
    "id": ("ids", "retrieved_ids", "retrieved_context_ids"),
    "distance": ("distances",),
    "score": ("scores", "retrieve_scores"),
    "text": ("documents", "retrieved_contents", "retrieved_contexts", "retrieval_context"),
    "metadata": ("metadatas",),
}
#: Id field for each field of chunk texts in AutoRAG, ragas and deepeval.
ID_FIELDS_BY_TEXT_FIELD = {
    "retrieved_contents": "retrieved_ids",
    "retrieved_contexts": "retrieved_context_ids",
    "retrieval_context": "retrieved_context_ids",
}
#: Vespa document id, `id:namespace:type:key:ID`.
VESPA_ID = re.compile(r"id:[^:]*:[^:]*:[^:]*:(.+)", re.DOTALL)
#: Key of the score in a tuple of id and score.
TUPLE_SCORE = ""
#: Data frame methods that return rows.
ROW_METHODS = ("to_dicts", "to_pylist", "to_list")
HIT_TYPES = "an id, (id, score), or a hit of LangChain, LlamaIndex, Haystack or a vector database"


class Hit(NamedTuple):
    """A retrieved document or chunk."""

    document: str
    """Id of the document, or of a chunk, such as `d1#3`."""
    score: float | None = None
    rank: int | None = None
    """Rank, or number in the answer (lower is better); None if hits are unordered."""
    text: str | None = None
    """Text of a chunk."""
    start: int | None = None
    """Offset of the chunk's first character in the document."""
    end: int | None = None
    """Offset after the chunk's last character."""
    chunk: str = ""
    """Id of the chunk if `document` differs from it, else empty."""
    distance: float | None = None


class AnswerError(Exception):
    """A query has no ranking, since all attempts failed or the answer has no valid hits."""


def is_missing(value: object) -> bool:
    """Return True for None, NaN and empty strings."""
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
    text = _read_text(value).strip().removeprefix("+").removesuffix(".0")
    return int(text) if text.isdecimal() and len(text) <= MAX_RANK_DIGITS else None


def read_id(value: object) -> str | None:
    """Read the id of a query or document, or return None if it is invalid.

    Ids with zero bytes or invalid Unicode are invalid: trec_eval truncates an id at a zero byte,
    and crashes on invalid Unicode.
    """
    text = _read_text(value) if isinstance(value, str | Integral | UUID) else ""
    is_unicode = text == text.encode(errors="ignore").decode()
    return text if text and is_unicode and "\0" not in text else None


def get_value(value: Any, path: str) -> Any:
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
        base = get_value(value, path)
        for name in names:
            field_value = get_value(base, name)
            if field_value is not None:
                return (f"{path}/{name}" if path else name), field_value
    return "", None


def is_frame(value: Any) -> bool:
    """Return True for a polars, Arrow or pandas frame, and for a LanceDB search."""
    return any(hasattr(value, name) for name in (*ROW_METHODS, "columns"))


def read_rows(value: Any) -> Any:
    """Convert a frame to rows. Return other values unchanged.

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
    """List the hits of an answer with a hit list or with columns; None for other answers."""
    if isinstance(answer, list):
        # Milvus returns a list with attributes that look like columns.
        return None
    columns = {}
    for kind, names in COLUMN_NAMES.items():
        _, values = find_field(answer, ("",), names)
        values = values.tolist() if hasattr(values, "tolist") else values
        if isinstance(values, list | tuple):
            # A batch with one query: use its only list.
            is_batch = len(values) == 1 and isinstance(values[0], list | tuple)
            columns[kind] = [*values[0]] if is_batch else [*values]
    if "id" in columns:
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]
    for path in HIT_LIST_PATHS:
        values = get_value(answer, path)
        if isinstance(values, list | tuple):
            return [*values]
    for name, ids in ID_FIELDS_BY_TEXT_FIELD.items():
        if isinstance(get_value(answer, name), list | tuple):
            raise AnswerError(
                f"field '{name}' contains chunk texts without ids. Add the ids as field '{ids}'"
            )
    return None


class RawHit(NamedTuple):
    """A hit with all its scores and distances, before one of them is chosen to rank it."""

    number: int
    """Number of the hit or its group in the answer, starting at 1."""
    hit: Hit
    """The hit without score and distance. The rank is the number."""
    layout: HitLayout
    values: dict[str, Any]
    """Values of the fields for scores, distances and rank."""
    field: str = ""
    """Path of the id; empty if the hit is just an id."""

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
    on_first_hit: Callable[[RawHit], object] = lambda _: None,
) -> list[Hit]:
    """Parse an answer into hits.

    Hits of a group, such as the chunks of a document, stay together, and only the first hit gets
    the rank of the group. Unless `order` is `rank`, either all hits or none have a score.

    Args:
        answer: A list of hits, scores by id, or the response of a search system.
        k: Maximum number of hits. A mapping of scores by id is always read completely.
        document_field: Field with the document id.
        order: Order of the hits.
        on_first_hit: Called with the first hit.

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
    is_ordered = items is not None or not isinstance(answer, Mapping)
    items = _list_items(answer if items is None else items, k)
    raw_hits: list[RawHit] = []
    for number, item in enumerate(items, start=1):
        raw_hits += _list_group(item, number, number if is_ordered else None, document_field)
    if not raw_hits:
        return []
    on_first_hit(raw_hits[0])
    layout = raw_hits[0].layout
    # Use the first field, in order of preference, that has a value in any hit.
    names = {name for hit in raw_hits for name, value in hit.values.items() if value is not None}
    scores = (name for name in (TUPLE_SCORE, *layout.score) if name in names)
    score_field = next(scores, None if is_ordered else TUPLE_SCORE)
    distance_field = next((name for name in layout.distance if name in names), None)
    return _fill_hits(raw_hits, score_field, distance_field, order)


def _list_items(answer: Any, k: int) -> list[Any]:
    """List the first k items, or all items of a mapping, which is unordered."""
    if isinstance(answer, str | bytes) or not isinstance(answer, Iterable):
        raise AnswerError(
            f"expected a list of hits, got {type(answer).__name__}; each must be {HIT_TYPES}"
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


def _fill_hits(
    raw_hits: Sequence[RawHit],
    score_field: str | None,
    distance_field: str | None,
    order: OrderChoice,
) -> list[Hit]:
    """Read each hit's score, distance and rank from the given fields and the field `rank`.

    Raises:
        AnswerError: A hit lacks the value that ranks the hits, or the value is invalid.
    """
    by_distance = distance_field is not None and (score_field is None or order == "distance")
    required_kind = "distance" if by_distance else "score"
    fields = {"score": score_field, "distance": distance_field}
    has_rank = any(read_rank(hit.values.get(RANK_FIELD)) is not None for hit in raw_hits)
    hits = []
    unscored = []
    for number, hit, _, values, _ in raw_hits:
        name = f"hit {number}, {_abbreviate(hit.document)}"
        hit_values: dict[str, Any] = {"rank": hit.rank}
        for kind, key in fields.items():
            value = None if key is None else values.get(key)
            if value is None or (order == "rank" and is_missing(value)):
                continue
            try:
                hit_values[kind] = read_number(value)
            except ValueError:
                # The other field may be left over from an earlier stage.
                if kind == required_kind:
                    raise AnswerError(
                        f"{name}, has the score {_abbreviate(value)}; it must be a finite number"
                    ) from None
        if required_kind not in hit_values:
            unscored.append(name)
        if has_rank and hit.rank is not None:
            hit_values["rank"] = read_rank(values[RANK_FIELD])
            if hit_values["rank"] is None:
                raise AnswerError(
                    f"{name}, has the rank {_abbreviate(values[RANK_FIELD])}; it must be an "
                    "integer of at least 0, like the other ranks of the query"
                )
        hits.append(hit._replace(**hit_values))
    if unscored and order != "rank" and fields[required_kind] is not None:
        field_name = f" in `{fields[required_kind]}`" if fields[required_kind] else ""
        count = f"; {len(unscored):,} of {len(hits):,} lack one" if len(unscored) > 1 else ""
        raise AnswerError(
            f"{unscored[0]}, has no {required_kind}{field_name}{count}. {SCORE_ADVICE}"
        )
    return hits


def _list_group(
    item: Any, number: int, rank: int | None, document_field: str | None
) -> Iterator[RawHit]:
    """Yield a hit, the hits of a Qdrant group, or the inner hits of Elasticsearch."""
    inner = get_value(item, "inner_hits")
    chunks = get_value(item, "hits")
    if isinstance(inner, Mapping):
        chunks = get_value(next(iter(inner.values()), None), "hits/hits")
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
    other_items: list[Any] = []
    if isinstance(item, tuple | list) and item and not hasattr(item, "_fields"):
        fields, *other_items = item
    if len(other_items) == 3 and isinstance(other_items[1], Integral):
        # Offsets without a text.
        other_items.insert(1, None)
    if hasattr(fields, "_asdict"):
        fields = fields._asdict()
    elif hasattr(fields, "keys") and not isinstance(fields, Mapping):
        # An SQLite row.
        fields = dict(fields)
    layout = next(
        layout
        for layout in LAYOUTS
        if not layout.marker or get_value(fields, layout.marker) is not None
    )
    is_id = isinstance(fields, str | Integral | UUID)
    field, value = "", fields
    if not is_id:
        field, value = _find_document(fields, layout, number, document_field)
    document = read_id(value)
    if document is None or len(other_items) > 4:
        raise AnswerError(f"hit {number} is {_abbreviate(item)}; it must be {HIT_TYPES}")
    score, *content = (*other_items, None, None, None, None)[:4]
    names: FieldNames = ()
    if not is_id:
        names = (*layout.score, *layout.distance, RANK_FIELD)
        for index, content_names in enumerate((TEXT_FIELDS, START_FIELDS, END_FIELDS)):
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
    values = {name: get_value(fields, name) for name in names} | {TUPLE_SCORE: score}
    return RawHit(number, hit, layout, values, field)


def _find_document(
    fields: Any, layout: HitLayout, number: int, document_field: str | None
) -> tuple[str, Any]:
    """Find the path and value of the document id, in `document_field` or in the usual fields.

    Raises:
        AnswerError: The hit has no `document_field`.
    """
    searches = [(("",), layout.document), (layout.paths, PARENT_FIELDS), (layout.paths, ID_FIELDS)]
    if document_field is not None:
        searches = [(layout.paths, (document_field,))]
    matches = (find_field(fields, *search) for search in searches)
    field, name = next((match for match in matches if match[0]), ("", None))
    if document_field is not None and not field:
        bases = [get_value(fields, path) for path in layout.paths]
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
    """Read an offset, or return None if it is invalid, such as -1, which LangChain gives to
    unlocated chunks.
    """
    is_integer = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    return int(value) if is_integer and value >= 0 else None


def _abbreviate(value: object) -> str:
    """Format a value for a message. `str` fails for integers with thousands of digits."""
    try:
        return sanitize(value if isinstance(value, str) else str(value))
    except ValueError:
        return "a very large number"
