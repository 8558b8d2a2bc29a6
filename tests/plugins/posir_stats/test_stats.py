"""Statistics of generated data against pandas, of XQuAD against its known sizes, and every form
read back.
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
from posir_tasks.display.tables import to_csv, to_json, to_markdown
from posir_tasks.values.profile import pool
from posir_tasks.values.schemes import LabeledPositions, RelativePositions
from tests.posir_tasks.data.test_posq import write_fineweb, write_squad
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


def drawn_domain(language, domain, seed):
    """A table of queries, with all that is known of the document of each, and the domain's
    documents.
    """
    rng = np.random.default_rng(seed)
    documents, queries = SIZES[language, domain]
    letter = "x" if language == "eng-Latn" else "字"
    texts = [
        " ".join(letter * word for word in rng.integers(1, 9, count))
        for count in rng.integers(20, 400, documents)
    ]
    asked = rng.integers(0, documents - 5, queries)
    tokens = rng.choice([100, 511, 512, 513, 1024, 1025, 1536, 1537, 9000], documents)
    characters = np.array([len(texts[row]) for row in asked])
    start = (rng.beta(1, 2, queries) * (characters - 6)).astype(int)
    frame = pd.DataFrame(
        {
            "language": language,
            "domain": domain,
            "query": [f"{domain}-q{row}" for row in range(queries)],
            "text": rng.choice(QUERY_TEXTS[language], queries),
            "document": [f"{domain}-d{row}" for row in asked],
            "tokens": tokens[asked],
            "start": start,
            "end": start + 5,
            "characters": characters,
        }
    )
    return frame, pd.Series(texts, [f"{domain}-d{row}" for row in range(documents)])


def tables_of(frame, texts):
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
def drawn():
    return {key: drawn_domain(*key, seed) for seed, key in enumerate(SIZES)}


@pytest.fixture(scope="module")
def folder(drawn, tmp_path_factory):
    root = tmp_path_factory.mktemp("data") / POSIR_FOLDER
    for (language, domain), (frame, texts) in drawn.items():
        write_domain(root, tables_of(frame, texts), language=language, domain=domain)
    return root


@pytest.fixture(scope="module")
def described(folder):
    return compute_statistics(str(folder))


def kind_of(text, language):
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


def expected_rows(drawn):
    """Language and domain to queries and documents: each domain, each language of several domains,
    each domain over all languages, everything.
    """
    groups = dict(drawn)
    english = [drawn["eng-Latn", name] for name in ("game", "sports")]
    everything = list(drawn.values())
    groups["eng-Latn", "all"] = tuple(pd.concat(parts) for parts in zip(*english, strict=True))
    sports = [drawn[language, "sports"] for language in ("eng-Latn", "jpn-Jpan")]
    groups["all", "sports"] = tuple(pd.concat(parts) for parts in zip(*sports, strict=True))
    groups["all", "all"] = tuple(pd.concat(parts) for parts in zip(*everything, strict=True))
    return groups


def rows_of(described):
    return {(row["language"], row["domain"]): row for row in build_document(described)["rows"]}


def test_every_figure_is_that_of_pandas(drawn, described):
    rows = rows_of(described)
    assert list(rows) == [
        *(("eng-Latn", name) for name in ("game", "sports", "all")),
        ("jpn-Jpan", "sports"),
        *(("all", name) for name in ("game", "sports", "all")),
    ]
    for key, (frame, texts) in expected_rows(drawn).items():
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
        kinds = pd.Series([kind_of(*pair) for pair in zip(frame.text, frame.language, strict=True)])
        assert [row[kind] for kind in QueryType] == pytest.approx(
            [(kinds == kind).mean() for kind in QueryType]
        )
        assert min(row[kind] for kind in QueryType) > 0


def test_histograms_are_those_of_pandas_cut(drawn, described):
    rows = rows_of(described)
    for key, (frame, _) in expected_rows(drawn).items():
        midpoint = ((frame.start + frame.end) / 2 / frame.characters).clip(0, 1)
        place = pd.cut(midpoint, np.linspace(0, 1, 21), include_lowest=True, labels=False)
        bucket = pd.cut(frame.tokens, [0, 512, 1024, 1536, np.inf], labels=LENGTHS)
        counted = {
            name: [int(((bucket == name) & (place == bin_)).sum()) for bin_ in range(20)]
            for name in LENGTHS
        }
        assert rows[key]["histogram"] == {
            "all": [int((place == bin_).sum()) for bin_ in range(20)],
            **counted,
        }
        assert [rows[key][f"queries_{name.lower()}"] for name in LENGTHS] == [
            sum(counted[name]) for name in LENGTHS
        ]


def test_order_of_pooling_does_not_matter(described):
    first, last = pool(described.subsets), pool(described.subsets[::-1])
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
def test_words_and_characters_are_those_of_python(texts):
    lengths = TextTotals.from_texts(pl.Series(texts, dtype=pl.String), "eng-Latn").lengths
    assert lengths["characters"] == Counter(map(len, texts))
    assert lengths["words"] == Counter(len(text.split()) for text in texts)
    at_blanks = TextTotals.from_texts(pl.Series(texts, dtype=pl.String), "eng-Latn", at_blanks=True)
    assert at_blanks.lengths["words"] == Counter(len(text.split(" ")) for text in texts)


@given(st.lists(st.integers(0, 60), min_size=1), st.lists(st.integers(0, 60)))
def test_statistics_of_added_lengths_are_those_of_numpy(first, second):
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
    assert set(summarize_lengths(Counter()).values()) == {None}, (
        "a text without anything has no mean"
    )


@given(
    st.lists(st.text(st.sampled_from("ab語 \n?？؟¿;\"'»“”)!.。")), min_size=1),
    st.sampled_from(["eng-Latn", "jpn-Jpan"]),
)
def test_each_query_has_the_one_type_of_its_form(texts, language):
    kinds = [kind_of(text, language) for text in texts]
    assert count_types(pl.Series(texts), language).tolist() == [
        kinds.count(kind) for kind in QueryType
    ]


def test_question_marks_are_all_of_unicode_that_end_sentences():
    named = {
        mark: unicodedata.name(mark, "")
        for mark in map(chr, range(sys.maxunicode))
        if unicodedata.category(mark) == "Po"
    }
    wanted = {
        mark for mark, name in named.items() if re.search("QUESTION.* MARK|INTERROBANG", name)
    }
    assert set(QUESTION_MARKS) == {
        mark for mark in wanted if not re.search("INVERTED|INITIAL", named[mark])
    }


def markdown(described):
    tables = map(to_markdown, [*build_tables(described), *build_position_tables(described)])
    return "\n\n".join([describe_data(described), *tables, describe_source(described)])


def markdown_tables(text):
    tables = {}
    for part in text.split("### ")[1:]:
        title, _, *lines = part.splitlines()
        tables[title] = [
            [cell.strip() for cell in line.strip("| ").split(" | ")]
            for line in lines
            if line.startswith("|")
        ]
    return tables


def test_markdown_has_a_table_for_every_kind_and_language(described):
    tables = markdown_tables(markdown(described))
    assert len(tables) == 12
    for table in tables.values():
        assert len({len(line) for line in table}) == 1
    rows = rows_of(described)
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


def test_bars_are_as_long_as_the_counts_are_large(described):
    (sheet,) = [
        table
        for table in build_position_tables(described)
        if table.title.endswith("eng-Latn · queries by position of the evidence")
    ]
    for column in range(1, len(sheet.headings)):
        cells = [line[column].split() for line in sheet.rows]
        counts = [int(cell[0]) for cell in cells]
        eighths = [sum(" ▏▎▍▌▋▊▉█".index(block) for block in "".join(cell[1:])) for cell in cells]
        assert eighths == pytest.approx([count / max(counts) * 64 for count in counts], abs=0.5)


def test_xquad_is_of_its_known_size(squad_data, tmp_path):
    files = [squad_data / "xquad.en.json"]
    imported(chain.from_iterable(map(read_squad_json, files)), tmp_path, domain="xquad")
    (row,) = build_document(compute_statistics(str(tmp_path)))["rows"]
    assert (row["documents"], row["queries"], row["relevant_documents"]) == (240, 1190, 240)
    articles = json.loads(files[0].read_text(encoding="utf-8"))["data"]
    asked = [
        qa["question"]
        for article in articles
        for part in article["paragraphs"]
        for qa in part["qas"]
    ]
    assert row["query_words"] == pytest.approx(np.mean([len(text.split()) for text in asked]))
    assert sum(row["histogram"]["all"]) == 1190


def test_a_task_is_read_as_its_folder_is(folder, described, monkeypatch):
    monkeypatch.setenv("POSIR_DATA", str(folder.parent))
    task = rows_of(compute_statistics("PosIR-English"))
    assert task == {key: row for key, row in rows_of(described).items() if key[0] == "eng-Latn"}


def test_a_cross_lingual_task_has_queries_and_corpus_languages(folder, monkeypatch):
    monkeypatch.setenv("POSIR_DATA", str(folder.parent))
    (subset,) = open_data("PosIR-Japanese-English").subsets
    assert (subset.query_language, subset.corpus_language, subset.domain) == (
        "jpn-Jpan",
        "eng-Latn",
        "sports",
    )
    assert subset.language == "jpn-Jpan-eng-Latn"


def test_mini_has_the_sizes_it_is_documented_with():
    (row,) = build_document(compute_statistics("PosIR-Mini"))["rows"]
    assert (row["documents"], row["queries"], row["question"]) == (72, 720, 1.0)
    assert [row[f"queries_{name.lower()}"] for name in LENGTHS] == [180] * 4


def test_squad_is_counted_in_its_own_buckets_boundaries_twice(tmp_path, monkeypatch):
    context = "word " * 200
    rows = [
        (name, context, f"{name}?", [start])
        for name, start in (("a", 0), ("b", 100), ("c", 250), ("d", 900))
    ]
    write_squad(tmp_path, [*rows, ("e", "Nobody asks.", "e?", [])], [("ida", context, "a?", [0])])
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    described = compute_statistics("SQuAD-PosQ")
    (row,) = build_document(described)["rows"]
    assert row["histogram"] == {"all": [3, 1, 1, 0, 0, 1]}
    assert (row["queries"], row["documents"], row["relevant_documents"]) == (5, 2, 1)
    assert (row["length_unit"], row["length_50"]) == ("characters", len(context))
    assert "counts in each" in markdown(described)
    assert build_tables(described)[-1].headings == ("Domain", *QueryType)
    (positions,) = build_position_tables(described)
    assert positions.headings == ("Position", "all")


def test_fineweb_is_counted_by_its_labels(tmp_path, monkeypatch):
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


def bars_in(chart):
    data = [pd.DataFrame(rows) for rows in chart.to_dict()["datasets"].values()]
    return [bars["queries"].tolist() for frame in data for _, bars in frame.groupby("panel")]


def test_a_figure_says_what_it_shows_how_many_and_whence(described):
    figures = build_figures(described)
    assert [figure.model for figure in figures] == ["eng-Latn", "jpn-Jpan", "all languages"]
    for figure, group in zip(figures, group_by_language(described.subsets), strict=True):
        assert sorted(bars_in(figure.chart)) == sorted(
            counts for counts in group[-1].count_positions().values() if any(counts)
        )
    figure = json.dumps(figures[0].chart.to_dict(), ensure_ascii=False)
    assert f"{POSIR_FOLDER}, eng-Latn" in figure
    assert "All lengths · 380 queries" in figure
    assert "revision" in figure
    assert "local-" in figure


def run(*arguments):
    return call_posir(["stats", *map(str, arguments)])


def test_the_command_prints_every_form(folder, described):
    texts = {
        "json": to_json(build_document(described)),
        "csv": to_csv(build_records(described)),
        "markdown": markdown(described),
    }
    for form, text in texts.items():
        done = run(folder, "--format", form)
        assert (done.exit_code, done.stdout.strip()) == (0, text.strip())
    table = run(folder).stdout
    assert f"{POSIR_FOLDER} · all languages · queries by position of the evidence" in table
    assert "follow posir's own rule" in " ".join(run(folder, "--explain").stdout.split())


def test_what_is_not_there_is_refused_by_name(folder, tmp_path, monkeypatch):
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


def test_a_part_of_a_folder_can_be_named_and_the_folder_above_it(folder, drawn):
    def find(named):
        return [(subset.language, subset.domain) for subset in open_data(named).subsets]

    language, domain = min(drawn)
    assert find(folder) == find(folder.parent) == sorted(drawn)
    assert find(folder / language) == [key for key in sorted(drawn) if key[0] == language]
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
def test_the_spread_of_evidence_is_said_in_a_sentence(scheme, counts, expected):
    total = SimpleNamespace(
        positions=SimpleNamespace(axes=scheme().axes), count_positions=lambda: {"all": counts}
    )
    assert expected in describe_spread(total)
