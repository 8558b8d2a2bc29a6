"""The correlations of a trend against SciPy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from posir_significance.scores import kendall, pearson, spearman

#: 5 to 60 scores, with and without ties.
SCORES = st.integers(5, 60).flatmap(
    lambda size: st.one_of(
        arrays(np.float64, size, elements=st.integers(0, 5).map(float)),
        arrays(np.float64, size, elements=st.integers(0, 10**6).map(float), unique=True),
    )
)


@pytest.mark.parametrize(
    ("own", "reference"), [(pearson, stats.pearsonr), (spearman, stats.spearmanr), (kendall, stats.kendalltau)]
)
@given(scores=SCORES)
def test_correlation_and_p_value_are_those_of_scipy(own, reference, scores):
    if np.ptp(scores) == 0:
        return
    places = (np.arange(len(scores)) + 0.5) / len(scores)
    computed, expected = own(places, scores), reference(places, scores)
    assert computed.value == pytest.approx(expected.statistic, abs=1e-12)
    assert computed.p_value == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-8)
