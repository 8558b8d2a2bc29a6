"""Compare models before and after training, and write the report."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from posir_significance.analysis import analyze
from posir_significance.changes import compare_groups
from posir_significance.findings import EFFECTS, POSITION_METRICS, ChangeState, Metric, Reason
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.evidence import Evidence, ReadEvidence
from posir_tasks.values.read_part import UNKNOWN, ReadPart, TokenCountMethod, WindowSource
from posir_tasks.values.schemes import RelativePositions, assign_thirds
from posir_tasks.values.scores import ResultValues
from posir_train.measurement import Measurement
from posir_train.preparation import find_base_name
from posir_train.report import (
    CARD_FILE,
    CARD_HEADING,
    add_to_card,
    build_table,
    compare_measurements,
    compare_seeds,
    describe_changes,
    list_warnings,
    to_record,
    write_window_notes,
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


def build_measurement(probabilities, cosine=0.1, seed=0, truncation=None):
    """Build the measurement of a model that ranks a document first with a probability by third, and
    otherwise tenth.

    `truncation` is 0 for read, 1 for partly truncated and 2 for truncated evidence, shape (n,).
    """
    rng = np.random.default_rng(seed)
    ranks = np.array(
        [1 if rng.random() < probabilities[third] else 10 for third in THIRDS], np.int64
    )
    read_part = UNKNOWN
    read_evidence = None
    if truncation is not None:
        read_part = ReadPart.first(40, WindowSource.CLASS)
        twelfths = np.array([0, 12, 13])[truncation]
        read_evidence = ReadEvidence(read_part, twelfths, TokenCountMethod.TOKENIZER)
    values = DocumentRanks.from_ranks(SCHEME, EVIDENCE, ranks, read_evidence)
    rotations = rotate_ranks(values, probabilities, seed)
    return Measurement(ResultValues(values, read_part, rotations=rotations), cosine)


BIASED = build_measurement([0.9, 0.5, 0.2])
UNBIASED = build_measurement([0.85, 0.85, 0.85], seed=1)


@pytest.fixture(scope="module")
def improvement():
    """Changes from a biased to an unbiased model, by metric."""
    return {change.metric: change for change in compare_measurements(BIASED, UNBIASED)}


def find_states(before, after):
    return {change.metric: change.state for change in compare_measurements(before, after)}


def test_less_bias_is_better_and_more_is_worse():
    for before, after, state in (
        (BIASED, UNBIASED, ChangeState.BETTER),
        (UNBIASED, BIASED, ChangeState.WORSE),
    ):
        states = find_states(before, after)
        assert {states[metric] for metric in POSITION_METRICS} == {state}
        assert states[Metric.NDCG_AT_10_END] is states[Metric.UNRELATED_COSINE] is None


def test_same_model_is_equivalent_and_noise_is_inconclusive():
    states = find_states(UNBIASED, UNBIASED)
    assert {states[metric] for metric in POSITION_METRICS} == {ChangeState.EQUIVALENT}
    states = find_states(UNBIASED, build_measurement([0.85, 0.85, 0.85], seed=2))
    assert {states[metric] for metric in POSITION_METRICS} == {ChangeState.INCONCLUSIVE}


def test_reversed_bias_is_inconclusive():
    mirrored = build_measurement([0.2, 0.5, 0.9], seed=3)
    (change,) = (
        change for change in compare_measurements(BIASED, mirrored) if change.metric is EFFECTS[0]
    )
    assert (change.state, change.reason) == (
        ChangeState.INCONCLUSIVE,
        Reason.DIRECTION_UNKNOWN,
    )
    assert change.a.value > 0.3
    assert change.b.value < -0.3


def test_states_and_numbers_match_compare_groups(improvement):
    groups = (analyze(model.values).overall for model in (BIASED, UNBIASED))
    changes = compare_groups(*groups, paired=True)
    for metric in POSITION_METRICS:
        expected = changes[metric]
        assert improvement[metric].state == expected.state
        assert improvement[metric].estimate.value == pytest.approx(expected.estimate.value)
        assert improvement[metric].estimate.interval == pytest.approx(expected.estimate.interval)


def test_warnings_and_paragraphs(improvement):
    collapsed = build_measurement([0.3, 0.3, 0.3], cosine=0.98)
    assert len(list_warnings(compare_measurements(BIASED, collapsed))) == 2
    assert list_warnings(list(improvement.values())) == []
    forgetting_changes = compare_measurements(UNBIASED, BIASED, "others")
    assert len(list_warnings(forgetting_changes)) == 1
    held_out, others = describe_changes([*improvement.values(), *forgetting_changes])
    assert "others" not in held_out
    assert "others" in others


def test_windows_are_described_for_both_models():
    before = build_measurement([0.9, 0.5, 0.2], truncation=np.where(THIRDS == 0, 0, 2))
    after = build_measurement([0.5, 0.5, 0.5])
    base, trained = write_window_notes(before, after, ("base", "trained"))
    assert base.startswith("base: ")
    assert "40 tokens" in base
    assert "trained" in trained


def test_table_has_every_score(improvement):
    table = build_table(list(improvement.values()), "title")
    records = [to_record(change) for change in improvement.values()]
    assert (
        [row[0] for row in table.rows] == [*improvement] == [record["score"] for record in records]
    )
    assert table.rows[0][1].startswith(f"{100 * BIASED.values.ranks.profile.score():.1f} [")
    states = [record["state"] for record in records]
    assert states == ["better", None, None, None, "better", "better", None]
    assert [record["margin"] for record in records][:2] == [0.02, None]


def test_base_name_of_a_folder(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    assert find_base_name(folder) == "my-model"
    for card, base in {
        "No metadata.": "my-model",
        "---\nbase_model: org/encoder\n---\n": "org/encoder",
        "---\nbase_model:\n- org/encoder\n- org/other\n---\n": "org/encoder",
        "---\nbase_model: [\n---\n": "my-model",
    }.items():
        (folder / CARD_FILE).write_text(card)
        assert find_base_name(folder) == base


def test_card_does_not_link_folders_to_the_hub(tmp_path):
    for base, name in (
        ("begin", "begin"),
        ("org/begin", "[org/begin](https://huggingface.co/org/begin)"),
    ):
        (tmp_path / CARD_FILE).write_text(
            f"Finetuned from [{base}](https://huggingface.co/{base})."
        )
        add_to_card(tmp_path, "The report.", base)
        assert (
            tmp_path / CARD_FILE
        ).read_text() == f"Finetuned from {name}.\n\n{CARD_HEADING}\n\nThe report.\n"


def test_stored_settings_contain_no_paths(tmp_path):
    (tmp_path / "base").mkdir()
    settings = TrainingSettings(model=str(tmp_path / "base"), data=str(tmp_path)).to_json()
    assert (settings["data"], settings["model"]) == (tmp_path.name, "base")
    assert str(tmp_path) not in str(settings)


def test_interval_over_seeds_is_students_t():
    seeds = (1, 2, 3)
    reports = {}
    for seed in seeds:
        changes = compare_measurements(BIASED, build_measurement([0.85] * 3, seed=seed))
        reports[seed] = SimpleNamespace(changes=changes, folder=seed, title="m")
    row = compare_seeds(reports).rows[0]
    assert row["seed_2"] == reports[2].changes[0].estimate
    expected = ttest_1samp([row[f"seed_{seed}"].value for seed in seeds], 0)
    assert row["mean"].interval == pytest.approx(tuple(expected.confidence_interval()))
