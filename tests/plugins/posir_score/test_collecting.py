"""Tests for collecting runs from retrievers, including all kinds of failures."""

import asyncio
import itertools
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_score.alignment import AlignmentRules, Rankings, SubsetQueries, merge_chunks
from posir_score.collecting import (
    FIRST_QUERIES,
    MAX_FAILURES,
    MAX_FAILURES_AT_START,
    CollectionSettings,
    Journal,
    RetrieverAnswer,
    collect_run,
)
from posir_score.hits import MAX_HITS, AnswerError, Hit, read_hits
from posir_score.orders import sort_hits
from posir_tasks.base.errors import PosirError
from posir_tasks.data.data import Judgments

QUERIES = {f"q{number}": f"text {number}" for number in range(20)}
CORPUS = frozenset({"a", "b", "d", "d0", "d1", "d4", *QUERIES.values()})
DATA = [
    SubsetQueries(
        "all", Judgments(QUERIES, {query: {"d": 1} for query in QUERIES}), CORPUS, 20, "1"
    )
]
RULES = AlignmentRules()
FAST = CollectionSettings(k=3, retries=1, timeout=5, backoff=0)


def collect(
    search: Any,
    folder: Path,
    settings: CollectionSettings = FAST,
    *,
    requires_all: bool = True,
) -> Rankings:
    run, _ = collect_run(
        search, "mine", DATA, AlignmentRules(requires_all), replace(settings, folder=folder)
    )
    return {query: merge_chunks(hits) for query, hits in run.by_subset["all"].items()}


def test_answers_are_truncated_to_k_hits_including_chunks(
    tmp_path: Path,
):
    rankings = collect(lambda _query, _k: ["d4", "d1", "d2", "d3"], tmp_path / "a")
    assert rankings == {query: {"d4": 3, "d1": 2, "d2": 1} for query in QUERIES}
    run, _ = collect_run(
        lambda _query, _k: ["d", "e", "d"],
        "mine",
        DATA,
        RULES,
        replace(FAST, folder=tmp_path / "b"),
    )
    assert (run.duplicates, run.hit_range) == (0, (3, 3))
    assert run.by_subset["all"]["q0"] == [Hit("d", 3, 1), Hit("e", 2, 2), Hit("d", 1, 3)]


def test_a_hit_without_a_score_fails_the_query(tmp_path: Path):
    def search(query: str, _k: int) -> list[tuple[str, float | None]]:
        return [("d", 0.9), ("d1", 0.5), ("d4", None if query == QUERIES["q7"] else 0.1)]

    with pytest.raises(PosirError, match="query q7: hit 3, d4, has no score"):
        collect(search, tmp_path)
    rankings = collect(search, tmp_path, requires_all=False)
    assert rankings.keys() == QUERIES.keys() - {"q7"}
    assert [*rankings["q0"]] == ["d", "d1", "d4"]
    ranked = collect(search, tmp_path / "rank", replace(FAST, order="rank"))
    assert [*ranked["q7"]] == ["d", "d1", "d4"]


def test_answers_without_scores_are_requested_again(tmp_path: Path):
    requested: list[str] = []

    def search(query: str, _k: int) -> list[tuple[str, float | None]]:
        requested.append(query)
        if query == QUERIES["q19"] and len(requested) <= len(QUERIES):
            raise TypeError("none")
        return [
            ("d", 0.9),
            ("d1", None if query == QUERIES["q7"] and len(requested) <= len(QUERIES) else 0.5),
        ]

    with pytest.raises(PosirError, match="query q19"):
        collect(search, tmp_path, replace(FAST, order="rank", concurrency=1))
    rankings = collect(search, tmp_path)
    assert sorted(requested[len(QUERIES) :]) == sorted([QUERIES["q7"], QUERIES["q19"]])
    assert [*rankings["q7"]] == ["d", "d1"]


@pytest.mark.parametrize("unscored_hits", [["d", "d1"], [("d", None)]])
def test_a_run_stops_if_only_some_queries_have_scores(unscored_hits: Any, tmp_path: Path):
    def search(query: str, _k: int) -> Any:
        return unscored_hits if query == QUERIES["q15"] else [("d", 0.5), ("d1", 0.1)]

    with pytest.raises(
        PosirError,
        match=r"no score, first document d of query q15, and \d+ have one\..*--order rank",
    ):
        collect(search, tmp_path)


def test_coroutines_run_concurrently(
    tmp_path: Path,
):
    class Client:
        max_active = active = 0

        async def __call__(self, query: str, k: int) -> list[tuple[str, float]]:
            self.active += 1
            self.max_active = max(self.max_active, self.active)
            await asyncio.sleep(0.01)
            self.active -= 1
            return [(query, k)]

    client = Client()
    expected = {query: {text: 3.0} for query, text in QUERIES.items()}
    assert collect(client, tmp_path / "object") == expected
    assert client.max_active == FAST.concurrency
    assert collect(lambda query, k: client(query, k), tmp_path / "lambda") == expected


def test_functions_run_in_a_bounded_number_of_threads(tmp_path: Path):
    threads = set()

    def search(query: str, k: int) -> list[str]:
        threads.add(threading.get_ident())
        time.sleep(0.005)
        return [query] * k

    collect(search, tmp_path, settings=CollectionSettings(concurrency=2))
    assert len(threads) == 2
    assert threading.get_ident() not in threads


def test_collecting_works_inside_a_running_event_loop(tmp_path: Path):
    async def notebook() -> Rankings:
        return collect(lambda query, _k: [query], tmp_path)

    # In a separate thread, since the browser of other tests runs an event loop in the main thread.
    with ThreadPoolExecutor(1) as thread:
        assert len(thread.submit(asyncio.run, notebook()).result()) == len(QUERIES)


def test_failed_searches_are_retried(tmp_path: Path):
    requested = set[str]()

    def search(query: str, _k: int) -> list[str]:
        if query not in requested:
            requested.add(query)
            raise ConnectionError("refused")
        return ["d"]

    assert len(collect(search, tmp_path)) == len(QUERIES)


def fail_for(text: str, failure: Callable[[], Any]) -> Any:
    requested = Counter[str]()

    def search(query: str, _k: int) -> Any:
        requested[query] += 1
        return failure() if query == text else ["d"]

    return search, requested


def raise_error() -> None:
    raise RuntimeError("no\nline")


async def exit_in_coroutine() -> None:
    sys.exit(4)


@pytest.mark.parametrize(
    ("failure", "reason", "attempts"),
    [
        (raise_error, "the retriever raised RuntimeError: no, in 2 attempts", 2),
        (lambda: sys.exit(3), "the retriever raised SystemExit: 3", 1),
        (lambda: (sys.exit(3) for _ in range(9)), "the retriever raised SystemExit: 3", 1),
        (exit_in_coroutine, "the retriever raised SystemExit: 4", 1),
        (lambda: None.search, "the retriever raised AttributeError: ", 1),  # type: ignore[attr-defined]
        (lambda: time.sleep(30), "no answer within 0.7 seconds, in 2 attempts", 2),
        (lambda: None, "expected a list of hits, got NoneType; each must be an id", 1),
        (
            lambda: [("d", float("nan"))],
            "hit 1, d, has the score nan; it must be a finite number",
            1,
        ),
        (lambda: [{"name": 1}], "hit 1 is {'name': 1}; it must be an id, (id, score)", 1),
        (lambda: ["\ud800"], r"hit 1 is \ud800; it must be an id, (id, score)", 1),
        (lambda: [("d\0", 1)], r"hit 1 is ('d\x00', 1); it must be an id, (id, score)", 1),
        (lambda: [10**5000], "hit 1 is a very large number; it must be an id", 1),
        (lambda: [("d", "1e999")], "hit 1, d, has the score 1e999; it must be a finite number", 1),
        (
            lambda: [("d", 10**5000)],
            "hit 1, d, has the score a very large number; it must be a finite number",
            1,
        ),
        (
            lambda: (time.sleep(30) for _ in range(9)),
            "no answer within 0.7 seconds, in 2 attempts",
            2,
        ),
    ],
)
def test_a_rerun_repeats_only_failed_queries(
    failure: Callable[[], Any], reason: str, attempts: int, tmp_path: Path
):
    search, requested = fail_for("text 7", failure)
    settings = CollectionSettings(k=3, retries=1, timeout=0.7, backoff=0)
    with pytest.raises(
        PosirError,
        match=f"^mine: query q7: {re.escape(reason)}.* 19 of 20 queries are answered and saved",
    ):
        collect(search, tmp_path, settings=settings)
    assert requested["text 7"] == attempts
    again, requested = fail_for("", raise_error)
    assert set(collect(again, tmp_path)) == set(QUERIES)
    assert list(requested) == ["text 7"]


def test_an_interruption_reports_saved_answers(tmp_path: Path):
    def interrupt() -> None:
        # Give the main thread time to handle the signal.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        time.sleep(1)

    search, _ = fail_for("text 7", interrupt)
    with pytest.raises(
        KeyboardInterrupt,
        match=r"^interrupted: [78] of 20 answers are saved in .*; run the same command",
    ):
        collect(search, tmp_path, replace(FAST, concurrency=1))


@pytest.mark.parametrize("requires_all", [True, False])
def test_a_hanging_retriever_is_stopped_after_one_timeout(requires_all: bool, tmp_path: Path):
    requested = list[str]()

    def search(query: str, _k: int) -> Any:
        requested.append(query)
        if hangs:
            time.sleep(30)
        return ["d"]

    hangs, settings = True, CollectionSettings(k=3, concurrency=2, timeout=0.2)
    with pytest.raises(PosirError, match=r"q0: no answer within 0\.2 seconds.*--timeout"):
        collect(search, tmp_path, settings, requires_all=requires_all)
    # On a busy machine, the second thread may start only after the first times out.
    assert requested in (["text 0"], ["text 0", "text 1"], ["text 1", "text 0"])
    hangs = False
    assert set(collect(search, tmp_path, settings)) == set(QUERIES)


@pytest.mark.parametrize(
    ("requires_all", "message", "max_searches"),
    [
        (True, r"0 of 25 queries are answered and saved.* --missing zero", MAX_FAILURES),
        (False, r"\(20 failed\)\. No query has an answer", MAX_FAILURES_AT_START),
    ],
)
def test_a_failing_retriever_is_stopped_early(
    requires_all: bool, message: str, max_searches: int, tmp_path: Path
):
    requested = Counter[str]()

    def search(query: str, _k: int) -> list[str]:
        requested[query] += 1
        raise ConnectionError

    texts = {f"q{number}": f"text {number}" for number in range(25)}
    data = [
        SubsetQueries(
            "all", Judgments(texts, {query: {"d": 1} for query in texts}), frozenset("d"), 25, "1"
        )
    ]
    with pytest.raises(PosirError, match=message):
        collect_run(
            search,
            "mine",
            data,
            AlignmentRules(requires_all),
            CollectionSettings(concurrency=1, retries=0, folder=tmp_path),
        )
    assert len(requested) == max_searches


def test_failed_queries_can_be_scored_as_zero(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    def search(query: str, _k: int) -> list[str]:
        if query != "text 0":
            raise ConnectionError("refused")
        return ["d"]

    assert set(
        collect(
            search,
            tmp_path,
            CollectionSettings(concurrency=1, retries=0),
            requires_all=False,
        )
    ) == {"q0"}
    assert "query q1: the retriever raised ConnectionError: refused; scored as 0" in caplog.text
    assert "19 of 20 queries failed" in caplog.text


def test_a_retriever_without_hits_raises(tmp_path: Path):
    with pytest.raises(
        PosirError, match=r"mine: 20 queries returned nothing, and no query returned a document"
    ):
        collect(lambda _query, _k: [], tmp_path)
    assert not list(tmp_path.iterdir())


def test_unknown_ids_stop_the_run_early_and_are_not_saved(tmp_path: Path):
    requested = Counter[str]()

    def search(query: str, _k: int) -> list[dict[str, str]]:
        requested[query] += 1
        return [{"id": "5e1f", "file": "d"}]

    settings = CollectionSettings(concurrency=1, folder=tmp_path)
    with pytest.raises(
        PosirError,
        match=r"no retrieved document of 10 is in the corpus; the run has 5e1f, "
        r".*--document-field",
    ):
        collect(search, tmp_path, settings)
    assert len(requested) == FIRST_QUERIES
    assert not list(tmp_path.iterdir())
    assert collect(search, tmp_path, replace(settings, document_field="file"))["q3"] == {"d": 1}


def test_damaged_journal_lines_are_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    collect(lambda _query, _k: ["d"], tmp_path)
    (file,) = tmp_path.iterdir()
    lines = file.read_text()[:-5].split("\n")
    lines[3] = lines[3][:20] + "\0" + lines[3][21:]
    file.write_text("\n".join(lines))
    search, requested = fail_for("", raise_error)
    assert len(collect(search, tmp_path)) == len(QUERIES)
    assert len(requested) == 2
    assert "2 lines are damaged" in caplog.text


def test_a_journal_is_locked_for_other_processes(tmp_path: Path):
    with closing(Journal(tmp_path / "a.jsonl")) as journal:
        for query in ("q", "r"):
            journal.add(
                RetrieverAnswer(
                    subset="all", query=query, hits=[Hit("d", 1.0, 1, "A chunk."), Hit("d")]
                )
            )
        with pytest.raises(PosirError, match="another process"):
            Journal(tmp_path / "a.jsonl")
    with closing(Journal(tmp_path / "a.jsonl")) as again:
        assert (
            again.answers["all", "q"].hits
            == again.answers["all", "r"].hits
            == [Hit("d", 1.0, 1, "A chunk."), Hit("d")]
        )
    assert {file.name: file.read_text().count("A chunk.") for file in tmp_path.iterdir()} == {
        "a.jsonl": 1
    }


@pytest.mark.parametrize(
    "content", ["my notes\n", '{"a": 1}\n', "[]\n", '{"schema_version": "x"}\n', "\0"]
)
def test_other_files_are_not_overwritten_by_a_journal(tmp_path: Path, content: str):
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(PosirError, match=r"a\.jsonl: is not a journal"):
        Journal(tmp_path / "a.jsonl")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(PosirError, match="fifo: is not a file"):
        Journal(tmp_path / "fifo")
    assert (tmp_path / "a.jsonl").read_text() == content


@pytest.mark.parametrize(("number", "documents"), [(2, "d{}"), (12, "d{}"), (12, "d")])
def test_distances_raise_until_an_order_is_given_and_answers_are_reused(
    number: int, documents: str, tmp_path: Path
):
    requested = Counter[str]()

    def search(query: str, _k: int) -> list[tuple[str, float]]:
        requested[query] += 1
        # Hits with one id are chunks of one document.
        return [(documents.format(hit), hit / 10) for hit in range(number)] + [("last", number)]

    settings = CollectionSettings(k=300, concurrency=1)
    with pytest.raises(PosirError, match="--order distance"):
        collect(search, tmp_path, settings=settings)
    assert len(requested) == FIRST_QUERIES
    run, _ = collect_run(
        search, "mine", DATA, RULES, replace(settings, folder=tmp_path, order="distance")
    )
    assert set(requested.values()) == {1}
    assert run.by_subset["all"]["q3"][-1].document == "last"


def test_scores_that_contradict_the_order_of_hits_raise(tmp_path: Path):
    def search(_query: str, _k: int) -> list[tuple[str, float]]:
        return [("a", 0.9), ("b", 0.5), ("c", 12.0), ("d", 11.0)]

    with pytest.raises(PosirError, match="--order rank"):
        collect(search, tmp_path, CollectionSettings())
    assert list(collect(search, tmp_path, CollectionSettings(order="rank"))["q0"]) == [
        "a",
        "b",
        "c",
        "d",
    ]


def test_endless_iterators_are_read_up_to_k(tmp_path: Path):
    rankings = collect(lambda _query, _k: (f"d{number}" for number in itertools.count()), tmp_path)
    assert rankings["q0"] == {"d0": 3, "d1": 2, "d2": 1}
    with pytest.raises(AnswerError, match="more than"):
        read_hits({str(number): 1.0 for number in range(MAX_HITS + 1)}, 3)


def test_several_subsets_need_a_subset_parameter(tmp_path: Path):
    data = [
        SubsetQueries(name, Judgments({"q": name}, {"q": {"d": 1}}), CORPUS, 1) for name in "ab"
    ]
    with pytest.raises(PosirError, match=r"the data has 2 subsets.*parameter `subset`"):
        collect_run(lambda _query, _k: ["d"], "mine", data, RULES, replace(FAST, folder=tmp_path))
    run, _ = collect_run(
        lambda _query, _k, subset: [subset], "mine", data, RULES, replace(FAST, folder=tmp_path)
    )
    assert run.by_subset == {"a": {"q": [Hit("a", 1, 1)]}, "b": {"q": [Hit("b", 1, 1)]}}


VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3))


@given(
    answer=st.one_of(
        VALUES,
        st.lists(st.one_of(VALUES, st.tuples(VALUES, VALUES))),
        st.dictionaries(VALUES, VALUES),
    )
)
def test_any_answer_is_parsed_or_raises(answer: object):
    try:
        hits = sort_hits(read_hits(answer, 5), None)
    except AnswerError:
        return
    assert [hit.score for hit in hits] == sorted((hit.score or 0.0 for hit in hits), reverse=True)
