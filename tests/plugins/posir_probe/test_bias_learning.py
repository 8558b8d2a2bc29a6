"""Sentence regression against SciPy, and with controls."""

import random
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import lstsq
from scipy.stats import linregress

from posir_probe import bias_learning
from posir_probe.controls import order_blind
from posir_probe.data import ProbeData
from posir_probe.probe import run_plans, run_probe
from posir_tasks.models.embeddings.encoding import encode_distinct
from posir_tasks.text.sentences import find_at_periods, split_at_periods
from tests.support.probed_encoders import first_words


def make_random_text(rng, sentences, words=(3, 30)):
    """Make sentences of random words. The last has no period, since the splitter appends one."""
    generated = [
        " ".join(f"w{rng.randrange(500)}" for _ in range(rng.randint(*words)))
        for _ in range(sentences)
    ]
    return ". ".join(generated)


def sample_split_texts(texts):
    return replace(ProbeData.from_texts(texts), split_at_periods=True)


@pytest.fixture(scope="module")
def data():
    rng = random.Random(4)
    return sample_split_texts(make_random_text(rng, rng.randint(5, 14)) for _ in range(150))


def test_the_splitter_matches_the_authors_code():
    assert split_at_periods("One. Two.  Three.\n\n. \nFour") == ["One.", "Two.", "Three..", "Four."]
    text = "One. Two.  Three.\n\nFour"
    assert [text[slice(*span)] for span in find_at_periods(text)] == [
        "One",
        "Two",
        "Three.",
        "Four",
    ]


def test_fits_match_scipy_without_an_intercept():
    rng = np.random.default_rng(1)
    text, sentences = rng.standard_normal(40), rng.standard_normal((7, 40))
    fit = bias_learning.fit_sentences(text, sentences)
    expected = lstsq(sentences.T, text)[0]
    np.testing.assert_allclose(fit.weights, expected / np.linalg.norm(expected))
    residual = text - sentences.T @ expected
    assert fit.r_squared == pytest.approx(
        1 - (residual**2).sum() / ((text - text.mean()) ** 2).sum()
    )
    assert fit.mae == pytest.approx(np.abs(residual).mean())
    assert fit.squared_error == pytest.approx((residual**2).sum())


def test_as_many_sentences_as_dimensions_fit_exactly():
    rng = np.random.default_rng(2)
    assert bias_learning.fit_sentences(
        rng.standard_normal(6), rng.standard_normal((6, 6))
    ).r_squared == pytest.approx(1)
    vector = rng.standard_normal(20)
    np.testing.assert_allclose(
        bias_learning.fit_sentences(vector, np.stack([vector, vector])).weights,
        np.full(2, np.sqrt(0.5)),
    )
    assert bias_learning.fit_sentences(np.zeros(20), np.stack([vector])) is None


def test_pooled_r_matches_linregress(data):
    sums = run_probe(bias_learning.SentenceRegression(), first_words, data)
    starts, midpoints, weights = [], [], []
    for text in data.documents.values():
        sentences = split_at_periods(text)
        embedded = encode_distinct(first_words, [text, *sentences]).normalize()
        coefficients = lstsq(
            embedded.select(sentences).T.astype(float), embedded.select([text])[0].astype(float)
        )[0]
        weights.extend(coefficients / np.linalg.norm(coefficients))
        lengths = np.array([len(sentence) for sentence in sentences]) / sum(map(len, sentences))
        starts.extend(lengths.cumsum() - lengths)
        midpoints.extend(lengths.cumsum() - lengths / 2)
    for series, sentence_positions in enumerate((starts, midpoints)):
        line, index = (
            linregress(sentence_positions, weights),
            series * len(bias_learning.BUCKET_NAMES),
        )
        assert sums.positions[index] == f"{bias_learning.SERIES[series]} · all"
        # All texts have 5 to 14 sentences.
        assert sums.values[index : index + 2] == pytest.approx([line.rvalue] * 2, abs=1e-9)
        assert sums.details["slope"][index] == pytest.approx(line.slope)
        assert sums.details["p_value"][index] == pytest.approx(line.pvalue, rel=1e-6)


def test_an_order_blind_model_is_explained_completely(
    data,
):
    sums, fit = run_plans(
        order_blind,
        [
            bias_learning.SentenceRegression().plan(data),
            bias_learning.SentenceRegressionFit().plan(data),
        ],
    )
    assert fit.values[0] == pytest.approx(1, abs=1e-6)
    estimates = dict(zip(sums.positions, sums.estimates, strict=True))
    start = estimates["text, start · all"]
    assert start.high < 0
    assert estimates["order-blind control, start · all"].value == pytest.approx(start.value)
    midpoint = sums.estimate(bias_learning.SentenceRegression.summaries["r_midpoint"])
    assert midpoint == estimates["text, midpoint · all"]
    assert abs(midpoint.value) < 0.05


def test_an_embedder_of_beginnings_has_a_negative_r():
    long = sample_split_texts(
        make_random_text(random.Random(seed), 14, (20, 40)) for seed in range(40)
    )
    sums = run_probe(bias_learning.SentenceRegression(), first_words, long)
    values = dict(zip(sums.positions, sums.values, strict=True))
    assert values["text, midpoint · all"] < -0.5
    assert values["shuffled, midpoint · all"] == pytest.approx(
        values["text, midpoint · all"], abs=0.1
    )


def test_the_scatter_counts_all_sentences(data):
    probe = bias_learning.SentenceRegressionScatter()
    (sums,) = run_plans(first_words, [probe.plan(data)])
    texts = [split_at_periods(text) for text in data.documents.values()]
    counts = sums.totals[:, 0]
    assert counts.sum() == 2 * sum(map(len, texts))
    by_panel = dict.fromkeys(dict.fromkeys(panel for panel, _, _ in probe.cells), 0.0)
    for (panel, _, _), count in zip(probe.cells, counts, strict=True):
        by_panel[panel] += count
    assert {panel for panel, count in by_panel.items() if count} == {
        "text · 5-14",
        "shuffled · 5-14",
    }
    # Most sentences in the first tenth have higher weights than sentences in the last tenth.
    heights = {x: 0.0 for _, x, _ in probe.cells}
    for (panel, x, y), count in zip(probe.cells, counts, strict=True):
        heights[x] += y * count if panel.startswith("text") else 0
    assert heights[0.05] > heights[0.95]


def test_texts_with_too_few_or_too_many_sentences_are_counted():
    texts = ["", "One.", "One. Two.", ". ".join(["x"] * 70)]
    sums = run_probe(bias_learning.SentenceRegression(), order_blind, sample_split_texts(texts))
    assert sums.skipped == {"not 5 to 64 sentences": 4}
    assert np.isnan(sums.values).all()


#: Seven sentences in each script. In Thai, spaces separate clauses.
SCRIPTS = {
    "eng-Latn": "The mill burned down. Nobody saw Dr. Ash. It rained! Was it late? He left. She "
    "came. They met again.",
    "zho-Hans": "磨坊烧毁了。没有人看见他。下雨了！很晚了吗？他离开了。她来了。他们又见面了。",
    "hin-Deva": "चक्की जल गई। किसी ने नहीं देखा। बारिश हुई! क्या देर हो गई? वह चला गया। वह आई। वे फिर मिले।",
    "tha-Thai": " ".join(["โรงสีแห่งนี้ถูกไฟไหม้เมื่อหลายปีก่อนและไม่มีใครเห็นเหตุการณ์"] * 7),
    "khm-Khmr": "រោងម៉ាស៊ីនឆេះ។ គ្មានអ្នកឃើញ។ ភ្លៀងធ្លាក់។ វាយឺត។ គាត់ទៅ។ នាងមក។ ពួកគេជួប។",
    "arb-Arab": "احترقت الطاحونة. لم ير أحد شيئا. أمطرت! هل تأخر الوقت؟ غادر. جاءت. التقوا مجددا.",
}


@pytest.mark.parametrize("language", SCRIPTS)
def test_texts_in_every_script_are_split(language):
    text = SCRIPTS[language]
    data = ProbeData.from_texts([text], language)
    sums = run_probe(bias_learning.SentenceRegression(), order_blind, data)
    assert (sums.documents, dict(sums.skipped)) == (1, {})
    assert len(data.split_sentences(text)) == 7
    removed = run_probe(bias_learning.TextRemoval(), order_blind, data)
    assert removed.documents == 1
    assert len(set(removed.values.reshape(3, 3)[:, 0].round(6))) == (
        3 if len(set(data.split_sentences(text))) > 1 else 1
    )
