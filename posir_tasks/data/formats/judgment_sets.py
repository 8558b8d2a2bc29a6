"""Readers for evaluation sets of retrieval systems: AutoRAG, LlamaIndex and ragas.

These sets list the relevant chunks of each question, but no evidence spans. If a folder contains a
LlamaIndex or ragas golden set and its source documents, the chunks are located in the documents and
become the evidence spans.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path

from posir_tasks.base.digests import digest
from posir_tasks.base.files import split_suffix
from posir_tasks.base.table_files import read_delimited
from posir_tasks.base.untrusted import read_json
from posir_tasks.data.data import Judgments
from posir_tasks.data.formats.passages import (
    Answer,
    Cause,
    DeferredQueries,
    DeferredQuery,
    Item,
    Items,
    Passage,
    SkippedItem,
    add_deferred,
    attach_queries,
    read_text,
    skip_question,
)
from posir_tasks.data.formats.records import (
    FieldError,
    Row,
    convert_errors,
    load_values,
    read_parquet_rows,
    read_rows,
)
from posir_tasks.data.formats.shape import TABLES, list_fields, matches_signature
from posir_tasks.text.locating import fold_breaks, locate_once
from posir_tasks.text.spans import UnlocatedError

AUTORAG = (
    "AutoRAG, qa.parquet with qid, query, retrieval_gt and corpus.parquet with doc_id, contents"
)
PAIRS = "an EmbeddingQAFinetuneDataset of LlamaIndex, with queries, corpus and relevant_docs"
GOLDEN = (
    "a golden set, a row per question with query and reference_contexts (LlamaIndex, in examples), "
    "user_input and reference_contexts, or question, contexts and ground_truth (ragas)"
)
#: Fields of LlamaIndex's LabelledRagDataset, ragas since 0.2, older ragas, and DeepEval.
GOLDEN_SIGNATURE = (
    "examples/ query reference_contexts|user_input reference_contexts|query reference_contexts|"
    "question contexts ground_truth|question contexts ground_truths|"
    "question context/ ground_truth|input context/ expected_output"
)
#: Alternative field names for query, contexts and ids.
QUERY = "query|user_input|question|input"
CONTEXTS = "reference_contexts|contexts|context"
CONTEXT_IDS = "reference_context_ids|reference_node_id"
#: Token types in the `repr` of a list of strings.
LIST_TOKENS = {tokenize.STRING, tokenize.OP, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER}
#: Prefix that ragas adds to the contexts of multi-hop questions.
HOP_PREFIX = re.compile(r"^<\d+-hop>\s*")


@dataclass
class JudgmentSet:
    """Texts, and questions with the ids of their relevant texts."""

    file: str
    """File with the questions."""
    texts: dict[str, str] = field(default_factory=dict)
    queries: dict[str, str] = field(default_factory=dict)
    relevant: dict[str, list[str]] = field(default_factory=dict)

    def list_items(self) -> Items:
        """Yield the texts with their questions, without evidence spans."""
        deferred = DeferredQueries()
        for name, query in self.queries.items():
            relevant = self.relevant.get(name, [])
            if not relevant:
                yield skip_question(self.file, name, Cause.NOT_RELEVANT)
            for document in dict.fromkeys(relevant):
                deferred_query = DeferredQuery(self.file, name, query, lambda _: [None])
                deferred.setdefault(document, []).append(deferred_query)
        documents = (read_text(self.file, name, text, name) for name, text in self.texts.items())
        yield from attach_queries(documents, deferred, "the data")

    def to_judgments(self) -> Judgments:
        """Build judgments with grade 1 for each relevant text."""
        queries = {name: text for name, text in self.queries.items() if self.relevant.get(name)}
        grades = {name: dict.fromkeys(self.relevant[name], 1.0) for name in queries}
        return Judgments(queries, grades)


def read_autorag(folder: Path) -> JudgmentSet:
    """Read AutoRAG's `corpus*.parquet` and `qa*.parquet`. `retrieval_gt` lists the relevant ids."""
    data = JudgmentSet(str(folder))
    with convert_errors(folder, "", AUTORAG):
        for row in read_parquet_rows(folder, "corpus*.parquet"):
            _add(data.texts, row.get_id("doc_id"), row.get_text("contents"), "text")
        for row in read_parquet_rows(folder, "qa*.parquet"):
            name = row.get_id("qid")
            _add(data.queries, name, row.get_text("query"), "question")
            if not row.has("retrieval_gt"):
                raise FieldError("'retrieval_gt' is missing")
            data.relevant[name] = [*_flatten(row.fields["retrieval_gt"])]
    return data


def _add(texts: dict[str, str], name: str, text: str, noun: str) -> None:
    """Add a text; raise ValueError if another text has the same id."""
    if texts.setdefault(name, text) != text:
        raise ValueError(f"another {noun} has the same id, {name}; ids must be unique")


def _flatten(value: object) -> Iterator[str]:
    """Yield the nonempty ids in a string, a list or a list of lists."""
    if isinstance(value, list):
        for item in value:
            yield from _flatten(item)
    elif isinstance(value, str | int):
        if str(value):
            yield str(value)
    elif value is not None:
        raise FieldError("'retrieval_gt' must be a list of lists of ids")


def read_pairs(file: Path) -> JudgmentSet:
    """Read a LlamaIndex EmbeddingQAFinetuneDataset."""
    data = JudgmentSet(str(file))
    with convert_errors(file, "", PAIRS):
        row = Row.parse(read_json(file))
        queries = Row.parse(row.fields.get("queries"), "queries")
        corpus = Row.parse(row.fields.get("corpus"), "corpus")
        relevant = Row.parse(row.fields.get("relevant_docs"), "relevant_docs")
        data.queries = {name: queries.get_text(name) for name in queries.fields}
        data.texts = {name: corpus.get_text(name) for name in corpus.fields}
        data.relevant = {name: relevant.get_texts(name) for name in relevant.fields}
    return data


def is_golden(file: Path) -> bool:
    """Return True for a LlamaIndex or ragas golden set."""
    return matches_signature(list_fields(file), GOLDEN_SIGNATURE)


def read_golden(file: Path) -> JudgmentSet:
    """Read a golden set. The contexts become the texts, by default with digests as ids."""
    data = JudgmentSet(str(file))
    for number, (location, row) in enumerate(_read_records(file, GOLDEN), start=1):
        with convert_errors(file, location, GOLDEN):
            name = row.get_id("id|qid", "") or f"q{number}"
            contexts = [HOP_PREFIX.sub("", text) for text in _read_texts(row, CONTEXTS)]
            ids = _read_texts(row, CONTEXT_IDS) if row.has(CONTEXT_IDS) else []
            if len(ids) != len(contexts):
                ids = [digest(text).hex() for text in contexts]
            by_id = {key: text for key, text in zip(ids, contexts, strict=True) if text.strip()}
            _add(data.queries, name, row.get_text(QUERY), "question")
            for key, text in by_id.items():
                _add(data.texts, key, text, "text")
            data.relevant[name] = [*by_id]
    return data


def _read_records(file: Path, expected: str) -> Iterator[tuple[str, Row]]:
    """Yield location and row of each record in a table, a list, or the list `examples`."""
    suffix = split_suffix(file)[1]
    if suffix in TABLES:
        for number, fields in enumerate(read_delimited(file).iter_rows(named=True), start=1):
            yield f"row {number}", Row(fields)
    elif suffix == ".json":
        with convert_errors(file, "", expected):
            value = load_values(file)
            if isinstance(value, dict):
                value = value.get("examples", value)
            if isinstance(value, dict) and any(isinstance(item, str) for item in value.values()):
                # The object is the only row.
                value = [value]
            rows = Row({"examples": value}).get_rows("examples")
        yield from ((row.location, Row(row.fields)) for row in rows)
    else:
        for location, row in read_rows(file, expected):
            if isinstance(row, SkippedItem):
                raise FieldError(f"{location} is {row.reason} ({row.detail})")
            yield location, row


def _read_texts(row: Row, names: str) -> list[str]:
    """Return a list of strings. Tables contain it as Python, NumPy or JSON text."""
    present = next((name for name in names.split("|") if name in row.fields), names)
    value = row.fields.get(present, "")
    if value is None:
        return []
    if isinstance(value, str) and present in row.fields:
        return _parse_texts(value)
    return row.get_texts(names)


def _parse_texts(text: str) -> list[str]:
    """Parse the `repr` of a list or NumPy array of strings; return any other text as a list."""
    with suppress(tokenize.TokenError, SyntaxError, ValueError):
        tokens = [*tokenize.generate_tokens(StringIO(text).readline)]
        if {token.type for token in tokens} <= LIST_TOKENS:
            literals = (token.string for token in tokens if token.type == tokenize.STRING)
            return [*map(ast.literal_eval, literals)]
    return [text]


def attach_golden_questions(files: Iterable[Path], documents: Iterable[Item]) -> Items:
    """Yield documents with the questions of golden sets, and skipped items."""
    items = [
        replace(item, id=item.id or item.name) if isinstance(item, Passage) else item
        for item in documents
    ]
    texts = {item.id or "": item.text for item in items if isinstance(item, Passage)}
    folded_texts = {name: fold_breaks(text) for name, text in texts.items()}
    deferred = DeferredQueries()
    for file in files:
        golden = read_golden(file)
        for name, query in golden.queries.items():
            contexts = [golden.texts[key] for key in golden.relevant[name]]
            pairs = _locate_contexts(contexts, texts, folded_texts)
            yield from add_deferred(deferred, golden.file, name, query, pairs)
    yield from attach_queries(items, deferred, "the folder")


def _locate_contexts(
    contexts: Iterable[str], texts: Mapping[str, str], folded_texts: Mapping[str, str]
) -> Iterator[tuple[str, Answer]]:
    """Yield document and span of each context; raise UnlocatedError unless it is unique."""
    for context in contexts:
        piece = fold_breaks(context)
        sources = [name for name, text in folded_texts.items() if piece in text]
        if len(sources) != 1:
            where = f"in {len(sources)} documents" if sources else "in no document"
            raise UnlocatedError(f"its context is {where}")
        (document,) = sources
        yield document, Answer.from_span(locate_once(context, texts[document]))
