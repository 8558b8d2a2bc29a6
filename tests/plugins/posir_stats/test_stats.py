"""Tests for statistics: random data against pandas, XQuAD against its published size, and all
formats.
"""

import json
import re
import sys
import unicodedata
from collections import Counter
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_stats.api import compute_statistics
from posir_stats.charts import build_figures
from posir_stats.tables import (
    build_document,
    build_position_tables,
    build_records,
    build_tables,
    describe_data,
    describe_source,
    describe_spread,
)
from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.data.formats.question_rows import read_squad_json
from posir_tasks.datasets.opening import open_data
from posir_tasks.datasets.statistics import (
    QUESTION_MARKS,
    QueryType,
    TextTotals,
    count_types,
    group_by_language,
    summarize_lengths,
)
from posir_tasks.display.export import to_csv, to_json
from posir_tasks.display.tables import to_markdown
from posir_tasks.values.profile import pool
from posir_tasks.values.schemes import LabeledPositions, RelativePositions
from tests.posir_tasks.data.test_posq import write_fineweb, write_squad
from tests.support.charts import check_figures
from tests.support.cli import call_posir
from tests.support.datasets import POSIR_FOLDER, imported, write_domain

#: Documents and queries of each language and domain; some documents have no query.
SIZES = {
    ("eng-Latn", "game"): (30, 80),
    ("eng-Latn", "sports"): (50, 300),
    ("jpn-Jpan", "sports"): (20, 60),
}
LENGTHS = ["Q1", "Q2", "Q3", "Q4"]
QUERY_TEXTS = {
    "eng-Latn": [
        "Who  won the cup?",
        "cup winner 1998",
        "Tell me who won the cup in 1998",
        "Is it „over?“\n",
        "why? because of that one",
    ],
    "jpn-Jpan": [
        "誰が勝ちましたか？",
        "優勝 チーム",
        "この大会で優勝したチームを教えて",
        "いつですか。",
    ],
}


def make_domain(language, domain, seed):
    """Return a random table of queries with their documents and spans, and the documents' texts."""
    rng = np.random.default_rng(seed)
    documents, queries = SIZES[language, domain]
    letter = "x" if language == "eng-Latn" else "字"
    texts = [
        " ".join(letter * word for word in rng.integers(1, 9, count))
        for count in rng.integers(20, 400, documents)
    ]
    document_numbers = rng.integers(0, documents - 5, queries)
    tokens = rng.choice([100, 511, 512, 513, 1024, 1025, 1536, 1537, 9000], documents)
    characters = np.array([len(texts[row]) for row in document_numbers])
    start = (rng.beta(1, 2, queries) * (characters - 6)).astype(int)
    frame = pd.DataFrame(
        {
            "language": language,
            "domain": domain,
            "query": [f"{domain}-q{row}" for row in range(queries)],
            "text": rng.choice(QUERY_TEXTS[language], queries),
            "document": [f"{domain}-d{row}" for row in document_numbers],
            "tokens": tokens[document_numbers],
            "start": start,
            "end": start + 5,
            "characters": characters,
        }
    )
    return frame, pd.Series(texts, [f"{domain}-d{row}" for row in range(documents)])


def build_tables_of_domain(frame, texts):
    return {
        "corpus": pl.DataFrame({"_id": texts.index.tolist(), "text": texts.tolist()}),
        "queries": pl.DataFrame(
            {
                "_id": frame["query"].tolist(),
                "text": frame["text"].tolist(),
                "pos_char_span": frame[["start", "end"]].to_numpy().tolist(),
                "pos_char_length": frame["characters"].tolist(),
                "pos_token_length": frame["tokens"].tolist(),
            }
        ),
        "qrels": pl.DataFrame(
            {
                "query-id": frame["query"].tolist(),
                "corpus-id": frame["document"].tolist(),
                "score": [1] * len(frame),
            }
        ),
    }


@pytest.fixture(scope="module")
def domains():
    return {key: make_domain(*key, seed) for seed, key in enumerate(SIZES)}


@pytest.fixture(scope="module")
def folder(domains, tmp_path_factory):
    root = tmp_path_factory.mktemp("data") / POSIR_FOLDER
    for (language, domain), (frame, texts) in domains.items():
        write_domain(root, build_tables_of_domain(frame, texts), language=language, domain=domain)
    return root


@pytest.fixture(scope="module")
def statistics(folder):
    return compute_statistics(str(folder))


def classify_query(text, language):
    closing = {"Pe", "Pf", "Pi"}
    end = text
    while end and (
        end[-1].isspace() or end[-1] in "\"'" or unicodedata.category(end[-1]) in closing
    ):
        end = end[:-1]
    if end and "QUESTION" in unicodedata.name(end[-1], "") and end[-1] != "¿":
        return "question"
    short = len("".join(text.split())) <= 10 if language == "jpn-Jpan" else len(text.split()) <= 5
    return "keywords" if short else "statement"


def group_domains(domains):
    """Group domains like the statistics: single domains, each language, each domain over all
    languages, and everything.
    """
    groups = dict(domains)
    english = [domains["eng-Latn", name] for name in ("game", "sports")]
    everything = list(domains.values())
    groups["eng-Latn", "all"] = tuple(pd.concat(parts) for parts in zip(*english, strict=True))
    sports = [domains[language, "sports"] for language in ("eng-Latn", "jpn-Jpan")]
    groups["all", "sports"] = tuple(pd.concat(parts) for parts in zip(*sports, strict=True))
    groups["all", "all"] = tuple(pd.concat(parts) for parts in zip(*everything, strict=True))
    return groups


def index_rows(statistics):
    return {(row["language"], row["domain"]): row for row in build_document(statistics)["rows"]}


def test_statistics_equal_pandas(domains, statistics):
    rows = index_rows(statistics)
    assert list(rows) == [
        *(("eng-Latn", name) for name in ("game", "sports", "all")),
        ("jpn-Jpan", "sports"),
        *(("all", name) for name in ("game", "sports", "all")),
    ]
    for key, (frame, texts) in group_domains(domains).items():
        row = rows[key]
        lengths = frame.drop_duplicates(["language", "document"]).tokens
        assert (row["documents"], row["queries"], row["relevant_documents"]) == (
            len(texts),
            len(frame),
            len(lengths),
        )
        assert row["length_unit"] == "tokens"
        assert [row["length_25"], row["length_50"], row["length_75"]] == lengths.quantile(
            [0.25, 0.5, 0.75]
        ).tolist()
        assert row["length_max"] == lengths.max()
        assert row["query_characters"] == pytest.approx(frame.text.str.len().mean())
        assert row["document_characters"] == pytest.approx(texts.str.len().mean())
        if key[0] == "eng-Latn":
            assert row["query_words"] == pytest.approx(frame.text.str.split().str.len().mean())
            assert row["document_words"] == pytest.approx(texts.str.split().str.len().mean())
        else:
            assert (row["query_words"], row["document_words"]) == (None, None)
        kinds = pd.Series(
            [classify_query(*pair) for pair in zip(frame.text, frame.language, strict=True)]
        )
        assert [row[kind] for kind in QueryType] == pytest.approx(
            [(kinds == kind).mean() for kind in QueryType]
        )
        assert min(row[kind] for kind in QueryType) > 0


def test_histograms_equal_pandas_cut(domains, statistics):
    rows = index_rows(statistics)
    for key, (frame, _) in group_domains(domains).items():
        midpoint = ((frame.start + frame.end) / 2 / frame.characters).clip(0, 1)
        position = pd.cut(midpoint, np.linspace(0, 1, 21), include_lowest=True, labels=False)
        bucket = pd.cut(frame.tokens, [0, 512, 1024, 1536, np.inf], labels=LENGTHS)
        counts_by_length = {
            name: [int(((bucket == name) & (position == bin_)).sum()) for bin_ in range(20)]
            for name in LENGTHS
        }
        assert rows[key]["histogram"] == {
            "all": [int((position == bin_).sum()) for bin_ in range(20)],
            **counts_by_length,
        }
        assert [rows[key][f"queries_{name.lower()}"] for name in LENGTHS] == [
            sum(counts_by_length[name]) for name in LENGTHS
        ]


def test_pooling_is_independent_of_order(statistics):
    first, last = pool(statistics.subsets), pool(statistics.subsets[::-1])
    assert first.count_positions() == last.count_positions()
    assert (first.lengths, first.documents, first.queries) == (
        last.lengths,
        last.documents,
        last.queries,
    )


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x1c\x1d\x1e\x1f"))
    )
)
def test_words_and_characters_are_counted_like_python(texts):
    lengths = TextTotals.from_texts(pl.Series(texts, dtype=pl.String), "eng-Latn").lengths
    assert lengths["characters"] == Counter(map(len, texts))
    assert lengths["words"] == Counter(len(text.split()) for text in texts)
    at_blanks = TextTotals.from_texts(pl.Series(texts, dtype=pl.String), "eng-Latn", at_blanks=True)
    assert at_blanks.lengths["words"] == Counter(len(text.split(" ")) for text in texts)


@given(st.lists(st.integers(0, 60), min_size=1), st.lists(st.integers(0, 60)))
def test_statistics_of_added_lengths_equal_numpy(first, second):
    lengths = Counter(first) + Counter(second)
    everything = [*first, *second]
    expected = [
        np.mean(everything),
        np.std(everything),
        *np.quantile(everything, (0, 0.25, 0.5, 0.75, 1)),
    ]
    assert list(summarize_lengths(lengths).values()) == pytest.approx(expected)


def test_tokens_are_counted_on_request():
    class Letters:
        def count_all(self, texts):
            return [len(text) for text in texts]

    totals = TextTotals.from_texts(pl.Series(["ab", "cde"]), "jpn-Jpan", Letters())
    assert (totals.lengths["tokens"], totals.lengths["words"]) == (Counter({2: 1, 3: 1}), None)
    assert (totals + totals).lengths["tokens"].total() == (totals + totals).texts == 4
    added = totals + TextTotals.from_texts(pl.Series(["a"]), "jpn-Jpan")
    assert added.lengths["tokens"] is None
    assert set(summarize_lengths(Counter()).values()) == {None}


@given(
    st.lists(st.text(st.sampled_from("ab語 \n?？؟¿;\"'»“”)!.。")), min_size=1),
    st.sampled_from(["eng-Latn", "jpn-Jpan"]),
)
def test_queries_are_classified_by_form(texts, language):
    kinds = [classify_query(text, language) for text in texts]
    assert count_types(pl.Series(texts), language).tolist() == [
        kinds.count(kind) for kind in QueryType
    ]


def test_question_marks_cover_unicode():
    names = {
        mark: unicodedata.name(mark, "")
        for mark in map(chr, range(sys.maxunicode))
        if unicodedata.category(mark) == "Po"
    }
    marks = {mark for mark, name in names.items() if re.search("QUESTION.* MARK|INTERROBANG", name)}
    assert set(QUESTION_MARKS) == {
        mark for mark in marks if not re.search("INVERTED|INITIAL", names[mark])
    }


def render_markdown(statistics):
    tables = map(to_markdown, [*build_tables(statistics), *build_position_tables(statistics)])
    return "\n\n".join([describe_data(statistics), *tables, describe_source(statistics)])


def parse_markdown(text):
    tables = {}
    for part in text.split("### ")[1:]:
        title, _, *lines = part.splitlines()
        tables[title] = [
            [cell.strip() for cell in line.strip("| ").split(" | ")]
            for line in lines
            if line.startswith("|")
        ]
    return tables


def test_markdown_contains_all_tables_of_each_language(statistics):
    tables = parse_markdown(render_markdown(statistics))
    assert len(tables) == 12
    for table in tables.values():
        assert len({len(line) for line in table}) == 1
    rows = index_rows(statistics)
    sizes = tables[
        f"{POSIR_FOLDER} · eng-Latn · documents and queries; length of the relevant documents in "
        "tokens"
    ]
    assert [line[:3] for line in sizes[2:]] == [
        ["game", "30", "80"],
        ["sports", "50", "300"],
        ["all", "80", "380"],
    ]
    assert sizes[0][-2:] == ["words/query", "words/document"]
    assert float(sizes[4][-2]) == pytest.approx(rows["eng-Latn", "all"]["query_words"], abs=0.05)
    kinds = tables[
        f"{POSIR_FOLDER} · all languages · queries by length of the relevant document and by type"
    ]
    assert kinds[-1][5] == f"{rows['all', 'all']['question'] * 100:.1f}%"
    positions = tables[f"{POSIR_FOLDER} · jpn-Jpan · queries by position of the evidence"]
    assert [int(line[1].split()[0]) for line in positions[2:]] == rows["jpn-Jpan", "sports"][
        "histogram"
    ]["all"]


def test_bars_are_proportional_to_counts(statistics):
    (position_table,) = [
        table
        for table in build_position_tables(statistics)
        if table.title.endswith("eng-Latn · queries by position of the evidence")
    ]
    for column in range(1, len(position_table.headings)):
        cells = [line[column].split() for line in position_table.rows]
        counts = [int(cell[0]) for cell in cells]
        eighths = [sum(" ▏▎▍▌▋▊▉█".index(block) for block in "".join(cell[1:])) for cell in cells]
        assert eighths == pytest.approx([count / max(counts) * 64 for count in counts], abs=0.5)


def test_xquad_has_its_published_size(squad_data, tmp_path):
    files = [squad_data / "xquad.en.json"]
    imported(chain.from_iterable(map(read_squad_json, files)), tmp_path, domain="xquad")
    (row,) = build_document(compute_statistics(str(tmp_path)))["rows"]
    assert (row["documents"], row["queries"], row["relevant_documents"]) == (240, 1190, 240)
    articles = json.loads(files[0].read_text(encoding="utf-8"))["data"]
    questions = [
        qa["question"]
        for article in articles
        for part in article["paragraphs"]
        for qa in part["qas"]
    ]
    assert row["query_words"] == pytest.approx(np.mean([len(text.split()) for text in questions]))
    assert sum(row["histogram"]["all"]) == 1190


def test_tasks_and_folders_have_the_same_statistics(folder, statistics, monkeypatch):
    monkeypatch.setenv("POSIR_DATA", str(folder.parent))
    task = index_rows(compute_statistics("PosIR-English"))
    assert task == {key: row for key, row in index_rows(statistics).items() if key[0] == "eng-Latn"}


def test_cross_lingual_tasks_have_query_and_corpus_languages(folder, monkeypatch):
    monkeypatch.setenv("POSIR_DATA", str(folder.parent))
    (subset,) = open_data("PosIR-Japanese-English").subsets
    assert (subset.query_language, subset.corpus_language, subset.domain) == (
        "jpn-Jpan",
        "eng-Latn",
        "sports",
    )
    assert subset.language == "jpn-Jpan-eng-Latn"


def test_mini_has_its_documented_size():
    (row,) = build_document(compute_statistics("PosIR-Mini"))["rows"]
    assert (row["documents"], row["queries"], row["question"]) == (72, 720, 1.0)
    assert [row[f"queries_{name.lower()}"] for name in LENGTHS] == [180] * 4


def test_squad_is_counted_in_its_own_buckets(tmp_path, monkeypatch):
    context = "word " * 200
    rows = [
        (name, context, f"{name}?", [start])
        for name, start in (("a", 0), ("b", 100), ("c", 250), ("d", 900))
    ]
    write_squad(tmp_path, [*rows, ("e", "Nobody asks.", "e?", [])], [("ida", context, "a?", [0])])
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    statistics = compute_statistics("SQuAD-PosQ")
    (row,) = build_document(statistics)["rows"]
    assert row["histogram"] == {"all": [3, 1, 1, 0, 0, 1]}
    assert (row["queries"], row["documents"], row["relevant_documents"]) == (5, 2, 1)
    assert (row["length_unit"], row["length_50"]) == ("characters", len(context))
    assert "counts in each" in render_markdown(statistics)
    assert build_tables(statistics)[-1].headings == ("Domain", *QueryType)
    (positions,) = build_position_tables(statistics)
    assert positions.headings == ("Position", "all")


def test_fineweb_is_counted_by_label(tmp_path, monkeypatch):
    rows = [
        ("q1", "Some text.", "beginning"),
        ("q2", "Some text.", "end"),
        ("q3", "More text of it.", "middle+end"),
    ]
    write_fineweb(tmp_path / "FineWeb-PosQ", rows)
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    (row,) = build_document(compute_statistics("FineWeb-PosQ"))["rows"]
    assert row["histogram"] == {"all": [1, 1, 2]}
    assert (row["length_25"], row["length_max"], row["keywords"]) == (11.5, 16, 1.0)


def list_bars(chart):
    data = [pd.DataFrame(rows) for rows in chart.to_dict()["datasets"].values()]
    return [bars["queries"].tolist() for frame in data for _, bars in frame.groupby("panel")]


def test_figures_show_counts_and_source(statistics):
    figures = build_figures(statistics)
    check_figures(figures)
    assert [figure.model for figure in figures] == ["eng-Latn", "jpn-Jpan", "all languages"]
    for figure, group in zip(figures, group_by_language(statistics.subsets), strict=True):
        assert sorted(list_bars(figure.chart)) == sorted(
            counts for counts in group[-1].count_positions().values() if any(counts)
        )
    figure = json.dumps(figures[0].chart.to_dict(), ensure_ascii=False)
    assert f"{POSIR_FOLDER}, eng-Latn" in figure
    assert "All lengths · 380 queries" in figure
    assert "revision" in figure
    assert "local-" in figure


def run(*arguments):
    return call_posir(["stats", *map(str, arguments)])


def test_the_command_prints_every_format(folder, statistics):
    texts = {
        "json": to_json(build_document(statistics)),
        "csv": to_csv(build_records(statistics)),
        "markdown": render_markdown(statistics),
    }
    for name, text in texts.items():
        result = run(folder, "--format", name)
        assert (result.exit_code, result.stdout.strip()) == (0, text.strip())
    table = run(folder).stdout
    assert f"{POSIR_FOLDER} · all languages · queries by position of the evidence" in table
    assert "follow posir's own rule" in " ".join(run(folder, "--explain").stdout.split())


def test_missing_data_raises(folder, tmp_path, monkeypatch):
    with pytest.raises(PosirError, match=r"posir-englsh: no such .* Did you mean PosIR-English"):
        open_data("posir-englsh")
    with pytest.raises(PosirError, match=r"qqqq: no such .*\n.*`posir tasks` lists"):
        open_data("qqqq")
    with pytest.raises(PosirError, match="has no files"):
        open_data(tmp_path)
    write_domain(tmp_path, {"corpus": pl.DataFrame({"_id": ["d"], "text": ["t"]})}, domain="game")
    with pytest.raises(DataError, match=r"game/qrels/test\.parquet: missing"):
        compute_statistics(str(tmp_path))
    monkeypatch.setenv("POSIR_DATA", str(folder.parent))
    with pytest.raises(
        DataError, match=r"no German data; expected deu-Latn/<domain>/queries\.parquet"
    ):
        open_data("PosIR-German")


def test_parent_folders_and_subfolders_are_opened(folder, domains):
    def find(data):
        return [(subset.language, subset.domain) for subset in open_data(data).subsets]

    language, domain = min(domains)
    assert find(folder) == find(folder.parent) == sorted(domains)
    assert find(folder / language) == [key for key in sorted(domains) if key[0] == language]
    assert find(folder / language / domain) == [(language, domain)]


@pytest.mark.parametrize(
    ("scheme", "counts", "expected"),
    [
        (
            RelativePositions,
            [7] * 7 + [6] * 6 + [7] * 7,
            "spread evenly: 36.6% in the first third of documents, 26.9%",
        ),
        (RelativePositions, [20] * 7 + [1] * 13, "not spread evenly: 91.5% in the first third"),
        (RelativePositions, [0] * 20, "No evidence has a position"),
        (LabeledPositions, [3, 1, 0], "The most frequent position is beginning, 75.0%"),
    ],
)
def test_the_spread_of_evidence_is_described(scheme, counts, expected):
    total = SimpleNamespace(
        positions=SimpleNamespace(axes=scheme().axes), count_positions=lambda: {"all": counts}
    )
    assert expected in describe_spread(total)
