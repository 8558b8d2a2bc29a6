from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from posir_significance.analysis import analyze
from posir_significance.changes import compare_groups
from posir_significance.findings import EFFECTS, POSITION_METRICS, ChangeState, Metric, Reason
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.evidence import Evidence, ReadEvidence
from posir_tasks.values.read_part import UNKNOWN, CountedWith, ReadPart, WindowSource
from posir_tasks.values.schemes import RelativePositions, assign_thirds
from posir_tasks.values.scores import ResultValues
from posir_train.measurement import Measurement
from posir_train.preparation import find_base
from posir_train.report import (
    CARD_FILE,
    HEADING,
    add_to_card,
    build_table,
    compare_measurements,
    compare_seeds,
    describe_changes,
    list_warnings,
    list_windows,
    to_record,
)
from posir_train.settings import TrainingSettings
from tests.plugins.posir_train.texts import build_examples
from tests.support.rotations import rotate_ranks

DATA = build_examples(articles=25, questions=9)

SCHEME = RelativePositions()
EVIDENCE = Evidence(
    query_ids=[example.id for example in DATA.examples],
    document_ids=[example.document.id for example in DATA.examples],
    starts=np.array([example.start for example in DATA.examples]),
    ends=np.array([example.end for example in DATA.examples]),
    characters=np.array([len(example.document.text) for example in DATA.examples]),
    tokens=np.full(len(DATA.examples), 100),
)
THIRDS = assign_thirds(20)[SCHEME.cells(EVIDENCE).position]


def measurement(result, cosine=0.1, seed=0, beyond=None):
    """Return a model that ranks a document first with these probabilities by third, else in the
    tenth place.
    """
    rng = np.random.default_rng(seed)
    ranks = np.array([1 if rng.random() < result[third] else 10 for third in THIRDS], np.int64)
    read = UNKNOWN if beyond is None else ReadPart.first(40, WindowSource.CLASS)
    placed = (
        None
        if beyond is None
        else ReadEvidence(read, np.array([0, 12, 13])[beyond], CountedWith.TOKENIZER)
    )
    values = DocumentRanks.from_ranks(SCHEME, EVIDENCE, ranks, placed)
    return Measurement(
        ResultValues(values, read, rotations=rotate_ranks(values, result, seed)), cosine
    )


BIASED, EVEN = measurement([0.9, 0.5, 0.2]), measurement([0.85, 0.85, 0.85], seed=1)


@pytest.fixture(scope="module")
def cured():
    return {change.metric: change for change in compare_measurements(BIASED, EVEN)}


def find_states(before, after):
    return {change.metric: change.state for change in compare_measurements(before, after)}


def test_a_cure_is_better_in_all_three_and_the_other_way_worse():
    for before, after, state in (
        (BIASED, EVEN, ChangeState.BETTER),
        (EVEN, BIASED, ChangeState.WORSE),
    ):
        states = find_states(before, after)
        assert {states[metric] for metric in POSITION_METRICS} == {state}
        assert states[Metric.NDCG_AT_10_END] is states[Metric.UNRELATED_COSINE] is None


def test_a_model_is_equivalent_to_itself_and_chance_is_open():
    states = find_states(EVEN, EVEN)
    assert {states[metric] for metric in POSITION_METRICS} == {ChangeState.EQUIVALENT}
    states = find_states(EVEN, measurement([0.85, 0.85, 0.85], seed=2))
    assert {states[metric] for metric in POSITION_METRICS} == {ChangeState.INCONCLUSIVE}


def test_a_bias_that_changes_its_side_is_no_cure():
    mirrored = measurement([0.2, 0.5, 0.9], seed=3)
    (change,) = (
        change for change in compare_measurements(BIASED, mirrored) if change.metric is EFFECTS[0]
    )
    assert (change.state, change.reason) == (
        ChangeState.INCONCLUSIVE,
        Reason.DIRECTION_UNKNOWN,
    )
    assert change.a.value > 0.3
    assert change.b.value < -0.3


def test_states_and_numbers_are_those_of_the_change(cured):
    groups = (analyze(model.values).overall for model in (BIASED, EVEN))
    changes = compare_groups(*groups, paired=True)
    for metric in POSITION_METRICS:
        expected = changes[metric]
        assert cured[metric].state == expected.state
        assert cured[metric].estimate.value == pytest.approx(expected.estimate.value)
        assert cured[metric].estimate.interval == pytest.approx(expected.estimate.interval)


def test_warnings_and_paragraphs(cured):
    collapsed = measurement([0.3, 0.3, 0.3], cosine=0.98)
    assert len(list_warnings(compare_measurements(BIASED, collapsed))) == 2
    assert list_warnings(list(cured.values())) == []
    lost = compare_measurements(EVEN, BIASED, "others")
    assert len(list_warnings(lost)) == 1
    held_out, others = describe_changes([*cured.values(), *lost])
    assert "others" not in held_out
    assert "others" in others


def test_windows_are_described_for_both_models():
    beyond = np.where(THIRDS == 0, 0, 2)
    before, after = measurement([0.9, 0.5, 0.2], beyond=beyond), measurement([0.5, 0.5, 0.5])
    first, other = list_windows(before, after, ("base", "trained"))
    assert first.startswith("base: ")
    assert "40 tokens" in first
    assert "trained" in other


def test_the_table_has_every_score(cured):
    table = build_table(list(cured.values()), "title")
    records = [to_record(change) for change in cured.values()]
    assert [row[0] for row in table.rows] == [*cured] == [record["score"] for record in records]
    assert table.rows[0][1].startswith(f"{100 * BIASED.values.ranks.profile.score():.1f} [")
    states = [record["state"] for record in records]
    assert states == ["better", None, None, None, "better", "better", None]
    assert [record["margin"] for record in records][:2] == [0.02, None]


def test_the_base_of_a_folder_is_named(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    assert find_base(folder) == "my-model"
    for card, base in {
        "No metadata.": "my-model",
        "---\nbase_model: org/encoder\n---\n": "org/encoder",
        "---\nbase_model:\n- org/encoder\n- org/other\n---\n": "org/encoder",
        "---\nbase_model: [\n---\n": "my-model",
    }.items():
        (folder / CARD_FILE).write_text(card)
        assert find_base(folder) == base


def test_a_folder_is_no_link_to_the_hub(tmp_path):
    for base, shown in (
        ("begin", "begin"),
        ("org/begin", "[org/begin](https://huggingface.co/org/begin)"),
    ):
        (tmp_path / CARD_FILE).write_text(
            f"Finetuned from [{base}](https://huggingface.co/{base})."
        )
        add_to_card(tmp_path, "The report.", base)
        assert (
            tmp_path / CARD_FILE
        ).read_text() == f"Finetuned from {shown}.\n\n{HEADING}\n\nThe report.\n"


def test_settings_say_nothing_of_where_files_are(tmp_path):
    (tmp_path / "base").mkdir()
    recorded = TrainingSettings(model=str(tmp_path / "base"), data=str(tmp_path)).to_json()
    assert (recorded["data"], recorded["model"]) == (tmp_path.name, "base")
    assert str(tmp_path) not in str(recorded)


def test_the_interval_over_seeds_is_that_of_students_t():
    trained = {
        seed: compare_measurements(BIASED, measurement([0.85] * 3, seed=seed)) for seed in (1, 2, 3)
    }
    reports = {
        seed: SimpleNamespace(changes=changes, folder=seed, title="m")
        for seed, changes in trained.items()
    }
    row = compare_seeds(reports).rows[0]
    assert row["seed_2"] == trained[2][0].estimate
    assert row["mean"].interval == pytest.approx(
        tuple(ttest_1samp([row[f"seed_{seed}"].value for seed in trained], 0).confidence_interval())
    )
