"""Chunks, late chunks and both orders with small models: controls and errors."""

import mteb
import numpy as np
import pytest
from mteb.timing import TimingStack
from mteb.types import PromptType

import posir
from posir_mitigate.chunks import (
    BothOrders,
    Chunks,
    Combination,
    ContextChunks,
    LateChunks,
    LateVectorizer,
    LongLateChunks,
)
from posir_mitigate.references import describe_mitigated
from posir_tasks.base.errors import PosirError
from posir_tasks.models.embeddings.cached_encoder import WrappedEncoder
from posir_tasks.models.embeddings.context import EncodingContext, build_texts
from posir_tasks.models.embeddings.encoding import ModelEncoder
from posir_tasks.models.window import find_read_part
from posir_tasks.search.chunked import DocumentVectors
from posir_tasks.text.chunks import Chunking, ChunkUnit
from posir_tasks.text.tokenizer import find_tokenizer
from posir_tasks.values.read_part import UNKNOWN, ReadPart, WindowSource
from tests.support.embedding_server import embed, serve_embeddings
from tests.support.encode import TASK, encode
from tests.support.models import build_encoder, write_tiny_model

SENTENCES = [
    "The bell was cast in copper.",
    "It hung in the harbour for 3.5 years!",
    "Who rang it?",
    "A doctor, they say.",
]
TEXT = " ".join(SENTENCES * 3)
TEXTS = [TEXT, "A lantern. ", " ".join(SENTENCES[::-1] * 2), SENTENCES[1]]
CONTEXT = EncodingContext(**TASK, encode_kwargs={"batch_size": 2, "show_progress_bar": False})


@pytest.fixture(scope="module")
def model():
    return build_encoder()


def search(model, texts, queries, **options):
    arguments = {**TASK, "encode_kwargs": CONTEXT.encode_kwargs, "num_proc": None}
    model.index(build_texts(texts), **arguments)
    return model.search(build_texts(queries), top_k=3, timer=TimingStack(), **arguments, **options)


def compute_similarities(model, texts, queries):
    return np.asarray(
        model.similarity(encode(model, queries, PromptType.query), encode(model, texts))
    )


def split_text(model, *chunking):
    (tokens,) = find_tokenizer(model).find_tokens([TEXT])
    return Chunking(*chunking).split_text(TEXT, tokens)


def test_token_chunks_are_slices_of_the_text(model):
    chunks = split_text(model, 6, 6)
    assert "".join("".join(chunks).split()) == "".join(TEXT.split())
    counts = [len(token) for token in find_tokenizer(model).find_tokens(chunks)]
    assert counts[:-1] == [6] * (len(counts) - 1)
    assert 0 < counts[-1] <= 6


@pytest.mark.parametrize(
    "method",
    [Chunks(60), Chunks(unit=ChunkUnit.SENTENCES, size=9), LateChunks(90), LongLateChunks(90)],
)
def test_one_chunk_documents_have_the_plain_score(model, method):
    texts, queries = TEXTS[1:], ["copper bell", "doctor"]
    mitigated = method.wrap(model)
    result = search(mitigated, texts, queries)
    assert mitigated.document_vectors == len(texts)
    expected = compute_similarities(model, texts, queries)
    assert [[result[str(q)][str(d)] for d in range(3)] for q in range(2)] == pytest.approx(
        expected, abs=1e-6
    )


@pytest.mark.parametrize("method", [Chunks(60, combination=Combination.MEAN), BothOrders(20)])
def test_one_chunk_documents_have_the_plain_embedding(model, method):
    mitigated, texts = method.wrap(model), TEXTS[1:]
    for kind in (PromptType.document, PromptType.query):
        assert np.abs(encode(mitigated, texts, kind) - encode(model, texts, kind)).max() < 1e-6


def test_maximum_and_mean_combine_the_chunks_in_any_order(model):
    queries = ["copper bell", "doctor", "years"]
    result = search(Chunks(8).wrap(model), TEXTS, queries)
    chunks = split_text(model, 8)
    expected = compute_similarities(model, chunks, queries).max(axis=1)
    assert [result[str(number)].get("0") for number in range(3)] == pytest.approx(
        expected.tolist(), abs=1e-6
    )
    vectors = encode(model, chunks)
    order = np.random.default_rng(0).permutation(len(chunks))
    query_vectors = encode(model, queries, PromptType.query)
    scores = [
        DocumentVectors(rows, [len(chunks)]).score(model, query_vectors)
        for rows in (vectors, vectors[order])
    ]
    assert np.abs(scores[0] - scores[1]).max() < 1e-6
    result = encode(Chunks(8, 8, Combination.MEAN).wrap(model), TEXTS)
    assert result[0] == pytest.approx(encode(model, split_text(model, 8, 8)).mean(axis=0), abs=1e-6)


def test_only_candidates_are_ranked_and_the_best_come_first(model):
    mitigated = Chunks(8).wrap(model)
    all_scores = search(mitigated, TEXTS, ["copper bell", "doctor"])
    assert [len(scores) for scores in all_scores.values()] == [3, 3]
    assert all(
        list(scores.values()) == sorted(scores.values(), reverse=True)
        for scores in all_scores.values()
    )
    result = search(mitigated, TEXTS, ["copper bell", "doctor"], top_ranked={"0": ["2", "1"]})
    assert {query: set(scores) for query, scores in result.items()} == {"0": {"1", "2"}, "1": set()}


@pytest.mark.parametrize("method", [Chunks(8), LateChunks(8), LongLateChunks(8, overlap=4)])
def test_the_batch_size_does_not_change_results(model, method):
    contexts = [
        EncodingContext(**TASK, encode_kwargs={"batch_size": size, "show_progress_bar": False})
        for size in (1, 8)
    ]
    single, many = (
        method.wrap(model)._vectorize(ModelEncoder(model, context), TEXTS) for context in contexts
    )
    assert np.abs(single.vectors - many.vectors).max() < 1e-6


@pytest.mark.parametrize(
    ("unit", "prompt"), [(ChunkUnit.TOKENS, "passage: "), (ChunkUnit.SENTENCES, "")]
)
def test_late_chunks_average_to_the_plain_embedding(unit, prompt):
    model = build_encoder(normalize=False, prompts={"document": prompt, "query": ""})
    size = 2 if unit is ChunkUnit.SENTENCES else 7
    vectorizer = LateChunks(size, size, unit).wrap(model)._vectorize
    assert isinstance(vectorizer, LateVectorizer)
    result = vectorizer(ModelEncoder(model, CONTEXT), TEXTS)
    lengths = np.array(
        [
            end - start
            for text in TEXTS
            for start, end in vectorizer.tokenize(text, prompt, "eng-Latn")[1]
        ]
    )
    starts = np.cumsum([0, *result.counts[:-1]])
    average = (
        np.add.reduceat(result.vectors * lengths[:, None], starts)
        / np.add.reduceat(lengths, starts)[:, None]
    )
    assert result.counts[0] > 3
    assert np.abs(average - encode(model, TEXTS)).max() < 1e-5


def test_long_late_chunks_equal_late_chunks_in_one_window(model):
    short, encoder = [text for text in TEXTS if len(text) < len(TEXT)], ModelEncoder(model, CONTEXT)
    late, long = LateChunks(8).wrap(model)._vectorize, LongLateChunks(8).wrap(model)._vectorize
    assert np.abs(late(encoder, short).vectors - long(encoder, short).vectors).max() < 1e-6
    texts = [TEXT * 3]
    assert long(encoder, texts).counts[0] > late(encoder, texts).counts[0]
    small = LongLateChunks(8, overlap=16).wrap(model)._vectorize
    assert small.split(250) == [(0, 0, 96), (80, 96, 176), (160, 176, 250)]
    ids, chunks = small.tokenize(texts[0], "", "eng-Latn")
    assert (chunks[0][0], chunks[-1][1]) == (0, len(ids))


@pytest.mark.parametrize(
    ("method", "part"),
    [
        (Chunks(8), ReadPart.all(WindowSource.CHUNKS)),
        (Chunks(8, combination=Combination.MEAN), ReadPart.all(WindowSource.CHUNKS)),
        (Chunks(unit=ChunkUnit.SENTENCES), UNKNOWN),
        (LongLateChunks(8), ReadPart.all(WindowSource.CHUNKS)),
    ],
)
def test_chunks_within_the_window_read_to_the_end(model, method, part):
    base = model.mteb_model_meta.model_copy(update={"loader": lambda *_, **__: model})
    assert find_read_part(describe_mitigated(base, method).load_model()) == part


def test_both_orders_average_the_text_and_its_reverse(model):
    backwards = " ".join(SENTENCES[::-1])
    method = BothOrders()
    assert method.reverse(" ".join(SENTENCES), "eng-Latn") == backwards
    result = encode(method.wrap(model), [" ".join(SENTENCES)])
    assert result[0] == pytest.approx(
        encode(model, [" ".join(SENTENCES), backwards]).mean(axis=0), abs=1e-6
    )


class WithoutTokenizer(WrappedEncoder):
    """An encoder without an accessible tokenizer, as behind an endpoint."""

    def encode(self, *arguments, **options):
        return self.base.encode(*arguments, **options)


def test_unsupported_models_are_rejected(model):
    for method, base, message in [
        (Chunks(512), model, r"exceed the model's window; the size is at most 94\.$"),
        (Chunks(8), Chunks(8).wrap(model), "needs a model with one vector per text"),
        (LateChunks(), WithoutTokenizer(model), "needs a local sentence-transformers model"),
        (
            LateChunks(),
            build_encoder(pooling="cls"),
            "needs mean pooling .* uses cls pooling",
        ),
        (LongLateChunks(overlap=96), model, "Use at most 95"),
    ]:
        with pytest.raises(PosirError, match=message):
            method.wrap(base)
    # Tokens are estimated if the model is behind an endpoint.
    estimated = Chunks(8, 8).wrap(WithoutTokenizer(model))
    for mitigated in (Chunks(unit=ChunkUnit.SENTENCES).wrap(WithoutTokenizer(model)), estimated):
        assert len(search(mitigated, TEXTS, ["bell"])["0"]) == 3
    assert estimated.document_vectors == sum(-(-len(text.encode()) // 32) for text in TEXTS)


def test_a_prompt_needs_room_in_the_window():
    prompted_model = build_encoder(prompts={"document": "one two three four: ", "query": ""})
    with pytest.raises(PosirError, match=r"the size is at most 89\.$"):
        search(Chunks(90).wrap(prompted_model), TEXTS, ["bell"])
    assert search(Chunks(89).wrap(prompted_model), TEXTS, ["bell"])


def test_context_chunks_are_embedded_by_a_server():
    with serve_embeddings(kind="jina") as server:
        base = mteb.get_model(f"tiny@jina+{server.url}")
        plain, context = (
            search(method.wrap(base), TEXTS, ["bell"])["0"]
            for method in (Chunks(8, 8), ContextChunks(8))
        )
    assert str(ContextChunks(8)) == "context_chunks(8,8,tokens)"
    documents = [request["input"] for request in server.requests if request.get("late_chunking")]
    assert all(
        any(all(chunk in text for chunk in chunks) for text in TEXTS) for chunks in documents
    )
    assert sorted(map(len, documents)) == sorted(-(-len(text.encode()) // 32) for text in TEXTS)
    question = np.array(embed("bell"))

    def score(chunks, share):
        vectors = np.array([embed(chunk) for chunk in chunks]) + share * np.array(
            embed(" ".join(chunks))
        )
        return max(vectors @ question / np.linalg.norm(vectors, axis=1) / np.linalg.norm(question))

    for scores, share in ((plain, 0.0), (context, 0.5)):
        assert list(scores.values()) == pytest.approx(
            sorted((score(chunks, share) for chunks in documents), reverse=True)[:3], abs=1e-6
        )
    with pytest.raises(
        PosirError, match="needs a server and model with contextual chunk embeddings"
    ):
        ContextChunks(8).wrap(build_encoder())


@pytest.mark.parametrize(
    ("method", "vectors"), [("", 1), ("+chunks(8,4)", None), ("+chunks(8,4,mean)", 1)]
)
def test_open_model_encodes_and_scores_chunks(tmp_path, method, vectors):
    folder = write_tiny_model(tmp_path / "tiny")
    model, plain = posir.open_model(f"{folder}{method}"), posir.open_model(folder)
    encoded, (query,) = model.encode(TEXTS), model.encode(["a copper bell"], query=True)
    (tokens,) = find_tokenizer(plain.encoder.model).find_tokens([TEXT])
    parts = Chunking(8, 4).split_text(TEXT, tokens)
    assert [len(chunk_vectors) for chunk_vectors in encoded[:2]] == [vectors or len(parts), 1]
    if not vectors:
        assert np.allclose(encoded[0], np.concatenate(plain.encode(parts)), atol=1e-5)
    best_scores = [
        float(np.max(rows @ query[0] / np.linalg.norm(rows, axis=1)) / np.linalg.norm(query[0]))
        for rows in encoded
    ]
    (ranking,) = model.search(["a copper bell"], TEXTS, k=3)
    assert [row for row, _ in ranking] == sorted(range(4), key=lambda row: -best_scores[row])[:3]
    assert [score for _, score in ranking] == pytest.approx(
        sorted(best_scores, reverse=True)[:3], abs=1e-5
    )
    assert (model.search([], TEXTS), model.encode([])) == ([], [])


def test_a_model_without_vectors_is_rejected():
    with pytest.raises(PosirError, match="not a dense encoder"):
        posir.open_model("mteb/baseline-bm25s")
