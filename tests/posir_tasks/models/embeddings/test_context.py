"""Models receive the same batches as in mteb's search."""

import pytest
from datasets import Dataset
from mteb.types import PromptType

from posir_tasks.base.private_names import CREATE_DATALOADER
from posir_tasks.models.embeddings.encoding import DEFAULT_CONTEXT

TEXTS = {"id": ["a", "b", "c"], "text": [" text\x1f", "\u3000", "x\n"]}
TITLES = {"title": ["", "\x85title ", " "]}


@pytest.mark.parametrize("kind", [PromptType.document, PromptType.query])
@pytest.mark.parametrize("texts", [TEXTS, TEXTS | TITLES])
def test_batches_equal_mtebs(texts, kind):
    dataset = Dataset.from_dict(texts)
    load = CREATE_DATALOADER.resolve()
    expected = load(
        dataset, task_metadata=DEFAULT_CONTEXT.task_metadata, prompt_type=kind, batch_size=32
    )
    assert list(DEFAULT_CONTEXT.load(dataset, kind)) == list(expected)
