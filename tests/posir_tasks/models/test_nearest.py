"""The nearest documents compared with PyTorch's `topk`."""

import pytest
import torch

from posir_tasks.models.nearest import Nearest, find_higher, find_nearest


@pytest.mark.parametrize("columns", [1, 7, 99, 100, 101, 401, 5_013])
@pytest.mark.parametrize("k", [1, 3, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nearest_documents_match_topk(columns: int, k: int, dtype: torch.dtype):
    generator = torch.Generator().manual_seed(columns)
    similarities = torch.randn((5, columns), generator=generator).to(dtype)
    values, indices = find_nearest(similarities, k)
    expected = similarities.topk(min(k, columns), dim=1).values
    assert torch.equal(values.sort(dim=1, descending=True).values, expected.float())
    assert torch.equal(similarities.gather(1, indices).float(), values)
    assert all(len(set(row)) == len(row) for row in indices.tolist())


def test_nan_counts_as_nearest():
    similarities = torch.rand((2, 5_000))
    similarities[1, 17] = torch.nan
    values, _ = find_nearest(similarities, 10)
    assert values.isnan().sum(dim=1).tolist() == [0, 1]


@pytest.mark.parametrize("columns", [1, 31, 32, 33, 4_096, 4_111])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_higher_values_are_those_above_the_minimum(columns: int, dtype: torch.dtype):
    generator = torch.Generator().manual_seed(columns)
    similarities = torch.randn((5, columns), generator=generator).to(dtype)
    minimum = torch.tensor([-9.0, 0.5, 2.0, 9.0, float(similarities[4, -1])])
    higher = find_higher(similarities, minimum, start=7)
    columns_found = higher.documents - 7
    assert torch.equal(similarities[higher.queries, columns_found].float(), higher.scores)
    found = sorted(zip(higher.queries.tolist(), columns_found.tolist(), strict=True))
    expected = (similarities.float() > minimum[:, None]).nonzero().tolist()
    assert found == [*map(tuple, expected)]


def test_nan_counts_as_higher_unless_the_minimum_is_nan():
    similarities = torch.zeros((3, 70))
    similarities[:, 69] = torch.nan
    similarities[:, 3] = torch.nan
    higher = find_higher(similarities, torch.tensor([1.0, 0.0, torch.nan]), start=0)
    pairs = zip(higher.queries.tolist(), higher.documents.tolist(), strict=True)
    assert sorted(pairs) == [(0, 3), (0, 69), (1, 3), (1, 69)]
    assert higher.scores.isnan().all()


def add_in_parts(similarities: torch.Tensor, k: int, size: int) -> Nearest:
    nearest = Nearest(len(similarities), k)
    for start in range(0, similarities.shape[1], size):
        nearest.add(similarities[:, start : start + size], start)
    return nearest


@pytest.mark.parametrize("size", [3, 64, 1_000])
@pytest.mark.parametrize("order", ["random", "ascending", "one query"])
def test_nearest_documents_of_parts_are_those_of_the_whole(size: int, order: str):
    similarities = torch.randn((9, 1_000), generator=torch.Generator().manual_seed(size))
    if order == "ascending":
        similarities = similarities.sort(dim=1).values
    if order == "one query":
        similarities[4, 500:] += 9
    scores, rows = add_in_parts(similarities, 10, size).sort()
    assert torch.equal(scores, similarities.topk(10, dim=1).values)
    assert torch.equal(similarities.gather(1, rows), scores)
    assert all(len(set(row)) == len(row) for row in rows.tolist())


def test_parts_with_few_finite_scores_and_with_nan():
    similarities = torch.full((2, 100), -torch.inf)
    similarities[0, ::7] = torch.arange(15.0)
    similarities[1, 40] = torch.nan
    scores, rows = add_in_parts(similarities, 12, 9).sort()
    assert scores[0].tolist() == [*range(14, 2, -1)]
    assert rows[0].tolist() == [*range(98, 20, -7)]
    assert scores[1].isnan().tolist() == [True] + [False] * 11
    assert rows[1, 0] == 40


def test_fewer_documents_than_k():
    scores, rows = add_in_parts(torch.tensor([[0.5, 0.75, 0.25]]), 5, 2).sort()
    assert scores.tolist() == [[0.75, 0.5, 0.25]]
    assert rows.tolist() == [[1, 0, 2]]
