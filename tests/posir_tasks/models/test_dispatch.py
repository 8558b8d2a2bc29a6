"""The nearest documents compared with PyTorch's `topk`."""

import pytest
import torch

from posir_tasks.models.dispatch import find_nearest


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
