"""`posir.submit`, and `posir leaderboard build`, `pin`, `push` and `serve`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import BRIEF_SECONDS, track
from posir_tasks.base.public import Option, public, to_list
from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.display.presentation import Result

if TYPE_CHECKING:
    from posir_leaderboard.entries import Entry, EntryProblem
    from posir_leaderboard.submission import Commit, HuggingFaceHub

#: Default folder of the site.
SITE = Path("leaderboard-site")


@public()
def leaderboard_build(
    *,
    results: str | Path,
    output: str | Path = SITE,
    url: str = "",
    stats: str | Path | Iterable[str | Path] | None = None,
    strict: bool = False,
) -> Result:
    """Build the site from results with position profiles and the published results of the papers.

        posir leaderboard build --results results

    Scored results are cached. Unusable files are reported and excluded.

    Args:
        results: The --output-folder of `mteb run`, or ORG/NAME of a dataset repository.
        output: Folder for the site; an earlier site in it is updated.
        url: Future address of the site, for link previews.
        stats: Output of `posir stats TASK --format json`: query counts for published results.
        strict: Exit 1 if a result is excluded or not ranked.

    Returns:
        A summary; a row for each result that is excluded, not ranked or otherwise noteworthy.

    Raises:
        PosirError: The results do not exist, or the folder cannot be written.

    Examples:
        >>> import posir
        >>> print(posir.leaderboard_build(results="results"))  # doctest: +SKIP
    """
    from posir_leaderboard.results_folder import open_results

    source = str(results)
    with open_results(source) as source_results:
        from posir_leaderboard.board.build import build_site
        from posir_tasks.base.files import get_cache_folder

        repository = source_results.repository
        statistics = map(Path, to_list(stats))
        cache = get_cache_folder() / "board"
        outcome = build_site(
            source_results.folder, Path(output), cache, repository, url, statistics
        )
    remarks = {
        "excluded": [source_results.replace_path(str(problem)) for problem in outcome.problems],
        "model not looked up": outcome.lookup_problems,
        "not ranked": outcome.unranked,
        "in a separate table, since the data differ": outcome.separate_tables,
        "kept, since someone edited it": outcome.kept_files,
    }
    lines = [f"{remark}: {text}" for remark, texts in remarks.items() for text in texts]
    if repository and not (outcome.results or outcome.problems):
        lines.append(
            f"{source} has no results; pull requests count once merged. Send some: posir submit "
            f"results --repo {source}"
        )
    if outcome.unpinned:
        tasks = " ".join(outcome.unpinned)
        lines.append(
            f"the data of {tasks} have no pin. Pin them: posir leaderboard pin {tasks} --results "
            f"{shlex.quote(source)}"
        )
    summary = (
        f"{output}: {pluralize(outcome.models, 'model')}; {pluralize(outcome.results, 'result')}, "
        f"{outcome.scored:,} of them newly scored; {pluralize(outcome.changed_files, 'file')} "
        f"changed. View it: posir leaderboard serve --site {output}"
    )
    return Result(
        title=summary,
        rows=[{"remark": line} for line in lines],
        footer=(summary,),
        warnings=lines,
        exit_status=int(strict and bool(outcome.problems or outcome.unranked)),
    )


@public()
def leaderboard_pin(tasks: str | Iterable[str], *, results: str | Path) -> Result:
    """Pin the current content of the data on which a task's results are ranked.

    Pins are saved in pins.json of the folder or repository. Committing to a repository requires
    membership.

    Args:
        tasks: Names of tasks, as in `posir tasks`.
        results: A folder of results, or ORG/NAME of a dataset repository.

    Returns:
        The location of the pins; a row for each task.

    Raises:
        PosirError: A task, the folder or the repository does not exist, or the data cannot be read.

    Examples:
        >>> import posir
        >>> posir.leaderboard_pin("PosIR-English", results="org/results")  # doctest: +SKIP
    """
    from posir_leaderboard.board.comparable import compute_pin, format_pins, read_pins
    from posir_leaderboard.entries import PINS
    from posir_leaderboard.results_folder import open_results
    from posir_leaderboard.submission import Commit, HuggingFaceHub, upload
    from posir_tasks.base.files import write_text

    source = str(results)
    names = to_list(tasks)
    with open_results(source, [PINS]) as source_results:
        file = source_results.folder / PINS
        pins = read_pins(source_results.folder, source_results.repository) or {}
        pins |= {task: compute_pin(task) for task in names}
        write_text(file, format_pins(pins))
        location = f"{file}: {pluralize(len(pins), 'task')} pinned"
        if source_results.repository:
            title = f"Pin the data of {', '.join(names)}"
            commit = Commit(
                "dataset", source, {PINS: file.read_bytes()}, title, title, source_results.commit
            )
            location = upload(commit, HuggingFaceHub(direct=True)).location
    return Result(
        title="Pins", rows=[{"task": task, "results": source} for task in names], footer=(location,)
    )


@public()
def leaderboard_serve(
    *, site: str | Path = SITE, port: Annotated[int, Option(min=0, max=65535)] = 8000
) -> Result:
    """Serve a site on this machine only, until Ctrl-C.

    Args:
        site: Folder of the site.
        port: Local port; 0 takes any free one.

    Returns:
        The local address.

    Raises:
        PosirError: The folder has no site, or the port is taken.

    Examples:
        >>> import posir
        >>> posir.leaderboard_serve(port=8000)  # doctest: +SKIP
    """
    from posir_leaderboard.board.folder import HOST, create_server

    with create_server(Path(site), port) as server:
        address = f"http://{HOST}:{server.server_port}/"
        print(f"{address}  (Ctrl-C ends)", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    return Result(title=address, rows=[{"address": address}])


@public()
def leaderboard_push(*, space: str, site: str | Path = SITE) -> Result:
    """Upload the changed files of a site to a static Space of the Hugging Face Hub.

    Args:
        space: ORG/NAME of a static Space; created if missing.
        site: Folder of the site.

    Returns:
        The address of the commit.

    Raises:
        PosirError: The folder has no site, or the Hub refuses it.

    Examples:
        >>> import posir
        >>> posir.leaderboard_push(space="org/leaderboard")  # doctest: +SKIP
    """
    from posir_leaderboard.board.folder import push_site

    address = str(push_site(Path(site), space).commit_url)
    return Result(title=space, rows=[{"commit": address}], footer=(address,))


@public()
def submit(
    results: str | Path | Iterable[str | Path],
    *,
    repo: str | None = None,
    dry_run: bool = False,
    direct: bool = False,
    eval_results: bool = False,
    model_card: str | Path | None = None,
) -> Result:
    """Check a model's results and send them to a leaderboard in a pull request.

        posir submit results --dry-run
        posir submit results/results/org__model --model-card README.md

    Files that the leaderboard already has are not sent again. Sending needs huggingface_hub's
    token: `hf auth login`, or HF_TOKEN. --dry-run needs neither token nor repository, and checks
    results of any number of models; --format json prints the problems.

    Args:
        results: Folders with results in mteb's layout, such as a model's.
        repo: The leaderboard's dataset repository on the Hub, owner/name. Needed to send.
        dry_run: Check and send nothing; exit 1 if a check fails. With --repo, show the files.
        direct: Commit to the main branch instead of opening a pull request.
        eval_results: Also open a pull request with nDCG@10 on the model's own repository.
        model_card: Write the scores with their intervals into a section of this file, such as the
            model's README.md; a later run replaces the section. Without --repo, nothing is checked
            or sent, and the model may be a local folder.

    Returns:
        The problems and the sent files; a row for each problem.

    Raises:
        PosirError: A check fails without --dry-run, the repository is missing, or the Hub refuses
            the commit.

    Examples:
        >>> import posir
        >>> posir.submit("results", dry_run=True).exit_status  # doctest: +SKIP
        0
    """
    if repo is None and not (dry_run or model_card):
        raise PosirError(
            "--repo is missing. Use --repo OWNER/NAME for the leaderboard's dataset repository, "
            "--dry-run to only check the results, or --model-card to write a model card."
        )
    entries, problems = find_entries(map(Path, to_list(results)))
    if repo or dry_run:
        problems += _validate(entries)
    if problems and not dry_run:
        lines = [*map(str, problems), f"Problems: {len(problems)}; nothing was sent."]
        raise PosirError("\n".join(lines))
    models = {entry.model for entry in entries}
    summary = f"results: {len(entries)}, models: {len(models)}, problems: {len(problems)}"
    title = pluralize(len(problems), "problem")
    if model_card and not dry_run:
        _write_card(Path(model_card), entries)
    if repo is None or problems:
        return Result(
            title=title,
            rows=[asdict(problem) for problem in problems],
            footer=[*map(str, problems)],
            warnings=[summary],
            exit_status=int(bool(problems)),
        )
    # huggingface_hub is slow to import.
    from posir_leaderboard.submission import (
        HuggingFaceHub,
        build_eval_results,
        build_submission,
        upload,
    )

    hub = HuggingFaceHub(direct=direct)
    submission = build_submission(entries, repo)
    uploads = [(submission, hub)]
    if eval_results:
        uploads.append((build_eval_results(entries, hub.build_url(submission)), HuggingFaceHub()))
    if dry_run:
        lines = [line for commit, hub in uploads for line in _describe_commit(commit, hub)]
        return Result(title=title, footer=lines, warnings=[summary, "nothing was sent (--dry-run)"])
    lines = []
    for commit, hub in uploads:
        try:
            lines.append(upload(commit, hub, report=_report).describe(commit))
        except PosirError as error:
            # Also report the commits that were already sent.
            raise PosirError("\n".join([*lines, str(error)])) from error
    return Result(title=title, footer=lines)


def _describe_commit(commit: Commit, hub: HuggingFaceHub) -> Iterator[str]:
    method = "one commit to the main branch" if hub.direct else "one commit in one pull request"
    yield f"{commit.repository}, {method}: {commit.title}"
    for path, body in commit.files.items():
        yield f"  {path}  {len(body):,} bytes"


def _write_card(card: Path, entries: Sequence[Entry]) -> None:
    from posir_leaderboard.model_card import render_section, write_section

    models = sorted({f"{entry.model}, revision {entry.revision}" for entry in entries})
    if len(models) > 1:
        raise PosirError(
            f"--model-card needs the results of a single model, and there are several: "
            f"{'; '.join(models)}. Give the folder of one model."
        )
    write_section(card, render_section(result for entry in entries for result in entry.subsets))
    _report(f"written: {card}")


def _report(text: str) -> None:
    print(sanitize(text, None), file=sys.stderr)


def find_entries(folders: Iterable[Path]) -> tuple[list[Entry], list[EntryProblem]]:
    """Read every file below the folders once; return the entries and the problems."""
    from posir_leaderboard.entries import find_entry_files, read_entries

    entries: dict[Path, Entry] = {}
    problems: list[EntryProblem] = []
    experiments: list[Path] = []
    explanation = (
        "results with settings that are neither the model's own nor a protocol (in `experiments`) "
        "cannot be submitted"
    )
    for folder in folders:
        folder_entries, folder_problems = read_entries(folder)
        folder_experiments = list(find_entry_files(folder, experiments=True))
        if not (folder_entries or folder_problems):
            missing = "contains no result with a position profile"
            reason = explanation if folder_experiments else missing
            raise PosirError(f"{folder}: {reason}. Give the --output-folder of `mteb run`.")
        entries |= {entry.file: entry for entry in folder_entries}
        problems += folder_problems
        experiments += folder_experiments
    if experiments:
        count = pluralize(len(set(experiments)), "result")
        _report(f"skipped: {count}, first {sanitize(str(experiments[0]), 300)}: {explanation}")
    # Folders may overlap.
    return list(entries.values()), list(dict.fromkeys(problems))


def _validate(entries: Sequence[Entry]) -> Iterator[EntryProblem]:
    if not entries:
        return
    # Tasks import mteb, which takes seconds.
    with track("Loading mteb", delay=BRIEF_SECONDS):
        from posir_leaderboard.identity import identify_models, list_lookup_problems
        from posir_leaderboard.validation import validate_entry
        from posir_tasks.base.files import get_cache_folder
        from posir_tasks.models.references import find_origin

    # By task, so that each dataset is read once.
    for entry in sorted(entries, key=attrgetter("task")):
        yield from validate_entry(entry)
    public = [entry for entry in entries if not find_origin(entry.model)]
    models = [(entry.model, entry.revision) for entry in public]
    identities = identify_models(models, get_cache_folder() / "board" / "models")
    for line in list_lookup_problems(identities):
        _report(f"model not looked up: {line}")
    for entry in public:
        if problem := identities[entry.model, entry.revision].problem:
            yield entry.make_problem(f"{entry.model} {problem}", "name")
