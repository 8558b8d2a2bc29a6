"""Rules for data in the PosIR layout, for validation and for tasks.

`posir validate` reports all violations. Tasks are as tolerant as the authors' evaluation scripts
(Zeng et al. 2026, arXiv 2601.08363), which take positions from the query columns without comparing
them with the texts. Rows without a position, a query text or a relevant document are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from posir_tasks.data.checks import (
    CheckedTable,
    DataProblem,
    Rule,
    Schema,
    ToleratedRows,
    build_id_rules,
    build_text_rule,
)
from posir_tasks.data.data import Judgments
from posir_tasks.data.grades import MAX_GRADE, CollectedGrades, collect_grades
from posir_tasks.data.judgment_audit import JudgmentAudit, SuspiciousItems, name_pairs
from posir_tasks.data.pairing import ADVICE

#: Maximum length in characters or tokens. Sums of longer lengths might overflow.
MAX_LENGTH = 2**31 - 1

CORPUS: Schema = {"_id": pl.String, "text": pl.String}
QRELS: Schema = {"query-id": pl.String, "corpus-id": pl.String, "score": pl.Float64}
QUERIES: Schema = {
    "_id": pl.String,
    "text": pl.String,
    "pos_char_span": pl.List(pl.Int64),
    "pos_char_length": pl.Int64,
    "pos_token_length": pl.Int64,
}
#: Columns of queries with several evidence spans. Each span has a row with a unique id.
PLACES: Schema = {**QUERIES, **QRELS}
NO_PLACES = CheckedTable("", pl.DataFrame(schema=PLACES))
#: Column with the length of the English document with the same id.
ORIGINAL = "original_characters"
#: Optional query column with the article title of the relevant document.
TITLE = "pos_title"


@dataclass(frozen=True)
class PosirTables:
    """The tables of a subset with their valid columns."""

    corpus: CheckedTable
    queries: CheckedTable
    qrels: CheckedTable
    same_language: bool
    """True if queries and corpus have the same language, so that spans refer to the corpus."""
    places: CheckedTable = NO_PLACES
    """Queries with several evidence spans."""
    originals: pl.DataFrame | None = None
    """The English corpus of translated data; None if missing."""

    @cached_property
    def positives(self) -> pl.DataFrame:
        """Distinct pairs of query and relevant document."""
        return self.qrels.frame.filter(pl.col("score") > 0).unique(
            ["query-id", "corpus-id"], maintain_order=True
        )

    @property
    def has_qrels(self) -> bool:
        """True if queries and qrels have all required columns."""
        return _has_columns(self.queries, QUERIES) and _has_columns(self.qrels, QRELS)

    @property
    def complete(self) -> bool:
        """True if corpus, queries and qrels have all required columns."""
        return self.has_qrels and _has_columns(self.corpus, CORPUS)


def _has_columns(table: CheckedTable, columns: Schema) -> bool:
    return columns.keys() <= {*table.frame.columns}


@dataclass(frozen=True)
class RuleSet:
    """Rules for one table, which are checked in order."""

    table: str
    """Field of `PosirTables`."""
    rules: Sequence[Rule]
    annotate: Callable[[PosirTables], pl.DataFrame] | None = None
    """Adds the columns that the rules need."""

    def build_table(self, tables: PosirTables) -> CheckedTable:
        """Return the table with all columns for the rules."""
        table: CheckedTable = getattr(tables, self.table)
        return replace(table, frame=self.annotate(tables)) if self.annotate else table


def _annotate_qrels(tables: PosirTables) -> pl.DataFrame:
    frame = tables.qrels.frame
    if not tables.complete:
        return frame
    queries = tables.queries.frame["_id"].implode()
    documents = tables.corpus.frame["_id"].implode()
    return frame.with_columns(
        has_query=pl.col("query-id").is_in(queries),
        has_document=pl.col("corpus-id").is_in(documents),
    )


def _annotate_queries(tables: PosirTables) -> pl.DataFrame:
    """Add the number of relevant documents as `relevant`, and the first one as `document`.

    If the corpus is in the same language, also add the document's length as `characters`, and
    `translated`.
    """
    queries = tables.queries.frame
    if not tables.has_qrels:
        return queries
    by_query = tables.positives.group_by(_id="query-id", maintain_order=True)
    positives = by_query.agg(relevant=pl.len(), document=pl.col("corpus-id").first())
    queries = queries.join(positives, on="_id", how="left", maintain_order="left")
    queries = queries.with_columns(pl.col("relevant").fill_null(0))
    if not (tables.complete and tables.same_language):
        return queries
    queries = _join_lengths(queries, tables.corpus.frame, "characters")
    if tables.originals is None:
        return queries
    # Blank documents are not translations.
    nonblank = tables.corpus.frame.filter(pl.col("text").str.strip_chars() != "")
    originals = tables.originals.join(nonblank, on="_id", how="semi")
    queries = _join_lengths(queries, originals, ORIGINAL)
    # Translated data may still contain the lengths of the English documents.
    original = pl.col(ORIGINAL)
    translated = (pl.col("pos_char_length") == original) & (pl.col("characters") != original)
    return queries.with_columns(
        characters=pl.when(translated).then(original).otherwise("characters"),
        translated=translated.fill_null(False),
    )


def _join_lengths(queries: pl.DataFrame, corpus: pl.DataFrame, column: str) -> pl.DataFrame:
    length = pl.col("text").str.len_chars().cast(pl.Int64).alias(column)
    lengths = corpus.unique("_id", keep="first").select(length, document="_id")
    return queries.join(lengths, on="document", how="left", maintain_order="left")


def _build_length_rule(field: str, key: str) -> Rule:
    is_outside = ~pl.col(field).is_between(1, MAX_LENGTH)
    message = f"must be at least 1 and at most {MAX_LENGTH:,}"
    return Rule(field, is_outside, message, key, f"queries have no {field}")


def _build_span_rules() -> list[Rule]:
    """Build the span rules. A task accepts any two integers and clips the midpoint."""
    field = "pos_char_span"
    span = pl.col(field)
    start = span.list.get(0, null_on_oob=True)
    end = span.list.get(1, null_on_oob=True)
    has_two_bounds = (
        (span.list.len() == 2).fill_null(False) & start.is_not_null() & end.is_not_null()
    )
    is_outside = (start < 0) | (end > pl.col("pos_char_length")).fill_null(False)
    outcome = "evaluated by the midpoint"
    return [
        Rule(
            field,
            ~has_two_bounds,
            "must be two integers, start and end",
            "queries_without_span",
            "queries have no pos_char_span of two integers",
        ),
        Rule(
            field,
            has_two_bounds & (start == end),
            "is empty; end must be after start",
            "queries_with_empty_span",
            "queries have an empty pos_char_span",
            outcome,
        ),
        Rule(
            field,
            has_two_bounds & (start > end),
            "is reversed; end must be after start",
            "queries_with_reversed_span",
            "queries have a pos_char_span whose end is before its start",
            outcome,
        ),
        Rule(
            field,
            has_two_bounds & is_outside,
            "is outside its document; 0 <= start < end <= pos_char_length",
            "queries_with_outside_span",
            "queries have a pos_char_span that is not within pos_char_length",
            f"{outcome}, clipped to the document",
        ),
    ]


def _build_judgment_rules() -> list[Rule]:
    """Build the rules for qrels, which may contain queries that are not in the data."""
    key = "judgments_with_missing_values"
    rules = [
        Rule(name, pl.col(name).is_null(), "is missing", key, f"judgments have no {name}")
        for name in QRELS
    ]
    score = pl.col("score")
    has_no_document = (score > 0) & pl.col("has_query") & ~pl.col("has_document")
    rules += [
        Rule(
            "score",
            ~(score.is_finite() | score.is_null()),
            "is not a number; 1 means relevant, 0 not relevant",
            "judgments_without_score",
            "judgments have a score that is not a number",
        ),
        Rule(
            "corpus-id",
            has_no_document.fill_null(False),
            "is not in {corpus}{advice}",
            "judgments_of_missing_documents",
            "judgments refer to a document that is not in the corpus",
        ),
    ]
    return rules


def _build_pair_rules() -> list[Rule]:
    relevant = pl.col("relevant")
    titles = pl.col(TITLE).fill_null("").n_unique().over("document")
    length = pl.col("pos_char_length")
    return [
        Rule(
            "_id",
            relevant == 0,
            "has no relevant document in {qrels}; every query needs exactly one",
            "queries_without_document",
            "queries have no relevant document in the corpus",
        ),
        Rule(
            "_id",
            relevant > 1,
            "has several relevant documents in {qrels}; every query needs exactly one",
            "queries_with_several_documents",
            "queries have several relevant documents, so no single position",
        ),
        Rule(
            TITLE,
            (titles > 1) & pl.col("document").is_not_null(),
            "differs between the queries of one document; a document is part of one article",
            "queries_with_another_title",
            "queries have a different pos_title than other queries of their document",
            "the first title is used",
        ),
        Rule(
            "pos_char_length",
            (length != pl.col("characters")).fill_null(False),
            "is not the length in characters of the relevant document in {corpus}",
            "queries_with_another_length",
            "queries have a pos_char_length that is not the length of their document's text",
            "positions are taken from the columns, and spans are scaled to the text",
        ),
        Rule(
            "pos_char_length",
            pl.col("translated"),
            "",
            "translated_queries",
            "queries have the pos_char_length of the English document with the same id",
            "positions are taken from the columns, and spans are scaled to the text",
            is_problem=False,
        ),
    ]


CORPUS_RULES = (
    *build_id_rules("_id", "documents"),
    build_text_rule("text", "documents", keep=True),
)
QUERY_RULES = (
    *build_id_rules("_id", "queries"),
    build_text_rule("text", "queries", keep=False),
    _build_length_rule("pos_char_length", "queries_without_length"),
    _build_length_rule("pos_token_length", "queries_without_token_length"),
    *_build_span_rules(),
)
RULE_SETS = (
    RuleSet("corpus", CORPUS_RULES),
    RuleSet("queries", QUERY_RULES),
    RuleSet("qrels", _build_judgment_rules(), _annotate_qrels),
    RuleSet("queries", _build_pair_rules(), _annotate_queries),
)


#: Keys of rules that need the corpus.
CORPUS_KEYS = frozenset(
    rule.key
    for rule_set in RULE_SETS
    for rule in rule_set.rules
    if rule_set.table == "corpus"
    or not {"has_document", "characters"}.isdisjoint(rule.invalid.meta.root_names())
)


def check_tables(tables: PosirTables) -> list[DataProblem]:
    """Return all problems with the content of the tables."""
    return [*check_not_empty(tables), *_check_rules(tables), *check_places(tables)]


def _check_rules(tables: PosirTables) -> list[DataProblem]:
    names = {
        "corpus": tables.corpus.file,
        "qrels": tables.qrels.file,
        "advice": "" if tables.same_language else f". {ADVICE}",
    }
    problems = []
    for rule_set in RULE_SETS:
        rules = [rule for rule in rule_set.rules if rule.is_problem]
        problems += rule_set.build_table(tables).check(rules)
    return [replace(problem, message=problem.message.format(**names)) for problem in problems]


def list_warnings(tables: PosirTables) -> list[str]:
    """Return a warning for each kind of valid but suspicious row."""
    if not (tables.complete and tables.same_language):
        # The corpus is checked with the queries in its language.
        return []
    sentences = []
    for rule_set in RULE_SETS:
        rules = [rule for rule in rule_set.rules if not rule.is_problem]
        tolerated = rule_set.build_table(tables).tolerate(rules)[1]
        sentences += [rows.sentence for rows in tolerated]
    grades = _collect_judgments(tables)
    texts = dict(tables.queries.frame.select("_id", "text").iter_rows())
    judgments = Judgments(texts, grades.by_query, contradictions=grades.contradictions)
    audit = JudgmentAudit.from_judgments(judgments, frozenset(tables.corpus.frame["_id"]))
    return [*sentences, *audit.describe()]


def _collect_judgments(tables: PosirTables) -> CollectedGrades:
    """Collect the grades of qrels with all columns, ignoring malformed rows."""
    rows = tables.qrels.frame.select(*QRELS).drop_nulls().filter(pl.col("score").is_finite())
    return collect_grades(rows.iter_rows())


def check_places(tables: PosirTables) -> list[DataProblem]:
    """Return all problems with queries that have several evidence spans.

    Each span is also checked like a query with one span.
    """
    places = tables.places
    if places.frame.is_empty() or not (_has_columns(places, PLACES) and tables.complete):
        return []
    pairs = places.frame.select("corpus-id", "score", **{"query-id": "_id"})
    qrels = CheckedTable(places.file, pairs)
    problems = _check_rules(replace(tables, queries=places, qrels=qrels))
    problems = [problem for problem in problems if problem.file == places.file]
    file = tables.queries.file
    ids = tables.queries.frame["_id"].implode()
    query = pl.col("query-id")
    score = pl.col("score")
    several_texts = pl.col("text").n_unique().over("query-id") > 1
    several_scores = score.n_unique().over("query-id", "corpus-id") > 1
    for field, invalid, message in (
        ("_id", pl.col("_id").is_in(ids), f"is also an id in {file}"),
        ("query-id", query.is_null(), "is missing"),
        ("query-id", query.is_in(ids), f"is an id in {file}, where queries have one place"),
        (
            "query-id",
            pl.len().over("query-id") == 1,
            "has one place; a query with one place is a row of queries.parquet",
        ),
        ("text", several_texts, "differs between the places of one query"),
        (
            "score",
            ~((score > 0) & (score <= MAX_GRADE)),
            f"must be above 0 and at most {MAX_GRADE:,}",
        ),
        ("score", several_scores, "differs between the places in one document"),
    ):
        problems += places.check_rows(invalid, field, message)
    return problems


def check_not_empty(tables: PosirTables) -> list[DataProblem]:
    """Return a problem for an empty corpus, or if no table contains a query."""
    required = [(tables.corpus, CORPUS)]
    if tables.places.frame.is_empty():
        required.append((tables.queries, QUERIES))
    return [
        DataProblem(table.file, None, "has no rows; at least one is needed")
        for table, columns in required
        if table.frame.is_empty() and _has_columns(table, columns)
    ]


def tolerate_tables(tables: PosirTables) -> tuple[PosirTables, list[ToleratedRows]]:
    """Remove the unusable rows from all tables. Also return the tolerated rows by rule.

    The queries get the columns of `_annotate_queries`.
    """
    ids = tables.queries.frame["_id"].implode()
    missing_queries = tables.positives.filter(~pl.col("query-id").is_in(ids))["query-id"]
    count = missing_queries.drop_nulls().n_unique()
    tolerated = []
    if count:
        sentence = f"{count:,} queries are in the qrels but not in the data"
        tolerated.append(ToleratedRows("queries_removed", count, sentence))
    contradictions = _collect_judgments(tables).contradictions
    items = SuspiciousItems.from_names(name_pairs(contradictions))
    audit = JudgmentAudit(items={"contradictions": items})
    for sentence in audit.describe():
        rows = ToleratedRows("judgments_with_several_grades", len(contradictions), sentence)
        tolerated.append(rows)
    for rule_set in RULE_SETS:
        table, tolerated_rows = rule_set.build_table(tables).tolerate(rule_set.rules)
        tables = replace(tables, **{rule_set.table: table})  # type: ignore[arg-type]
        tolerated += tolerated_rows
    corpus = tables.corpus.frame.with_columns(pl.col("^text$").fill_null(""))
    return replace(tables, corpus=replace(tables.corpus, frame=corpus)), tolerated
