"""Measure paraphrased questions: the words that they share with their text, the scores of BM25 and
a model, and how specific they are to their sentence.

Usage: python benchmarks/other_words.py DATA MODEL WRITER [TEXTS]

MODEL and WRITER are embedding models as in other commands. Texts are searched as in `posir
inspect`, also with the rarest words for comparison. Sentences are searched among all sentences.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from mteb.types import PromptType

from posir_data.texts import read_texts
from posir_inspect.questions import (
    QuestionSet,
    Wording,
    build_question_task,
    generate_questions,
    measure_word_baseline,
)
from posir_tasks.language_models.other_words import EmbedderWriter, build_vocabulary
from posir_tasks.models.embeddings.encoding import (
    EmbeddingMemory,
    Encoder,
    load_encoder,
    normalize_vectors,
)
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.tokenizer import EstimatedTokenizer
from posir_tasks.text.words import find_terms
from posir_tasks.values.profile import DEPTH, NDCG_AT_10, map_ranks_to_columns


def compute_ranks(
    encoder: Encoder, queries: Sequence[str], texts: Sequence[str], relevant: Sequence[str]
) -> np.ndarray:
    """Compute the rank of the relevant text of each query, from 1, shape (n,)."""
    rows = {text: row for row, text in enumerate(texts)}
    scores = (
        normalize_vectors(encoder(queries, PromptType.query))
        @ normalize_vectors(encoder(texts, PromptType.document)).T
    )
    own_scores = scores[np.arange(len(queries)), [rows[text] for text in relevant]]
    return (scores > own_scores[:, None]).sum(axis=1) + 1


def print_ranks(
    name: str,
    question_set: QuestionSet,
    wording: Wording,
    encoder: Encoder,
    sentences: Sequence[str],
) -> None:
    """Print the measures of questions in one wording."""
    questions = question_set.select_wording(wording)
    queries = [question.wordings[wording] for question in questions]
    texts = [question_set.documents[question.document] for question in questions]
    overlaps = sum(
        bool({*find_terms(query)} & {*find_terms(text)})
        for query, text in zip(queries, texts, strict=True)
    )
    task = build_question_task(name, "en", question_set, wording)
    task.load_data()
    words = measure_word_baseline(task)
    ranks = compute_ranks(encoder, queries, list(question_set.documents.values()), texts)
    gains = NDCG_AT_10[map_ranks_to_columns(np.where(ranks > DEPTH, 0, ranks))]
    own_sentences = [
        question.sentence.slice(question_set.documents[question.document]) for question in questions
    ]
    median_rank = np.median(compute_ranks(encoder, queries, sentences, own_sentences))
    print(
        f"{wording}: {len(questions):,} questions about {len(question_set.documents):,} texts, "
        f"{overlaps:,} share a word with their text"
    )
    print(
        f"  nDCG@10 {gains.mean():.3f}, BM25 {words.shared_words:.3f}, random order "
        f"{words.chance:.3f}"
    )
    print(f"  median rank of the sentence {median_rank:.0f} of {len(sentences):,}", flush=True)


if __name__ == "__main__":
    data, model, writer = sys.argv[1:4]
    collection = read_texts(data, limit=int(sys.argv[4]) if len(sys.argv) > 4 else 60)
    texts = [text.text for text in collection.texts]
    sentences = list(
        dict.fromkeys(
            span.slice(text.text)
            for text in collection.texts
            for span in find_sentences(text.text, text.language)
        )
    )
    encoder = replace(load_encoder(model), memory=EmbeddingMemory())
    question_set = generate_questions(collection, EstimatedTokenizer().count_all(texts))
    written = question_set.write_in_other_words(
        EmbedderWriter(writer, load_encoder(writer), build_vocabulary(texts))
    )
    print_ranks(data, written, Wording.RAREST_WORDS, encoder, sentences)
    print_ranks(data, written, Wording.OTHER_WORDS, encoder, sentences)
