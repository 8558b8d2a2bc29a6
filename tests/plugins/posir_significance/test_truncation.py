"""Scores within the window: lengths and positions are not mixed."""

from dataclasses import replace

import numpy as np

from posir_psi.scores import psi
from posir_tasks.read_part import KnownBy, ReadPart
from posir_tasks.tokens import CountedWith
from tests.support.scores import score_groups
from tests.support.simulation import build_profile, rank_distributions, separate_documents


def test_short_documents_at_late_positions_do_not_pass_for_position_bias():
    """A window cuts the late positions of long documents off, which are harder; within each length the scores are flat."""
    means, last = (0.85, 0.8, 0.75, 0.7), (20, 16, 8, 5)
    buckets = [np.round(rank_distributions(np.full(20, mean)) * 400).astype(int) for mean in means]
    for counts, end in zip(buckets, last, strict=True):
        counts[end:] = 0
    profile = build_profile(*buckets)
    ranks = separate_documents(profile)
    places = {"counted_with": CountedWith.TOKENIZER}
    ranks = replace(ranks, sets=tuple(replace(part, twelfths=np.zeros_like(part.ranks), **places) for part in ranks.sets))
    group = score_groups(profile, ranks, ReadPart.first(512, KnownBy.CLASS))["all"]
    profile_psi = float(psi(profile.by_position()))
    assert profile_psi > 0.08
    assert group["psi_within_window"] < 0.03
    assert group["p_value_within_window"] > 0.2
    assert abs(group["start_to_end_within_window"]) < 0.01
