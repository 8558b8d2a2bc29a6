"""`posir import`: question answering data in any format, as one domain of a language in the PosIR layout."""

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from reprlib import repr as short_repr
from typing import Annotated

import polars as pl
import typer
from rich.console import Console

from posir_tasks.command.progress_option import with_progress
from posir_tasks.display.progress import progress
from posir_tasks.display.wording import pluralize, sanitized
from posir_tasks.errors import DataError, PosirError, summarize_error
from posir_tasks.files import PART_SUFFIX, remove_stale_parts
from posir_tasks.languages import check_code
from posir_tasks.sources.checks import MAX_EXAMPLES, CheckedTable, raise_problems
from posir_tasks.sources.formats.catalog import Item
from posir_tasks.sources.formats.passages import UNANSWERABLE, Passage, SkippedQuestion, SkippedText, describe_skipped
from posir_tasks.sources.opening import open_data
from posir_tasks.sources.posir_rules import CORPUS, QUERIES, TITLE, PosirTables, check_not_empty, check_tables
from posir_tasks.sources.questions import REPAIR_DISTANCE, ImportedData, collect_questions
from posir_tasks.text.tokenizer import load_tokenizer
from posir_tasks.tokens import BYTES_PER_TOKEN

#: File systems allow names of 255 bytes, of which temporary names take some.
DOMAIN_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,99}")
DOMAIN_RULE = "a folder name of at most 100 characters from a-z, 0-9 and _, such as news_media"


@dataclass(frozen=True)
class Target:
    """The domain to write."""

    language: str
    """Code such as `jpn-Jpan`."""
    domain: str
    """Name of the domain's folder."""
    output: Path
    """Folder in the PosIR layout."""

    @property
    def folder(self) -> Path:
        """The domain's folder."""
        return self.output / self.language / self.domain

    def check(self) -> None:
        """Raise PosirError if language or domain are not allowed, or the domain exists."""
        check_code(self.language)
        if not DOMAIN_NAME.fullmatch(self.domain):
            raise PosirError(f"--domain {sanitized(self.domain)}: not allowed. A domain is {DOMAIN_RULE}.")
        if self.folder.exists():
            raise PosirError(f"{self.folder}: already exists. Remove it first, or choose another --domain or --output.")


def write_domain(tables: PosirTables, folder: Path, others: Mapping[str, str] | None = None) -> None:
    """Write the tables of a domain, and other text files by name, into a new folder, completely or not at all.

    Raises:
        DataError: The loader would reject the tables.
        PosirError: The folder cannot be written.
    """
    raise_problems([*check_not_empty(tables), *check_tables(tables)])
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        remove_stale_parts(folder.parent)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.", suffix=PART_SUFFIX) as temporary:
            part = Path(temporary)
            (part / "qrels").mkdir()
            tables.corpus.frame.write_parquet(part / "corpus.parquet")
            tables.queries.frame.write_parquet(part / "queries.parquet")
            tables.qrels.frame.with_columns(pl.col("score").cast(pl.Int64)).write_parquet(part / "qrels" / "test.parquet")
            for name, text in (others or {}).items():
                (part / name).write_text(text, encoding="utf-8")
            part.chmod(0o755)
            part.rename(folder)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise PosirError(
            f"{folder}: cannot be written ({summarize_error(error)}). Free disk space, or choose another --output."
        ) from error


def import_passages(
    passages: Iterable[Passage | SkippedQuestion | SkippedText],
    target: Target,
    *,
    count_tokens: Callable[[str], int],
    repair: bool = False,
) -> ImportedData:
    """Import passages as one domain of a language, completely or not at all.

    Args:
        passages: What a reader yields.
        target: The domain to write.
        count_tokens: Returns the length of a document in tokens.
        repair: Whether to move a span that does not match to the only match nearby; see `repair_span`.

    Raises:
        PosirError: The target is not allowed.
        DataError: A file cannot be read, or no question has a usable answer.
    """
    target.check()
    imported = drop_unsuited(collect_questions(passages, target.domain, repair=repair))
    if not imported.queries:
        skipped = "".join(f"\n{question}" for question in imported.skipped[:MAX_EXAMPLES])
        texts = f"\n{describe_skipped(imported.skipped_texts)}" if imported.skipped_texts else ""
        raise DataError(f"There is no question with a usable answer; nothing was written.{skipped}{texts}")
    relevant = list({query["corpus-id"] for query in imported.queries.values()})
    lengths = {document: count_tokens(imported.documents[document]) for document in progress(relevant, "Counting tokens")}
    for query in imported.queries.values():
        query["pos_token_length"] = lengths[query["corpus-id"]]
        query[TITLE] = imported.titles.get(query["corpus-id"])
    write_domain(build_posir_tables(imported, target.folder), target.folder)
    return imported


def drop_unsuited(imported: ImportedData) -> ImportedData:
    """Return the data without the queries that have no single span, which are named with those that are skipped."""
    return replace(
        imported,
        queries={name: query for name, query in imported.queries.items() if name not in imported.unsuited},
        skipped=[*imported.skipped, *dict.fromkeys(imported.unsuited.values())],
    )


def build_posir_tables(imported: ImportedData, folder: Path) -> PosirTables:
    """Return the imported data as the tables of the PosIR layout."""
    corpus = pl.DataFrame({"_id": list(imported.documents), "text": list(imported.documents.values())}, schema=CORPUS)
    titles = [TITLE] if imported.titles else []
    rows = pl.DataFrame(list(imported.queries.values()), schema={**QUERIES, TITLE: pl.String, "corpus-id": pl.String})
    qrels = rows.select(pl.col("_id").alias("query-id"), "corpus-id", pl.lit(1.0).alias("score"))
    return PosirTables(
        CheckedTable(str(folder / "corpus.parquet"), corpus),
        CheckedTable(str(folder / "queries.parquet"), rows.select(*QUERIES, *titles)),
        CheckedTable(str(folder / "qrels" / "test.parquet"), qrels),
        same_language=True,
    )


Language = Annotated[str, typer.Option(help="Code of the language, such as jpn-Jpan.")]
Domain = Annotated[str, typer.Option(help="Name of the domain: a-z, 0-9 and _.")]
Output = Annotated[Path, typer.Option(help="Folder in the PosIR layout, such as data/PosIR-Benchmark-v1.")]


@with_progress
def import_command(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Files or folders: SQuAD-format JSON (.json), JSON Lines (.jsonl) or Parquet with questions, BEIR folders "
            "with spans, data in the PosIR layout; .gz is read, too."
        ),
    ],
    language: Language,
    domain: Domain,
    output: Output,
    split: Annotated[str, typer.Option(help="Split of a BEIR folder, the name of its qrels.")] = "test",
    repair: Annotated[
        bool,
        typer.Option(
            help=f"Move an answer that is not where its file says to its only match within {REPAIR_DISTANCE} characters; "
            "without that, or if there are several matches, its question is left out.",
        ),
    ] = True,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Hugging Face tokenizer (name or folder) for the length buckets; by default one token is counted for "
            f"every {BYTES_PER_TOKEN} bytes of UTF-8."
        ),
    ] = None,
) -> None:
    """Import questions with their evidence, in any format, as one domain of a language in the PosIR layout.

    Spans count Unicode code points of the document's text from 0; the end is exclusive. An answer that is not where the file
    says is moved to its only match nearby, or its question is left out; both are listed. Documents without a question stay in
    the corpus.
    """
    passages = read_sources(sources, split)
    import_and_report(passages, Target(language, domain, output), tokenizer, repair=repair)


def read_sources(sources: Iterable[Path], split: str | None = None) -> Iterator[Item]:
    """Yield the passages of data in any format with their questions, unchecked.

    Raises:
        PosirError: There is no such data.
        DataError: A file cannot be read or does not have the expected format.
    """
    for source in sources:
        for subset in open_data(source, split=split).subsets:
            yield from subset.read_passages()


def import_and_report(passages: Iterable[Item], target: Target, tokenizer: str | None, *, repair: bool) -> None:
    """Import passages, and print what was imported, repaired and skipped."""
    imported = import_passages(passages, target, count_tokens=load_tokenizer(tokenizer).count, repair=repair)
    console = Console(highlight=False, soft_wrap=True, markup=False)
    for line in format_report(imported, target.folder):
        console.print(line)


def format_report(imported: ImportedData, folder: Path) -> Iterator[str]:
    """Yield lines that say what was imported, repaired and skipped."""
    yield f"{folder}: {pluralize(len(imported.documents), 'document')}, {pluralize(len(imported.queries), 'question')}"
    if imported.titles:
        articles = pluralize(len(set(imported.titles.values())), "article")
        yield f"titles: {pluralize(len(imported.titles), 'document')} in {articles}; spans count in the texts alone"
    if imported.repaired:
        shifts = Counter(repair.span.start - (repair.answer.start or 0) for repair in imported.repaired)
        summary = ", ".join(
            f"{shift:+d} ({count:,})" if shift else f"0 ({count:,}, spelled otherwise)" for shift, count in shifts.most_common()
        )
        yield f"repaired: {pluralize(len(imported.repaired), 'span')}, moved by characters {summary}; first:"
        for repair in imported.repaired[:MAX_EXAMPLES]:
            answer = f"{short_repr(repair.answer.text)} from character {repair.answer.start} to {repair.span.start}"
            yield f"  {repair.file}: question {repair.question}: {answer}"
    skipped = [question for question in imported.skipped if question.reason != UNANSWERABLE]
    if len(skipped) < len(imported.skipped):
        yield f"without an answer: {pluralize(len(imported.skipped) - len(skipped), 'question')}, not imported"
    if skipped:
        yield f"skipped: {pluralize(len(skipped), 'question')}, first:"
        yield from (f"  {question}" for question in skipped[:MAX_EXAMPLES])
    if imported.skipped_texts:
        yield describe_skipped(imported.skipped_texts)
