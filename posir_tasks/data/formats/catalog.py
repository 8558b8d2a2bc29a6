"""The table of formats, format recognition, and descriptions of data in an unknown format."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import cache, partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from posir_tasks.base.errors import DataError, summarize_error
from posir_tasks.base.files import open_decompressed, split_suffix
from posir_tasks.base.untrusted import InputError, decode, parse_yaml, read_bytes
from posir_tasks.base.wording import sanitize
from posir_tasks.data.formats import (
    collections,
    document_rows,
    documents,
    judgment_sets,
    published,
    question_rows,
    text_rows,
)
from posir_tasks.data.formats.form import (
    JSON_ROWS,
    JUDGMENTS,
    REFUSED,
    SPANS,
    TEXTS,
    Format,
)
from posir_tasks.data.formats.page_rows import PAGE_FORMS
from posir_tasks.data.formats.passages import Items, ReadOptions, SkippedText, Use
from posir_tasks.data.formats.records import (
    FOLDER,
    PARQUET,
    Row,
    UnrecognizedError,
    error_context,
    list_files,
)
from posir_tasks.data.formats.shape import (
    JSON_LINES,
    TABLES,
    has_marks,
    list_fields,
    read_first_record,
)
from posir_tasks.text.languages import suggest_codes

if TYPE_CHECKING:
    import datasets

#: The split to read from a Hub dataset.
HUB_SPLIT = "train"
#: Lower-case names of files that describe a dataset.
DESCRIPTION_FILES = frozenset(
    {"readme.md", "license", "license.md", "license.txt", "dataset_info.json", "dataset_infos.json"}
)
#: Maximum numbers of files and fields that a message lists.
MAX_FILES = 8
MAX_FIELDS = 8
#: Maximum number of fields to compare with the fields of a format, and maximum characters per
#: field.
MAX_COMPARED = 64
MAX_NAME = 40
#: Minimum `difflib` similarity between a field name and its misspelling.
MIN_SIMILARITY = 0.8
ENGLISH = "eng-Latn"
#: The YAML header of a dataset card.
CARD_HEADER = re.compile(r"---\s*\n(.*?)^---\s*$", re.DOTALL | re.MULTILINE)


def _always_english(path: Path) -> str:  # noqa: ARG001
    return ENGLISH


def _judgment_format(
    title: str,
    kinds: tuple[str, ...],
    read: Callable[[Path], judgment_sets.JudgmentSet],
    **fields: Any,
) -> Format:
    return Format(
        title,
        kinds,
        lambda path, _: read(path).list_items(),
        read_judgments=lambda path, _: read(path).to_judgments(),
        contents=JUDGMENTS,
        **fields,
    )


def read_folder(folder: Path, options: ReadOptions) -> Items:
    """Yield the items from each file in a folder. An unreadable file becomes a skipped item."""
    yield from _read_files(list_data_files(folder), replace(options, root=folder))


def _read_files(files: Iterable[Path], options: ReadOptions) -> Items:
    for file in files:
        try:
            yield from read_file(file, options)
        except DataError as error:
            name = options.name(file)
            yield SkippedText(name, "unreadable", str(error), name)


def _has_golden_set(folder: Path) -> bool:
    files = list_data_files(folder)
    golden = [*filter(judgment_sets.is_golden, files)]
    return 0 < len(golden) < len(files)


def read_golden_folder(folder: Path, options: ReadOptions) -> Items:
    """Yield the documents in a folder with the questions from its golden sets."""
    files = list_data_files(folder)
    golden = [*filter(judgment_sets.is_golden, files)]
    sources = [file for file in files if file not in golden]
    documents = _read_files(sources, replace(options, root=folder))
    yield from judgment_sets.place_golden(golden, documents)


def list_data_files(folder: Path) -> list[Path]:
    """List the data files below a folder.

    The card of a Hub dataset is left out. If the folder contains files with rows, so are other
    descriptive files.
    """
    files = list_files(folder)
    if (folder / "snapshots").is_dir() and (folder / "blobs").is_dir():
        # In the Hub cache, `blobs` contains the same content under digests.
        files = [file for file in files if file.relative_to(folder).parts[0] == "snapshots"]
    has_rows = any(split_suffix(file)[1] in (*JSON_ROWS, *TABLES) for file in files)
    descriptions = DESCRIPTION_FILES if has_rows else ()
    return [file for file in files if file.name.lower() not in descriptions and not _is_card(file)]


def _is_card(file: Path) -> bool:
    if file.name.lower() != "readme.md":
        return False
    with file.open("rb") as content:
        return content.readline().strip() == b"---"


def _find_common_language(folder: Path) -> str:
    """Return the language code that all files in a folder declare, or an empty string."""
    languages = set()
    for file in list_data_files(folder):
        with suppress(DataError):
            form = find_format(file, ReadOptions())
            if form is not UNKNOWN:
                languages.add(form.find_language(file))
    return languages.pop() if len(languages) == 1 else ""


def _skip_unknown(file: Path, options: ReadOptions) -> Items:
    with open_decompressed(file) as content:
        is_binary = documents.is_binary(content.read(documents.BINARY_BYTES))
    name = options.name(file)
    yield SkippedText(name, "binary" if is_binary else "of an unsupported type", file=name)


UNKNOWN = Format("in an unknown format", read=_skip_unknown, use=None, contents="")
FILES = Format("a folder of files", (FOLDER,), read_folder, find_language=_find_common_language)
#: Formats in order of precedence. The first format that accepts a path reads it.
FORMATS = (
    Format(
        "a BEIR folder",
        (FOLDER,),
        collections.read_beir,
        files=("corpus.jsonl|corpus.jsonl.gz", "queries.jsonl|queries.jsonl.gz"),
        read_texts=collections.read_beir_texts,
        read_judgments=collections.read_beir_judgments,
    ),
    Format(
        "a folder of Chroma's chunking evaluation",
        (FOLDER,),
        collections.read_chunking,
        files=("corpora", "questions.csv|questions_df.csv"),
        read_texts=collections.read_chunking_texts,
        read_judgments=collections.read_chunking_judgments,
    ),
    Format(
        "a folder of MIRACL",
        (FOLDER,),
        published.read_miracl,
        files=(f"**/{published.TOPICS}*.tsv",),
        find_language=published.find_miracl_language,
    ),
    Format(
        "a folder of LegalBench-RAG",
        (FOLDER,),
        published.read_legalbench,
        files=("corpus", "benchmarks/*.json"),
        use=Use.NAMED,
        find_language=_always_english,
    ),
    Format(
        "a folder of MS MARCO v2",
        (FOLDER,),
        published.read_marco,
        files=(
            "**/msmarco_v2_doc.tar|**/msmarco*_doc_*.gz",
            "**/msmarco_v2_passage.tar|**/msmarco*_passage_*.gz",
        ),
        find_language=_always_english,
    ),
    Format(
        "a folder of BRIGHT",
        (FOLDER,),
        published.read_bright,
        files=("**/long_documents/*.parquet",),
        find_language=_always_english,
    ),
    _judgment_format(
        "a folder of AutoRAG",
        (FOLDER,),
        judgment_sets.read_autorag,
        files=("corpus*.parquet", "qa*.parquet"),
    ),
    *(
        Format(
            form.title,
            form.kinds,
            form.read,
            form.accepts,
            fields="|".join(f"{mark} {form.fields}" for mark in form.marks),
            find_language=form.find_language,
        )
        for form in PAGE_FORMS
    ),
    Format(
        "a folder with a golden set of LlamaIndex or ragas, and its documents",
        (FOLDER,),
        read_golden_folder,
        _has_golden_set,
        contents=f"{SPANS}: the chunks in their documents",
    ),
    FILES,
    *REFUSED,
    Format(
        "MRQA",
        JSON_ROWS,
        document_rows.read_mrqa,
        marks="header/ context|header/ qas/|context detected_answers/",
        fields=document_rows.MRQA_FIELDS,
        advice="Each line after the header needs context and qas.",
        find_language=_always_english,
    ),
    Format(
        "QASPER",
        JSON_ROWS,
        document_rows.read_qasper,
        marks="full_text/ qas/",
        use=Use.WITHIN,
        fields=document_rows.QASPER_FIELDS,
        find_language=_always_english,
    ),
    _judgment_format(
        "an EmbeddingQAFinetuneDataset of LlamaIndex",
        (".json",),
        judgment_sets.read_pairs,
        marks="queries/ corpus/|queries/ relevant_docs/|relevant_docs/",
        fields="queries corpus relevant_docs",
    ),
    _judgment_format(
        "a golden set of LlamaIndex or ragas",
        (*JSON_ROWS, *TABLES),
        judgment_sets.read_golden,
        marks=judgment_sets.GOLDEN_MARKS,
        fields=judgment_sets.GOLDEN_MARKS,
        advice="Contexts that a system retrieved are a run; `posir score` reads their ids.",
    ),
    Format(
        "CUAD",
        (".json", ".jsonl", *PARQUET),
        question_rows.read_questions,
        question_rows.is_cuad,
        use=Use.WITHIN,
        find_language=_always_english,
    ),
    Format(
        "SQuAD-format JSON",
        (".json",),
        question_rows.read_squad_json,
        question_rows.is_squad_json,
        fields="data paragraphs context qas question answers answer_start text",
        advice="It needs data > paragraphs > context and qas > id, question, answers > text, "
        "answer_start.",
    ),
    Format(
        "JSON Lines or Parquet with questions",
        (*JSON_LINES, *PARQUET),
        question_rows.read_json_lines,
        question_rows.is_question_file,
        fields="context question answer|context question start end|"
        "context question answers answer_start text",
        advice="Each row needs context, question and answer, and start if the answer occurs "
        "several times.",
    ),
    Format(
        "JSON Lines with texts",
        JSON_LINES,
        text_rows.read_line_texts,
        use=None,
        fields="text|content|contents|body|document|passage",
        contents=TEXTS,
    ),
    Format("Parquet with texts", PARQUET, text_rows.read_parquet_texts, use=None, contents=TEXTS),
    Format("CSV with texts", TABLES, text_rows.read_csv_texts, use=None, contents=TEXTS),
    Format("HTML", (".html", ".htm", ".xhtml"), documents.read_html_file, use=None, contents=TEXTS),
    Format("PDF", (".pdf",), documents.read_pdf_file, use=None, contents=TEXTS),
    Format(
        "plain text or Markdown",
        ("", ".txt", ".md", ".markdown", ".text"),
        documents.read_text_file,
        use=None,
        contents=TEXTS,
    ),
    # Parts of the formats above.
    Format("the corpus of a BEIR folder", fields="_id text", advice="Give its folder."),
    Format(
        "the qrels of a BEIR folder",
        fields="query-id corpus-id score",
        advice="Give the folder that contains qrels/, not the file.",
    ),
    Format(
        "AutoRAG's questions",
        fields="qid query retrieval_gt generation_gt",
        advice="Give the folder that contains qa.parquet and corpus.parquet.",
    ),
    Format(
        "AutoRAG's corpus",
        fields="doc_id contents metadata",
        advice="Give the folder that contains qa.parquet and corpus.parquet.",
    ),
)
READABLE = tuple(form for form in FORMATS if form.kinds and not form.is_refused)
TITLES = ", ".join(form.title for form in READABLE)
SUPPORTED_FORMATS = (
    f"Supported formats: TREC qrels, {TITLES}. `posir import --formats` lists their fields."
)


def find_format(path: Path, options: ReadOptions, name: str = "") -> Format:
    """Return the format of a file or folder, or `UNKNOWN`.

    If the options name a text column, only text formats and rows of questions are considered.

    Args:
        path: A file or folder.
        options: The user's options.
        name: Name of the data for messages; by default the path.

    Raises:
        DataError: The path is unreadable, or in a format that posir does not read.
    """
    kind = FOLDER if path.is_dir() else split_suffix(path)[1]
    with error_context(path, "", TITLES):
        for format_ in FORMATS:
            if kind not in format_.kinds or not _has_files(path, format_.files):
                continue
            if format_.marks and not has_marks(list_fields(path), format_.marks):
                continue
            accepts = format_.accepts
            if options.column is not None and kind != FOLDER and format_.use is not None:
                if format_.read is not question_rows.read_json_lines:
                    continue
                accepts = partial(question_rows.has_questions_on, column=options.column)
            if not accepts(path):
                continue
            if format_.is_refused:
                raise DataError(
                    f"{name or path}: is {format_.title}, which posir cannot read. {format_.advice}"
                )
            return format_
    return UNKNOWN


def _has_files(folder: Path, groups: Iterable[str]) -> bool:
    return all(
        any(file for pattern in group.split("|") for file in folder.glob(pattern))
        for group in groups
    )


def find_use(path: Path, options: ReadOptions, format_: Format) -> Use | None:
    """Return the texts to search for an answer, or None for data without questions.

    A folder gets the narrowest use among its files.
    """
    if format_ is not FILES:
        return format_.use
    uses = set()
    for file in list_data_files(path):
        with suppress(DataError):
            uses.add(find_format(file, options).use)
    return next((use for use in (Use.WITHIN, Use.CORPUS) if use in uses), None)


def read_file(file: Path, options: ReadOptions) -> Items:
    """Yield the items in a file; raise DataError if the file is malformed."""
    yield from read_as(file, options, find_format(file, options))


def read_as(path: Path, options: ReadOptions, format_: Format) -> Items:
    """Read a file or folder in a format and yield its items; raise DataError if it is malformed."""
    try:
        with error_context(path, "", format_.title):
            yield from format_.read(path, options)
    except UnrecognizedError as error:
        raise DataError(f"{error} {describe_format(path)}") from error


def _load_hub(reference: str, commit: str) -> datasets.Dataset:
    from datasets import load_dataset

    name, _, configuration = reference.partition(":")
    try:
        return load_dataset(name, configuration or None, split=HUB_SPLIT, revision=commit)
    except Exception as error:  # datasets, huggingface_hub and pyarrow raise their own types
        raise DataError(
            f"{reference}: split '{HUB_SPLIT}' cannot be loaded from the Hub "
            f"({summarize_error(error)}). Check the name and the revision, or give a file or "
            "folder."
        ) from error


@cache
def _keep_folder() -> TemporaryDirectory[str]:
    """Return a temporary folder that lasts until the process ends."""
    return TemporaryDirectory(prefix="posir-")


def export_hub(reference: str, commit: str, options: ReadOptions) -> tuple[Path, Format]:
    """Write the rows of a Hub dataset to a Parquet file, and recognize the format.

    Only the first row is written if `read_hub` streams rows in this format.

    Args:
        reference: `owner/name`, optionally with `:configuration`.
        commit: The commit to read.
        options: The user's options.

    Raises:
        DataError: The rows cannot be loaded, or posir does not read their format.
    """
    from pyarrow.parquet import write_table

    rows = _load_hub(reference, commit).with_format("arrow")
    file = Path(_keep_folder().name) / f"{re.sub('[/:]', '_', reference)}.parquet"
    write_table(rows[:1], file)
    form = find_format(file, options, name=reference)
    if not _is_streamed(form):
        write_table(rows[:], file)
    return file, form


def _is_streamed(form: Format) -> bool:
    row_readers = (question_rows.read_json_lines, question_rows.read_questions)
    return form.use is None or form.read in row_readers


def read_hub(reference: str, commit: str, file: Path, form: Format, options: ReadOptions) -> Items:
    """Yield the items of a dataset from `export_hub`; raise DataError if it is unreadable."""
    if not _is_streamed(form):
        yield from read_as(file, options, form)
        return
    source = f"{reference}@{commit}"
    column = options.column or question_rows.CONTEXT
    for number, row in enumerate(_load_hub(reference, commit)):
        location = f"row {number}"
        if form.use is not None:
            with error_context(source, location, question_rows.LINES):
                yield from question_rows.read_question_row(Row.parse(row), location, source, column)
        else:
            yield text_rows.read_text_row(row, source, location, f"{source}: {location}", options)


def read_card_language(card: Path) -> str:
    """Return the language code in the YAML header of a dataset card, or an empty string unless it
    declares exactly one language.
    """
    if not card.is_file():
        return ""
    codes = []
    with suppress(InputError, UnicodeDecodeError):
        header = CARD_HEADER.match(decode(read_bytes(card)))
        values = parse_yaml(header[1], card) if header else None
        match values.get("language") if isinstance(values, dict) else None:
            case str(name) | [name]:
                codes = suggest_codes(str(name))
    return codes[0] if len(codes) == 1 else ""


def find_declared_language(form: Format, path: Path) -> str:
    """Return the language code declared by the data or its dataset card, or an empty string."""
    code = form.find_language(path)
    return code or read_card_language((path if path.is_dir() else path.parent) / "README.md")


def describe_format(path: Path) -> str:
    """Describe data in an unknown format: its files or fields, its first record, the nearest format
    and the fields that are missing for it, and the supported formats.
    """
    if path.is_dir():
        return f"{_describe_folder(path)} {SUPPORTED_FORMATS}"
    record = read_first_record(path)
    names = [*list_fields(path)]
    if not names:
        return f"Its first line is {record!r}. {_describe_fields(path)} {SUPPORTED_FORMATS}"
    more = ", ..." if len(names) > MAX_FIELDS else ""
    head = ", ".join(map(sanitize, names[:MAX_FIELDS]))
    noun = "fields" if split_suffix(path)[1] in JSON_LINES else "columns"
    sentences = [f"It contains the {noun} {head}{more}.", f"Its first record is {record}."]
    nearest = find_nearest_format(names)
    if nearest:
        layout = max(nearest.layouts, key=lambda layout: _find_share(layout, names))
        missing = ", ".join(sorted(layout - {*names}))
        lacks = f"; missing: {missing}" if missing else ""
        sentences += [f"The nearest format is {nearest.title}{lacks}.", nearest.advice]
    return " ".join(filter(None, [*sentences, SUPPORTED_FORMATS]))


def _describe_fields(path: Path) -> str:
    """List the fields of the formats with the suffix of a file."""
    suffix = split_suffix(path)[1]
    fields = ", of ".join(
        f"{form.title} ({', '.join(sorted(form.layouts[0]))})"
        for form in READABLE
        if form.fields and suffix in form.kinds
    )
    return f"Formats with this suffix have the fields of {fields}." if fields else ""


def _describe_folder(folder: Path) -> str:
    files = list_files(folder)
    advice = dict[str, None]()
    names = []
    for file in files[:MAX_FILES]:
        name = sanitize(file.name)
        nearest = find_nearest_format([*list_fields(file)])
        if nearest:
            name += f" (nearest format: {nearest.title})"
            advice[nearest.advice] = None
        names.append(name)
    more = ", ..." if len(files) > MAX_FILES else ""
    listing = f"It contains {', '.join(names) or 'no files'}{more}."
    missing = [_describe_missing(form, folder) for form in READABLE if form.files]
    return " ".join(filter(None, [listing, *missing, *advice]))


def _describe_missing(form: Format, folder: Path) -> str:
    """Name a format's missing files if the folder contains some of the others."""
    missing = [group for group in form.files if not _has_files(folder, [group])]
    if not missing or len(missing) == len(form.files):
        return ""
    files = " and ".join(group.replace("|", " or ") for group in missing)
    return f"To be {form.title}, it needs {files}."


def find_nearest_format(fields: Collection[str]) -> Format | None:
    """Return the format with the largest share of similar field names, or None if none is
    similar.
    """

    def find_share(form: Format) -> float:
        return max((_find_share(layout, fields) for layout in form.layouts), default=0)

    nearest = max(FORMATS, key=find_share)
    return nearest if find_share(nearest) else None


def _find_share(layout: Collection[str], fields: Collection[str]) -> float:
    names = [field[:MAX_NAME] for field in islice(fields, MAX_COMPARED)]
    similar = [name for name in names if get_close_matches(name, layout, 1, MIN_SIMILARITY)]
    return len(similar) / (len({*layout, *fields}) or 1)
