"""Test pooled scores against pandas, and read back every format of the report."""

import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import posir
from posir_published.rows import list_published_rows
from posir_report import api
from posir_report.columns import list_bin_columns, list_default_columns
from posir_report.content import (
    BRIEF,
    build_answer_sections,
    collect_pooled_scores,
    describe_findings,
)
from posir_report.published import convert_published, merge_published
from posir_report.summary import (
    ReportRow,
    TaskSummary,
    average_languages,
    build_bin_rows,
    build_rows,
    get_ndcg,
    mark_notable_bias,
    name_tasks_by_data,
    summarize,
)
from posir_report.tables import (
    build_bin_table,
    build_legend,
    build_length_table,
    format_cell,
    write_cut_ranking_notes,
    write_level_notes,
)
from posir_significance.messages.reports import describe_unestimated_lengths
from posir_tasks.base.errors import PosirError
from posir_tasks.display.export import to_csv, to_json
from posir_tasks.display.labels import Tone, find_tone
from posir_tasks.display.tables import Medium, to_markdown
from posir_tasks.results import read_results
from posir_tasks.text.languages import LANGUAGES
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.profile import PositionProfile
from posir_tasks.values.read_part import ReadPart, WindowSource
from posir_tasks.values.result_schema import DataVersion
from posir_tasks.values.schemes import RelativePositions
from posir_tasks.values.scores import ResultScores, ResultValues, ScoreInfo
from tests.support.cli import call_posir
from tests.support.results import describe_run, write_result
from tests.support.simulation import build_profile, separate_documents

DOMAINS = {"sports": 400, "game": 150, "news_media": 30}
LENGTHS = ["Q1", "Q2", "Q3", "Q4"]
EMPTY_ROW = ReportRow(model="", task="", subsets=1)
COLUMNS = list_default_columns()
NOTHING = ResultValues(separate_documents(build_profile(np.zeros((3, 12)))))


def sample_queries(seed=1):
    """Sample raw queries of domains of unequal size. Later evidence ranks lower; no document has
    1,025 to 1,536 tokens.
    """
    rng = np.random.default_rng(seed)
    domains = np.repeat(list(DOMAINS), list(DOMAINS.values()))
    characters = rng.integers(500, 9_000, len(domains))
    start = (rng.random(len(domains)) * (characters - 60)).astype(int)
    tokens = np.where(characters // 4 <= 1_024, characters // 4, 1_000 + characters)
    frame = pd.DataFrame(
        {
            "domain": domains,
            "start": start,
            "end": start + 50,
            "characters": characters,
            "tokens": tokens,
        }
    )
    result = rng.random(len(frame)) < 0.9
    frame["rank"] = np.where(result, rng.geometric(0.7 - 0.5 * start / characters), 0)
    return frame


def test_score_named_like_another_column_gets_a_separate_column():
    row = replace(
        EMPTY_ROW,
        model="org/a",
        scores={"model": 0.5, "margin": Estimate(0.1, (0.0, 0.2)), "share": 0.3},
    )
    columns = row.to_record()
    assert (columns["model"], columns["scores.model"], columns["share"]) == ("org/a", 0.5, 0.3)
    assert (columns["margin"], columns["scores.margin"], columns["scores.margin_low"]) == (
        None,
        0.1,
        0.0,
    )
    bins = ReportRow(
        model="org/a", task="b", position="first", scores={"position": 0.2}
    ).to_record()
    assert (bins["position"], bins["scores.position"]) == ("first", 0.2)


def test_notable_bias_needs_a_psi_of_0_03_on_both_datasets():
    psi = {
        "a": {"SQuAD-PosQ": 0.03, "FineWeb-PosQ": 0.2, "PosIR-English": 0.0},
        "b": {"SQuAD-PosQ": 0.3, "FineWeb-PosQ": 0.029, "SQuAD-PosQ-Tiny": 0.5},
        "c": {"SQuAD-PosQ-Tiny": 0.05, "FineWeb-PosQ-Tiny": 0.04},
    }
    rows = [
        ReportRow(model=model, task=task, scores={"psi_as_published": value})
        for model, tasks in psi.items()
        for task, value in tasks.items()
    ]
    marks = {(row.model, row.task): row.scores["notable_bias"] for row in mark_notable_bias(rows)}
    assert list(marks.values()) == ["yes", "yes", None, "no", "no", None, "yes", "yes"]


def build_frame_profile(frame):
    names = [f"q{row}" for row in frame.index]
    columns = (frame[name].to_numpy(np.int64) for name in ("start", "end", "characters", "tokens"))
    return PositionProfile.from_ranks(
        RelativePositions(), Evidence(names, ["d"] * len(names), *columns), frame["rank"].to_numpy()
    )


@pytest.fixture(scope="module")
def raw():
    """Every query with nDCG@10, bin and bucket by the paper's definitions and pandas.cut."""
    frame = sample_queries()
    inside = (frame["rank"] >= 1) & (frame["rank"] <= 10)
    frame["ndcg"] = np.where(inside, 1 / np.log2(1 + frame["rank"].clip(lower=1)), 0.0)
    midpoint = ((frame.start + frame.end) / 2 / frame.characters).clip(0, 1)
    frame["bin"] = pd.cut(midpoint, np.linspace(0, 1, 21), include_lowest=True, labels=False)
    frame["bucket"] = pd.cut(frame.tokens, [0, 512, 1024, 1536, np.inf], labels=LENGTHS)
    return frame


@pytest.fixture(scope="module")
def folder(raw, tmp_path_factory):
    output = tmp_path_factory.mktemp("output")
    profiles = {name: build_frame_profile(part) for name, part in raw.groupby("domain")}
    write_result(output, profiles, read=ReadPart.all(WindowSource.CLASS), hit_rates=(0.8, 0.6, 0.5))
    return output


@pytest.fixture(scope="module")
def summary(folder):
    (only,) = summarize(read_results(folder))
    return only


def psi(means):
    return 1 - means.min() / means.max()


def test_recall_by_position_matches_pandas(raw, folder, summary):
    done = call_posir(["report", str(folder), "--recall", "--format", "csv"])
    printed = pd.read_csv(io.StringIO(done.stdout)).set_index("position")
    assert printed.queries["all"] == len(raw)
    for depth in (5, 10, 100):
        key = f"recall_at_{depth}"
        hits = raw["rank"].between(1, depth)
        assert printed[key]["all"] == pytest.approx(hits.mean())
        by_bin = hits.groupby(raw.bin).mean()
        names = [summary.profile.positions[place] for place in by_bin.index]
        assert printed[key][names].tolist() == pytest.approx(by_bin.tolist())
        inside = (printed[f"{key}_low"] <= printed[key]) & (printed[key] <= printed[f"{key}_high"])
        assert inside[printed.queries > 1].all()
    shown = api.read_results(folder).recall()
    assert shown.to_polars()["recall_at_5"].to_list() == pytest.approx(printed.recall_at_5.tolist())


def test_a_chosen_column_is_in_the_first_table(folder):
    shown = api.report(folder, columns="recall_at_10,spearman")
    first, *_ = (table for section in shown.sections() for table in section.tables)
    assert first.headings[-2:] == ("Recall@10", "Spearman")
    assert set(shown.to_polars().columns) > {"recall_at_10", "recall_at_10_low", "spearman"}


def test_scores_are_means_of_queries_and_as_published_of_bins(raw, summary):
    overall, *rows = build_rows(summary)
    assert (overall.length, overall.queries, overall.subsets) == ("all", sum(DOMAINS.values()), 3)
    assert overall.ndcg_at_10.value == pytest.approx(raw.ndcg.mean(), abs=1e-9)
    assert overall.scores["psi_as_published"] == pytest.approx(
        psi(raw.groupby("bin").ndcg.mean()), abs=1e-9
    )
    assert [row.length for row in rows] == LENGTHS
    for row in rows:
        inside = raw[raw.bucket == row.length]
        bins = inside.groupby("bin").ndcg.mean()
        assert row.queries == len(inside)
        if row.length == "Q3":
            assert (
                row.queries,
                row.ndcg_at_10,
                row.ndcg_at_10_as_published,
                row.scores["psi_as_published"],
            ) == (0, None, None, None)
        else:
            for estimate, mean in (
                (row.ndcg_at_10, inside.ndcg.mean()),
                (row.ndcg_at_10_as_published, bins.mean()),
            ):
                assert estimate.value == pytest.approx(mean, abs=1e-9)
                assert estimate.low <= estimate.value <= estimate.high
            assert row.scores["psi_as_published"] == pytest.approx(psi(bins), abs=1e-9)


def test_scores_of_a_position_are_the_means_of_its_queries(raw, summary):
    rows = build_bin_rows(summary)
    bins = raw.groupby("bin").ndcg
    assert [row.queries for row in rows] == bins.size().reindex(range(20), fill_value=0).tolist()
    assert [row.ndcg_at_10.value for row in rows] == pytest.approx(bins.mean().tolist(), abs=1e-9)


def test_json_contains_unrounded_scores_and_a_readable_profile(raw, summary):
    (value,) = json.loads(to_json([collect_pooled_scores(summary, build_rows(summary))]))
    assert (value["model"], value["task"], value["subsets"]) == (
        "org/model",
        "PosIR-English",
        sorted(DOMAINS),
    )
    scores = value["position_scores"]["all"]["scores"]
    assert scores["queries"] == len(raw)
    assert scores["ndcg_at_10"] == pytest.approx(raw.ndcg.mean(), abs=1e-9)
    assert scores["psi_as_published"] == pytest.approx(
        psi(raw.groupby("bin").ndcg.mean()), abs=1e-9
    )
    assert PositionProfile.from_json(value["position_profile"]) == build_frame_profile(raw)


def read_csv_columns(text, *names):
    rows = list(csv.DictReader(io.StringIO(text)))
    return [[float(row[name]) if row[name] else None for row in rows] for name in names]


def test_csv_of_lengths_and_positions_round_trips(summary):
    rows = build_rows(summary)
    numbers = [
        "queries",
        "ndcg_at_10",
        "ndcg_at_10_low",
        "psi_as_published",
        "psi_by_chance",
        "psi_by_chance_high",
    ]
    numbers += ["position_effect_in_window", "position_effect_in_window_low"]
    records = [row.to_record() for row in rows]
    assert read_csv_columns(to_csv(records), *numbers) == [
        [record.get(name) for record in records] for name in numbers
    ]
    assert [line.split(",")[3] for line in to_csv(records).splitlines()] == [
        "length",
        "all",
        *LENGTHS,
    ]
    assert records[0]["position_effect_in_window_low"] is not None
    assert rows[3].scores.get("psi_as_published") is None
    bins = build_bin_rows(summary)
    text = to_csv([row.to_record() for row in bins])
    assert [row["position"] for row in csv.DictReader(io.StringIO(text))] == [
        row.position for row in bins
    ]
    expected = [[row.queries for row in bins], [row.ndcg_at_10.value for row in bins]]
    assert read_csv_columns(text, "queries", "ndcg_at_10") == expected


def parse_cells(markdown):
    lines = [line.replace("\\|", "\0").strip("|").split("|") for line in markdown.splitlines()]
    return [[cell.strip().replace("\0", "|") for cell in line] for line in lines]


def test_markdown_is_one_table_with_scores_as_papers_print_them(raw, summary):
    heading, rule, *lines = parse_cells(
        to_markdown(build_length_table(build_rows(summary), list_default_columns(full=True)))
    )
    lines = [line for line in lines if len(line) > 1]
    assert len({len(line) for line in (heading, rule, *lines)}) == 1
    assert len(lines) == 5
    first = dict(zip(heading, lines[0], strict=True))
    assert (first["Model"], first["Task"], first["Length"], first["Queries"]) == (
        "org/model",
        "PosIR-English",
        "all",
        "580",
    )
    assert first["nDCG@10"].split()[0] == f"{raw.ndcg.mean() * 100:.1f}"
    assert first["PSI (as published)"] == f"{psi(raw.groupby('bin').ndcg.mean()):.3f}"
    assert lines[3][3:6] == ["0", "–", "–"]


def test_models_tasks_and_settings_are_not_pooled(raw, tmp_path):
    parts = dict(list(raw.groupby("domain")))
    write_result(tmp_path, {"game": build_frame_profile(parts["game"])})
    write_result(tmp_path, {"game": build_frame_profile(parts["sports"])}, task="PosIR-German")
    write_result(tmp_path, {"game": build_frame_profile(parts["news_media"])}, model="org/other")
    write_result(
        tmp_path,
        {"game": build_frame_profile(parts["game"])},
        model="org/other",
        experiment="batch_size_8",
    )
    rows = [row for item in summarize(read_results(tmp_path)) for row in build_rows(item)]
    overall = {(row.model, row.task): row.queries for row in rows if row.length == "all"}
    assert overall == {
        ("org/model", "PosIR-English"): 150,
        ("org/model", "PosIR-German"): 400,
        ("org/other", "PosIR-English"): 30,
        ("org/other (batch_size_8)", "PosIR-English"): 150,
    }
    tables = [table for section in build_answer_sections(rows) for table in section.tables]
    english, german = (table for table in tables if table.title.startswith("PosIR-"))
    assert sorted(row[0] for row in english.rows) == [
        "org/model",
        "org/other",
        "org/other (batch_size_8)",
    ]
    assert [float(row[1]) for row in english.rows] == sorted(
        (float(row[1]) for row in english.rows), reverse=True
    )
    assert [row[0] for row in german.rows] == ["org/model"]
    shown = call_posir(["report", str(tmp_path)]).stdout
    assert (
        shown.index("PosIR-English · 150 queries")
        < shown.index("org/model  ")
        < shown.index("PosIR-German · 400")
    )
    (alone,) = next(build_answer_sections([row for row in rows if row.model == "org/model"])).tables
    assert (alone.title, [row[0] for row in alone.rows]) == (
        "org/model",
        ["PosIR-English", "PosIR-German"],
    )


def test_ten_models_are_one_table_without_empty_lengths(summary):
    ten = [
        replace(summary, model=f"organization/a-model-with-a-name-of-{number}-and-more-characters")
        for number in range(10)
    ]
    *counts, table = build_answer_sections([row for item in ten for row in build_rows(item)])
    assert sum(len(count.sentences) for count in counts) == 3
    assert len(table.tables[0].rows) == 10
    assert max(map(len, print_plainly(table).splitlines())) <= 100
    assert print_plainly(table).count("▇▆") == print_plainly(table, 100).count("▇▆") == 10
    assert {column.heading: column.align for column in table.tables[0].columns} == {
        "Model": "left",
        "nDCG@10": "right",
        "Position effect": "right",
        "Truncated": "right",
        "Over position": "left",
        "Bias within\nthe window": "left",
    }
    sections = build_answer_sections(build_rows(summary), [summary])
    lengths = next(part for part in sections if part.only is Medium.TEXT and part.tables)
    assert [row[0][:2] for row in lengths.tables[0].rows] == ["Q1", "Q2", "Q4"]
    assert lengths.tables[0].notes[-1] == describe_unestimated_lengths({"Q3": 0})


def print_plainly(section, width=80):
    console = Console(file=io.StringIO(), width=width, force_terminal=width > 80)
    section.print_on(console)
    return console.file.getvalue()


def test_truncated_share_above_0_is_red():
    column = next(column for column in COLUMNS if column.key == "unread_share")
    cells = [
        format_cell(EMPTY_ROW.with_scores(unread_share=share), column) for share in (0.589, 0.0)
    ]
    assert [(cell, find_tone(cell)) for cell in cells] == [("58.9%", Tone.BAD), ("0.0%", None)]


def test_partial_task_is_marked(raw, tmp_path):
    missing = {"data_revision": "local", "missing_subsets": ["aerospace", "mining", "game"]}
    write_result(tmp_path, {"game": build_frame_profile(raw)}, position_run=missing)
    (only,) = summarize(read_results(tmp_path))
    assert only.missing == ("aerospace", "mining")
    assert "(partial: 1 of 3 subsets)" in to_markdown(build_length_table(build_rows(only), COLUMNS))


def test_command_prints_every_format(folder, summary):
    def printed(*options):
        done = call_posir(["report", str(folder), *options])
        assert done.exit_code == 0, done.output
        return done.stdout

    pooled = collect_pooled_scores(summary, mark_notable_bias(build_rows(summary)))
    overlap = {"sources": ["IndustryCorpus2", "FineWeb"], "share": None}
    assert json.loads(printed("--format", "json")) == json.loads(
        to_json([pooled | {"training_overlap": overlap}])
    )
    assert printed("--format", "csv") == to_csv(
        [row.to_record() for row in mark_notable_bias(build_rows(summary))]
    )
    assert printed("--format", "csv", "--bins") == to_csv(
        [row.to_record() for row in build_bin_rows(summary)]
    )
    (finding,) = describe_findings(build_rows(summary))
    finding = finding.removeprefix(f"{summary.model}: ").replace("\n", "\n\n")
    markdown = printed("--format", "markdown", "--full")
    parts = [
        markdown.index(part)
        for part in (finding, *write_level_notes(build_rows(summary)), "PSI (as published)")
    ]
    assert parts == sorted(parts)
    assert "PSI (as published)" not in (table := printed())
    assert "PosIR-English · 580 queries" in table
    assert " ".join(BRIEF) in " ".join(table.split())
    explained = " ".join(printed("--explain").split())
    assert "Position effect: nDCG@10 with the evidence in the first third" in explained


def test_many_results_are_counted():
    rows = [replace(EMPTY_ROW, model=f"m/{number}", length="all") for number in range(7)]
    assert [re.findall(r"\d+", line) for line in describe_findings(rows)] == [["7"], []]


def test_published_models_are_marked_and_sorted_by_ndcg():
    mine = replace(EMPTY_ROW, model="mine/model", task="PosIR-English")
    own = [replace(mine, length=length).with_scores(ndcg_at_10=0.7) for length in ("all", "Q1")]
    rows = merge_published(own)
    whole = [row for row in rows if row.length == "all"]
    assert {row.length for row in rows} == {"all", "Q1"}
    assert [get_ndcg(row) for row in whole] == sorted(map(get_ndcg, whole), reverse=True)
    assert len(whole) == 11
    assert [row.model for row in whole if not row.model.endswith("(published)")] == ["mine/model"]


def test_tasks_without_published_results_are_named():
    with pytest.raises(PosirError, match="no published results for PosIR-Mini"):
        merge_published([replace(EMPTY_ROW, task="PosIR-Mini")])


def test_rankings_that_end_at_rank_10_are_noted(summary):
    counts = summary.profile.counts.copy()
    counts[..., -1] += counts[..., -2]
    counts[..., -2] = 0
    profile = replace(summary.profile, counts=counts, totals=counts.sum(axis=1))
    cut = separate_documents(profile)
    assert (
        len(list(write_cut_ranking_notes(["m"], [replace(summary, values=ResultValues(cut))]))) == 1
    )
    assert list(write_cut_ranking_notes(["m"], [summary])) == []


def test_published_results_are_shown_with_their_curves(folder):
    done = call_posir(["report", str(folder), "--published"], env={"COLUMNS": "200"})
    lines = [line for line in done.stdout.splitlines() if re.match(r"Q4 +[▁-█]", line)]
    assert len(lines) > 9, "a curve of each model in the longest documents"


def test_revisions_of_a_model_have_a_heading_and_a_column(summary):
    both = [summary, replace(summary, revision="0123456789abcdef")]
    rows, bins = (
        [row for item in both for row in build(item)] for build in (build_rows, build_bin_rows)
    )
    labels = {"org/model @ rev1", "org/model @ 0123456789ab"}
    for table in (build_length_table(rows, COLUMNS), build_bin_table(bins, list_bin_columns())):
        assert {part.title for part in table.split_rows()} == {
            f"{label} · PosIR-English" for label in labels
        }
    assert {row[0] for row in next(build_answer_sections(rows)).tables[0].rows} == labels
    for records, key in ((rows, "length"), (bins, "position")):
        read = list(csv.DictReader(io.StringIO(to_csv([record.to_record() for record in records]))))
        assert len(
            {(line["model"], line["revision"], line["task"], line[key]) for line in read}
        ) == len(records)


def build_result(
    data: dict[str, str], missing: tuple[str, ...] = (), revision: str | None = None
) -> TaskSummary:
    """Build a result on a task, given the corpus digest of each subset."""
    revision = revision or f"local-{'+'.join(data.values())}"
    versions = {subset: DataVersion(revision, corpus, "q") for subset, corpus in data.items()}
    return TaskSummary(
        "m",
        "1",
        "PosIR-English",
        tuple(data),
        missing,
        revision,
        NOTHING,
        ResultScores((), {}, ()),
        data=versions,
    )


HUB = build_result({"sports": "c", "game": "c"}, revision="c" * 40)


@pytest.mark.parametrize(
    ("summaries", "names"),
    [
        ([HUB, HUB], ["", ""]),
        ([HUB, build_result({"sports": "c", "game": "c"})], ["", ""]),
        ([HUB, build_result({"sports": "c"}, missing=("game",))], ["", ""]),
        ([HUB, build_result({"sports": "c"})], ["", " (data local-c)"]),
        (
            [build_result({"sports": "d", "game": "c"}, missing=("mining",)), HUB],
            [" (data local-d+c)", ""],
        ),
        (
            [build_result({"sports": "c"}), build_result({"sports": "d"})],
            [" (data local-c)", " (data local-d)"],
        ),
        (
            [build_result({"custom": "c"}), build_result({"sports": "d"}), HUB],
            [" (data local-c)", " (data local-d)", ""],
        ),
        (
            [HUB, build_result({"sports": "d", "game": "c"}, revision="c" * 40)],
            [f" (data {'c' * 40}, content 1)", f" (data {'c' * 40}, content 2)"],
        ),
    ],
)
def test_results_on_different_data_have_different_task_names(summaries, names):
    assert [item.task for item in name_tasks_by_data(summaries)] == [
        f"PosIR-English{name}" for name in names
    ]


def test_every_format_separates_different_data(raw, tmp_path):
    profiles = {"sports": build_frame_profile(raw[:60])}
    for model, corpus in (("a/a", "c1"), ("b/b", "c2"), ("c/c", "c1")):
        write_result(
            tmp_path, profiles, model=model, position_run=describe_run(f"local-{corpus}", corpus)
        )
    rows = list(csv.DictReader(io.StringIO(call_posir(["report", str(tmp_path), "--csv"]).stdout)))
    assert {(row["model"], row["task"]) for row in rows} == {
        ("a/a", "PosIR-English (data local-c1)"),
        ("b/b", "PosIR-English (data local-c2)"),
        ("c/c", "PosIR-English (data local-c1)"),
    }
    assert call_posir(["report", str(tmp_path), "--latex"]).stdout.count(r"\begin{table*}") == 2
    document = json.loads(call_posir(["report", str(tmp_path), "--format", "json"]).stdout)
    assert [item["data_revision"] for item in document] == ["local-c1", "local-c2", "local-c1"]


def test_a_legend_keeps_acronyms():
    columns = [ScoreInfo("mrr", "MRR", "MRR of a bin."), ScoreInfo("share", "Share", "A share.")]
    assert build_legend(columns) == ["MRR: MRR of a bin.", "Share: a share."]


def test_means_over_languages_reproduce_table_2_of_posir(tmp_path):
    """The means of bge-m3's ten rows equal the printed nDCG@10 by length (arXiv 2601.08363)."""
    tasks = [f"PosIR-{language.name}" for language in LANGUAGES]
    rows = [
        convert_published(row)
        for task in tasks
        for row in list_published_rows(task)
        if row.model == "bge-m3"
    ]
    averages = average_languages(rows)
    values = [row.ndcg_at_10 or row.ndcg_at_10_as_published for row in averages]
    assert [round(100 * value.value, 2) for value in values] == [43.22, 57.16, 43.48, 35.13, 29.72]
    assert {row.task for row in averages} == {"PosIR"}
    assert average_languages(row for row in rows if row.task != "PosIR-Korean") == [], (
        "a language is missing"
    )
    for task in tasks:
        write_result(tmp_path, {"sports": build_profile(np.ones((3, 12)))}, task=task)
    shown = posir.report(tmp_path, published=True).to_polars().filter(task="PosIR", length="all")
    assert set(shown["model"]) > {"org/model", "bge-m3 (published)"}
