"""The nearest documents compared with PyTorch's `topk`."""

import pytest
import torch

from posir_tasks.models.nearest import find_higher, find_nearest


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
    values, indices = find_higher(similarities, minimum)
    for row, limit in enumerate(minimum.tolist()):
        is_found = ~values[row].isneginf()
        assert torch.equal(similarities[row, indices[row, is_found]].float(), values[row, is_found])
        expected = (similarities[row].float() > limit).nonzero().flatten().tolist()
        assert sorted(indices[row, is_found].tolist()) == expected


def test_nan_counts_as_higher_unless_the_minimum_is_nan():
    similarities = torch.zeros((3, 70))
    similarities[:, 69] = torch.nan
    similarities[:, 3] = torch.nan
    values, indices = find_higher(similarities, torch.tensor([1.0, 0.0, torch.nan]))
    assert values.isnan().sum(dim=1).tolist() == [2, 2, 0]
    assert sorted(indices[0].tolist()) == [3, 69]
