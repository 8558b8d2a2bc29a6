"""`posir.doctor`, `posir.tasks` and `posir.rescore`."""

from __future__ import annotations

import logging
import os
import platform
import re
import site
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

from posir_tasks.base.errors import PosirError, UsageError, summarize_error
from posir_tasks.base.private_names import (
    PRIVATE_NAMES,
    TASKS_REGISTRY,
    failures,
    warn_untested_mteb,
)
from posir_tasks.base.progress import track, track_items
from posir_tasks.base.public import public
from posir_tasks.base.records import Record
from posir_tasks.base.wording import pluralize, suggest_name
from posir_tasks.data.declared import MINI, DeclaredTask, format_size
from posir_tasks.display.labels import Label, Tone
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import Role, Table, build_columns
from posir_tasks.models.protocols import (
    REPORTED_FIELDS,
    SETTINGS,
    PaperName,
    Protocol,
    find_protocol,
    list_protocols,
    quote_value,
)
from posir_tasks.plugin_api import get_plugins
from posir_tasks.results import ForeignFileError, find_result_files, rescore_file
from posir_tasks.tasks.catalog import declare_tasks
from posir_tasks.text.languages import LANGUAGES

logger = logging.getLogger(__name__)

AUTOLOAD_VARIABLE = "POSIR_AUTOLOAD"
#: File that Python runs at startup. PEP 829 replaces executable lines in `.pth` files.
AUTOLOAD_FILE = "posir.start" if sys.version_info >= (3, 15) else "posir.pth"
#: When Python does not run this file, according to the documentation of the module `site`.
AUTOLOAD_NOTE = (
    "Python skips autoload when it runs with -S, when the package is in a folder that is only on "
    "PYTHONPATH or was installed with `pip install --target`, when it is in the user site and "
    "Python runs with -s, -I or in a virtual environment, and in zip applications. In these "
    "cases, add `import posir_tasks` before mteb is used."
)


#: Mark and color of a passed check, a failed check and other information.
MARKS = {True: ("✓", Tone.GOOD), False: ("✗", Tone.BAD), None: ("·", Tone.OPEN)}


@dataclass(frozen=True)
class CheckResult:
    """A line of a diagnosis."""

    passed: bool | None
    """None if nothing was checked and the line is only information."""
    text: str


CheckResults: TypeAlias = Iterator[CheckResult]


def build_diagnosis(findings: Sequence[CheckResult], title: str) -> Result:
    """Build a result with a line per finding. The exit status is 1 if a check failed."""
    rows = []
    for finding in findings:
        mark, tone = MARKS[finding.passed]
        rows.append((Label(f"{mark} {finding.text}", tone),))
    return Result(
        title=title,
        rows=findings,
        tables=[Table(build_columns([title]), tuple(rows))],
        exit_status=int(any(finding.passed is False for finding in findings)),
    )


@public()
def doctor(model: str | None = None, *, protocol: PaperName | None = None) -> Result:
    """Check the installation: versions, autoload, tasks, plugins and access to the data. Exit
    status 1 if a check fails.

        posir doctor

    With --protocol, print the authors' settings of each of the paper's models and their differences
    from mteb's settings. If a model is named and its weights are on this machine, load it with the
    protocol and report differences. Nothing is downloaded.

    Args:
        model: A model of the paper, by its full or bare name; by default all.
        protocol: Check this paper's protocol instead of the installation.

    Returns:
        A row for each finding; `exit_status` is 1 if a check fails.

    Raises:
        PosirError: A model is given without a protocol, or the paper's authors did not run it.

    Examples:
        >>> import posir
        >>> print(posir.doctor())  # doctest: +SKIP
        ✓ tasks: 26 of 26 are registered in mteb
        >>> print(posir.doctor("bge-m3", protocol="posq"))  # doctest: +SKIP
        · BAAI/bge-m3: query prompt "", document prompt "", window 8,192, ...
        ✓ BAAI/bge-m3: no difference after loading
    """
    if protocol is not None:
        rows = list_protocols(protocol) if model is None else [find_protocol(protocol, model)]
        findings = [CheckResult(None, _describe_protocol(row)) for row in rows]
        if model is not None:
            findings += _check_loaded_model(rows[0])
        return build_diagnosis(findings, f"Protocol {protocol}")
    if model is not None:
        raise PosirError(
            f"Cannot check {model} without a paper's protocol. Add --protocol, such as posq."
        )
    python = f"Python {platform.python_version()} ({sys.executable})"
    findings = [CheckResult(None, f"posir {version('posir')}, mteb {version('mteb')}, {python}")]
    checks = (check_autoload, check_mteb, check_tasks, check_plugins, check_data)
    for check in track_items(checks, "Checking"):
        try:
            findings += check()
        except Exception as error:
            problem = f"{check.__name__} failed ({summarize_error(error)})"
            findings.append(CheckResult(False, problem))
    return build_diagnosis(findings, "Installation of posir")


def _describe_protocol(row: Protocol) -> str:
    """List the protocol's settings of a model, and those that mteb sets differently."""
    titles = SETTINGS | REPORTED_FIELDS
    settings = [
        f"{titles[name]} {quote_value(value)}"
        for name, value in row.list_values().items()
        if name in titles
    ]
    description = f"{row.model}: {', '.join(settings)}"
    if row.mteb_differs:
        differences = ", ".join(titles[name] for name in row.mteb_differs.split())
        description += f"; without the protocol, mteb differs in {differences}"
    return description


def _check_loaded_model(row: Protocol) -> CheckResults:
    """Load a model with its protocol if its weights are on this machine."""
    with track("Loading mteb"):
        import mteb
        from huggingface_hub import try_to_load_from_cache

        from posir_tasks.models.apply_protocol import ProtocolDifferenceError
        from posir_tasks.models.run_settings import override_settings
    try:
        meta = mteb.get_model_meta(row.model, fetch_from_hf=False)
    except KeyError:
        yield CheckResult(None, f"{row.model}: not loaded: mteb has no class for it")
        return
    config = try_to_load_from_cache(row.model, "config.json", revision=meta.revision)
    if not isinstance(config, str):
        yield CheckResult(None, f"{row.model}: not loaded: its weights are not on this machine")
        return
    try:
        with override_settings(protocol=row.paper), track(f"Loading {row.model}"):
            meta.load_model(device="cpu")
    except ProtocolDifferenceError as error:
        yield CheckResult(False, str(error))
    except (PosirError, ImportError) as error:
        yield CheckResult(None, f"{row.model}: cannot be loaded: {summarize_error(error)}")
    else:
        yield CheckResult(True, f"{row.model}: no difference after loading")


def check_autoload() -> CheckResults:
    """Check that a new Python process loads posir with mteb."""
    code = "import sys; raise SystemExit('posir_autoload' not in sys.modules)"
    command = [sys.executable, "-c", code]
    if os.environ.get(AUTOLOAD_VARIABLE) == "0":
        problem = f"disabled by {AUTOLOAD_VARIABLE}=0; `import posir_tasks` registers the tasks"
        yield CheckResult(None, f"autoload: {problem}")
    elif subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0:
        files = (Path(folder) / AUTOLOAD_FILE for folder in sys.path)
        yield CheckResult(True, f"autoload: {next(filter(Path.exists, files), 'active')}")
    else:
        folders = ", ".join((*site.getsitepackages(), site.getusersitepackages()))
        yield CheckResult(
            False,
            f"autoload: Python did not run {AUTOLOAD_FILE}, which must be in one of {folders}",
        )
    yield CheckResult(None, AUTOLOAD_NOTE)


def check_mteb() -> CheckResults:
    """Report mteb internals that posir could not find or patch, and the features that are
    unavailable.
    """
    import mteb  # noqa: F401

    if newer := warn_untested_mteb():
        yield CheckResult(None, newer)
    for failure in failures:
        yield CheckResult(False, f"mteb could not be patched: {failure}")
    for name in PRIVATE_NAMES:
        if name.is_missing():
            yield CheckResult(
                False, f"mteb {version('mteb')} has no {name.path}; not available: {name.used_by}"
            )


def check_tasks() -> CheckResults:
    """Check that the tasks are registered in mteb."""
    from posir_tasks.tasks.catalog import find_language_tasks, load_builtin_tasks

    more_tasks = find_language_tasks()
    tasks = load_builtin_tasks() | more_tasks
    registry = TASKS_REGISTRY.resolve()
    missing = [name for name, task in tasks.items() if registry.get(name) is not task]
    text = f"tasks: {len(tasks) - len(missing)} of {len(tasks)} are registered in mteb"
    if missing:
        text += f"; missing: {', '.join(missing)}"
    yield CheckResult(not missing, text)
    if more_tasks:
        yield CheckResult(None, f"tasks in more languages: {', '.join(more_tasks)}")


def check_plugins() -> CheckResults:
    """Check plugins and their tasks, and report their origins."""
    from posir_tasks.tasks.catalog import check_plugin_tasks, collect_plugin_languages

    for plugin in get_plugins().plugins:
        problem = f": {plugin.problem}" if plugin.problem else ""
        yield CheckResult(not plugin.problem, f"plugin {plugin.name} ({plugin.origin}){problem}")
    tasks, problems = check_plugin_tasks()
    for name, (owner, task) in tasks.items():
        yield CheckResult(
            True, f"task {name} (plugin {owner}: {task.__module__}.{task.__qualname__})"
        )
    yield from (
        CheckResult(False, problem) for problem in (*problems, *collect_plugin_languages()[1])
    )


def check_data() -> CheckResults:
    """Check environment variables for data, and report the location of each dataset."""
    from huggingface_hub import HfApi

    from posir_tasks.data.declared import FINEWEB, REPO_ID, SQUAD
    from posir_tasks.data.repository import (
        DATA_VARIABLE,
        check_environment,
        get_data_folder,
        locate_dataset,
    )

    try:
        check_environment()
    except PosirError as error:
        yield CheckResult(False, str(error))
        return
    folder = get_data_folder()
    for repo_id in (REPO_ID, SQUAD.repository, FINEWEB.repository):
        if folder is not None:
            path = locate_dataset(folder, repo_id)
            state = "found" if path.is_dir() else "not found"
            location = f"{path} ({state}; {DATA_VARIABLE} is set)"
        else:
            try:
                HfApi().dataset_info(repo_id, timeout=5)
                location = "reachable on the Hub"
            except Exception as error:
                location = (
                    f"not reachable on the Hub ({type(error).__name__}); set {DATA_VARIABLE}=/path "
                    "to read a local folder"
                )
        yield CheckResult(None, f"data {repo_id}: {location}")


HEADINGS = ("Task", "Language", "Documents", "Questions")
NOTE = (
    "LANGUAGE is one of {languages}; `posir tasks German` lists the tasks of a language. About: "
    "the average of PosIR's ten languages (arXiv 2601.08363). Blank: not published."
)
ADVICE = """mteb run -m MODEL -t {task}          # one task
posir run --plan -m MODEL -t {task}  # how long it takes
mteb run -m MODEL -b PosIR                       # or "PosIR(nano)", PosQ"""
#: Headings in order, each with a pattern of task names.
GROUPS = (
    (
        "Small, to start with: PosIR-Mini needs no download, a Nano takes about 15 minutes",
        r"-(Mini|Nano|Tiny)$",
    ),
    (
        "PosIR in one language: English takes about 15 hours with MiniLM on two CPU cores",
        r"^PosIR-[^-]+$",
    ),
    ("PosIR across languages: questions in LANGUAGE, documents in English", r"^PosIR-"),
    ("PosQ: by the position of the answer in a passage", r"-PosQ"),
    ("Others: after posir import", ""),
)
#: Placeholder for the language in the names of tasks that differ only in their language.
LANGUAGE_PLACEHOLDER = "LANGUAGE"


def _find_group(task: DeclaredTask) -> int:
    return next(index for index, (_, pattern) in enumerate(GROUPS) if re.search(pattern, task.name))


def _describe_task(task: DeclaredTask) -> Record:
    languages = task.languages
    subsets = list(languages.values()) if isinstance(languages, Mapping) else [languages]
    pairs = dict.fromkeys((codes[0], codes[-1]) for codes in subsets)
    query_language, document_language = next(iter(pairs))
    if len(pairs) > 1:
        query_language, document_language = f"{len(pairs)} languages", "the same"
    return {
        "task": task.name,
        "query_language": query_language,
        "document_language": document_language,
        "subsets": len(subsets),
        "documents": task.documents,
        "questions": task.questions,
        "benchmark": task.benchmark,
        "data": f"{task.repository}@{task.revision[:12]}",
    }


@public()
def tasks(word: str | None = None) -> Result:
    """List the position-aware tasks that `mteb run -t` accepts.

        posir tasks
        posir tasks German

    Without a word, tasks that differ only in their language share a line; `--format csv` lists all.

    Args:
        word: Part of a task's name or language.

    Returns:
        A row for each task, small tasks first: name, languages of queries and documents, numbers of
        subsets, documents and questions (if published), benchmark and data.

    Raises:
        UsageError: No task matches the word.

    Examples:
        >>> import posir
        >>> "PosIR-Mini" in posir.tasks().to_polars()["task"]
        True
    """
    language_names = {language.code: language.name for language in LANGUAGES}
    all_tasks = sorted(
        declare_tasks(),
        key=lambda task: (
            _find_group(task),
            task.name != MINI.name,
            "-PosQ" in task.name,
            task.name,
        ),
    )
    rows = []
    # Without a word, a line contains the tasks that differ only in their language.
    tasks_by_line = defaultdict[tuple[int, str, str], list[DeclaredTask]](list)
    for task in all_tasks:
        row = _describe_task(task)
        codes = [row["query_language"], row["document_language"]]
        task_languages = [language_names.get(code) or code for code in codes if code != "the same"]
        language = ", ".join(dict.fromkeys(task_languages))
        if word and word.lower() not in f"{task.name} {language}".lower():
            continue
        rows.append(row)
        name = task.name
        language_name = "".join(name.split("-")[1:2])
        if language_name in language_names.values() and not word:
            name = name.replace(language_name, LANGUAGE_PLACEHOLDER, 1)
            language = language.replace(language_name, LANGUAGE_PLACEHOLDER, 1)
        tasks_by_line[_find_group(task), name, language].append(task)
    if not rows:
        suggestion = suggest_name(word or "", (task.name for task in all_tasks))
        raise UsageError(
            f"No task has '{word}' in its name or language.{suggestion} `posir tasks` lists all."
        )
    cells: list[tuple[str, ...]] = []
    for (group, name, language), members in tasks_by_line.items():
        heading = (GROUPS[group][0], "", "", "")
        if heading not in cells:
            cells.append(heading)
        sizes = map(format_size, (members[0].documents, members[0].questions))
        cells.append(
            (name, language.replace(LANGUAGE_PLACEHOLDER, f"{len(members)} languages"), *sizes)
        )
    columns = build_columns(HEADINGS, HEADINGS[2:], roles={"Task": Role.NAME})
    note = f"{len(rows)} of {len(all_tasks)} tasks; `posir tasks` lists all."
    if not word:
        note = NOTE.format(languages=", ".join(sorted(language_names.values())))
    return Result(
        title="Tasks",
        rows=rows,
        tables=[Table(columns, tuple(cells))],
        notes=[note],
        footer=[ADVICE.format(task=rows[0]["task"] if word else "PosIR-English-Nano")],
    )


@public()
def rescore(results: str | Path) -> Result:
    """Recompute the scores of saved results from their position profiles, without the model.

        posir rescore results

    Args:
        results: The --output-folder of mteb run.

    Returns:
        A row for each file: its path and the number of rescored profiles.

    Raises:
        PosirError: No result has a position profile, or a file cannot be read or written.

    Examples:
        >>> import posir
        >>> posir.rescore("results").to_polars()["profiles"].to_list()
        [1, 1]
    """
    counts: dict[Path, int] = {}
    for file in track_items(find_result_files(Path(results)), "Rescoring"):
        try:
            counts[file] = rescore_file(file)
        except ForeignFileError as error:
            logger.warning("skipped: %s", error)
    rows = [{"file": str(file), "profiles": count} for file, count in counts.items() if count]
    if not rows:
        raise PosirError(
            f"No result below {results} has a position profile; nothing was written. Pass an "
            "--output-folder of `mteb run` with results of position-aware tasks."
        )
    profiles = pluralize(sum(counts.values()), "profile")
    return Result(
        title="Rescored results",
        rows=rows,
        sentences=[f"{results}: rescored {profiles} in {pluralize(len(rows), 'file')}"],
    )
