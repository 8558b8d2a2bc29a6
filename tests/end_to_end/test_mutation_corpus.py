"""Damaged files and answers at every door: no traceback, no hang, no silence, and no number but of
what is not damaged.
"""

import base64
import csv
import gzip
import hashlib
import io
import itertools
import json
import math
import random
import re
import resource
import shutil
import traceback
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from operator import itemgetter
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pytest
import pytrec_eval
import yaml
from mteb.cache import ResultCache

from posir_tasks.base.errors import PosirError
from posir_tasks.models.endpoint_models import EndpointEncoder
from posir_tasks.models.references import Endpoint
from tests.support.damage import (
    Ended,
    WrongError,
    call_posir,
    check_ended,
    choose_place,
    damage_bytes,
    damage_json,
    damage_json_text,
    noted,
    time_limit,
    try_cases,
)
from tests.support.datasets import ASKED, POSIR_FOLDER, TEXTS, posir_tables, write_domain
from tests.support.embedding_server import serve_embeddings
from tests.support.guessing import write_guesses
from tests.support.human_answers import mini_documents, write_documents
from tests.support.models import write_tiny_model

# Workers of pytest-xdist cannot send warnings with damaged names.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

#: Cases by door.
CASES = {
    **{
        "report": 600,
        "compare": 300,
        "rescore": 300,
        "submit": 300,
        "board": 100,
        "score": 900,
        "settings": 300,
    },
    **{"endpoint": 1_000, "model": 300},
}
#: What an endpoint is sent, and may repeat.
KEY = "sk-key/of+the-corpus=1"
DOMAINS = ("sports", "game", "mining")
#: The entries of a result that its numbers follow from; damage is most often to these.
STORED = (
    "position_profile",
    "document_ranks",
    "read_ranks",
    "document_keys",
    "position_run",
    "read",
    "position_scores",
)
#: Queries and nDCG@10.
Numbers = tuple[int, float]
#: Numbers by length of each model, revision and task.
Shown = dict[tuple[str, str, str], dict[str, Numbers]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Real results of three models: on PosIR-Mini, and of two of them on three English domains."""
    root = tmp_path_factory.mktemp("corpus")
    for number, domain in enumerate(DOMAINS):
        texts = {
            name: f"{text} This is about {domain}." * (number + 1) for name, text in TEXTS.items()
        }
        write_domain(
            root / "data" / POSIR_FOLDER,
            posir_tables(texts, dict(list(ASKED.items())[number % 2 :])),
            domain=domain,
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POSIR_DATA", str(root / "data"))
        patch.setenv("POSIR_CACHE", str(root / "cache"))
        tasks = [mteb.get_task("PosIR-Mini"), mteb.get_task("PosIR-English")]
        mteb.evaluate(
            mteb.get_model("mteb/baseline-bm25s"), tasks[:1], cache=ResultCache(root / "honest")
        )
        write_guesses(root / "honest", tasks)
        write_guesses(root / "honest", tasks, name="org/third", window=None, seed=1)
        yield root / "honest"


def decode(column: str) -> list[int]:
    """Return a stored column of numbers below 128."""
    if column.startswith("z"):
        return list(zlib.decompress(base64.b85decode(column[1:])))
    return [1] * int(column)


def recompute(entry: dict[str, Any]) -> dict[str, tuple[int, float]]:
    """Return queries and the sum of their nDCG@10 by length, computed from the stored ranks
    alone.
    """
    lengths = [name.lower() for name in entry["position_profile"]["axes"]["lengths"]]
    cells = [int(cell.partition(":")[0]) for cell in entry["document_ranks"]["cells"].split()]
    groups: dict[str, tuple[int, float]] = {}
    for part in entry["document_ranks"]["sets"]:
        for cell, column in zip(decode(part["cells"]), decode(part["ranks"]), strict=True):
            gain = 1 / math.log2(column + 2) if column < 10 else 0.0
            for name in ("all", *([lengths[cells[cell]]] if len(lengths) > 1 else [])):
                queries, total = groups.get(name, (0, 0.0))
                groups[name] = queries + 1, total + gain
    return groups


def pool(entries: list[dict[str, tuple[int, float]]]) -> dict[str, Numbers]:
    """Return queries and mean nDCG@10 by length over several subsets."""
    names = {name for entry in entries for name in entry}
    sums = {
        name: [
            sum(values)
            for values in zip(*(entry[name] for entry in entries if name in entry), strict=True)
        ]
        for name in names
    }
    return {name: (int(queries), total / queries) for name, (queries, total) in sums.items()}


def allowed_numbers(file: Path) -> list[dict[str, Numbers]]:
    """Return the numbers that a result may have after damage: of all its subsets, or of some of
    them.
    """
    entries = [
        recompute(entry)
        for split in json.loads(file.read_text())["scores"].values()
        for entry in split
    ]
    return [
        pool(list(some))
        for size in range(len(entries), 0, -1)
        for some in combinations(entries, size)
    ]


def same_numbers(
    shown: dict[str, Numbers], expected: dict[str, Numbers], tolerance: float = 1e-9
) -> bool:
    return shown.keys() == expected.keys() and all(
        math.isclose(*pair, abs_tol=tolerance)
        for name in shown
        for pair in zip(shown[name], expected[name], strict=True)
    )


def damage_result(results: Path, copy: Path, draw: random.Random) -> tuple[str, Path]:
    """Copy results and damage one file of them; return what was done, and the file."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(results, copy)
    files = sorted(copy.rglob("PosIR-*.json"))
    if draw.random() < 0.1:
        file = draw.choice(files).with_name("model_meta.json")
        what, content = damage_json_text(file.read_text(), draw)
    else:
        file, place = draw.choice(files), None
        value = json.loads(file.read_text())
        if draw.random() < 0.75:
            place = ("scores", "test", draw.randrange(len(value["scores"]["test"])))
            inside = value["scores"]["test"][place[2]]
            key = draw.choice([key for key in STORED if key in inside])
            place = (*place, key, *choose_place(inside[key], draw))
        what, content = damage_json_text(file.read_text(), draw, place)
    if content == file.read_bytes():
        return damage_result(results, copy, draw)
    file.write_bytes(content)
    return f"{file.parent.parent.name}/{file.name}: {what[:200]}", file


def try_results(
    door: str,
    results: Path,
    copy: Path,
    arguments: tuple[str | Path, ...],
    check: Callable[[Ended, Path], None],
    said: tuple[str, ...] = (),
) -> None:
    """Call a command with damaged copies of results; check what it ends with, an error by the names
    in it alone.
    """

    def examine(draw: random.Random) -> bool:
        what, file = damage_result(results, copy, draw)
        with noted(what):
            ended = call_posir(*arguments)
            check_ended(ended, [file.name, str(copy), *said])
            if not ended.status:
                check(ended, file)
        return not ended.status

    try_cases(door, CASES[door], examine)


def shown_numbers(report: list[dict[str, Any]]) -> Shown:
    """Return the numbers of a report by model, revision and task; a task whose data differ is named
    with them.
    """
    return {
        (row["model"], row["revision"], row["task"].partition(" (")[0]): {
            group: (values["scores"]["queries"], values["scores"]["ndcg_at_10"])
            for group, values in row["position_scores"].items()
            if values["scores"]["queries"]
        }
        for row in report
    }


def test_report(results: Path, tmp_path: Path):
    whole = shown_numbers(json.loads(call_posir("report", results, "--format", "json").printed))
    assert len(whole) == 5
    for (model, _, task), numbers in whole.items():
        (file,) = results.rglob(f"{model.replace('/', '__')}/*/{task}.json")
        assert same_numbers(numbers, allowed_numbers(file)[0])

    def check(ended: Ended, file: Path) -> None:
        check_rows(whole, shown_numbers(json.loads(ended.printed)), file, ended.said, results)

    copy = tmp_path / "copy"
    try_results("report", results, copy, ("report", copy, "--format", "json"), check)


def check_rows(whole: Shown, shown: Shown, file: Path, said: str, results: Path) -> None:
    """Raise WrongError if a number is not that of the undamaged parts, or a result is left out
    without a word.
    """
    origin = results / file.relative_to(file.parents[3])
    files = (
        [origin] if origin.name.startswith("PosIR") else sorted(origin.parent.glob("PosIR-*.json"))
    )
    model = json.loads((origin.parent / "model_meta.json").read_text())["name"]
    touched = {
        key for key in whole if key[0] == model and key[2] in {touched.stem for touched in files}
    }
    for key in whole.keys() - touched:
        if not same_numbers(shown.get(key, {}), whole[key]):
            raise WrongError(f"{key} has {shown.get(key)} instead of {whole[key]}")
    allowed = [numbers for touched_file in files for numbers in allowed_numbers(touched_file)]
    others = [numbers for key, numbers in shown.items() if key not in whole or key in touched]
    for numbers in others:
        if not any(same_numbers(numbers, expected) for expected in allowed):
            raise WrongError(f"{numbers} instead of {allowed[0]}")
    if len(others) < len(files) and file.name not in said:
        raise WrongError(f"left out without a word: {said[-300:]!r}")


def test_compare(results: Path, tmp_path: Path):
    """Of each comparison, both sides and the difference are those of undamaged parts."""
    allowed = {
        (file.parent.parent.name, file.stem): allowed_numbers(file)
        for file in results.rglob("PosIR-*.json")
    }

    whole = {
        ("mteb/baseline-bm25s", "PosIR-Mini"),
        ("org/third", "PosIR-Mini"),
        ("org/third", "PosIR-English"),
    }

    def check(ended: Ended, file: Path) -> None:
        rows = [
            row for row in json.loads(ended.printed)["comparisons"] if row["metric"] == "nDCG@10"
        ]
        for row in rows:
            for side, name in (("a", row["baseline"]), ("b", row["model"])):
                check_side(row, side, name, file, allowed)
            # A single question that both have is no comparison.
            if row["difference"] is None and (row["queries"], row["reason"]) == (1, "not_compared"):
                continue
            if not math.isclose(row["b"] - row["a"], row["difference"], abs_tol=1e-9):
                raise WrongError(f"{row['b']} - {row['a']} is not {row['difference']}")
        compared = {(row["model"], row["task"].partition(" (")[0]) for row in rows}
        if not compared >= whole and not any(
            word in ended.everything for word in (file.name, "has no results")
        ):
            raise WrongError(f"{whole - compared} left out without a word")

    copy, baseline = tmp_path / "copy", "org/guessing"
    arguments = ("compare", "--results", copy, "--baseline", baseline, "--format", "json")
    try_results("compare", results, copy, arguments, check, (baseline,))


def check_side(
    row: dict[str, Any],
    side: str,
    model: str,
    file: Path,
    allowed: dict[tuple[str, str], list[dict[str, Numbers]]],
) -> None:
    """Raise WrongError if a score is not that of undamaged parts of the result that it is said to
    be of.
    """
    folder, task = model.replace("/", "__"), row["task"].partition(" (")[0]
    touched, length = file.parent.parent.name, row["length"].lower()
    # A damaged name may be any.
    known = allowed.get((folder, task)) or [
        numbers for key, value in allowed.items() if key[0] == touched for numbers in value
    ]
    shown = (row["queries"], row[side])
    if any(
        same_numbers({length: shown}, {length: numbers[length]})
        for numbers in known
        if length in numbers
    ):
        return
    raise WrongError(
        f"{model} has {shown} on {row['task']}, {row['length']} instead of "
        f"{known[0].get(row['length'].lower())}"
    )


def test_rescore(results: Path, tmp_path: Path):
    """What is rescored has the scores of its ranks, and keeps all else; what is not rescored is
    left as it is, and named.
    """

    def examine(draw: random.Random) -> bool:
        what, file = damage_result(results, tmp_path / "copy", draw)
        before = {
            path: (path.read_bytes(), path.stat().st_mtime_ns)
            for path in (tmp_path / "copy").rglob("PosIR-*.json")
        }
        with noted(what):
            ended = call_posir("rescore", tmp_path / "copy")
            check_ended(ended, [file.name, str(tmp_path / "copy")])
            for path, (content, written) in before.items():
                if path.stat().st_mtime_ns != written:
                    check_rescored(results / path.relative_to(path.parents[3]), path, content)
                elif path.read_bytes() != content or file.name not in ended.everything:
                    raise WrongError(f"{path.name} is left out without a word")
        return not ended.status

    try_cases("rescore", CASES["rescore"], examine)


def check_rescored(origin: Path, file: Path, before: bytes) -> None:
    """Raise WrongError if a file lost a score, or has another score than its undamaged ranks
    give.
    """
    expected = [
        recompute(entry)
        for split in json.loads(origin.read_text())["scores"].values()
        for entry in split
    ]
    old = [entry for split in json.loads(before)["scores"].values() for entry in split]
    new = [entry for split in json.loads(file.read_text())["scores"].values() for entry in split]
    for was, entry in zip(old, new, strict=True):
        shown = {
            name: (scores["queries"], scores["ndcg_at_10"])
            for name, scores in entry["position_scores"].items()
            if name in ("all", "q1", "q2", "q3", "q4") and scores["queries"]
        }
        if not any(same_numbers(shown, pool([groups]), 1e-6) for groups in expected):
            raise WrongError(f"{shown} instead of {expected}")
        if lost := was.keys() - entry.keys():
            raise WrongError(f"lost {lost}")


def test_submit_dry_run(results: Path, tmp_path: Path):
    """A damaged result that has no problem says what the undamaged one says."""
    mini = tmp_path / "mini"
    for folder in ("mteb__baseline-bm25s", "org__guessing"):
        shutil.copytree(results / "results" / folder, mini / "results" / folder)
    for file in mini.rglob("PosIR-English.json"):
        file.unlink()
    assert call_posir("submit", mini, "--dry-run").status == 0

    def check(_: Ended, file: Path) -> None:
        if file.name.startswith("PosIR"):
            origin = mini / file.relative_to(file.parents[3])
            check_same_result(json.loads(origin.read_bytes()), json.loads(file.read_bytes()))

    copy = tmp_path / "copy"
    try_results("submit", mini, copy, ("submit", copy, "--dry-run", "--format", "json"), check)


#: Fields of a result that say when and how it was made.
CIRCUMSTANCES = ("date", "evaluation_time", "evaluation_phases", "mteb_version", "kg_co2_emissions")
#: Scores that a profile determines in part, and mteb's, which it does not determine.
IN_PART = {f"{metric}_at_{k}" for metric in ("ndcg", "map", "mrr") for k in (20, 100)}


def check_same_result(true: Any, shown: Any, path: tuple[str | int, ...] = ()) -> None:
    """Raise WrongError if JSON differs in more than circumstances, or in the last decimal of a
    number.
    """
    if path and (
        path[0] in CIRCUMSTANCES or path[-1] in IN_PART or str(path[-1]).startswith("nauc_")
    ):
        return
    if isinstance(true, dict) and isinstance(shown, dict):
        for key in true.keys() | shown.keys():
            check_same_result(true.get(key), shown.get(key), (*path, key))
    elif isinstance(true, list) and isinstance(shown, list) and len(true) == len(shown):
        for place, pair in enumerate(zip(true, shown, strict=True)):
            check_same_result(*pair, (*path, place))
    elif (
        isinstance(true, float)
        and isinstance(shown, int | float)
        and math.isclose(true, shown, abs_tol=2e-6)
    ):
        return
    elif true != shown and not (
        isinstance(true, str) and isinstance(shown, str) and true.split() == shown.split()
    ):
        raise WrongError(
            f"{'.'.join(map(str, path))} may be {str(shown)[:100]!r} instead of {str(true)[:100]!r}"
        )


def test_board_build(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path / "cache"))
    site = tmp_path / "site"
    assert call_posir("leaderboard", "build", "--results", results, "--output", site).status == 0
    whole = board_numbers(site)
    assert len(whole) == 5

    def check(ended: Ended, file: Path) -> None:
        check_rows(whole, board_numbers(site), file, ended.said, results)

    copy = tmp_path / "copy"
    try_results(
        "board", results, copy, ("leaderboard", "build", "--results", copy, "--output", site), check
    )


def board_numbers(site: Path) -> Shown:
    """Return the numbers of results on a board by model, revision and task; one whose data differ
    is named with them.
    """
    numbers: Shown = {}
    for row in csv.DictReader(
        gzip.decompress((site / "scores.csv.gz").read_bytes()).decode().splitlines()
    ):
        if row["published"] == "false" and int(row["queries"]):
            key = row["model"], row["revision"], row["task"].partition(" (")[0]
            numbers.setdefault(key, {})[row["length"].lower()] = (
                int(row["queries"]),
                float(row["ndcg_at_10"]),
            )
    return numbers


@pytest.fixture(scope="module")
def judged() -> dict[str, dict[str, int]]:
    from posir_score.scored_data import open_scored_data
    from posir_tasks.datasets.opening import open_data

    (subset,) = open_scored_data(open_data("PosIR-Mini")).subsets
    return {query: dict(grades) for query, grades in subset.judgments.grades.items()}


def draw_rankings(judged: dict[str, dict[str, int]]) -> dict[str, dict[str, float]]:
    """Return a run with the relevant document of most queries among six."""
    draw = random.Random(3)
    documents = sorted({document for grades in judged.values() for document in grades})
    run = {}
    for query, grades in judged.items():
        hits = draw.sample(documents, 6)
        if draw.random() < 0.6:
            hits[draw.randrange(6)] = next(iter(grades))
        run[query] = {
            document: round(20 - place + draw.random() / 2, 6)
            for place, document in enumerate(dict.fromkeys(hits))
        }
    return run


def read_again(content: bytes, suffix: str) -> dict[str, dict[str, float]]:
    """Return what a damaged run says, read by other means: the highest score of a repeated document
    counts.
    """
    text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    rows: list[tuple[Any, Any, Any]] = []
    run: dict[str, dict[str, float]] = {}
    csv.field_size_limit(2**24)
    columns = itemgetter("query_id", "document_id", "score")
    if suffix == ".trec":
        rows = [read_trec(line.split()) for line in text.split("\n") if line.strip()]
    elif suffix == ".csv":
        rows = [
            columns(row)
            for row in csv.DictReader(io.StringIO(text, newline=""))
            if any(row.values())
        ]
    elif suffix == ".jsonl":
        rows = [columns(json.loads(line)) for line in text.split("\n") if line.strip()]
    else:
        for query, hits in json.loads(text).items():
            run[query] = {}
            ranked = [
                hit if isinstance(hit, list) else (hit, len(hits) - place)
                for place, hit in enumerate(hits)
            ]
            rows += [(query, *hit) for hit in (hits.items() if isinstance(hits, dict) else ranked)]
    for query, document, score in rows:
        hits = run.setdefault(str(query), {})
        hits[str(document)] = max(float(score), hits.get(str(document), -math.inf))
    return run


def read_trec(cells: list[str]) -> tuple[str, str, str]:
    """Return query, document and score of a line; blanks belong to a document if rank and score can
    be in one place alone.
    """
    number = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
    places = [
        place
        for place in range(3, len(cells) - 1)
        if cells[place].isdecimal() and number.fullmatch(cells[place + 1])
    ]
    rank = places[0] if len(cells) > 5 and len(places) == 1 else 3
    return cells[0], " ".join(cells[2:rank]), cells[rank + 1]


def judge(
    run: dict[str, dict[str, float]], judged: dict[str, dict[str, int]]
) -> tuple[float, float]:
    """Return nDCG@10 and Recall@100 of a run over all judged queries by pytrec_eval."""
    rows = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.10", "recall.100"}).evaluate(
        {query: hits for query, hits in run.items() if hits}
    )
    return tuple(
        sum(row[name] for row in rows.values()) / len(judged)
        for name in ("ndcg_cut_10", "recall_100")
    )  # type: ignore[return-value]


def test_score(judged: dict[str, dict[str, int]], tmp_path: Path):
    """What is scored is what the damaged file says, by pytrec_eval; queries that it lost are
    refused.
    """
    run, output = (
        draw_rankings(judged),
        ("--output", tmp_path / "out", "--overwrite", "--format", "json"),
    )
    rows = [
        (query, name, rank, score)
        for query, hits in run.items()
        for rank, (name, score) in enumerate(hits.items(), 1)
    ]
    objects = (
        {"query_id": query, "document_id": name, "score": score} for query, name, _, score in rows
    )
    written = {
        ".trec": "".join(
            f"{query} Q0 {name} {rank} {score} tag\n" for query, name, rank, score in rows
        ),
        ".csv": "".join(
            [
                "query_id,document_id,score\n",
                *(f"{query},{name},{score}\n" for query, name, _, score in rows),
            ]
        ),
        ".jsonl": "".join(f"{json.dumps(row)}\n" for row in objects),
        ".json": json.dumps(run),
    }

    def examine(draw: random.Random) -> bool:
        suffix = draw.choice(list(written))
        text, lacks_scores = written[suffix], suffix == ".json" and draw.random() < 0.3
        if lacks_scores:
            what, content = remove_scores(run, draw)
        elif suffix == ".json" and draw.random() < 0.7:
            what, content = damage_json_text(text, draw)
        elif suffix != ".json" and draw.random() < 0.6:
            what, content = damage_row(text, suffix, draw)
        else:
            what, content = damage_bytes(text.encode(), draw)
        file = tmp_path / f"run{suffix}"
        file.write_bytes(content)
        with noted(f"{suffix}: {what}"):
            ended = call_posir("score", file, "--data", "PosIR-Mini", *output)
            # What does not fit the data is said of the run by its name.
            check_ended(ended, [file.name, "run: "])
            if ended.status:
                return False
            if lacks_scores:
                raise WrongError("hits without a score were ranked")
            (row,) = json.loads(ended.printed)
            expected = judge(read_again(content, suffix), judged)
            shown = row["ndcg_at_10"], row["recall_at_100"]
            if not all(
                math.isclose(*pair, abs_tol=1e-9) for pair in zip(shown, expected, strict=True)
            ):
                raise WrongError(f"{shown} instead of {expected}")
        return True

    try_cases("score", CASES["score"], examine)


def remove_scores(run: dict[str, dict[str, float]], draw: random.Random) -> tuple[str, bytes]:
    """Return what was done, and a run in one of the forms of JSON in which some hits of a few
    queries have no score.
    """
    form, changed = draw.choice(["object", "pairs", "rows", "columns", "hits"]), {}
    chosen = set(draw.sample(sorted(run), draw.randint(1, 5)))
    for query, stated in run.items():
        hits: list[tuple[str, float | None]] = [*stated.items()]
        for place in (
            draw.sample(range(len(hits)), draw.randint(1, len(hits) - 1)) if query in chosen else []
        ):
            hits[place] = hits[place][0], None
        named = [
            {"doc_id": name} | ({} if score is None and draw.random() < 0.5 else {"score": score})
            for name, score in hits
        ]
        changed[query] = {
            "object": dict(hits),
            "pairs": hits,
            "rows": named,
            "columns": {"ids": [name for name, _ in hits], "scores": [score for _, score in hits]},
            "hits": {
                "hits": {
                    "hits": [{"_id": name, "_score": score, "_source": {}} for name, score in hits]
                }
            },
        }[form]
    return f"{form}: no score in {len(chosen)} queries", json.dumps(changed).encode()


#: Cells that replace a cell of a run.
CELLS = (
    "",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "9" * 400,
    "1_0",
    "٣",
    "0x10",
    "1,5",
    "-7",
    "1e3",
    "+4.5",
    "1e-400",
    "\0",
    "\ufeff",
    "é",
    '"',
    '"a,b"',
    "null",
    "\u2028",
    "x" * 140_000,
    "true",
    " 5 ",
    "d\u00a0d",
    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
)


def damage_row(text: str, suffix: str, draw: random.Random) -> tuple[str, bytes]:
    """Return what was done, and a run in which one row has another cell, one more or fewer, or
    another order.
    """
    lines = text.splitlines()
    at = draw.randrange(len(lines))
    if suffix == ".jsonl":
        what, changed = damage_json_text(lines[at], draw)
        changed_lines = [*map(str.encode, lines[:at]), changed, *map(str.encode, lines[at + 1 :])]
        return f"line {at + 1}: {what}", b"\n".join(changed_lines)
    mark = "," if suffix == ".csv" else " "
    cells = lines[at].split(mark)
    place, cell = draw.randrange(len(cells)), draw.choice(CELLS)
    kind = draw.choice(
        ["replace", "replace", "replace", "insert", "remove", "exchange", "another row's"]
    )
    other = draw.choice(lines).split(mark)
    changed_cells = {
        "replace": [*cells[:place], cell, *cells[place + 1 :]],
        "insert": [*cells[:place], cell, *cells[place:]],
        "remove": [*cells[:place], *cells[place + 1 :]],
        "exchange": cells[::-1],
        "another row's": [*cells[:place], *other[place : place + 1], *cells[place + 1 :]],
    }[kind]
    lines[at] = mark.join(changed_cells)
    return f"line {at + 1}: {kind} cell {place + 1}: {cell[:20]!r}", "".join(
        f"{line}\n" for line in lines
    ).encode()


def test_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A damaged settings file that is read gives the plan, or the data, of its values."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path / "cache"))
    write_documents(tmp_path / "texts", mini_documents()[:6])
    build = {
        "documents": "texts",
        "language": "eng-Latn",
        "domain": "harbour",
        "output": "data/made",
        "seed": 3,
        "llm": {
            "model": "human",
            "endpoints": ["http://127.0.0.1:9/v1"],
            "prices": {"input": 1.5, "output": 2},
        },
        "sample": {"lengths": [{"minimum": 1, "maximum": 4000, "share": 1}], "documents": 50},
        "ask": {"questions": 2, "draws": 2},
    }
    compose = {"kind": "windows", "tokens": 100, "positions": "each", "seed": 5}
    made = itertools.count()

    def run_build(file: Path) -> tuple[Ended, str]:
        shutil.rmtree(tmp_path / "harbour-build", ignore_errors=True)
        ended = call_posir("build", "run", file, "--plan", "--format", "json")
        return ended, ended.printed

    def run_compose(file: Path) -> tuple[Ended, str]:
        output = tmp_path / f"composed{next(made)}"
        target = ("--language", "eng-Latn", "--domain", "made", "--output", output)
        ended = call_posir("compose", "PosIR-Mini", *target, "--config", file)
        tables = (
            hashlib.sha256(table.read_bytes()).hexdigest()
            for table in sorted(output.rglob("*.parquet"))
        )
        shown = " ".join([ended.printed.replace(output.name, "composed"), *tables])
        shutil.rmtree(output, ignore_errors=True)
        return ended, shown

    def run_train(file: Path) -> tuple[Ended, str]:
        ended = call_posir("train", "--config", file, "--output", tmp_path / "trained")
        # There is no such model, so that nothing is trained.
        return ended, ended.printed

    train = {
        "model": "./none",
        "data": "PosIR-Mini",
        "epochs": 1,
        "guard": ["PosIR-Mini"],
        "warmup": 0.1,
        "select": "last",
    }
    said = (
        "texts",
        "harbour",
        "eng-Latn",
        "made",
        "./none",
        "no model",
        "too long",
        "--",
        "data: ",
        "model: ",
        # Valid settings that no document meets, such as windows of 45,045 tokens (12:30:45).
        "no question can be composed",
    )
    doors = {
        "build": (build, run_build),
        "compose": (compose, run_compose),
        "train": (train, run_train),
    }

    def examine(draw: random.Random) -> bool:
        name = draw.choice(list(doors))
        values, call = doors[name]
        what, content = damage_settings(values, draw)
        file = tmp_path / "settings.yaml"
        file.write_bytes(content)
        with noted(f"{name}: {what}"):
            ended, shown = call(file)
            check_ended(ended, [file.name, *said])
            if ended.status:
                return False
            if re.search(r"\b(nan|inf|Infinity|NaN)\b", shown):
                raise WrongError(f"numbers that are none: {shown[:300]}")
            # The same values, written anew, are the same settings.
            file.write_text(yaml.safe_dump(yaml.safe_load(content)))
            again, expected = call(file)
            if (again.status, expected) != (0, shown):
                raise WrongError(f"{shown[:300]} instead of {expected[:300]}")
        return True

    try_cases("settings", CASES["settings"], examine)


YAML_SCALARS = (
    ".nan",
    ".inf",
    "-.inf",
    "1e999",
    "9" * 400,
    "!!python/object/apply:os.system ['true']",
    "!!binary zzz",
    "&a [*a]",
    "0o17",
    "0x1F",
    "1_000",
    "2020-01-01",
    "2020-13-45",
    "yes",
    "~",
    "!!timestamp x",
    "|",
    "<<: *b",
    "[" * 2000,
    "'",
    "12:30:45",
)


def damage_settings(values: dict[str, Any], draw: random.Random) -> tuple[str, bytes]:
    """Return what was done, and a YAML file with another value, damaged bytes, a repeated key, or
    what only YAML has.
    """
    drawn = draw.random()
    text = yaml.safe_dump(values, sort_keys=False)
    lines = text.splitlines()
    if drawn < 0.25:
        return damage_bytes(text.encode(), draw)
    if drawn < 0.35:
        line = draw.choice(
            [line for line in lines if ":" in line and not line.lstrip().startswith("-")]
        )
        at = lines.index(line)
        return f"repeat {line}", "\n".join(
            [*lines[: at + 1], f"{line.partition(':')[0]}: 7", *lines[at + 1 :]]
        ).encode()
    if drawn < 0.5:
        place = draw.choice([at for at, line in enumerate(lines) if not line.endswith(":")])
        scalar = draw.choice(YAML_SCALARS)
        lines[place] = f"{lines[place].partition(':')[0]}: {scalar}"
        return f"{lines[place]}"[:60], "\n".join(lines).encode()
    what, changed = damage_json(values, draw)
    # As JSON, which YAML has in it.
    return what, json.dumps(changed).encode()


#: What a server may say of itself, in place of an answer with embeddings.
HEADERS: tuple[dict[str, str], ...] = (
    *(
        {"Content-Type": "text/html"},
        {"Content-Type": ""},
        {"Content-Encoding": "gzip"},
        {"Content-Encoding": "br"},
    ),
    *(
        {"Content-Length": "5"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Encoding": "deflate, gzip"},
    ),
)


@pytest.mark.usefixtures("short_waits")
def test_endpoint_answers(monkeypatch: pytest.MonkeyPatch):
    """A damaged answer is refused in the endpoint's name, or the vectors are those that were sent.

    It may repeat the key anywhere, which no message and no traceback shows.
    """
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    texts = ["A mill by the river.", "Ada kept bees.", "Nothing grows on the north slope.", "x"]
    answers: list[tuple[int, dict[str, str], bytes]] = []

    def answer(
        status: int, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        return answers[0] if answers else (status, headers, body)

    with serve_embeddings(rewrite=answer) as server, serve_embeddings() as elsewhere:
        client = EndpointEncoder(Endpoint("tiny", server.url, None))
        true = client.embed(texts)
        rows = [
            {"object": "embedding", "index": row, "embedding": vector.tolist()}
            for row, vector in enumerate(true)
        ]
        whole = {
            "object": "list",
            "model": "tiny",
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
            "data": rows,
        }

        def examine(draw: random.Random) -> bool:
            if draw.random() < 0.15:
                status = draw.choice(
                    [
                        301,
                        302,
                        307,
                        308,
                        204,
                        206,
                        304,
                        400,
                        401,
                        403,
                        404,
                        413,
                        422,
                        429,
                        500,
                        503,
                        999,
                    ]
                )
                location = draw.choice(
                    [
                        f"{elsewhere.url}/embeddings",
                        server.url,
                        "//evil",
                        "file:///etc/passwd",
                        "\\x00",
                        "",
                    ]
                )
                headers = {"Location": location, "Retry-After": draw.choice(["0", "x", "-5"])}
                what, body = (
                    f"status {status}",
                    json.dumps(place_key({"error": {"message": "no"}}, draw)).encode(),
                )
            elif draw.random() < 0.15:
                status, headers = 200, {}
                what, body = "the key", json.dumps(place_key(whole, draw)).encode()
            else:
                status, (what, headers, body) = 200, damage_answer(whole, draw)
            answers[:] = [
                (
                    status,
                    {
                        "Content-Type": "application/json",
                        "Content-Length": str(len(body)),
                        **headers,
                    },
                    body,
                )
            ]
            sent = len(elsewhere.batches)
            with noted(what), client.open_measurement(retries=0), time_limit():
                try:
                    vectors = client.embed(texts)
                except PosirError as error:
                    if KEY in "".join(traceback.format_exception(error)):
                        raise WrongError("shows the key") from None
                    if server.url not in str(error) or len(str(error)) > 2_000:
                        raise WrongError(
                            f"does not name the endpoint, or is too long: {str(error)[:300]}"
                        ) from None
                    return False
                finally:
                    if len(elsewhere.batches) != sent:
                        raise WrongError("texts were sent to another server")
                check_vectors(vectors, body, headers)
            return True

        try_cases("endpoint", CASES["endpoint"], examine)


def place_key(whole: Any, draw: random.Random) -> Any:
    """Return an answer with the key at a random place, as a value or as the name of a field."""
    changed = json.loads(json.dumps(whole))
    place = choose_place(changed, draw)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    secret = draw.choice(
        [KEY, f"\0{KEY}", f"{'x' * draw.randrange(600)}{KEY}", f"http://{KEY}/", f"\x1b[31m{KEY}"]
    )
    if isinstance(inner, dict) and draw.random() < 0.5:
        inner[secret] = inner.pop(place[-1])
    else:
        inner[place[-1]] = draw.choice([secret, [secret], {"message": secret}])
    return changed


def check_vectors(vectors: Any, body: bytes, headers: dict[str, str]) -> None:
    """Raise WrongError if vectors are not those of an answer, each in its place."""
    if headers.get("Content-Encoding") == "gzip":
        # Like aiohttp, ignore a missing checksum at the end. Incomplete JSON is no answer.
        body = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS).decompress(body)
    rows = json.loads(body)["data"]
    expected = {int(row["index"]): row["embedding"] for row in rows}
    if len(expected) != len(rows) or sorted(expected) != list(range(len(vectors))):
        raise WrongError("indices that do not name every text once are accepted")
    if not np.array_equal(
        np.array([expected[row] for row in range(len(vectors))], np.float32),
        vectors,
        equal_nan=False,
    ):
        raise WrongError("vectors that were not sent")


def damage_answer(whole: dict[str, Any], draw: random.Random) -> tuple[str, dict[str, str], bytes]:
    """Return what was done, and headers and body of an answer."""
    drawn, rows = draw.random(), whole["data"]
    body = json.dumps(whole).encode()
    if drawn < 0.4:
        # Most damage is to the rows, and there to what they are read for.
        place: tuple[str | int, ...] = (
            "data",
            draw.randrange(len(rows)),
            draw.choice(["index", "embedding"]),
        )
        if place[-1] == "embedding" and draw.random() < 0.6:
            place = (*place, draw.randrange(len(rows[0]["embedding"])))
        what, content = damage_json_text(
            body.decode(), draw, draw.choice([place, place, place[:2], place[:1], None])
        )
        return what, {}, content
    if drawn < 0.6:
        kept = (
            draw.choices(rows, k=draw.randrange(len(rows) * 2))
            if draw.random() < 0.5
            else draw.sample(rows, len(rows))
        )
        return (
            f"rows {[row['index'] for row in kept]}",
            {},
            json.dumps({**whole, "data": kept}).encode(),
        )
    if drawn < 0.75:
        what, content = damage_bytes(body, draw)
        return what, {}, content
    if drawn < 0.9:
        headers = draw.choice(HEADERS)
        packed = draw.choice(
            [
                gzip.compress(body),
                body,
                gzip.compress(body)[:-9],
                gzip.compress(b"[" + b" " * 2**20),
                b"",
            ]
        )
        return f"{headers} {packed[:4]!r}", headers, packed
    numbers = draw.choice(
        [
            "NaN",
            "1e999",
            "1e39",
            "-1e39",
            "9" * 400,
            "9" * 5000,
            "0." + "3" * 5000,
            "1e-400",
            "true",
            '"1"',
            "[" * 3000,
            "[1]",
        ]
    )
    vector = json.dumps(rows[1]["embedding"])
    return (
        f"entry {numbers[:9]}",
        {},
        body.replace(vector.encode(), f"[{numbers}{vector[vector.index(',') :]}".encode()),
    )


def test_model_folders(tmp_path: Path):
    """A damaged model is refused, or it reads what the settings that it has now say."""
    whole = write_tiny_model(tmp_path / "whole")
    true = json.loads(call_posir("window", whole, "--format", "json").printed)
    assert true["tokens"] == 64

    def examine(draw: random.Random) -> bool:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(whole, copy)
        files = sorted(file for file in copy.rglob("*") if file.is_file())
        drawn = draw.random()
        file = draw.choice(
            [file for file in files if file.suffix == ".json"] if drawn < 0.7 else files
        )
        if drawn < 0.6 and file.name != "tokenizer.json":
            what, content = damage_json_text(file.read_text(), draw)
        else:
            what, content = damage_bytes(file.read_bytes(), draw)
        if draw.random() < 0.05:
            file.unlink()
            what = "remove"
        else:
            file.write_bytes(content)
        with noted(f"{file.relative_to(copy)}: {what[:200]}"), limited_memory():
            ended = call_posir("window", copy, "--format", "json")
            check_ended(ended, [str(copy), "local/copy"])
            if ended.status:
                return False
            shown = json.loads(ended.printed)
            if shown["tokens"] != true["tokens"] and shown["tokens"] != detect_window(copy):
                raise WrongError(f"reads {shown['tokens']} tokens: {shown['sentence']}")
        return True

    try_cases("model", CASES["model"], examine)


def detect_window(folder: Path) -> int:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    return int(model.tokenize(["bell " * 5_000])["input_ids"].shape[1])


@contextmanager
def limited_memory(more: int = 6 * 2**30) -> Iterator[None]:
    """Let the process allocate no more than so many bytes beyond what it has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
