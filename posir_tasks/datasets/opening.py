"""Open tasks, files and folders in any format, and Hub datasets."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from pathlib import Path

from posir_tasks.base.digests import digest, digest_files
from posir_tasks.base.errors import DataError, PosirError, summarize_error
from posir_tasks.base.files import split_suffix
from posir_tasks.base.public import DataReference
from posir_tasks.data import mini
from posir_tasks.data.checks import read_column_types, read_columns
from posir_tasks.data.data import Judgments, PositionData
from posir_tasks.data.declared import REPO_ID, REVISION
from posir_tasks.data.formats.catalog import (
    export_hub,
    find_declared_language,
    find_format,
    find_search_scope,
    read_as,
    read_card_language,
    read_hub,
)
from posir_tasks.data.formats.format import Format
from posir_tasks.data.formats.passages import (
    Answer,
    Item,
    Passage,
    PassageQuestion,
    ReadOptions,
    Scope,
    SearchScope,
    SkippedItem,
    name_documents,
    read_text,
)
from posir_tasks.data.formats.qrels import check_qrels, is_qrels, read_qrels
from posir_tasks.data.formats.records import convert_errors, list_files
from posir_tasks.data.posir import (
    FILES,
    SubsetKey,
    find_layout,
    list_domains,
    list_present_files,
    read_domain,
)
from posir_tasks.data.posir_rules import CORPUS
from posir_tasks.data.questions import collect_questions
from posir_tasks.data.repository import (
    COMMIT,
    LOCAL,
    PARQUET,
    HubRepository,
    LocalRepository,
    Repository,
    combine_revisions,
    is_hub_name,
    open_repository,
)
from posir_tasks.datasets.dataset import IN_MEMORY, JUDGED_TASK, TASK, Dataset, Subset
from posir_tasks.models.references import to_file_name
from posir_tasks.models.run_settings import check_selected_domains, select_domains
from posir_tasks.tasks.catalog import (
    SUPPORTED_DATA,
    describe_hidden_task,
    raise_if_missing,
    require_task,
)
from posir_tasks.text.languages import PIVOT, UNKNOWN_LANGUAGE, detect_code
from posir_tasks.values.evidence import Place
from posir_tasks.values.schemes import RelativePositions

logger = logging.getLogger(__name__)

#: Kind of a dataset that consists of qrels only.
QRELS = "TREC qrels"
#: Maximum number of texts for language detection.
DETECTED_TEXTS = 30


def open_data(
    data: DataReference,
    *,
    column: str | None = None,
    id_column: str | None = None,
    split: str | None = None,
    revision: str | None = None,
    language: str | None = None,
    repair: bool = True,
    scope: Scope | None = None,
) -> Dataset:
    """Open data in any format that the commands accept.

    A folder is first tried as the PosIR layout: all languages, one language, one domain, or the
    parent folder, like `POSIR_DATA`. Then the other folder formats are tried, such as BEIR. In any
    other folder, each file is read in its own format, and all documents form one corpus. A file or
    folder takes precedence over a task of the same name.

    Args:
        data: A task; a file or folder of questions with their evidence, or of texts; a dataset on
            the Hub; a list of texts or a column of a DataFrame.
        column: Column or field with the text; by default `text`, `content` or a similar name, or
            else the only text column.
        id_column: Column or field with the id; by default `_id` or `id`, if present.
        split: Split of a BEIR folder, which is the name of a qrels file; by default `test`, or else
            the first.
        revision: Revision of a dataset on the Hub; by default its main branch.
        language: Code of the data's language, such as `eng-Latn`; by default the language that the
            data declares, or else the language that is detected.
        repair: Move a misplaced answer to its only match within 5 characters, instead of skipping
            its question, and convert offsets in UTF-16 units or bytes.
        scope: Texts to search for an answer: the whole corpus, or the question's own document. By
            default, the format decides. If the text of at least half of the questions recurs for
            several documents, it is the question's own document.

    Returns:
        A row for each question: the half-open character span `start` to `end` of its evidence in
        the document, and the `position` of the span's midpoint in [0, 1]. Without questions, a row
        for each text. `read_texts()` yields the documents.

    Raises:
        PosirError: The data does not exist, or has an unknown format.
        DataError: The data cannot be read.

    Examples:
        >>> import posir
        >>> questions = posir.open_data("PosIR-Mini").to_polars()
        >>> questions.height, questions.columns[-3:]
        (720, ['start', 'end', 'position'])
        >>> posir.open_data(["A text.", "Another one."]).to_polars()["text"].to_list()
        ['A text.', 'Another one.']
    """
    if not isinstance(data, str | Path):
        if not isinstance(data, Iterable):
            raise PosirError(
                f"The data is {data!r}, of type {type(data).__name__}. {SUPPORTED_DATA} In "
                "Python, also a list of texts."
            )
        return _open_strings(data)
    options = ReadOptions(column, id_column, split, revision, language, repair)
    path = Path(data).expanduser()
    name = str(data)
    reference = str(path.absolute()) if path.exists() else name
    if path.is_dir():
        dataset = _open_folder(path, options)
    elif path.exists():
        dataset = _open_file(path, options)
    elif is_hub_name(name):
        dataset = _open_hub(name, options)
    else:
        raise_if_missing(name)
        dataset = _open_task_data(name, options)
    dataset = replace(dataset, reference=reference)
    if scope is None:
        return dataset
    search_scope = SearchScope.CORPUS if scope == "corpus" else SearchScope.DOCUMENT
    return replace(dataset, declared_scope=search_scope)


def _open_strings(texts: Iterable[object]) -> Dataset:
    """Open texts in memory; raise PosirError for a data frame, which would yield its columns."""
    if hasattr(texts, "columns"):
        raise PosirError(
            "This is a data frame. Give the column with the texts, such as data['text']."
        )
    items = []
    for number, text in enumerate(texts, start=1):
        name = f"text {number}"
        if isinstance(text, str):
            items.append(read_text(IN_MEMORY, name, text, str(number)))
        else:
            items.append(SkippedItem(name, "not a text", file=IN_MEMORY))
    content = digest(*(item.text for item in items if isinstance(item, Passage))).hex()
    revision = partial(str, f"{LOCAL}-{content}")
    source = Format(IN_MEMORY, read=lambda *_: iter(items), search_scope=None)
    return _open_items(source, Path(), IN_MEMORY, IN_MEMORY, revision, ReadOptions())


def _open_layout(name: str, repository: Repository, keys: Sequence[SubsetKey]) -> Dataset:
    languages = {key.language for key in keys}
    return Dataset(
        to_file_name(name),
        "in the PosIR layout",
        repository.location,
        RelativePositions(),
        tuple(_open_layout_subset(repository, key) for key in keys),
        partial(repository.resolve_revision, list_present_files(repository, keys)),
        find_declared_language=lambda: "".join(languages) if len(languages) == 1 else "",
    )


def _open_layout_subset(repository: Repository, key: SubsetKey) -> Subset:
    read = partial(read_domain, repository, key.language, key.corpus_language, key.domain)
    name = f"{key.corpus_language}/{key.domain}"

    def read_texts() -> Iterator[Item]:
        corpus = read_columns(repository.fetch(key.files[0]), CORPUS)
        for identifier, text in corpus.select("_id", "text").iter_rows():
            document = Passage(name, identifier, text, id=identifier)
            yield document if text.strip() else SkippedItem(document.name, "empty", file=name)

    return Subset(
        lambda: (key.language, key.corpus_language),
        key.domain,
        read,
        read_texts,
        lambda: _list_passages(read(), f"{key.language}/{key.domain}"),
    )


def _list_passages(data: PositionData, name: str) -> Iterator[Passage]:
    titles = dict(zip(data.evidence.document_ids, data.evidence.clusters, strict=False))
    questions = defaultdict(list)
    for query, text, document, span in data.list_questions():
        answers = (Answer.from_span(span),) if span else ()
        place = data.places.get(query, Place(query))
        questions[document].append(
            PassageQuestion(name, place.query, text, answers, query, place.query, place.grade)
        )
    for key, text in data.documents.iter_rows():
        yield Passage(name, key, text, questions[key], key, titles.get(key, ""))


def _open_folder(path: Path, options: ReadOptions) -> Dataset:
    layout = find_layout(path)
    if layout is not None:
        root, keys = layout
        monolingual = sorted(key for key in keys if key.language == key.corpus_language)
        return _open_layout(path.resolve().name, LocalRepository(root), monolingual)
    files = list_files(path)
    if not files:
        raise PosirError(f"{path} has no files.{describe_hidden_task(str(path))}\n{SUPPORTED_DATA}")
    return _open_local(path, path.resolve().name, partial(_compute_revision, path, files), options)


def _open_file(path: Path, options: ReadOptions) -> Dataset:
    if options.column is None and is_qrels(path):
        check_qrels(path)
        return _open_qrels(path, options)
    name, suffix = split_suffix(path)
    if suffix in PARQUET:
        # Raise an error for a corrupt file. In a folder, it would be skipped.
        read_column_types(path)
    return _open_local(path, name, partial(_compute_revision, path.parent, [path]), options)


def _open_local(
    path: Path, name: str, find_revision: Callable[[], str], options: ReadOptions
) -> Dataset:
    format_ = find_format(path, options)
    source = replace(
        format_,
        read=partial(read_as, format_=format_),
        search_scope=find_search_scope(path, options, format_),
        find_language=partial(find_declared_language, format_),
    )
    return _open_items(source, path, name, str(path), find_revision, options)


def _open_qrels(path: Path, options: ReadOptions) -> Dataset:
    """Open qrels without texts; raise DataError if a line is malformed."""
    with convert_errors(path, "", "TREC qrels"):
        grades = read_qrels(path)
    judgments = Judgments({}, grades.by_query, contradictions=grades.contradictions)
    source = Format(QRELS, read=lambda *_: iter(()), read_judgments=lambda *_: judgments)
    revision = partial(_compute_revision, path.parent, [path])
    options = replace(options, language=options.language or UNKNOWN_LANGUAGE)
    dataset = _open_items(source, path, split_suffix(path)[0], str(path), revision, options)
    return replace(dataset, has_texts=False)


def _compute_revision(folder: Path, files: Iterable[Path]) -> str:
    return f"{LOCAL}-{digest_files({file.relative_to(folder).as_posix(): file for file in files})}"


def _open_hub(reference: str, options: ReadOptions) -> Dataset:
    name, _, configuration = reference.partition(":")
    commit = options.revision or "main"
    # The cache can be searched for a commit without the Hub.
    if not COMMIT.fullmatch(commit):
        try:
            commit = HubRepository(name, commit).resolve_revision()
        except DataError as error:
            raise DataError(
                f"{reference}: no such file or folder, and no dataset on the Hub that can be read "
                f"({summarize_error(error.__cause__ or error)}). Check the name and the revision, "
                "or give a file or folder."
            ) from error
    repository = HubRepository(name, commit)
    keys = [] if configuration else _list_hub_keys(repository)
    if keys:
        return _open_layout(name, repository, keys)
    file, format_ = export_hub(reference, commit, options)

    def find_language(file: Path) -> str:
        code = format_.find_language(file)
        with suppress(DataError):
            code = code or read_card_language(repository.fetch("README.md"))
        return code

    source = replace(
        format_,
        title="a dataset on the Hub",
        read=lambda file, options: read_hub(reference, commit, file, format_, options),
        find_language=find_language,
    )
    return _open_items(source, file, name, f"{reference}@{commit}", lambda: commit, options)


def _list_hub_keys(repository: HubRepository) -> list[SubsetKey]:
    """List the domains of a repository in the PosIR layout. Empty for other layouts."""
    keys = []
    with suppress(DataError):
        for path in repository.list_paths():
            match path.split("/"):
                case [language, domain, name] if name == FILES[-1]:
                    keys.append(SubsetKey(language, language, domain))
    return sorted(keys)


def _open_items(
    source: Format,
    path: Path,
    name: str,
    location: str,
    find_revision: Callable[[], str],
    options: ReadOptions,
) -> Dataset:
    """Open the items of a format as a dataset with one subset. `location` is for messages."""
    domain = re.sub("[^a-z0-9_]+", "_", name.lower()).strip("_") or "texts"
    search_scope = source.search_scope
    read = partial(source.read, path, options)
    read_documents = partial(source.read_texts or source.read, path, options)
    judgment_reader = source.read_judgments

    @cache
    def read_data() -> PositionData:
        return collect_questions(read(), domain, repair=options.repair).to_position_data(
            find_revision()
        )

    def list_texts() -> Iterator[Item]:
        return name_documents(_drop_questions(read_documents()), domain)

    @cache
    def find_languages() -> tuple[str, str]:
        code = options.language or source.find_language(path)
        if not code:
            texts = (item.text for item in list_texts() if isinstance(item, Passage))
            if source.read_texts is None and search_scope is not None:
                # Avoid reading the documents a second time.
                texts = (text for text in read_data().documents["text"] if text.strip())
            code = detect_code(islice(texts, DETECTED_TEXTS))
        return code, code

    read_judgments = partial(judgment_reader, path, options) if judgment_reader else None
    return Dataset(
        to_file_name(name),
        source.title,
        location,
        RelativePositions(),
        (Subset(find_languages, domain, read_data, list_texts, read, read_judgments),),
        find_revision,
        search_scope is not None,
        in_memory=True,
        declared_scope=None
        if search_scope is SearchScope.CORPUS
        else search_scope or SearchScope.CORPUS,
        find_declared_language=partial(source.find_language, path),
    )


def _drop_questions(items: Iterable[Item]) -> Iterator[Item]:
    """Yield documents and skipped texts, including blank documents as skipped."""
    for item in items:
        if isinstance(item, SkippedItem):
            if not item.cause:
                yield item
        elif item.text.strip():
            yield item
        else:
            yield SkippedItem(item.name, "empty", file=item.file)


def _open_judged_task(name: str, options: ReadOptions) -> Dataset | None:
    """Open the judgments of an mteb retrieval task; None if the task does not exist."""
    from posir_tasks.tasks.retrieval_task import (
        find_retrieval_task,
        list_task_texts,
        read_scoring_rules,
        read_task_judgments,
    )

    task = find_retrieval_task(name)
    if task is None:
        return None
    metadata = task.metadata
    default, *alternatives = metadata.eval_splits
    split = options.split
    if split is None and alternatives:
        message = "%s: reading the split %s; choose another one with --split (%s)"
        logger.warning(message, name, default, ", ".join(alternatives))
    find_revision = partial(str, metadata.revision)

    def open_subset(subset: str) -> Subset:
        source = Format(
            JUDGED_TASK,
            read=lambda *_: list_task_texts(task, subset, split),
            search_scope=None,
            read_judgments=lambda *_: read_task_judgments(task, subset, split),
        )
        subset_options = replace(options, language=metadata.hf_subsets_to_langscripts[subset][0])
        dataset = _open_items(source, Path(), subset, name, find_revision, subset_options)
        # Prediction files contain mteb's subset names.
        return replace(dataset.subsets[0], domain=subset)

    return Dataset(
        name,
        JUDGED_TASK,
        metadata.dataset["path"],
        RelativePositions(),
        tuple(map(open_subset, task.hf_subsets)),
        find_revision,
        has_questions=False,
        in_memory=True,
        rules=read_scoring_rules(task, split),
    )


def _open_task_data(name: str, options: ReadOptions) -> Dataset:
    """Open the data of a task.

    Raises:
        PosirError: The task or a selected domain does not exist.
        DataError: The task's language has no data.
    """
    if name == mini.NAME:
        # The data is in the package, so that mteb is not imported.
        subset = _open_task_subset(mini.read_mini, "default", (PIVOT.code, PIVOT.code))
        return Dataset(
            name, TASK, mini.REPO_ID, RelativePositions(), (subset,), lambda: mini.REVISION
        )
    from posir_tasks.tasks.nano import NanoTask
    from posir_tasks.tasks.posir import PosirTask

    try:
        task = require_task(name)
    except PosirError:
        judged = _open_judged_task(name, options)
        if judged is None:
            raise
        return judged
    instance = task()
    metadata = instance.metadata
    if isinstance(instance, PosirTask) and not isinstance(instance, NanoTask):
        repository = open_repository(REPO_ID, REVISION)
        languages = (instance.language.code, instance.corpus_language.code)
        domains = set(list_domains(repository, languages[0]))
        domains &= set(list_domains(repository, languages[1]))
        if not domains:
            raise DataError(instance.explain_missing_data())
        check_selected_domains(domains, repository.location)
        keys = [SubsetKey(*languages, domain) for domain in select_domains(sorted(domains))]
        subsets = [_open_layout_subset(repository, key) for key in keys]
    else:
        subsets = [
            _open_task_subset(
                partial(instance.read_subset, subset), subset, (languages[0], languages[-1])
            )
            for subset, languages in metadata.hf_subsets_to_langscripts.items()
        ]

    def find_revision() -> str:
        return combine_revisions(subset.read().revision for subset in subsets)

    return Dataset(name, TASK, metadata.dataset["path"], task.scheme, tuple(subsets), find_revision)


def _open_task_subset(
    read: Callable[[], PositionData], name: str, languages: tuple[str, str]
) -> Subset:
    def read_texts() -> Iterator[Item]:
        return (Passage(name, key, text, id=key) for key, text in read().documents.iter_rows())

    return Subset(lambda: languages, name, read, read_texts, lambda: _list_passages(read(), name))
