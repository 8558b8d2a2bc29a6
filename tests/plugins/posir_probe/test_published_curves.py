"""Indices computed from published curves match the values in the papers."""

import numpy as np
import pytest

from posir_probe.evidence_moving import EvidenceMoving
from posir_probe.mirror_reversal import MirrorReversal
from posir_probe.probing import collect_probes
from posir_probe.segments import SegmentSimilarity
from posir_published.probes import SOURCES, read_published_curves

#: Peak, lowest and range x 1000 from Table 13 of arXiv 2605.26578, by model and training data.
PRINTED = """
BERT-base B 1/6/11.9 M 5/3/29.3 E 6/1/27.8 U 7/1/9.4
ModernBERT-base B 1/9/21.5 M 4/10/9.4 E 9/1/20.6 U 10/2/1.9
ModernBERT-large B 1/9/13.7 M 3/10/5.7 E 10/1/14.9 U 10/1/1.6
Longformer B 1/10/9.7 M 5/10/7.1 E 10/1/15.7 U 10/1/3.1
GPT-2 B 10/1/7.6 M 10/4/6.5 E 10/4/9.8 U 2/4/6.0
BLOOM B 1/10/23.1 M 4/10/4.7 E 9/2/21.4 U 10/6/5.4
TinyLlama B 1/10/19.5 M 1/10/13.6 E 10/2/14.8 U 1/10/8.7
Qwen3 B 1/10/21.5 M 5/10/27.1 E 9/1/20.6 U 9/10/5.5
"""
TRAINED_ON = {"B": "begin", "M": "middle", "E": "end", "U": "uniform"}
#: Delta_rev from Table 12.
DELTAS = {
    "ModernBERT-base": (0.194, 0.138, -0.126, 0.060),
    "ModernBERT-large": (0.205, 0.153, -0.137, 0.090),
    "Qwen3": (0.236, 0.114, -0.230, 0.039),
}


ROWS = [
    (line.split()[0], TRAINED_ON[config], *map(float, triple.split("/")))
    for line in PRINTED.strip().splitlines()
    for config, triple in zip(line.split()[1::2], line.split()[2::2], strict=True)
]


def find_curve(probe, model, trained):
    (curve,) = [
        curve
        for curve in read_published_curves(probe)
        if curve.model.startswith(model) and curve.model.endswith(f"{trained}")
    ]
    return curve


@pytest.mark.parametrize(("model", "trained", "peak", "lowest", "extent"), ROWS)
def test_indices_match_table_13(model, trained, peak, lowest, extent):
    values = np.array(find_curve("evidence_moving", model, f"trained on {trained}").values)
    summaries = {name: float(index(values)) for name, index in EvidenceMoving.summaries.items()}
    assert (summaries["peak"], summaries["lowest"]) == (peak, lowest)
    # The table prints the values with four decimals and the range with one.
    assert summaries["range_x1000"] == pytest.approx(extent, abs=0.1001)


def read_reversal(model, trained):
    curve = find_curve("mirror_reversal", model, f"trained on {trained}")
    by_name = dict(zip(curve.positions, curve.values, strict=True))
    return np.array([by_name.get(name, np.nan) for name in MirrorReversal.positions])


def test_delta_rev_matches_table_12():
    summaries = MirrorReversal.summaries
    for model, deltas in DELTAS.items():
        measured = [
            summaries["delta_rev"](read_reversal(model, trained)) for trained in TRAINED_ON.values()
        ]
        assert measured == pytest.approx(deltas, abs=0.0011), model
    measured = [
        float(summaries["delta_diff"](read_reversal("ModernBERT-base", trained)))
        for trained in ("begin", "uniform")
    ]
    assert measured == pytest.approx([0.358, 0.032], abs=1e-9)


def test_ranges_of_untrained_models_match_the_paper():
    untrained = {
        "BERT-base": 0.042,
        "ModernBERT-base": 0.032,
        "ModernBERT-large": 0.051,
        "Longformer": 0.003,
        "GPT-2": 0.016,
    }
    last_token = {"BLOOM": 0.002, "TinyLlama": 0.008, "Qwen3": 0.024}
    for models, index in ((untrained, "range"), (last_token, "range_without_last")):
        for model, extent in models.items():
            values = np.array(find_curve("segment_similarity_10", model, "untrained").values)
            assert SegmentSimilarity(10).summaries[index](values) == pytest.approx(
                extent, abs=0.0011
            )


def test_the_first_segment_is_highest_for_all_12_models():
    curves = read_published_curves("segment_similarity_3")
    assert [curve.values[0] == max(curve.values) for curve in curves] == [True] * 12


def test_saliency_has_its_published_minimum_and_deviations():
    """Standard deviations at 0, 50 and 99 are from the authors' arrays for Figure 5 of PosIR."""
    curves = read_published_curves("gradient_saliency")
    minima = [
        (curve.model, int(np.argmin(curve.values)), round(min(curve.values), 3)) for curve in curves
    ]
    assert minima == [("Qwen3-Embedding-8B", 72, 0.086), ("NV-Embed-v2", 22, 0.066)]
    deviations = [[curve.deviations[at] for at in (0, 50, 99)] for curve in curves]
    np.testing.assert_allclose(
        deviations, [[0.138, 0.124, 0.312], [0.119, 0.150, 0.268]], atol=6e-4
    )


def test_published_regressions_use_shuffled_texts():
    """Table 3 and appendix C, 'Sentence position against shuffled text'."""
    curves = {
        curve.model.rpartition(" ")[2]: dict(zip(curve.positions, curve.values, strict=True))
        for curve in read_published_curves("sentence_regression")
    }
    assert {position.partition(",")[0] for values in curves.values() for position in values} == {
        "shuffled"
    }
    pooled, short_texts = "shuffled, start · all", "shuffled, start · 5-14"
    assert {name: (values[pooled], values[short_texts]) for name, values in curves.items()} == {
        "APE": (-0.1277, -0.2049), "RoPE": (-0.1159, -0.2016), "ALiBi": (-0.0762, -0.1206),
    }  # fmt: skip


def test_every_curve_has_a_source_and_positions_of_its_probe():
    probes = collect_probes()
    for name in SOURCES:
        known = {*probes[name].positions, *probes[name].averages}
        curves = read_published_curves(name)
        assert curves[0].source.startswith("published, ")
        assert all(set(curve.positions) <= known for curve in curves), name
    assert read_published_curves("evidence_location") == []
    assert [sum(curve.values) for curve in read_published_curves("query_types")] == pytest.approx(
        [1, 1], abs=0.001
    )
