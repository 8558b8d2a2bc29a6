"""Test the validation of entries against edited results; the valid results are from real runs."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import mteb
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mteb.cache import ResultCache

from posir_leaderboard.entries import EntryError, read_entries, read_entry
from posir_leaderboard.validation import (
    MAX_PROBLEMS,
    check_revision,
    compute_retrieval_bounds,
    compute_tolerated,
    read_subset_facts,
    validate_entry,
)
from posir_significance.findings import State
from posir_tasks.data.data import digest_data
from posir_tasks.data.mini import read_mini
from posir_tasks.data.posir import read_domain
from posir_tasks.data.repository import LocalRepository
from posir_tasks.results import rescore_file
from posir_tasks.search.scoring import build_split
from posir_tasks.tasks.catalog import load_builtin_tasks
from posir_tasks.text.languages import DOMAINS
from posir_tasks.values.columns import pack_column, unpack_column
from posir_tasks.values.evidence import Place
from posir_tasks.values.profile import PositionProfile
from posir_tasks.values.ranks import RankedQueries, compute_retrieval_scores
from posir_tasks.values.schemes import Axes
from posir_tasks.values.scores import ResultValues
from tests.support.commands import run
from tests.support.damage import find, places
from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain, write_squad
from tests.support.guessing import write_guesses
from tests.support.results import as_of_the_hub
from tests.support.rotations import WordVectors

COMMIT = "a" * 40
K_VALUES = (1, 3, 5, 10, 20, 100)


@pytest.fixture(autouse=True)
def _clear_cached_data():
    read_subset_facts.cache_clear()


@pytest.fixture(scope="session")
def bm25(tmp_path_factory) -> Path:
    """A result from the call that `mteb run` makes."""
    output = tmp_path_factory.mktemp("bm25")
    mteb.evaluate(
        mteb.get_model("mteb/baseline-bm25s"),
        [mteb.get_task("PosIR-Mini")],
        cache=ResultCache(output),
    )
    return output


@pytest.fixture(scope="session")
def guessed(tmp_path_factory) -> Path:
    return write_guesses(tmp_path_factory.mktemp("guessed"), [mteb.get_task("PosIR-Mini")])


@pytest.fixture(scope="session")
def tested(tmp_path_factory) -> Path:
    """A result with ranks of rotated versions."""
    output = tmp_path_factory.mktemp("tested")
    mteb.evaluate(
        WordVectors(),
        [mteb.get_task("PosIR-Mini")],
        cache=ResultCache(output),
        show_progress_bar=False,
    )
    return next((output / "results").glob("*/*"))


@pytest.fixture
def tested_file(tested, tmp_path) -> Path:
    return (
        Path(shutil.copytree(tested, tmp_path / tested.parent.name / tested.name))
        / "PosIR-Mini.json"
    )


@pytest.fixture
def file(guessed, tmp_path) -> Path:
    return (
        Path(shutil.copytree(guessed, tmp_path / guessed.parent.name / guessed.name))
        / "PosIR-Mini.json"
    )


def validate_edited(file: Path, change) -> list:
    """Edit the scores of a file's only subset, and return the problems."""
    data = json.loads(file.read_text())
    change(data["scores"]["test"][0])
    file.write_text(json.dumps(data))
    entries, problems = read_entries(file.parent)
    return problems or validate_entry(entries[0])


def test_valid_result_has_no_problem(bm25, guessed):
    for folder in (bm25, guessed):
        (entry,), problems = read_entries(folder)
        assert (problems, validate_entry(entry)) == ([], [])
        stored = {
            key: len(json.dumps(value)) for key, value in entry.subsets[0].ranks.to_json().items()
        }
        assert (
            stored.pop("document_keys")
            <= 20 * len(entry.subsets[0].ranks.sets[0].document_sizes) + 100
        )
        assert sum(stored.values()) <= 4_000, "a result grows by at most 4 kB and keys"
    assert entry.subsets[0].values.read_profile is not None


@pytest.mark.slow
def test_result_of_another_processor_has_no_problem(bm25):
    """The kernels of an older processor sum in another order. Only x86 machines can test this."""
    checked = run("posir", "submit", str(bm25), "--dry-run", OPENBLAS_CORETYPE="Nehalem")
    assert checked.returncode == 0, checked.stdout + checked.stderr


# All numbers


def numbers(value):
    return [place for place in places(value) if type(find(value, place)) in (int, float)]


#: Scores for which a profile only gives bounds; each has a separate test below.
IN_PART = {f"{metric}_at_{k}" for metric in ("ndcg", "map", "mrr") for k in (20, 100)} - {
    "map_at_10"
}


@given(drawn=st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_edited_number_is_rejected_with_both_values(guessed, file, drawn):
    true = json.loads((guessed / file.name).read_text())
    scores = true["scores"]["test"][0]
    paths = [
        path
        for path in numbers(scores)
        if path[0] not in IN_PART and not path[0].startswith("nauc_")
    ]
    # The number of requested documents is not stored, and a result without rows has no excerpts.
    paths = [
        path for path in paths if path[0] != "rotations" or path[-1] not in ("sample_size", "room")
    ]
    path = drawn.draw(st.sampled_from(paths))
    before = find(scores, path)
    if isinstance(before, int):
        after = before + drawn.draw(st.integers(-1_000, 1_000).filter(bool))
    else:
        by = st.integers(2, 10**6).map(lambda steps: steps * 1e-6)
        after = round(before + drawn.draw(by | by.map(lambda step: -step)), 6)
    find(scores, path[:-1])[path[-1]] = after
    file.write_text(json.dumps(true))
    entries, unread = read_entries(file.parent)
    problems = unread or validate_entry(entries[0])
    assert problems
    said = "\n".join(map(str, problems))
    assert str(file) in said
    # Editing a number from which others follow reports the others; a newer version is rejected
    # before any number is read.
    stores = (
        "position_profile",
        "read",
        "read_ranks",
        "document_keys",
        "document_ranks",
        "tokens_read",
        "rotations",
    )
    if path[0] not in stores and path != ("position_run", "schema"):
        assert any(problem.field.startswith(str(path[0])) for problem in problems)
        assert str(after) in said
        # Values that are rejected on reading are not compared with the true value.
        assert unread or str(before) in said or f"{before:.6f}" in said


def test_every_number_of_a_result_is_checked(guessed):
    """The test above covers every number except nAUC and scores with bounds."""
    names = {
        path[0]
        for path in numbers(
            json.loads((guessed / "PosIR-Mini.json").read_text())["scores"]["test"][0]
        )
    }
    some = {
        "ndcg_at_10",
        "main_score",
        "psi_as_published",
        "psi_as_published_q4",
        "position_scores",
        "position_bins",
    }
    assert names >= IN_PART | some


@pytest.mark.parametrize("by", [-0.02, 0.02])
def test_score_outside_the_bounds_is_rejected(file, by):
    names = ("ndcg_at_20", "ndcg_at_100", "mrr_at_20", "mrr_at_100")
    problems = validate_edited(
        file, lambda scores: scores.update({name: round(scores[name] + by, 6) for name in names})
    )
    assert {*names} <= {problem.field for problem in problems}


def test_synonyms_must_agree(file):
    twins = {
        "map_at_20": "mrr_at_20",
        "mrr_at_100": "map_at_100",
        "nauc_map_at_10_max": "nauc_mrr_at_10_max",
        "nauc_recall_at_5_std": "nauc_precision_at_5_std",
    }
    problems = validate_edited(
        file, lambda scores: scores.update({name: round(scores[name] + 1e-6, 6) for name in twins})
    )
    for pair in twins.items():
        assert any(
            problem.field in pair and {*pair} <= {*re.findall(r"\w+", str(problem))}
            for problem in problems
        )


def test_invalid_nauc_is_rejected(file):
    values = dict(
        zip(("1", "3", "5", "10", "20", "100"), (1.1, 3, "0.5", None, True, [0.5]), strict=True)
    )
    problems = validate_edited(
        file,
        lambda scores: scores.update(
            {f"nauc_ndcg_at_{k}_max": value for k, value in values.items()}
        ),
    )
    assert [problem.field for problem in problems] == [f"nauc_ndcg_at_{k}_max" for k in values]


@pytest.mark.parametrize("value", ["0.5", None, True, [0.5], {}])
def test_score_must_be_a_number(file, value):
    names = ("ndcg_at_10", "psi_as_published", "recall_at_20", "main_score", "position_bins")
    problems = validate_edited(file, lambda scores: scores.update(dict.fromkeys(names, value)))
    assert {*names} <= {problem.field.partition(".")[0] for problem in problems}
    assert validate_edited(file, lambda scores: scores.update(read=value))


def test_excess_digits_are_rejected(file):
    names = ("psi_as_published", "recall_at_5")
    problems = validate_edited(
        file, lambda scores: scores.update({name: scores[name] + 1e-7 for name in names})
    )
    assert {problem.field for problem in problems} == {*names}


@given(ranks=st.lists(st.integers(0, 101), min_size=1, max_size=60))
def test_true_scores_are_within_the_bounds(ranks):
    ranks = np.array(ranks) % 101
    true = compute_retrieval_scores(RankedQueries(ranks, confidence={}), K_VALUES)
    totals = np.bincount(np.where(ranks == 0, 12, np.minimum(ranks, 11)), minlength=13)[None, 1:]
    profile = PositionProfile(Axes("any", ("all",), ("all",)), totals[:, None], totals)
    bounds = compute_retrieval_bounds(profile, round(true["recall_at_20"], 6), K_VALUES)
    assert true.keys() == bounds.keys()
    for name, value in true.items():
        low, high = bounds[name]
        assert low - 1e-9 <= value <= high + 1e-9, name
        assert name in IN_PART or low == high


@pytest.mark.parametrize("recall", [None, "x", 5, -3, float("nan"), True])
def test_bounds_are_ordered_for_any_recall_at_20(recall):
    totals = np.array([[3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 5]])
    bounds = compute_retrieval_bounds(
        PositionProfile(Axes("any", ("all",), ("all",)), totals[:, None], totals), recall, K_VALUES
    )
    assert all(low <= high for low, high in bounds.values())
    assert 3 / 12 <= bounds["recall_at_20"][0] <= 7 / 12


# Rotated versions


def test_a_result_with_rotated_versions_has_no_problem(tested_file):
    scores = json.loads(tested_file.read_text())["scores"]["test"][0]
    assert "untested" not in scores["rotations"]["sets"][0]
    assert scores["position_scores"]["all"]["state"] != State.NOT_TESTED
    assert validate_entry(read_entry(tested_file)) == []


def swap_positions(part: dict) -> None:
    places = unpack_column(part["sample"], 10**4)
    first, second = np.flatnonzero(places == 1)[0], np.flatnonzero(places == 2)[0]
    places[[first, second]] = places[[second, first]]
    part["sample"] = pack_column(places)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda part: part.update(digest="0" * len(part["digest"])), "rotations.digest"),
        (swap_positions, "rotations.sample"),
        (lambda part: part.update(sample_size=5), "rotations.sample"),
        (lambda part: part.update(subsets=31), "rotations.subsets"),
        (lambda part: part.update(ranks=part["twelfths"]), "rotations"),
        (lambda part: part.update(ranks="5"), "rotations"),
        (lambda part: part.update(queries="0" * 16), "rotations"),
        (lambda part: part.update(window="door"), "rotations"),
    ],
)
def test_foreign_rotated_versions_are_rejected(tested_file, change, field):
    problems = validate_edited(tested_file, lambda scores: change(scores["rotations"]["sets"][0]))
    assert field in {problem.field for problem in problems}
    assert {(problem.file, problem.subset) for problem in problems} == {
        (str(tested_file), "default")
    }


def test_changed_version_ranks_contradict_the_scores(tested_file):
    def change(scores):
        part = scores["rotations"]["sets"][0]
        ranks, versions = unpack_column(part["ranks"], 10**5), unpack_column(part["tested"], 10**5)
        assert len(ranks) == 3 * len(versions)
        ranks[1::3] = 0
        part["ranks"] = pack_column(ranks)

    problems = validate_edited(tested_file, change)
    assert any(problem.field.startswith("position_effect") for problem in problems)


def test_only_order_blind_models_may_be_untested(bm25, tested_file):
    (entry,), _ = read_entries(bm25)
    assert entry.subsets[0].values.rotations.is_order_blind
    assert validate_entry(entry) == []

    def claim(scores):
        part = scores["rotations"]["sets"][0]
        for name in (
            "sample",
            "versions",
            "tested",
            "twelfths",
            "ranks",
            "unread",
            "window_twelfths",
            "window_ranks",
        ):
            del part[name]
        part["untested"] = "order_blind"

    assert validate_edited(tested_file, claim)[0].field == "rotations.untested"


# The profile


def move_rank(row: str, rank: int) -> str:
    counts = list(map(int, row.split()))
    counts[rank] -= 1
    counts[(rank + 1) % 12] += 1
    return " ".join(map(str, counts))


@pytest.mark.parametrize("counts_too", [True, False])
def test_profile_must_follow_from_the_ranks(file, counts_too):
    def change(scores):
        profile = scores["position_profile"]
        bucket = profile["counts"][0]
        position = next(place for place, row in enumerate(bucket) if {*row.split()} != {"0"})
        rank = next(rank for rank, count in enumerate(bucket[position].split()) if count != "0")
        if counts_too:
            bucket[position] = move_rank(bucket[position], rank)
        profile["totals"][0] = move_rank(profile["totals"][0], rank)

    (problem,) = validate_edited(file, change)
    assert "the ranks by document disagree" in str(problem)


def test_result_on_fewer_queries_is_rejected_with_both_counts(bm25, tmp_path):
    """The result is complete and consistent, so only the data reveal the problem."""
    folder = next((bm25 / "results").glob("*/*"))
    file = (
        Path(shutil.copytree(folder, tmp_path / folder.parent.name / folder.name))
        / "PosIR-Mini.json"
    )
    data = json.loads(file.read_text())
    scores = data["scores"]["test"][0]
    values = ResultValues.from_json(scores)
    whole = values.ranks
    (part,) = whole.sets
    ranks = replace(whole, sets=(part.select(np.arange(len(part.ranks)) > 0),))
    scores.update(ResultValues(ranks, values.read).to_json())
    del scores["rotations"]
    bounds = compute_retrieval_bounds(ranks.profile, scores["recall_at_20"], K_VALUES)
    scores.update(
        {name: round(low, 6) for name, (low, _) in bounds.items()},
        main_score=round(bounds["ndcg_at_10"][0], 6),
    )
    file.write_text(json.dumps(data))
    rescore_file(file)
    (problem,) = validate_entry(read_entry(file))
    assert problem.field == "document_ranks"
    queries = len(part.ranks)
    assert f"{queries - 1} queries, the dataset has {queries}" in str(problem)


@pytest.mark.parametrize(
    ("window", "field"),
    [
        (255, "read_ranks"),
        (1, "read_ranks"),
        (10**6, "read_ranks"),
        (0, "read"),
        (-256, "read"),
        (1.5, "read"),
        (True, "read"),
    ],
)
def test_window_must_match_the_positions(file, window, field):
    problems = validate_edited(file, lambda scores: scores["read"].update(tokens=window))
    assert field in {problem.field.partition(".")[0] for problem in problems}


def test_counts_with_the_tokenizer_are_accepted(file):
    """By tokenizer, the window has 200 tokens; by the estimate from the data, 256."""

    def count_by_tokenizer(scores):
        scores["read"].update(tokens=200)
        scores["read_ranks"]["sets"][0]["counted_with"] = "tokenizer"

    assert validate_edited(file, count_by_tokenizer) == []
    for key in ("unread_share", "position_effect_in_window"):
        (problem, *_) = validate_edited(
            file, lambda scores, key=key: scores["position_scores"]["all"].update({key: 0.5})
        )
        assert problem.field.startswith("position_scores.all.")


@pytest.mark.parametrize("column", ["twelfths", "thirds"])
def test_positions_must_match_the_data(file, column):
    def change(scores):
        part = scores["read_ranks"]["sets"][0]
        part[column] = pack_column(np.roll(unpack_column(part[column], 10**4), 1))

    assert "read_ranks" in {problem.field for problem in validate_edited(file, change)}


# Complete, and on the right data

MINI = read_mini()
MINI_DIGEST = digest_data(MINI)


def test_facts_of_data_with_several_spans_have_a_digest():
    data = replace(MINI, places={name: Place(name[:2]) for name in MINI.evidence.query_ids})

    class PlacedTask:
        def read_subset(self, _):
            return data

    facts = read_subset_facts(PlacedTask, "default", MINI.revision)
    assert facts.digest == build_split(data)["digest"]() != MINI_DIGEST


@pytest.mark.parametrize(
    ("place", "change", "field", "word"),
    [
        ((), {"strangers_score": 0.7}, "strangers_score", "cannot compute"),
        (("position_profile",), {"schema": 0}, "position_profile.schema", "must be 1"),
        (
            ("position_profile", "axes"),
            {"scheme": "relative-20x512"},
            "position_profile.axes",
            "scheme",
        ),
        (
            ("document_ranks", "sets", 0),
            {"queries": "0" * 16},
            "document_ranks",
            "queries and documents",
        ),
        (
            ("read_ranks", "sets", 0),
            {"counted_with": "rough_estimate"},
            "read_ranks.counted_with",
            "tokenizer",
        ),
    ],
)
def test_other_data_than_the_tasks_are_rejected(file, place, change, field, word):
    def apply(scores):
        del scores["rotations"]
        find(scores, place).update(change)

    (problem,) = validate_edited(file, apply)
    assert (problem.field, problem.subset) == (field, "default")
    assert word in str(problem)


def test_message_on_missing_score_names_the_command(file):
    (problem,) = validate_edited(file, lambda scores: scores.pop("position_scores"))
    assert problem.field == "position_scores"
    assert "posir rescore" in str(problem)
    rescore_file(file)
    assert validate_entry(read_entry(file)) == []


@pytest.mark.parametrize(
    ("run", "fields"),
    [
        (
            {"tolerated": {"documents_without_text": 0, "more": 3}},
            "tolerated.documents_without_text tolerated.more",
        ),
        ({"missing_subsets": ["sports"], "top_k": 10, "more": 1}, "missing_subsets top_k more"),
        ({"tolerated": 3}, "tolerated"),
        ({"data_digest": {**MINI_DIGEST, "corpus": "0" * 16}}, "data_digest.corpus"),
        (
            {"data_digest": {**MINI_DIGEST, "queries": "0" * 16, "more": ""}},
            "data_digest.queries data_digest.more",
        ),
        ({"data_digest": "digest"}, "data_digest"),
    ],
)
def test_run_must_match_the_task(file, run, fields):
    problems = validate_edited(file, lambda scores: scores["position_run"].update(run))
    assert {problem.field.partition("[")[0] for problem in problems} == {
        f"position_run.{name}" for name in fields.split()
    }


@pytest.mark.parametrize(
    "change", [{"languages": ["deu-Latn"]}, {"hf_subset": "sports"}, {"read": {"kind": "unknown"}}]
)
def test_subset_and_languages_must_match_the_task(file, change):
    assert validate_edited(file, lambda scores: scores.update(change))


@pytest.mark.parametrize(
    ("named", "field", "word"),
    [
        ({"revision": "no_revision_available"}, "revision", "revision"),
        ({"name": "local/my-model"}, "name", "in a local folder"),
        ({"name": "endpoint/m (a.org)"}, "name", "behind an endpoint"),
    ],
)
def test_private_model_is_rejected(tmp_path, named, field, word):
    write_guesses(tmp_path, [mteb.get_task("PosIR-Mini")], **named)
    ((entry,), _) = read_entries(tmp_path)
    (problem,) = validate_entry(entry)
    assert (problem.field, problem.subset) == (field, None)
    assert word in problem.message


def test_other_splits_and_unknown_fields_are_rejected(file):
    data = json.loads(file.read_text())
    data["scores"]["dev\x1b[31m"] = data["scores"].pop("test")
    data["note"] = "best of ten"
    file.write_text(json.dumps(data))
    split, field = map(str, validate_entry(read_entry(file)))
    assert "field 'scores': has the splits dev\\x1b[31m; PosIR-Mini has test" in split
    assert (
        "field 'note': is not a field of mteb's results; these are dataset_revision, task_name"
        in field
    )


def test_unknown_task_is_rejected(file):
    file = file.replace(file.with_name("PosIR-Klingon.json"))
    file.write_text(file.read_text().replace('"PosIR-Mini"', '"PosIR-Klingon"'))
    (problem,) = validate_entry(read_entry(file))
    assert "`posir tasks`" in str(problem)


def test_data_revision_is_a_commit_or_the_tasks_revision():
    for good in (
        (COMMIT, "main", "main"),
        (COMMIT, COMMIT, "main"),
        (COMMIT, COMMIT, COMMIT),
        ("1", "1", "1"),
    ):
        assert check_revision(*good) is None
    for bad in ("main", "local", "local-0123456789abcdef", COMMIT + "/../x", None):
        assert check_revision(bad, "main", "main")
    for revision, recorded, pinned in (
        (COMMIT, "local", "main"),
        ("b" * 40, "b" * 40, COMMIT),
        ("2", "2", "1"),
        (COMMIT, "1", "1"),
        (1, "1", "1"),
    ):
        assert check_revision(revision, recorded, pinned)


def test_only_the_first_problems_are_reported(file):
    problems = validate_edited(
        file,
        lambda scores: scores.update({name: 2.0 for name in scores if name.startswith("nauc_")}),
    )
    assert len(problems) == MAX_PROBLEMS


# PosIR's 31 domains, and overlapping buckets


@pytest.fixture
def posir(tmp_path, monkeypatch) -> Path:
    """A result of PosIR-English on all domains; the corpus was removed from the data."""
    for domain in DOMAINS:
        write_domain(tmp_path / "data" / POSIR_FOLDER, posir_tables(), domain=domain)
    monkeypatch.setenv("POSIR_DATA", str(tmp_path / "data"))
    folder = write_guesses(tmp_path / "output", [load_builtin_tasks()["PosIR-English"]()])
    for corpus in (tmp_path / "data").rglob("corpus.parquet"):
        corpus.unlink()
    return as_of_the_hub(folder / "PosIR-English.json", COMMIT)


def test_facts_have_the_readers_articles(tmp_path, monkeypatch):
    tables = posir_tables()
    tables["queries"] = tables["queries"].with_columns(
        pos_title=pl.Series(["Mills", "Bees", "Bees", "Mills"])
    )
    root = tmp_path / POSIR_FOLDER
    write_domain(root, tables)
    data = read_domain(LocalRepository(root), "eng-Latn", "eng-Latn", "sports")
    (root / "eng-Latn/sports/corpus.parquet").unlink()
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    facts = read_subset_facts(load_builtin_tasks()["PosIR-English"], "sports", COMMIT)
    assert facts.digest == {"queries": digest_data(data)["queries"]}
    assert facts.evidence.clusters == data.evidence.clusters == ("Mills", "Bees", "Bees", "Mills")


def test_facts_omit_the_readers_dropped_queries(tmp_path, monkeypatch):
    """The data have a query without text, a missing document, a reversed span and foreign spans."""
    tables = posir_tables()
    spans = pl.Series([[15, 27], [0, 3], [41, 32], [14, 33]])
    texts = tables["queries"]["text"].to_list()
    tables["queries"] = tables["queries"].with_columns(
        pl.Series("text", ["", *texts[1:]]), pos_char_span=spans
    )
    tables["corpus"] = (
        tables["corpus"].filter(pl.col("_id") != "doc_2").with_columns(pl.col("text") + "!")
    )
    write_domain(tmp_path / POSIR_FOLDER, tables)
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    task = load_builtin_tasks()["PosIR-English"]
    alone = {"queries_with_reversed_span": 1, "queries_without_text": 1}
    stated = alone | {
        "judgments_of_missing_documents": 1,
        "queries_with_another_length": 2,
        "queries_without_document": 1,
    }
    facts = read_subset_facts(task, "sports", COMMIT, with_corpus=True)
    assert facts.tolerated == stated == compute_tolerated(facts, stated)
    assert facts.evidence.query_ids == ["q1", "q2"]
    assert facts.digest.keys() == {"queries", "corpus"}
    facts, believed = (
        read_subset_facts(task, "sports", COMMIT),
        alone | {"queries_with_another_length": 2},
    )
    assert facts.tolerated == alone
    assert compute_tolerated(facts, believed | {"documents_without_id": -1}) == believed


def test_posir_is_checked_against_its_queries(posir, tmp_path):
    entry = read_entry(posir)
    assert len(entry.subsets) == 31
    assert validate_entry(entry) == []

    data = json.loads(posir.read_text())
    (left_out,) = (scores for scores in data["scores"]["test"] if scores["hf_subset"] == "mining")
    data["scores"]["test"].remove(left_out)
    posir.write_text(part := json.dumps(data))
    (problem,) = validate_entry(read_entry(posir))
    assert "is partial: 30 of 31 subsets" in str(problem)
    assert "mining" in str(problem)

    left_out["hf_subset"] = "mine"
    data["scores"]["test"].append(left_out)
    posir.write_text(json.dumps(data))
    with pytest.raises(EntryError) as foreign:
        read_entry(posir)
    assert (foreign.value.problem.subset, foreign.value.problem.field) == ("mine", "document_ranks")
    posir.write_text(part)

    shutil.rmtree(tmp_path / "data" / POSIR_FOLDER / "eng-Latn" / "game")
    read_subset_facts.cache_clear()
    unread = [
        problem
        for problem in validate_entry(read_entry(posir))
        if "the data cannot be read" in str(problem)
    ]
    assert [problem.subset for problem in unread] == ["game"]


def test_query_in_two_buckets_counts_in_both(tmp_path, monkeypatch):
    write_squad(tmp_path / "data" / "squad_v2", (0, 50, 100, 100, 150, 200, 399))
    monkeypatch.setenv("POSIR_DATA", str(tmp_path / "data"))
    task = load_builtin_tasks()["SQuAD-PosQ"]
    file = write_guesses(tmp_path / "output", [task()]) / "SQuAD-PosQ.json"
    as_of_the_hub(file, task.metadata.dataset["revision"])
    entry = read_entry(file)
    assert (entry.subsets[0].profile.counts.sum(), entry.subsets[0].profile.queries) == (10, 7)
    assert validate_entry(entry) == []


@pytest.mark.parametrize("name", ["texts", "openings"])
def test_result_without_document_digests_is_rejected(file, name):
    problems = validate_edited(file, lambda scores: scores["document_keys"]["sets"][0].pop(name))
    assert any("lack the digest" in str(problem) for problem in problems)
