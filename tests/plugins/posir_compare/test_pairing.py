"""Pairing by query, and what is compared if results or ranks do not match."""

import numpy as np
import pytest

from posir_compare.comparison import compare
from posir_compare.model_runs import build_pairs, read_model_runs
from posir_compare.pairing import find_common_results
from posir_tasks.errors import PosirError
from posir_tasks.evidence import Evidence
from posir_tasks.profile import rank_columns
from posir_tasks.query_ranks import save_query_ranks
from posir_tasks.schemes import RelativePositions
from tests.support.comparison import DOMAINS, SCHEME, draw_evidence, draw_ranks, only_pair, write_run


def test_joint_counts_are_those_of_the_queries(tmp_path):
    for model, seed in (("org/a", 1), ("org/b", 5)):
        write_run(tmp_path / "out", model, seed, ranks_folder=tmp_path / "ranks")
    found = find_common_results(only_pair(tmp_path / "out"), tmp_path / "ranks")
    assert found.notes == ()
    np.testing.assert_array_equal(found.joint.cells.sum(axis=3), found.a.counts)
    np.testing.assert_array_equal(found.joint.cells.sum(axis=2), found.b.counts)
    np.testing.assert_array_equal(found.joint.totals.sum(axis=2), found.a.totals)
    plain = np.zeros((12, 12), int)
    for place, evidence in enumerate(DOMAINS.values()):
        np.add.at(plain, tuple(rank_columns(draw_ranks(len(evidence), seed + place)) for seed in (1, 5)), 1)
    np.testing.assert_array_equal(found.joint.cells.sum(axis=(0, 1)), plain)


def test_only_common_subsets_are_compared(tmp_path):
    write_run(tmp_path, "org/a", 1)
    write_run(tmp_path, "org/b", 1, {"sports": DOMAINS["sports"], "mining": DOMAINS["game"]})
    found = find_common_results(only_pair(tmp_path), None)
    assert (found.subsets, found.a.queries) == (("sports",), 200)
    assert found.notes == ("org/a and org/b on PosIR-English: skipped subsets that only one of them has: game, mining.",)


def test_subsets_with_different_queries_are_skipped(tmp_path):
    write_run(tmp_path, "org/a", 1)
    write_run(tmp_path, "org/b", 1, DOMAINS | {"game": draw_evidence(299, 1)})
    found = find_common_results(only_pair(tmp_path), None)
    assert found.subsets == ("sports",)
    assert "skipped subsets whose queries differ: game" in found.notes[0]


@pytest.mark.parametrize(
    ("domains", "scheme", "message"),
    [
        ({"game": draw_evidence(10), "sports": draw_evidence(10)}, SCHEME, "different data"),
        (DOMAINS, RelativePositions(bins=4), "other position bins"),
        ({"mining": draw_evidence(10)}, SCHEME, "no subset in common"),
    ],
)
def test_nothing_in_common(tmp_path, domains, scheme, message):
    write_run(tmp_path, "org/a", 1)
    write_run(tmp_path, "org/b", 1, domains, scheme=scheme)
    with pytest.raises(PosirError, match=message):
        compare(build_pairs(read_model_runs([tmp_path])), None)
    write_run(tmp_path, "org/c", 1)
    found = compare(build_pairs(read_model_runs([tmp_path])), None)
    assert {(row.model_a, row.model_b) for row in found.rows} == {("org/a", "org/c")}
    assert any(message in note for note in found.notes)


def other_ranks(ranks):
    save_query_ranks(ranks, "org/b", "rev1", "PosIR-English", "game", SCHEME, DOMAINS["game"], draw_ranks(300, 99))


def other_ids(ranks):
    for place, (subset, one) in enumerate(DOMAINS.items()):
        ids = [f"other{name}" for name in one.query_ids]
        evidence = Evidence(ids, one.document_ids, one.starts, one.ends, one.characters, one.tokens)
        save_query_ranks(ranks, "org/b", "rev1", "PosIR-English", subset, SCHEME, evidence, draw_ranks(len(ids), 5 + place))


def one_subset(ranks):
    (ranks / "org__b" / "rev1" / "PosIR-English_ranks.parquet").unlink()
    save_query_ranks(ranks, "org/b", "rev1", "PosIR-English", "sports", SCHEME, DOMAINS["sports"], draw_ranks(200, 6))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda ranks: (ranks / "org__b" / "rev1" / "PosIR-English_ranks.parquet").unlink(), "--overwrite-strategy always"),
        (
            lambda ranks: (ranks / "org__b" / "rev1" / "PosIR-English_ranks.parquet").write_bytes(b"PAR1"),
            "not a file of",
        ),
        (one_subset, "has no ranks of the subset 'game'"),
        (other_ranks, "do not match the result"),
        (other_ids, "differ in their queries"),
    ],
    ids=["absent", "damaged", "subset", "ranks", "ids"],
)
def test_ranks_that_do_not_match_leave_queries_unpaired_with_a_note(tmp_path, spoil, message):
    for model, seed in (("org/a", 1), ("org/b", 5)):
        write_run(tmp_path / "out", model, seed, ranks_folder=tmp_path / "ranks")
    spoil(tmp_path / "ranks")
    found = find_common_results(only_pair(tmp_path / "out"), tmp_path / "ranks")
    assert found.joint is None
    assert "without pairing" in found.notes[0]
    assert message in found.notes[0]


def test_ranks_of_one_model_with_other_settings_are_paired(tmp_path):
    for seed, experiment in enumerate((None, "dim_64", "dim_32")):
        write_run(tmp_path / "out", "org/a", seed, ranks_folder=tmp_path / "ranks", experiment=experiment)
    pairs = build_pairs(read_model_runs([tmp_path / "out"]))
    found = [find_common_results(pair, tmp_path / "ranks") for pair in pairs]
    assert [(common.joint is None, common.notes) for common in found] == [(False, ())] * 3
