"""`posir.import_data` converts data to the PosIR layout; `posir.validate` checks it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from reprlib import repr as short_repr

from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.base.progress import track_items
from posir_tasks.base.public import public, to_list
from posir_tasks.base.wording import pluralize, sanitize, suggest_name
from posir_tasks.data.checks import MAX_EXAMPLES, DataProblem
from posir_tasks.data.copies import describe_merges, find_copies
from posir_tasks.data.copies import merge_copies as merge_data_copies
from posir_tasks.data.data import Judgments
from posir_tasks.data.formats.catalog import FORMATS
from posir_tasks.data.formats.format import JUDGMENTS
from posir_tasks.data.formats.passages import (
    EXPECTED_CAUSES,
    Cause,
    Item,
    Items,
    Scope,
    SearchScope,
    SkippedItem,
    describe_skipped,
)
from posir_tasks.data.formats.records import FOLDER
from posir_tasks.data.formats.shape import NESTED
from posir_tasks.data.judgment_audit import JudgmentAudit
from posir_tasks.data.posir import (
    PLACES_FILE,
    SubsetKey,
    Target,
    find_layout,
    inspect_domain,
    write_domain,
)
from posir_tasks.data.questions import ImportedData, collect_questions
from posir_tasks.data.repository import LocalRepository
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.datasets.opening import open_data
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.text.languages import DOMAINS, UNKNOWN_LANGUAGE, check_code
from posir_tasks.text.tokenizer import load_tokenizer

HEADINGS = ("Finding", "Count", "Of", "First")
NO_FINDINGS = "The audit of the judgments found nothing."
#: Maximum share of answerable questions that may be skipped.
MAX_SKIPPED_SHARE = 0.2
#: Advice if data has no evidence spans.
MISSING_SPANS_ADVICE = (
    "Add the columns `start` and `end` to BEIR's qrels, or an `answer` to the queries "
    "(docs/data.md). Without spans, `posir score RUN --data DATA` and `posir compare` still show "
    "which differences are significant."
)


@public()
def import_data(
    sources: str | Path | Iterable[str | Path] = (),
    *,
    language: str | None = None,
    domain: str | None = None,
    output: str | Path | None = None,
    column: str | None = None,
    split: str | None = None,
    repair: bool = True,
    merge_copies: bool = False,
    scope: Scope | None = None,
    tokenizer: str | Path | None = None,
    allow_loss: bool = False,
    formats: bool = False,
) -> Result:
    """Import questions and their evidence from any format into a domain in the PosIR layout.

        posir import questions.json --domain letters --output data

    Spans are in Unicode code points of the document's text, from 0 and with an exclusive end. A
    misplaced answer is moved to its only match nearby; if there is none, the question is skipped.
    The output lists both. Documents without questions stay in the corpus.

    Args:
        sources: Files or folders: SQuAD-format JSON, JSON Lines, Parquet, BEIR, published datasets
            or the PosIR layout. Files may be compressed (.gz).
        language: Language code, such as jpn-Jpan; by default the language that the data declares.
        domain: Name of the domain: a-z, 0-9 and _.
        output: Folder in the PosIR layout, such as data/PosIR-Benchmark-v1.
        column: Column or field that contains the text.
        split: Split of a BEIR folder or a published dataset; by default test, or else the first.
        repair: Move a misplaced answer to its only match within 5 characters.
        merge_copies: Merge documents whose texts differ only in white space.
        scope: Texts to search for an answer; by default inferred from the format and from repeated
            questions.
        tokenizer: Tokenizer for the length buckets, a name on the Hub or a folder; by default,
            tokens are estimated at one per 4 bytes.
        allow_loss: Import even if more than a fifth of the answerable questions are skipped.
        formats: Only list the known formats: their fields and contents, or how to convert formats
            that posir cannot read.

    Returns:
        Counts of imported, repaired and skipped questions, and a row for each skipped question.

    Raises:
        PosirError: A source cannot be read, there is no usable question, or more than a fifth of
            the questions would be skipped. Nothing is written.

    Examples:
        >>> import posir
        >>> target = {"language": "eng-Latn", "domain": "harbour"}
        >>> target["output"] = "data/PosIR-Benchmark-v1"
        >>> posir.import_data("squad.json", **target).title
        'Import: data/PosIR-Benchmark-v1/eng-Latn/harbour'
    """
    if formats:
        return list_formats()
    paths = [Path(source) for source in to_list(sources)]
    if not paths or domain is None or output is None:
        raise PosirError(
            "posir import needs files or folders, --domain NAME and --output FOLDER. Give them, or "
            "--formats to list the supported formats."
        )
    language = language or read_declared_language(paths)
    target = Target(language, domain, Path(output))
    count_tokens = load_tokenizer(None if tokenizer is None else str(tokenizer)).count
    passages = read_sources(paths, split, language, scope, column)
    imported = import_passages(
        passages,
        target,
        count_tokens=count_tokens,
        repair=repair,
        merge_copies=merge_copies,
        needs_corpus=scope is None,
        max_loss=1.0 if allow_loss else MAX_SKIPPED_SHARE,
    )
    skipped, _ = imported.split_skipped()
    rows = [{"file": row.file, "question": row.name, "reason": row.detail} for row in skipped]
    return Result(
        title=f"Import: {target.folder}",
        tables=(),
        rows=rows,
        footer=tuple(_format_report(imported, target.folder)),
    )


def list_formats() -> Result:
    """List the known formats."""
    rows = []
    readable = []
    unreadable = []
    for form in FORMATS:
        if not form.suffixes:
            continue
        files = " ".join(form.files or form.suffixes).replace("|", " or ")
        if form.suffixes[0] == FOLDER and not form.files:
            files = " ".join(["a folder", *form.suffixes[1:]])
        fields = form.fields.replace(NESTED, "").replace("|", " or ")
        advice = form.advice if form.is_unsupported else ""
        row = {"form": form.title, "files": files, "fields": fields}
        rows.append(row | {"read": form.contents, "advice": advice})
        if form.contents:
            readable.append((form.title, files, form.contents, fields))
        if advice:
            unreadable.append((form.title, advice))
    tables = (
        Table(build_columns(("Format", "Files", "Contents", "Fields")), tuple(readable)),
        Table(build_columns(("Unsupported format", "How to convert it")), tuple(unreadable)),
    )
    return Result(title="Data formats", tables=tables, rows=rows)


def read_declared_language(sources: Iterable[Path]) -> str:
    """Return the language that all sources declare; raise PosirError for none or several."""
    datasets = [open_data(source) for source in sources]
    declared_languages = {dataset.find_declared_language() for dataset in datasets}
    if len(declared_languages) == 1 and "" not in declared_languages:
        return declared_languages.pop()
    codes = {subset.query_language for dataset in datasets for subset in dataset.subsets}
    codes.discard(UNKNOWN_LANGUAGE)
    hint = f"; the texts may be {' or '.join(sorted(codes))}" if codes else ""
    names = ", ".join(dataset.location for dataset in datasets)
    raise PosirError(f"{names}: no language declared, or several{hint}. Add --language CODE.")


def read_sources(
    sources: Iterable[Path],
    split: str | None = None,
    language: str | None = None,
    scope: Scope | None = None,
    column: str | None = None,
) -> Items:
    """Yield passages with questions from all sources, unchecked; raise PosirError if there are no
    evidence spans.
    """
    datasets = [
        open_data(source, column=column, split=split, language=language, scope=scope)
        for source in sources
    ]
    if not any(dataset.has_questions for dataset in datasets):
        datasets[0].select_questions("posir import")
    judgment_kinds = {form.title for form in FORMATS if form.contents == JUDGMENTS}
    if all(dataset.kind in judgment_kinds for dataset in datasets):
        for subset in datasets[0].subsets:
            # If the file is malformed, reading it raises a more specific error first.
            subset.read()
        location = datasets[0].location
        raise PosirError(
            f"{location} ({datasets[0].kind}): has judgments without evidence spans. To score a "
            f"run, use `posir score RUN --data {location}`. To import a golden set, put it into a "
            "folder with its documents."
        )
    for dataset in datasets:
        # Questions that repeat across sources are counted later.
        search_scope = dataset.declared_scope or SearchScope.CORPUS
        replace(dataset, declared_scope=search_scope).require_corpus()
        if not dataset.has_texts:
            raise PosirError(
                f"{dataset.location} ({dataset.kind}): has judgments but no texts. Give a BEIR "
                "folder with its corpus."
            )
        for subset in dataset.subsets:
            yield from subset.read_passages()


def import_passages(
    passages: Iterable[Item],
    target: Target,
    *,
    count_tokens: Callable[[str], int],
    repair: bool = False,
    max_loss: float = 1.0,
    merge_copies: bool = False,
    needs_corpus: bool = False,
) -> ImportedData:
    """Import passages as one domain. If the import fails, nothing is written.

    Args:
        passages: Items from the readers.
        target: The domain to write.
        count_tokens: Counts the tokens of a text.
        repair: Move misplaced answers to their only match nearby.
        max_loss: Maximum share of answerable questions that may be skipped.
        merge_copies: Merge documents whose texts differ only in white space.
        needs_corpus: Reject data whose questions repeat for several documents.

    Raises:
        PosirError: The data is invalid or cannot be written, or loses too many questions.
    """
    target.check()
    imported = collect_questions(passages, target.domain, repair=repair)
    advice = MISSING_SPANS_ADVICE if imported.unpositioned else "Correct them (docs/data.md)."
    imported.skipped += dict.fromkeys(imported.unpositioned.values())
    for name in imported.unpositioned:
        del imported.questions[name]
    imported.unpositioned.clear()
    questions, texts = imported.split_skipped()
    lost, total = _find_lost_questions(imported)
    if not imported.questions:
        problem = "There is no question with a usable answer; nothing was written."
        causes = _list_causes(questions, len(questions))
        lines = [problem, *causes, describe_skipped(texts), advice]
        raise DataError("\n".join(filter(None, lines)))
    if len(lost) > max_loss * total:
        share = f"{len(lost):,} of {pluralize(total, 'question')} would be skipped"
        remedy = "Correct them, or skip them with --allow-loss."
        raise DataError(
            "\n".join([f"{share}; nothing was written.", *_list_causes(lost, total), remedy])
        )
    data = imported.to_position_data("", count_tokens)
    repeated = data.repeated
    if needs_corpus and repeated.search_scope is not SearchScope.CORPUS:
        raise PosirError(
            f"{repeated.describe()}: {repeated.search_scope.value}; nothing was written. Score "
            "chunks within each document (`posir score --model MODEL --chunker MODULE:FUNCTION "
            "--data DATA`), or give --scope corpus if each question is self-contained."
        )
    # The first warning is about repairs, which the report lists separately.
    notes = [*data.warnings[bool(imported.repaired) :]]
    if merge_copies:
        data, _, originals = merge_data_copies(data, Judgments.from_positions(data))
        notes += [describe_merges(originals)] if originals else []
    judgments = Judgments.from_positions(data)
    documents = frozenset(data.documents["id"])
    notes += JudgmentAudit.from_judgments(judgments, documents).describe()
    copies = find_copies(data.documents, data.evidence.document_ids)
    notes += [copies.describe()] if copies else []
    write_domain(data, target.folder)
    if merge_copies:
        imported = imported.use_merged(data)
    return replace(imported, notes=tuple(notes))


def _format_report(imported: ImportedData, folder: Path) -> Iterator[str]:
    documents = pluralize(len(imported.documents), "document")
    yield f"{folder}: {documents}, {pluralize(imported.query_count, 'question')}"
    queries = {place.query for place in imported.places.values()}
    if queries:
        yield (
            f"several evidence spans: {pluralize(len(queries), 'question')} with "
            f"{len(imported.places):,} spans, in {PLACES_FILE}; reported separately from "
            "questions with one span"
        )
    if imported.titles:
        articles = pluralize(len({*imported.titles.values()}), "article")
        titled = pluralize(len(imported.titles), "document")
        yield f"titles: {titled} in {articles}; spans refer to the texts only"
    yield from imported.notes
    yield from _format_repairs(imported)
    skipped, texts = imported.split_skipped()
    unanswered = [question for question in skipped if question.cause is Cause.UNANSWERABLE]
    rule_causes = EXPECTED_CAUSES - {Cause.UNANSWERABLE}
    excluded_by_rules = [question for question in skipped if question.cause in rule_causes]
    lost, total = _find_lost_questions(imported)
    if unanswered:
        yield f"without an answer: {pluralize(len(unanswered), 'question')}, not imported"
    if excluded_by_rules:
        count = len(excluded_by_rules)
        yield f"excluded by the rules of the data: {pluralize(count, 'question')}:"
        yield from _list_causes(excluded_by_rules, count + total)
    if lost:
        yield f"skipped: {len(lost):,} of {pluralize(total, 'question')}:"
        yield from _list_causes(lost, total)
    if texts:
        yield describe_skipped(texts)


def _format_repairs(imported: ImportedData) -> Iterator[str]:
    shifts = Counter[int]()
    lines = []
    for question, answer, span in imported.repaired:
        start = answer.start or 0
        shifts[span.start - start] += 1
        move = f"{short_repr(answer.text)} from character {start} to {span.start}"
        lines.append(f"  {question.file}: question {question.name}: {move}")
    if lines:
        summary = ", ".join(f"{shift:+d} ({count:,})" for shift, count in shifts.most_common())
        yield f"repaired: {pluralize(len(lines), 'span')}, moved by characters {summary}; first:"
    yield from lines[:MAX_EXAMPLES]


def _find_lost_questions(imported: ImportedData) -> tuple[list[SkippedItem], int]:
    """Return the skipped questions that have an answer, and the number of questions with an answer,
    skipped or not.
    """
    lost = {
        (item.file, item.name): item
        for item in imported.skipped
        if item.cause and item.cause not in EXPECTED_CAUSES
    }
    return [*lost.values()], imported.query_count + len(lost)


def _list_causes(skipped: Iterable[SkippedItem], total: int) -> Iterator[str]:
    """Yield a line per cause, with the number of skipped questions and an example."""
    by_cause = defaultdict(list)
    for question in skipped:
        by_cause[question.cause].append(question)
    for cause, questions in sorted(by_cause.items(), key=lambda row: -len(row[1])):
        count = len(questions)
        example = str(questions[0])
        text = f"{cause}; first: {example}" if count > 1 else example
        yield f"  {count:,} of {total:,}: {text}"


@public()
def validate(data: str | Path, *, strict: bool = False) -> Result:
    """Check data in the PosIR layout, and audit the judgments in any data; exit 1 if there is a
    problem.

        posir validate questions.json

    Each domain is checked against its own corpus and, if present, the English corpus of the same
    domain. The audit counts valid but suspicious items, such as copies, relevant documents missing
    from the corpus, contradictory grades, and questions without a relevant document.

    Args:
        data: Data in the PosIR layout: the folder of all languages, of one language, or of one
            domain. Other data with questions is only audited.
        strict: Also exit 1 for warnings and audit findings.

    Returns:
        A row for each problem in a language and domain, and the audit.

    Raises:
        PosirError: The data does not exist.

    Examples:
        >>> import posir
        >>> target = {"language": "eng-Latn", "domain": "harbour", "output": "checked"}
        >>> posir.import_data("squad.json", **target).exit_status
        0
        >>> posir.validate("checked").exit_status
        0
    """
    path = Path(data)
    layout = find_layout(path)
    if layout is None:
        return _show_audit(audit_judgments(open_data(path)), f"Audit: {path}", strict=strict)
    root, subsets = layout
    problems = {}
    warnings = [*find_warnings(subsets)]
    seen = set()
    rows = []
    for subset in track_items(subsets, "Checking"):
        subset_problems, subset_warnings = inspect_domain(LocalRepository(root), subset)
        warnings += subset_warnings
        # Report a problem of several subsets only once, with the first subset.
        problems[subset] = [problem for problem in subset_problems if problem not in seen]
        seen.update(subset_problems)
        rows += [asdict(subset) | asdict(problem) for problem in problems[subset]]
    # Only valid data can be audited.
    audit = JudgmentAudit() if rows else audit_judgments(open_data(path))
    result = _show_audit(audit, f"Validation: {root}", strict=strict)
    return replace(
        result,
        rows=rows,
        values={
            "folder": str(root),
            "checked": [*map(asdict, problems)],
            "problems": rows,
            "warnings": warnings,
            "audit": audit.list_rows(),
        },
        footer=tuple(_format_problems(root, problems, warnings)),
        exit_status=int(bool(rows) or (strict and bool(warnings)) or result.exit_status),
    )


def audit_judgments(dataset: Dataset) -> JudgmentAudit:
    """Audit the judgments of all subsets; raise PosirError if the data has no judgments."""
    audit = JudgmentAudit()
    if not any(subset.read_judgments for subset in dataset.subsets):
        dataset = dataset.select_questions("posir validate", several_places=True)
    for subset in dataset.subsets:
        data = subset.read()
        judgments = subset.judgments
        documents = frozenset(data.documents["id"]) if dataset.has_texts else None
        audit += JudgmentAudit.from_judgments(judgments, documents).add_data(data, judgments)
    return audit


def _show_audit(audit: JudgmentAudit, title: str, *, strict: bool) -> Result:
    rows = audit.list_rows()
    cells = []
    for row in rows:
        if row["count"]:
            numbers = (f"{row[key]:,}" if row[key] else "" for key in ("count", "of"))
            cells.append((str(row["finding"]), *numbers, sanitize(str(row["first"]), 60)))
    table = Table(build_columns(HEADINGS, HEADINGS[1:3]), tuple(cells))
    return Result(
        title=title,
        tables=(table,) if cells else (),
        rows=rows,
        values={"audit": rows},
        footer=() if cells else (NO_FINDINGS,),
        exit_status=int(strict and audit.has_findings),
    )


def find_warnings(subsets: Sequence[SubsetKey]) -> Iterator[str]:
    """Yield a warning for each invalid language and each domain outside PosIR."""
    for language in sorted({subset.language for subset in subsets}):
        try:
            check_code(language)
        except PosirError as error:
            yield f"{error} No task reads the folder."
    for domain in sorted({subset.domain for subset in subsets} - {*DOMAINS}):
        hint = suggest_name(domain, DOMAINS)
        yield f"domain {domain}: not one of PosIR's 31.{hint} It is evaluated as a custom domain."


def _format_problems(
    root: Path, problems: Mapping[SubsetKey, Sequence[DataProblem]], warnings: Iterable[str]
) -> Iterator[str]:
    count = 0
    for subset, subset_problems in problems.items():
        if subset_problems:
            yield f"{subset}:"
        yield from (f"  {problem}" for problem in subset_problems)
        count += len(subset_problems)
    yield from (f"warning: {warning}" for warning in warnings)
    languages = pluralize(len({subset.language for subset in problems}), "language")
    cross_lingual = [key for key in problems if key.language != key.corpus_language]
    domains = pluralize(len(problems) - len(cross_lingual), "domain")
    suffix = f" and {len(cross_lingual)} against the English corpus" if cross_lingual else ""
    outcome = pluralize(count, "problem") if count else "no problem"
    yield f"{root}: {languages}, {domains}{suffix} checked: {outcome}"
