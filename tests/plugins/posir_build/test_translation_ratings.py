"""Translation ratings: the sample, ratings by a judge and by people, and their agreement."""

import json
from collections import Counter

import numpy as np
import pytest
from scipy.stats import binomtest

from posir_build.api import rate_translations
from posir_build.translation_ratings import (
    SCALES,
    RatingSettings,
    Translation,
    ask_judge,
    compare_ratings,
    read_rating_sheet,
    sample_translations,
    score_ratings,
    write_rating_sheets,
)
from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.text.words import estimate_tokens
from tests.support.charts import check_figures
from tests.support.cli import invoke
from tests.support.construction import ScriptedModel, fill_sheet
from tests.support.datasets import posir_tables, write_domain
from tests.support.human_answers import Truth
from tests.support.language_model_server import NO_FAILURES, serve_language_model

#: Texts with an estimated length of 6 to 60 tokens.
TEXTS = {f"d{row}": "A boat lies in the harbor. " * (1 + row % 10) for row in range(40)}
QUERIES = {"q": ("What lies there?", "d0", "A boat")}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    for domain in ("sports", "law"):
        write_domain(root / "a", posir_tables(TEXTS, QUERIES), domain=domain)
        for system, language, word in (
            ("a", "deu-Latn", "Boot"),
            ("a", "fra-Latn", "bateau"),
            ("b", "deu-Latn", "Kahn"),
        ):
            translations = {
                name: text.replace("boat", word)
                for name, text in TEXTS.items()
                if name != "d1" or system == "a"
            }
            queries = {"q": ("What lies there?", "d0", f"A {word}")}
            write_domain(
                root / system, posir_tables(translations, queries), language=language, domain=domain
            )
    return root


def settings(data, **fields):
    values = {
        "source": f"{data}/a",
        "translations": {"a": f"{data}/a", "b": f"{data}/b"},
        "edges": (0, 20, 40, 60),
    }
    return RatingSettings.model_validate({**values, "llm": {"model": "m"}, **fields})


def build_rating(ratings, *, system="a", language="deu-Latn", document="d"):
    translation = Translation(system, language, "sports", document, "original", "translation")
    return translation, dict(zip(SCALES, ratings, strict=False))


def test_every_system_and_language_has_the_same_documents(data):
    sample, _ = sample_translations(settings(data), estimate_tokens)
    documents_by_system = {}
    for translation in sample:
        documents_by_system.setdefault((translation.system, translation.language), set()).add(
            (translation.domain, translation.document)
        )
    assert set(documents_by_system) == {("a", "deu-Latn"), ("b", "deu-Latn")}
    assert documents_by_system["a", "deu-Latn"] == documents_by_system["b", "deu-Latn"]
    buckets = Counter(
        (row.domain, -(-estimate_tokens(row.original) // 20)) for row in sample if row.system == "a"
    )
    assert buckets == {(domain, bucket): 3 for domain in ("sports", "law") for bucket in (1, 2, 3)}
    assert ("sports", "d1") not in documents_by_system["a", "deu-Latn"]
    assert {translation.text.split()[1] for translation in sample} == {"Boot", "Kahn"}
    assert (sample, []) == sample_translations(settings(data), estimate_tokens)
    _, notes = sample_translations(settings(data, per_bucket=20, domains=("law",)), estimate_tokens)
    assert notes[0] == "law: 7 of 20 documents of 1 to 20 tokens."


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"language": "rus-Cyrl"}, "the originals in rus-Cyrl"),
        ({"languages": ("fra-Latn",)}, "law in fra-Latn, sports in fra-Latn"),
        ({"domains": ("games",)}, "games in deu-Latn"),
        ({"edges": (5000, 6000)}, "no document of these lengths"),
    ],
)
def test_impossible_samples_are_rejected(data, fields, message):
    with pytest.raises(DataError, match=message):
        sample_translations(settings(data, **fields), estimate_tokens)


def test_the_judge_reads_both_texts_and_faults_are_counted(data):
    def write(_, values):
        ratings = dict.fromkeys(SCALES, 5) | {"reasoning": "none"}
        return "I can't." if "Kahn" in values["translation"] else json.dumps(ratings | {"style": 4})

    sample, _ = sample_translations(settings(data), estimate_tokens)
    model = ScriptedModel(write)
    rows, problems = ask_judge(sample, settings(data), model)
    assert ({translation.system for translation, _ in rows}, sum(problems.values())) == ({"a"}, 18)
    assert [model.asked[0][1][side] for side in ("source", "target")] == ["English", "German"]
    assert {score.scale: score.mean.value for score in score_ratings("judge", rows)}[
        "overall"
    ] == pytest.approx(4.75)
    with pytest.raises(PosirError, match="the model refused"):
        ask_judge(sample, settings(data), ScriptedModel(lambda *_: "I'm sorry, no."))


def test_languages_are_weighted_equally():
    rows = [
        build_rating((fluency, 4, 4, 5), language=language, document=str(document))
        for language, fluency, number in (("deu-Latn", 5, 3), ("fra-Latn", 4, 1))
        for document in range(number)
    ]
    scores = {(score.language, score.scale): score for score in score_ratings("judge", rows)}
    assert scores["deu-Latn", "fluency"].counts == {5: 3}
    assert scores["all", "fluency"].counts == {4: 1, 5: 3}
    assert scores["all", "fluency"].mean.value == pytest.approx(4.5)
    assert scores["all", "overall"].mean.value == pytest.approx((18 / 4 + 17 / 4) / 2)
    low, high = scores["deu-Latn", "fluency"].mean.interval
    assert low < 5 == high


def test_agreement_is_computed_from_pairs():
    rng = np.random.default_rng(0)
    judge, people = rng.integers(3, 6, (60, 4)).tolist(), rng.integers(3, 6, (60, 4)).tolist()
    rows = compare_ratings(
        [build_rating(ratings[:3], document=str(row)) for row, ratings in enumerate(people)],
        [build_rating(ratings, document=str(row)) for row, ratings in enumerate(judge)],
    )
    by_scale = {row.scale: row for row in rows if row.language == "all"}
    assert list(by_scale) == ["fluency", "accuracy", "completeness", "all"]
    differences = np.array(judge)[:, :3] - np.array(people)[:, :3]
    assert sum(map(sum, by_scale["all"].confusion)) == 180
    assert by_scale["all"].within_one.value == pytest.approx((abs(differences) <= 1).mean())
    assert by_scale["all"].mean_absolute_error.value == pytest.approx(abs(differences).mean())
    assert by_scale["accuracy"].mean_difference == pytest.approx(differences[:, 1].mean())
    pairs = [(person[0], judge[0]) for person, judge in zip(people, judge, strict=True)]
    assert by_scale["fluency"].confusion[3][4] == pairs.count((4, 5))
    agreed = int((abs(differences[:, 0]) <= 1).sum())
    interval = by_scale["fluency"].within_one.interval
    assert interval == pytest.approx(
        tuple(binomtest(agreed, 60).proportion_ci(0.95, "wilson")), abs=0.01
    )
    # A second person with the same ratings does not narrow the interval.
    repeated = compare_ratings(
        2 * [build_rating(ratings[:1], document=str(row)) for row, ratings in enumerate(people)],
        [build_rating(ratings, document=str(row)) for row, ratings in enumerate(judge)],
    )
    assert repeated[0].within_one.interval == pytest.approx(interval, abs=0.002)


def test_sheets_hide_the_system_and_can_be_read(data, tmp_path):
    sample, _ = sample_translations(settings(data, domains=("law",)), estimate_tokens)
    (sheet,) = write_rating_sheets(tmp_path, sample, seed=1)
    assert sheet.name == "deu-Latn.csv"
    assert not {"a", "b"} & set(sheet.read_text(encoding="utf-8-sig").replace("\n", ",").split(","))
    with pytest.raises(PosirError, match="already exists"):
        write_rating_sheets(tmp_path, sample, seed=1)
    with pytest.raises(DataError, match="no rating"):
        read_rating_sheet(sheet, sample)
    rated_rows = read_rating_sheet(fill_sheet(sheet, SCALES, "5435", ["", "2", "", ""]), sample)
    assert [dict(ratings) for _, ratings in rated_rows[0]] == [
        dict(zip(SCALES, (5, 4, 3, 5), strict=True)),
        {"accuracy": 2},
    ]
    other, _ = sample_translations(
        settings(data, domains=("sports", "law"), per_bucket=1), estimate_tokens
    )
    assert read_rating_sheet(fill_sheet(sheet, SCALES, *["5555"] * 18), other)[1] == 12
    with pytest.raises(DataError, match="row 2: field 'fluency': '6'"):
        read_rating_sheet(fill_sheet(sheet, SCALES, "6435"), sample)


def test_the_command_plans_rates_and_compares(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        return invoke("study", "rate-translations", *arguments)

    with serve_language_model(Truth([]), rates=NO_FAILURES | {"prose around JSON": 0.2}) as server:
        values = {
            "source": data / "a",
            "translations.mine": data / "a",
            "edges": "[0, 20, 60]",
            "per_bucket": 2,
            "llm.model": "human",
            "llm.endpoints": f"[{server.url}]",
        }
        options = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
        (plan,) = json.loads(call(*options, "--plan", "--format", "json"))
        assert plan["calls"] == 16
        assert call(*options, "--sheets", "sheets").split() == [
            "sheets/deu-Latn.csv",
            "sheets/fra-Latn.csv",
        ]
        assert not server.answered
        fill_sheet(tmp_path / "sheets" / "fra-Latn.csv", SCALES, "5555", "4444", "3333")
        people = ["--people", "sheets/fra-Latn.csv"]
        document = json.loads(call(*options, *people, "--format", "json"))
        assert sum(server.answered.values()) == 16
        printed = call(*options, *people)
        sections = {
            "translations": {"mine": f"{data}/a"},
            "llm": {"model": "human", "endpoints": [server.url]},
        }
        keywords = {"source": f"{data}/a", "edges": (0, 20, 60), "per_bucket": 2, **sections}
        figures = rate_translations(people="sheets/fra-Latn.csv", **keywords).figures()
        assert "fra-Latn" in call(*options, "--format", "csv")
        assert sum(server.answered.values()) == 16
    assert document["translations"] == 16
    judge = {
        (row["language"], row["scale"]): row
        for row in document["scores"]
        if row["rater"] == "judge"
    }
    assert judge["all", "completeness"]["counts"] == {"5": 16}
    assert 1 <= judge["all", "overall"]["mean_interval"][0] < judge["all", "overall"]["mean"] <= 5
    assert [row["scale"] for row in document["agreement"] if row["language"] == "all"] == [
        *SCALES,
        "all",
    ]
    assert sum(map(sum, document["agreement"][-1]["confusion"])) == 12
    check_figures(figures)
    charts = [(figure.kind, figure.model) for figure in figures]
    assert charts == [
        ("ratings-overall", None),
        ("ratings-scales", "mine"),
        ("ratings-pairs", "mine"),
    ]
    for title in ("Ratings of translations", "Agreement between judge and people"):
        assert title in printed
