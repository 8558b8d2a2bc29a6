"""Tests for run files: every format, and errors for invalid rows."""

import gzip
import json
import random
import re
import string
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posir_score.alignment import (
    AlignmentRules,
    Rankings,
    SubsetQueries,
    align_run,
    merge_chunks,
)
from posir_score.columns import RunColumns
from posir_score.hits import Hit, Order
from posir_score.orders import OrderCheck, sort_hits
from posir_score.ranking_builder import ANY_SUBSET, RankingBuilder, Run
from posir_score.run_files import (
    _read_cells,
    _read_table,
    _split_lines,
    is_table,
    label_columns,
    read_rankings,
    read_run,
    read_run_file,
)
from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.data.data import Judgments

IDS = st.text(string.ascii_letters + string.digits + "#:/._-", min_size=1, max_size=8)
SCORES = st.floats(-1e6, 1e6, width=32)
RANKINGS = st.dictionaries(
    IDS, st.dictionaries(IDS, SCORES, min_size=1, max_size=4), min_size=1, max_size=4
)

EXAMPLE: Rankings = {"q1": {"d1": 0.5, "d2": 0.25}, "q2": {"d9": 1.5}}


def merge(run: Run, subset: str = ANY_SUBSET) -> Rankings:
    return {query: merge_chunks(hits) for query, hits in run.by_subset[subset].items()}


def write(file: Path, rankings: Rankings) -> Path:
    rows = [
        (query, document, score)
        for query, scores in rankings.items()
        for document, score in scores.items()
    ]
    lines = "".join(
        f"{query}\tQ0\t{document}\t1\t{score!r}\ttag\n" for query, document, score in rows
    )
    match file.suffix:
        case ".trec":
            file.write_text(lines.replace("\t", " "))
        case ".gz":
            file.write_bytes(gzip.compress(lines.encode()))
        case ".json":
            file.write_text(json.dumps(rankings))
        case ".jsonl":
            file.write_text(
                "".join(json.dumps({"qid": a, "docid": b, "score": c}) + "\n" for a, b, c in rows)
            )
        case ".csv":
            file.write_text(
                "query_id,doc_id,score\n" + "".join(f"{a},{b},{c!r}\n" for a, b, c in rows)
            )
        case ".parquet":
            pl.DataFrame(rows, ["q_id", "doc_id", "score"], orient="row").write_parquet(file)
    return file


@given(
    rankings=RANKINGS,
    suffix=st.sampled_from([".trec", ".trec.gz", ".json", ".jsonl", ".csv", ".parquet"]),
)
@example(rankings=EXAMPLE, suffix=".trec.gz")
def test_runs_round_trip_in_every_format(
    rankings: Rankings, suffix: str, tmp_path_factory: pytest.TempPathFactory
):
    run = read_run_file(write(tmp_path_factory.getbasetemp() / f"run{suffix}", rankings), "score")
    assert (run.name, merge(run), run.duplicates) == ("run", rankings, 0)


CELLS = st.sampled_from(
    [
        "q",
        "d#1",
        "é",
        "1",
        "03",
        "1.5",
        "-2e3",
        ".5",
        "5.",
        "1e999",
        "1_0",
        "+1",
        "-0",
        "1" * 19,
        "\ufeff",
        "nan",
        "+",
        "a\x1fb",
        "\x00",
    ]
)


@given(
    rows=st.lists(st.lists(CELLS, min_size=5, max_size=7), min_size=1, max_size=4),
    separator=st.sampled_from([" ", "\t", "  ", "\t "]),
    end=st.sampled_from(["\n", "\r\n", "\n\n", " \n"]),
)
@example(rows=[["q", "Q0", "d#1", "1", "1.5", "t"]] * 2, separator="\t", end="\r\n")
@example(rows=[["q", "Q0", "é", "03", "-2e3", "1"]], separator="  ", end="")
def test_columns_equal_lines_read_one_by_one(rows: list[list[str]], separator: str, end: str):
    text = "".join(separator.join(row) + end for row in rows)
    check_columns(text)


def check_columns(text: str) -> bool:
    """If lines are regular, compare reading columns with reading rows. Return True if they are."""
    columns = RunColumns.parse(text.encode())
    for order in (None, *get_args(Order)) if columns else ():
        in_columns = RankingBuilder("run", order)
        in_columns.columns = columns
        by_row = RankingBuilder("run", order)
        for location, record in label_columns("run", _split_lines(text, "\t"), order):
            by_row.add_row(location, record)
        assert build_or_describe_error(in_columns) == build_or_describe_error(by_row)
    return columns is not None


TABLE_CELLS = st.sampled_from(
    [
        "q",
        "r",
        "d",
        "é",
        "0",
        "1",
        "2",
        "1.5",
        "-2",
        "nan",
        "1e400",
        "",
        " 1",
        "+1",
        '"',
        "a;b",
        "\r",
        "-0",
        "1" * 19,
        "\ufeffd",
    ]
)


@given(
    rows=st.lists(st.lists(TABLE_CELLS, min_size=3, max_size=5), min_size=1, max_size=5),
    headings=st.permutations(["query_id", "doc_id ", "score", " rank", "a;b;c;d;e;f"]),
    columns=st.integers(3, 5),
    delimiter=st.sampled_from([",", "\t"]),
)
def test_columns_of_a_table_equal_rows(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[list[str]],
    headings: list[str],
    columns: int,
    delimiter: str,
):
    lines = [headings[:columns], *rows]
    check_table(tmp_path_factory, "\n".join(map(delimiter.join, lines)), delimiter)


@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from("qr"), st.sampled_from("dé"), st.sampled_from(["-2", "0", "-0.0", "1"])
        ),
        min_size=1,
    ),
    has_ranks=st.booleans(),
)
@example(rows=[("q", f"d{row}", str(row)) for row in range(9)], has_ranks=False)
def test_a_regular_table_is_read_in_columns(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]], has_ranks: bool
):
    lines = [["qid", "docno", "score", *["rank"] * has_ranks]]
    for number, row in enumerate(rows):
        lines.append([*row, *[str(number)] * has_ranks])
    assert check_table(tmp_path_factory, "\n".join(map(",".join, lines)) + "\n", ",")


def check_table(folders: pytest.TempPathFactory, text: str, delimiter: str) -> bool:
    """If a table is regular, compare reading columns with reading rows. Return True if it is."""
    file = folders.mktemp("table") / "run.csv"
    file.write_bytes(text.encode())
    is_regular = False
    for order in (None, *get_args(Order)):
        in_columns = RankingBuilder("run", order)
        try:
            _read_table(file, delimiter, in_columns)
        except DataError:
            break
        if in_columns.columns is None:
            break
        is_regular = True
        by_row = RankingBuilder("run", order)
        for location, record in _read_cells(file, text, delimiter, order):
            by_row.add_row(location, record)
        assert build_or_describe_error(in_columns) == build_or_describe_error(by_row)
    return is_regular


def build_or_describe_error(builder: RankingBuilder) -> object:
    """Build a run. Return hits, duplicates and order, or the error message."""
    try:
        run = builder.build("run")
    except DataError as error:
        return str(error)
    hits = {query: [*hits] for query, hits in run.by_subset[ANY_SUBSET].items()}
    return [*hits.items()], run.duplicates, run.ranked_by


LINES = st.tuples(
    st.sampled_from("pqr"),
    st.just("Q0"),
    st.sampled_from(["d", "e", "f", "é"]),
    st.sampled_from("01234"),
    st.sampled_from(["0", "-0.0", "1", "1.00000001", "1.5", "-2", "1e39"]),
    st.just("t"),
)


@given(rows=st.lists(LINES, min_size=1, max_size=9))
def test_regular_lines_are_aligned_like_rows(rows: list[tuple[str, ...]]):
    text = "".join(" ".join(row) + "\n" for row in rows)
    assert check_columns(text)
    columns = RunColumns.parse(text.encode())
    assert columns is not None
    documents = frozenset("def")
    grades: dict[str, dict[str, float]] = {"p": {"d": 1}, "q": {"e": 1, "f": 2}, "r": {"r": 0}}
    subset = SubsetQueries("", Judgments({}, grades), documents, 0)
    for depth in (2, 100):
        rules = AlignmentRules(requires_all=False, depth=depth)
        aligned = []
        for hits in columns.sort("score"), None:
            by_query = hits or {query: [*row] for query, row in columns.sort("score").items()}
            run = Run("run", {ANY_SUBSET: by_query})
            aligned.append(align_or_describe_error(run, subset, rules))
        assert aligned[0] == aligned[1]


def align_or_describe_error(run: Run, subset: SubsetQueries, rules: AlignmentRules) -> object:
    """Align a run. Return sorted rankings and counts, or the error message."""
    try:
        aligned = align_run(run, (subset,), rules)
    except PosirError as error:
        return str(error)
    rankings = aligned.rankings[""].items()
    ordered = {query: [*scores.items()] for query, scores in rankings}
    return ordered, aligned.total, aligned.has_locatable_chunks, aligned.has_chunks


@pytest.mark.parametrize("line", ["q Q0 d 1 2.5 t", "q\tQ0\td\t1\t2.5\tt", "q Q0 d 1 +2.5e0 t\r"])
def test_a_line_with_six_columns_is_regular(line: str):
    columns = RunColumns.parse(f"{line}\n\n".encode())
    assert columns is not None
    assert [*columns.sort(None)["q"]] == [Hit("d", 2.5, 1)]
    assert RunColumns.parse(f"{line}\nq Q0\td 2 1.5 t\n".encode()) is None


@pytest.mark.parametrize(
    ("name", "content", "hit"),
    [
        ("a.csv", "query_id,doc_id,score, rank\nq,d,2,1\n", Hit("d", 2.0, 1)),
        ("a.tsv", "query_id\tdoc_id\tscore \trank\nq\td\t2\t1\n", Hit("d", 2.0, 1)),
        ("a.csv", "\ufeffrank,qid,docid,score\n1,q,d,2\n", Hit("d", 2.0, 1)),
        ("a.tsv", "\ufeff\ufeffrank\tqid\tdocid\tscore\n1\tq\td\t2\n", Hit("d", 2.0, 1)),
        ("a.csv", "docid,qid,score\n\ufeffd,q,2\n", Hit("\ufeffd", 2.0)),
        ("a.trec", "\ufeffq Q0 d 1 2 t\n", Hit("d", 2.0, 1)),
        ("a.csv", "qid,docid,score,a;b;c;d;e\nq,d,2,x\n", Hit("d", 2.0)),
        ("a.csv", 'qid,docid,score,a;b;c;d;e\nq,d,2,"x"\n', Hit("d", 2.0)),
        ("a.trec", "q Q0 7 +1 12 5\n", Hit("7", 12.0, 1)),
        ("a.trec", "q  Q0 7 +1 12 5\n", Hit("7", 12.0, 1)),
        ("a.trec", "q Q0 a mill +1 12.5 my run\n", Hit("a mill", 12.5, 1)),
    ],
)
def test_unusual_runs_are_read_completely(tmp_path: Path, name: str, content: str, hit: Hit):
    file = tmp_path / name
    file.write_text(content, encoding="utf-8")
    for order in (None, "score"):
        hits = read_run_file(file, order).by_subset[ANY_SUBSET]
        assert {query: [*row] for query, row in hits.items()} == {"q": [hit]}


@pytest.mark.parametrize("rank", ["-0", "0" * 19, "9" * 19, "-1", "1e3", "0x10", "1_0"])
@pytest.mark.parametrize("separator", [" ", "\t", "  "])
def test_an_invalid_rank_raises_in_regular_lines_too(tmp_path: Path, rank: str, separator: str):
    file = tmp_path / "a.trec"
    rows = (f"q Q0 d1 1 2.5 t\nq Q0 d2 {rank} 1.5 t\n").replace(" ", separator)
    file.write_text(rows)
    with pytest.raises(DataError, match=r"field 'rank' .* line 2"):
        read_run_file(file)
    assert len(read_run_file(file, "score").by_subset[ANY_SUBSET]["q"]) == 2


MANY_CELLS = b",".join(b"c%d" % number for number in range(10_000))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"qid,docid,score,\xff\nq,d,1,x\n", "UnicodeDecodeError"),
        (b"qid,docid,score,note\nq,d,1,\xff\n", "UnicodeDecodeError"),
        (b"qid,docid,score,%b\nq,d,1,%b\n" % (MANY_CELLS, MANY_CELLS), "has 10,003 columns"),
    ],
)
def test_a_table_that_is_not_text_or_too_wide_raises(tmp_path: Path, content: bytes, message: str):
    file = tmp_path / "a.csv"
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_run_file(file)


def test_an_irregular_line_raises_with_its_number(tmp_path: Path):
    file = tmp_path / "a.trec"
    for line, message in (
        ("q Q0 d3 3 high t", "line 3 .'high'"),
        ("q Q0", "line 3: has 2 columns"),
    ):
        file.write_text(f"q Q0 d1 1 2.5 t\nq Q0 d2 2 1.5 t\n{line}\n")
        with pytest.raises(DataError, match=message):
            read_run_file(file)


@pytest.mark.parametrize(
    ("name", "content", "rankings"),
    [
        ("a.json", '{"q": ["d3", "d1"], "r": []}', {"q": {"d1": 1, "d3": 2}, "r": {}}),
        ("a.json", '{"q": [["d1", 2.0], ["d2", 1.0]]}', {"q": {"d1": 2.0, "d2": 1.0}}),
        (
            "a.json",
            '{"q": [{"docno": "d1", "score": 2}, {"docno": "d2", "score": 1}]}',
            {"q": {"d1": 2.0, "d2": 1.0}},
        ),
        ("a.tsv", "q\td2\t1.5\nq\td1\t0.5\n", {"q": {"d2": 1.5, "d1": 0.5}}),
        ("a.tsv", "q\td2\t1\nq\td1\t2\nr\td1\t1\n", {"q": {"d2": 2, "d1": 1}, "r": {"d1": 1}}),
        ("a.tsv", "q\td2\t1\t9.5\nq\td1\t2\t9.0\n", {"q": {"d2": 9.5, "d1": 9.0}}),
        ("a.txt", "q d2 1.5\nq d1 0.5\n", {"q": {"d2": 1.5, "d1": 0.5}}),
        ("a.trec", "q Q0 a mill 1 2.5 a b\nq Q0 d1 2 1.5 t", {"q": {"a mill": 2.5, "d1": 1.5}}),
        ("a.trec", "q Q0 d2 1 2.5\nq Q0 d1 2 1.5", {"q": {"d2": 2.5, "d1": 1.5}}),
        ("a.csv", "qid;docno;rank\nq;d2;1\nq;d1;2\n", {"q": {"d2": 2, "d1": 1}}),
        ("a.csv", "qid,id,distance\nq,d2,0.25\nq,d1,0.5\n", {"q": {"d2": -0.25, "d1": -0.5}}),
        (
            "a.jsonl",
            '{"query_id": "q", "query": "Who?", "results": [{"corpus_id": "d1", "score": 2}]}',
            {"q": {"d1": 2}},
        ),
        (
            "a.jsonl",
            '{"input": "q", "retrieval_context": ["a"], "retrieved_context_ids": ["d1"]}',
            {"q": {"d1": 1}},
        ),
        (
            "a.jsonl",
            '{"user_input": "q", "retrieved_contexts": ["a"], "retrieved_context_ids": ["d1"]}',
            {"q": {"d1": 1}},
        ),
        (
            "a.json",
            '{"q": {"hits": {"hits": [{"_id": "d1", "_score": 2, "_source": {}}]}}}',
            {"q": {"d1": 2}},
        ),
        (
            "a.json",
            '{"details": {"q": {"hits": [{"hit": {"_id": "d1", "_score": 2}}]}}}',
            {"q": {"d1": 2}},
        ),
        # PyTerrier with a long text.
        ("a.csv", f"qid,docid,docno,score,text\n1,0,D1,2.0,{'x' * 200_000}\n", {"1": {"D1": 2.0}}),
    ],
)
def test_output_formats_of_tools_are_read(
    name: str, content: str, rankings: Rankings, tmp_path: Path
):
    (tmp_path / name).write_text(content)
    assert merge(read_run_file(tmp_path / name)) == rankings


def test_lists_of_hits_in_parquet_need_a_query_column(tmp_path: Path):
    autorag = {"qid": ["q"], "retrieved_ids": [["d2", "d1"]], "retrieve_scores": [[0.5, 0.25]]}
    pl.DataFrame(autorag).write_parquet(tmp_path / "a.parquet")
    assert merge(read_run_file(tmp_path / "a.parquet")) == {"q": {"d2": 0.5, "d1": 0.25}}
    pl.DataFrame(autorag).drop("qid").write_parquet(tmp_path / "b.parquet")
    with pytest.raises(
        DataError, match=r"b\.parquet: has no query column; .*as in the table of queries"
    ):
        read_run_file(tmp_path / "b.parquet")


@pytest.mark.parametrize(
    "rows",
    [
        [("q", "d2", 2.0), ("q", "d1", 1.0)],
        [{"qid": "q", "docno": "d2", "score": 2.0}, {"qid": "q", "docno": "d1", "score": 1.0}],
        pl.DataFrame(
            {"qid": ["q", "q"], "docno": ["d2", "d1"], "docid": [0, 1], "score": [2.0, 1.0]}
        ),
        pl.DataFrame({"qid": ["q", "q"], "docno": ["d2", "d1"], "score": [2.0, 1.0]}).to_pandas(),
    ],
)
def test_rows_and_frames_are_runs(rows: Any):
    assert is_table(rows)
    run = read_rankings("run", rows, None)
    hits = run.by_subset[ANY_SUBSET]["q"]
    assert ([hit[:2] for hit in hits], run.duplicates) == ([("d2", 2.0), ("d1", 1.0)], 0)


#: The hits `low`, `high` and, without a score, `lost`, in every layout of a JSON run.
HITS_WITHOUT_SCORE: dict[str, Any] = {
    "mapping": {"low": 1.0, "high": 9.0, "lost": None},
    "pairs": [["low", 1.0], ["high", 9.0], ["lost", None]],
    "ids among pairs": [["low", 1.0], ["high", 9.0], "lost"],
    "rows": [
        {"docno": "low", "score": 1.0},
        {"docno": "high", "score": 9.0},
        {"docno": "lost", "score": None},
    ],
    "a row without the key": [
        {"docno": "low", "score": 1.0},
        {"docno": "high", "score": 9.0},
        {"docno": "lost"},
    ],
    "a score of another stage": [
        {"doc": "low", "_relevance_score": 1.0, "_score": 4.0},
        {"doc": "high", "_relevance_score": 9.0, "_score": 3.0},
        {"doc": "lost", "_relevance_score": None, "_score": 70.0},
    ],
    "a distance among scores": [
        {"doc": "low", "score": 1.0},
        {"doc": "high", "score": 9.0},
        {"doc": "lost", "distance": 0.5},
    ],
    "columns": {"ids": ["low", "high", "lost"], "scores": [1.0, 9.0, None]},
    "nodes": {
        "source_nodes": [
            {"node": {"ref_doc_id": name}, "score": score}
            for name, score in (("low", 1.0), ("high", 9.0), ("lost", None))
        ],
    },
    "answer": {
        "hits": {
            "hits": [
                {"_id": name, "_score": score, "_source": {}}
                for name, score in (("low", 1.0), ("high", 9.0), ("lost", None))
            ]
        }
    },
}


@pytest.mark.parametrize("layout", HITS_WITHOUT_SCORE)
@pytest.mark.parametrize("queries", [("q",), ("q", "r")])
def test_a_hit_without_a_score_raises_with_its_id(
    layout: str, queries: tuple[str, ...], tmp_path: Path
):
    """In jundot/omlx#3633 and run-llama/llama_index#23199, one such hit removed all scores."""
    file = tmp_path / "a.json"
    file.write_text(
        json.dumps(
            dict.fromkeys(queries, HITS_WITHOUT_SCORE[layout]) | {"s": {"low": 1.0, "high": 2.0}}
        )
    )
    orders: list[Order | None] = [None, "score"]
    for order in orders:
        with pytest.raises(DataError, match=r"query q: hit 3, lost, has no score.*--order rank"):
            read_run_file(file, order)
    ranked = read_run_file(file, "rank").by_subset[ANY_SUBSET]["q"]
    assert [hit.document for hit in ranked] == ["low", "high", "lost"]


@pytest.mark.parametrize("order", [None, "score", "distance"])
@pytest.mark.parametrize(
    "unscored_hits", [["x", "y"], [["x", None], ["y", None]], [{"doc": "x"}, {"doc": "y"}]]
)
def test_a_run_with_scores_for_only_some_queries_raises(
    unscored_hits: Any, order: Order | None, tmp_path: Path
):
    (tmp_path / "a.json").write_text(json.dumps({"q": {"x": 1.0, "y": 2.0}, "r": unscored_hits}))
    with pytest.raises(
        DataError,
        match=r"2 hits have no (score|distance), first document x of query r, and 2 have one",
    ):
        read_run_file(tmp_path / "a.json", order)


def test_sorting_by_score_needs_scores(tmp_path: Path):
    (tmp_path / "a.json").write_text('{"q": ["x", "y"]}')
    orders: list[Order] = ["score", "distance"]
    for order in orders:
        with pytest.raises(DataError, match=f"no hit has a {order}, but --order {order} needs"):
            read_run_file(tmp_path / "a.json", order)
    (tmp_path / "b.json").write_text('{"q": {"x": null, "y": null}}')
    with pytest.raises(DataError, match="hit 1, x, has no score; 2 of 2 lack one"):
        read_run_file(tmp_path / "b.json")


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "a.jsonl",
            ['{"qid": "q", "docno": "x", "score": 1}', '{"qid": "q", "docno": "y", "score": null}'],
        ),
        (
            "a.jsonl",
            [
                '{"qid": "q", "docno": "x", "rank": 1, "score": 1}',
                '{"qid": "q", "docno": "y", "rank": 2}',
            ],
        ),
        (
            "a.jsonl",
            [
                '{"qid": "q", "docno": "x", "_relevance_score": 1}',
                '{"qid": "q", "docno": "y", "score": 70}',
            ],
        ),
        ("a.csv", ["qid,docno,score", "q,x,1", "q,y,"]),
        ("a.csv", ["qid,docno,distance", "q,x,1", "q,y,nan"]),
        ("a.json", ['[{"qid": "q", "docno": "x", "score": 1}, {"qid": "q", "docno": "y"}]']),
    ],
)
def test_a_row_without_a_score_raises_with_query_and_document(
    name: str, lines: list[str], tmp_path: Path
):
    (tmp_path / name).write_text("\n".join(lines))
    with pytest.raises(
        DataError, match=r"document y of query q|of query q, document y|and score, first in line 2"
    ):
        read_run_file(tmp_path / name)
    ranked = read_run_file(tmp_path / name, "rank").by_subset[ANY_SUBSET]["q"]
    assert [hit.document for hit in ranked] == ["x", "y"]


@pytest.mark.parametrize(
    "to_frame",
    [
        pl.DataFrame,
        lambda rows: pl.DataFrame(rows).to_pandas(),
        lambda rows: pl.DataFrame(rows).to_arrow(),
    ],
)
def test_a_frame_with_a_null_score_raises_unless_ordered_by_rank(to_frame: Any):
    frame = to_frame({"qid": ["q"] * 3, "docno": ["x", "y", "z"], "score": [1.0, 9.0, None]})
    with pytest.raises(DataError, match=r"row 3 .* of query q, document z"):
        read_rankings("run", frame, None)
    hits = read_rankings("run", frame, "rank").by_subset[ANY_SUBSET]
    assert [hit.document for hit in hits["q"]] == ["x", "y", "z"]


def test_ranks_in_only_some_rows_raise_unless_ordered_by_score(tmp_path: Path):
    rows = [("x", 2, 1.0), ("y", None, 9.0), ("z", 1, 3.0)]
    lines = [
        json.dumps({"qid": "q", "docno": name, "rank": rank, "score": score})
        for name, rank, score in rows
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    orders: list[Order | None] = [None, "rank"]
    for order in orders:
        with pytest.raises(
            DataError,
            match=r"'rank' must be an integer .*line 2 \('None'\) of query q, document y",
        ):
            read_run_file(tmp_path / "a.jsonl", order)
    assert [
        hit.document
        for hit in read_run_file(tmp_path / "a.jsonl", "score").by_subset[ANY_SUBSET]["q"]
    ] == ["y", "z", "x"]
    (tmp_path / "b.trec").write_text("q Q0 x - 1.0 t\nq Q0 y - 9.0 t\n")
    assert [
        hit.document for hit in read_run_file(tmp_path / "b.trec").by_subset[ANY_SUBSET]["q"]
    ] == ["y", "x"]


@pytest.mark.parametrize("score", ["true", '"high"', '"1_000"', '"NaN"', '"-inf"', '""'])
def test_scores_that_are_not_numbers_raise(score: str, tmp_path: Path):
    contents = {
        "a.json": f'{{"q": {{"d": {score}, "e": 1}}}}',
        "b.json": f'{{"q": [["d", {score}], ["e", 1]]}}',
        "c.json": f'{{"q": {{"ids": ["d", "e"], "scores": [{score}, 1]}}}}',
        "d.jsonl": f'{{"qid": "q", "docno": "d", "score": {score}}}\n{{"qid": "q", "docno": "e", '
        f'"score": 1}}',
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match=r"must be (a|finite)"):
            read_run_file(tmp_path / name)
        (tmp_path / name).write_text(content.replace(score, '"2.5"'))
        assert merge(read_run_file(tmp_path / name)) == {"q": {"d": 2.5, "e": 1.0}}


def read_order(file: Path, order: Order | None = None) -> str:
    hits = read_run_file(file, order).by_subset[ANY_SUBSET]["q"]
    return "".join(hit.document for hit in hits)


@pytest.mark.parametrize(
    ("values", "documents", "warning"),
    [
        ("3 2 1", "abc", "read as scores"),
        ("2 1 0", "abc", "read as scores"),
        ("1 2 3", "abc", "read as ranks"),
        ("0 1 2", "abc", "read as ranks"),
        ("1.0 2.0 3.0", "abc", "read as ranks"),
        ("1 2 4", "abc", "read as ranks"),
        ("5 7 9", "cba", "read as scores"),
        ("9 7 5", "abc", ""),
        ("3 2.5 1", "abc", ""),
        ("1", "a", "read as scores"),
    ],
)
def test_the_order_of_lines_distinguishes_ranks_from_scores(
    values: str, documents: str, warning: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    for name, separator in (("a.run", " "), ("a.tsv", "\t")):
        rows = zip("abc", values.split(), strict=False)
        (tmp_path / name).write_text("".join(separator.join(("q", *row)) + "\n" for row in rows))
        caplog.clear()
        assert read_order(tmp_path / name) == documents
        assert warning in caplog.text
        assert bool(warning) == ("--order" in caplog.text)
        caplog.clear()
        numbers = dict(zip("abc", map(float, values.split()), strict=False))
        assert read_order(tmp_path / name, "score") == "".join(
            sorted(numbers, key=lambda row: -numbers[row])
        )
        assert read_order(tmp_path / name, "distance") == "".join(
            sorted(numbers, key=lambda row: numbers[row])
        )
        assert not caplog.text


@pytest.mark.parametrize(
    "values", [("1 3 2",), ("2 1 3",), ("1 2 3", "3 2 1"), ("1 2", "2 1"), ("1", "1 3 2")]
)
def test_integers_that_may_be_scores_or_ranks_raise(values: tuple[str, ...]):
    cells = [
        (f"q{query}", f"d{row}", value)
        for query, column in enumerate(values)
        for row, value in enumerate(column.split())
    ]
    with pytest.raises(DataError, match=r"third column contains .*--order rank .*--order score"):
        read_rankings("mine", [(query, name, int(value)) for query, name, value in cells], None)
    by_rank = read_rankings("mine", cells, "rank").by_subset[ANY_SUBSET]
    by_score = read_rankings("mine", cells, "score").by_subset[ANY_SUBSET]
    assert all(
        [hit.document for hit in by_rank[query]] == [hit.document for hit in by_score[query]][::-1]
        for query in by_rank
    )


@given(data=st.data(), best_first=st.booleans(), scores=st.booleans())
def test_sorted_integer_scores_and_ranks_are_distinguished(
    data: st.DataObject, best_first: bool, scores: bool
):
    """If the best row is first, scores and ranks give the same order. If it is last, the order has
    to be given.
    """
    sizes = data.draw(st.lists(st.integers(2, 6), min_size=1, max_size=4))
    rows = [
        (f"q{query}", f"d{row}", size - row if scores else row + 1)
        for query, size in enumerate(sizes)
        for row in range(size)
    ]
    order: Order = "score" if scores else "rank"
    run = read_rankings(
        "run", rows if best_first else [*reversed(rows)], None if best_first else order
    )
    hits = run.by_subset[ANY_SUBSET]
    assert {ranked[0].document for ranked in hits.values()} == {"d0"}


def test_the_order_chooses_between_score_and_distance(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    rows = [("a", 0.1, 5.0, 2), ("b", 0.2, 9.0, 3), ("c", 0.3, 7.0, 1)]
    hits = [
        {"doc": name, "distance": distance, "score": score, "rank": rank}
        for name, distance, score, rank in rows
    ]
    (tmp_path / "a.json").write_text(json.dumps({"q": hits}))
    (tmp_path / "b.jsonl").write_text(
        "".join(json.dumps(hit | {"qid": "q"}) + "\n" for hit in hits)
    )
    for name in ("a.json", "b.jsonl"):
        orders = [read_order(tmp_path / name, order) for order in get_args(Order)]
        assert orders == ["bca", "abc", "cab"]
        with pytest.raises(DataError, match="the scores contradict the ranks"):
            read_run_file(tmp_path / name)
    (tmp_path / "c.json").write_text(
        json.dumps({"q": [{"doc": hit["doc"], "distance": hit["distance"]} for hit in hits]})
    )
    assert [read_order(tmp_path / "c.json", order) for order in (None, *get_args(Order))] == [
        "abc",
        "cba",
        "abc",
        "abc",
    ]
    assert caplog.text.count("the lowest value is best") == 1


@pytest.mark.parametrize("missing", ["null", None])
def test_missing_distances_matter_only_if_hits_are_ordered_by_distance(
    missing: str | None, tmp_path: Path
):
    """In a hybrid search in LanceDB, hits of only the full-text search have no distance."""
    rows = [
        {"doc": "a", "_distance": 0.1, "_relevance_score": 0.2},
        {"doc": "b", "_relevance_score": 0.9},
    ]
    rows[1] |= {"_distance": None} if missing else {}
    (tmp_path / "a.json").write_text(json.dumps({"q": rows}))
    (tmp_path / "b.jsonl").write_text(
        "".join(json.dumps(row | {"qid": "q"}) + "\n" for row in rows)
    )
    for name in ("a.json", "b.jsonl"):
        assert read_order(tmp_path / name, "score") == "ba"
        with pytest.raises(
            DataError,
            match=r"has no distance in `_distance`|a distance and 1 a score, which cannot be "
            r"compared",
        ):
            read_run_file(tmp_path / name, "distance")
    frame = (
        pl.DataFrame([rows[0], rows[1] | {"_distance": float("nan")}])
        .with_columns(qid=pl.lit("q"))
        .to_pandas()
    )
    hits = read_rankings("run", frame, None).by_subset[ANY_SUBSET]
    assert [hit.document for hit in hits["q"]] == ["b", "a"]


def test_ranks_from_several_files_of_a_folder_are_not_compared(tmp_path: Path):
    (tmp_path / "a.json").write_text('{"q": ["a", "b"]}')
    (tmp_path / "b.json").write_text('{"r": ["a", "b"]}')
    assert read_run(tmp_path, "any").by_subset[ANY_SUBSET].keys() == {"q", "r"}
    (tmp_path / "c.json").write_text('{"q": {"c": 0.5}}')
    with pytest.raises(
        DataError, match=r"c\.json: query q is also in another file .* ranked by rank and score"
    ):
        read_run(tmp_path, "any")


@pytest.mark.parametrize(
    "names", [["qid", "docno", "score", "score"], ["qid", "qid", "docno", "score"]]
)
def test_tables_with_duplicate_columns_raise(names: list[str], tmp_path: Path):
    table = pa.table([pa.array(["q"])] * 2 + [pa.array([1.0])] * 2, names=names)
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text(f"{','.join(names)}\nq,d,1,2\n")
    for name in ("a.parquet", "a.csv"):
        with pytest.raises(DataError, match=r"a\.(csv|parquet)"):
            read_run_file(tmp_path / name)
    for frame in (table, table.to_pandas()):
        with pytest.raises(DataError, match="occurs twice"):
            read_rankings("run", frame, None)


@pytest.mark.parametrize(
    "runs", [[{"q": {"d": 1.0}}], ["a.trec"], [Path("a")], {"q": {"d": 1.0}}, []]
)
def test_a_list_of_runs_is_not_a_table(runs: Any):
    assert not is_table(runs)


def test_mteb_predictions_contain_subset_and_model(tmp_path: Path):
    predictions = {
        "mteb_model_meta": {"model_name": "a/b", "revision": "1"},
        "part": {"test": EXAMPLE},
    }
    for task in ("Mine", "Other"):
        (tmp_path / f"{task}_predictions.json").write_text(json.dumps(predictions))
    run = read_run(tmp_path, "Mine")
    assert (run.name, [*run.by_subset], merge(run, "part")) == ("b", ["part"], EXAMPLE)
    with pytest.raises(PosirError, match="contains predictions for Mine, Other, but not for Third"):
        read_run(tmp_path, "Third")


def test_predictions_of_sentence_transformers_are_read(tmp_path: Path):
    """Written by `InformationRetrievalEvaluator(write_predictions=True)` in version 6.2."""
    file = tmp_path / "Information-Retrieval_evaluation_dev_predictions_cosine.jsonl"
    results = [{"corpus_id": "d2", "score": 0.5}, {"corpus_id": "d1", "score": 0.25}]
    lines = [
        {"query_id": "q1", "query": "aab", "results": results},
        {"query_id": "q2", "query": "b", "results": []},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert merge(read_run_file(file)) == {"q1": {"d2": 0.5, "d1": 0.25}, "q2": {}}


def test_the_files_of_a_folder_are_one_run(
    tmp_path: Path,
):
    (tmp_path / "a.trec").write_text("q Q0 d 1 2.0 t\nq Q0 d 1 5.0 t\nq Q0 d 2 1.0 t\n")
    run = read_run_file(tmp_path / "a.trec")
    assert (merge(run), run.duplicates) == ({"q": {"d": 5.0}}, 2)
    write(tmp_path / "a.trec", {"q1": {"d1": 1.0}})
    write(tmp_path / "b.json", {"q1": {"d1": 3.0, "d2": 2.0}, "q2": {"d1": 1.0}})
    run = read_run(tmp_path, "any")
    assert (run.name, run.duplicates) == (tmp_path.name, 1)
    assert merge(run) == {"q1": {"d1": 3.0, "d2": 2.0}, "q2": {"d1": 1.0}}


@pytest.mark.parametrize(
    ("ranks", "scores", "contradicts"),
    [
        ((1, 2, 3, 4), (3, 2, 2, 1), False),
        ((1, 2, 3, 4), (1, 2, 3, 4), True),
        ((1, 1, 1, 1), (1, 4, 2, 3), False),
        ((1, 1, 2, 2), (4, 1, 2, 1), True),
        ((4, 3, 2, 1), (1, 2, 3, 4), False),
    ],
)
def test_scores_that_contradict_ranks_raise(
    ranks: tuple[int, ...], scores: tuple[int, ...], contradicts: bool, tmp_path: Path
):
    file = tmp_path / "a.trec"
    file.write_text("\n".join(f"q Q0 d{row} {ranks[row]} {scores[row]} t" for row in range(4)))
    if contradicts:
        with pytest.raises(
            DataError, match=r"a\.trec: in 1 of 1 query, first q, .*--order distance"
        ):
            read_run_file(file)
    else:
        assert list(merge(read_run_file(file))["q"]) == sorted(
            (f"d{row}" for row in range(4)), key=lambda name: -scores[int(name[1])]
        )
    best = {order: next(iter(merge(read_run_file(file, order))["q"])) for order in get_args(Order)}
    assert best["rank"] == f"d{ranks.index(min(ranks))}"
    assert scores[int(best["score"][1])] == max(scores)
    assert scores[int(best["distance"][1])] == min(scores)


def test_rising_scores_count_as_distances(tmp_path: Path):
    rising = {f"q{query}": {f"d{hit}": hit / 10 for hit in range(3)} for query in range(5)}
    file = write(tmp_path / "a.csv", rising)
    with pytest.raises(DataError, match="5 of 5 queries the scores rise"):
        read_run_file(file)
    assert list(merge(read_run_file(file, "distance"))["q0"]) == ["d0", "d1", "d2"]
    # A few scores may rise by chance.
    few = dict(list(rising.items())[:2])
    assert merge(read_run_file(write(tmp_path / "b.csv", few)))["q1"]["d2"] == 0.2


@given(seed=st.randoms(use_true_random=False))
def test_randomly_ordered_scores_do_not_count_as_distances(seed: random.Random):
    check = OrderCheck()
    for query in range(30):
        check.add(str(query), [Hit(str(hit), seed.random()) for hit in range(4)])
    assert not check.describe_problem()


def test_distances_are_negated_before_chunks_are_merged():
    hits = [Hit("a", 0.1, text="x"), Hit("b", 0.2), Hit("a", 0.9, start=7)]
    assert sort_hits(hits, "distance") == [
        Hit("a", -0.1, text="x"),
        Hit("b", -0.2),
        Hit("a", -0.9, start=7),
    ]
    assert sort_hits(hits, "score") == [
        Hit("a", 0.9, start=7),
        Hit("b", 0.2),
        Hit("a", 0.1, text="x"),
    ]
    assert merge_chunks(sort_hits(hits, "rank")) == {"a": 3.0, "b": 2.0}
    assert merge_chunks(sort_hits(hits, "distance")) == {"a": -0.1, "b": -0.2}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.trec",
            "q Q0 d 1 2.0 t\nq Q0 e 2 nan t\nq Q0 f 3 inf t",
            "'score' must be finite: 2 rows, first line 2 ('nan')",
        ),
        (
            "a.trec",
            "q Q0 d 1 high t",
            "field 'score' must be a number: 1 row, first line 1 ('high')",
        ),
        ("a.trec", "q Q0 d 1 2.0 t\nq d", "line 2: has 2 columns; a TREC run has 6"),
        ("a.trec", "q Q0 d 1 2.0 of 3 4.0 t", "line 1: has 9 columns; a TREC run has 6"),
        ("a.trec", f"q Q0 d 1 1{'0' * 400} t", "field 'score' must be finite"),
        (
            "a.json",
            '{"q": [["d", "high"]]}',
            "hits cannot be read: 1 row, first query q: hit 1, d, has the score high",
        ),
        (
            "a.csv",
            "qid,retrieved_ids\nq,\"['d1', 'd2']\"\n",
            "field 'retrieved_ids' must be a list",
        ),
        ("a.csv", "query_id,doc_id,score\nq,,1\n", "field 'document id' must be a string"),
        (
            "a.csv",
            "query_id,text,score\nq,d,1\n",
            "has no document column; its columns are query_id, text, score",
        ),
        ("a.jsonl", '{"qid": true, "docid": "d", "score": 1}', "field 'query id' must be a string"),
        ("a.json", r'{"q": {"\ud800": 1}}', "hits cannot be read: 1 row, first query q: hit 1 is"),
        ("a.json", r'{"q": {"d\u0000": 1}}', "hits cannot be read: 1 row, first query q: hit 1 is"),
        ("a.jsonl", "{", "line 1: is not readable JSON"),
        ("a.json", '{"q": {"d": NaN}}', "is nan; numbers must be finite"),
        (
            "a.jsonl",
            '{"input": "Who?", "retrieval_context": ["a"]}',
            "first line 1: field 'retrieval_context' contains chunk texts",
        ),
        (
            "a.json",
            '{"mteb_model_meta": {}, "s": {"dev": {}, "test": {}}}',
            "field 's' must contain the rankings of one split",
        ),
        ("a.json", '{"q": 1}', "first query q: expected a list of hits, got int"),
        ("a.json", "{}", "contains no ranked document"),
        ("a.trec", "", "contains no ranked document"),
        ("a.lz4", "", "Save the run in ranx with `run.save('a.parquet')`"),
        ("a.parquet", "no", "is not a valid Parquet file"),
    ],
)
def test_invalid_runs_raise_with_file_row_and_field(
    name: str, content: str, message: str, tmp_path: Path
):
    (tmp_path / name).write_text(content)
    with pytest.raises(
        PosirError, match=f"^{re.escape(str(tmp_path / name))}: .*{re.escape(message)}"
    ):
        read_run_file(tmp_path / name)


@pytest.mark.parametrize(
    ("beginning", "format_name"),
    [
        (bytes.fromhex("1f8b"), "gzip"),
        (bytes.fromhex("28b52ffd"), "zstd"),
        (b"BZh", "bzip2"),
        (bytes.fromhex("fd377a585a00"), "xz"),
        (bytes.fromhex("04224d18"), "lz4"),
    ],
)
@pytest.mark.parametrize("name", ["run.trec", "run.jsonl", "run.csv", "run.json", "run.trec.xz"])
def test_other_compression_is_named(name: str, beginning: bytes, format_name: str, tmp_path: Path):
    (tmp_path / name).write_bytes(beginning + bytes(100))
    with pytest.raises(PosirError, match=f"compressed with {format_name};"):
        read_run_file(tmp_path / name)


@pytest.mark.parametrize("compression", ["zstd", "snappy", "uncompressed"])
def test_damaged_parquet_files_raise_or_are_read(
    compression: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    file = tmp_path / "a.parquet"
    rows = [(f"q{row % 20}", f"d{row}", float(row % 7)) for row in range(200)]
    pl.DataFrame(rows, ["q_id", "doc_id", "score"], orient="row").write_parquet(
        file, compression=compression
    )
    content = file.read_bytes()
    errors = 0
    rng = random.Random(1)
    for _ in range(150):
        damaged = bytearray(
            content[: rng.randrange(len(content))] if rng.random() < 0.2 else content
        )
        for _ in range(min(len(damaged), rng.randrange(1, 5))):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        file.write_bytes(damaged)
        try:
            read_run_file(file, "score")
        except DataError as error:
            errors += str(error).startswith(f"{file}: ")
    assert errors > 100
    assert "panicked" not in capfd.readouterr().err


@given(
    content=st.binary(max_size=60),
    suffix=st.sampled_from([".trec", ".json", ".jsonl", ".csv", ".tsv", ".parquet", ".trec.gz"]),
)
def test_any_bytes_are_read_or_raise(
    content: bytes, suffix: str, tmp_path_factory: pytest.TempPathFactory
):
    file = tmp_path_factory.getbasetemp() / f"bytes{suffix}"
    file.write_bytes(content)
    with suppress(DataError):
        assert read_run_file(file).by_subset[ANY_SUBSET]
