"""Sizes against a brute-force count, and published sizes against the paper's totals."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mteb import get_task

from posir_run.plan import SAMPLE_SIZE, collect_samples, make_synthetic_texts
from posir_run.sizes import (
    BOUNDS,
    BUCKETS,
    TextCounts,
    find_published_size,
    measure_subsets,
    measure_texts,
    sum_counts,
)
from posir_tasks.base.errors import DataError
from posir_tasks.text.languages import DOMAINS, LANGUAGES, PIVOT
from posir_tasks.text.words import estimate_tokens
from tests.support.datasets import ASKED, POSIR_FOLDER, TEXTS, posir_tables, write_domain


def count_one_by_one(texts):
    tokens = np.array([estimate_tokens(text) for text in texts], np.int64)
    bucket = np.digitize(tokens, BOUNDS, right=True)
    return TextCounts(
        tuple(np.bincount(bucket, minlength=len(BUCKETS)).tolist()),
        tuple(int(tokens[bucket == index].sum()) for index in range(len(BUCKETS))),
    )


#: Texts with few or many bytes per character and lengths near the bucket bounds.
TEXT = st.builds(
    lambda letter, count: letter * count,
    st.sampled_from("xé漢"),
    st.one_of(
        st.integers(0, 7_000),
        st.sampled_from([bound * 4 + more for bound in BOUNDS for more in (-1, 0, 1)]),
    ),
)


@given(st.lists(TEXT, max_size=9), st.lists(TEXT, max_size=9))
def test_texts_are_counted_by_length_and_counts_are_additive(texts, others):
    def counts(texts):
        return measure_texts(pl.DataFrame({"text": texts}, {"text": pl.String}))

    assert counts(texts) == count_one_by_one(texts)
    assert counts(texts) + counts(others) == count_one_by_one(texts + others)


def test_published_sizes_sum_to_the_paper_totals():
    sizes = [find_published_size(language, domain) for language in LANGUAGES for domain in DOMAINS]
    documents, queries = sum_counts(counts for counts, _ in sizes), sum(count for _, count in sizes)
    # The texts in other languages are divided by nine and rounded down.
    assert 17_329_673 - 9 < sum(documents.texts) <= 17_329_673
    assert 22_800_000_000 - 9 < sum(documents.tokens) <= 22_800_000_000
    assert 421_708 - 9 < queries <= 421_708
    english = [find_published_size(PIVOT, domain) for domain in DOMAINS]
    assert sum_counts(counts for counts, _ in english) == TextCounts(
        (0, 1_719_701, 0, 0), (0, 1_719_701 * 922, 0, 0)
    )
    assert sum(count for _, count in english) == 42_015


def test_without_local_data_the_published_size_is_used(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    task = get_task("PosIR-German-English")
    sizes = measure_subsets((task, domain) for domain in task.hf_subsets)
    assert len(sizes) == len(DOMAINS)
    assert sum(sum(size.documents.texts) for size in sizes) == 1_719_701
    assert not any(size.is_counted for size in sizes)
    documents, queries, sampled = collect_samples(
        [task], TextCounts((0, 1_000, 0, 0), (0, 922_000, 0, 0))
    )
    assert ([len(texts) > 0 for texts in documents], sampled) == (
        [False, True, False, False],
        False,
    )
    assert {len(text) for text in documents[1]} == {922 * 4}
    assert len(set(documents[1])) == len(documents[1]) <= len(queries) == SAMPLE_SIZE
    for tokens in (1, 512, 100_000):
        assert {len(text) for text in make_synthetic_texts(tokens)} == {tokens * 4}


@pytest.fixture
def data(tmp_path, monkeypatch):
    """English and German data with fewer German queries."""
    root = tmp_path / POSIR_FOLDER
    long = {
        name: text + " More of it." * 300 * number
        for number, (name, text) in enumerate(TEXTS.items())
    }
    write_domain(root, posir_tables(long))
    write_domain(root, posir_tables(asked=dict(list(ASKED.items())[1:])), language="deu-Latn")
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    return list(long.values())


def test_local_data_is_counted_and_shared_documents_are_counted_once(data):
    tasks = [get_task(name) for name in ("PosIR-English", "PosIR-German-English", "PosIR-German")]
    english, crosslingual, german = measure_subsets((task, "sports") for task in tasks)
    assert english.documents == crosslingual.documents == count_one_by_one(data)
    assert german.documents == count_one_by_one(TEXTS.values())
    assert (english.queries, crosslingual.queries, german.queries) == (4, 3, 3)
    assert english.corpus == crosslingual.corpus != german.corpus
    assert all(size.is_counted for size in (english, crosslingual, german))


@pytest.mark.usefixtures("data")
def test_folder_data_is_counted_and_a_missing_file_is_reported(tmp_path):
    (size,) = measure_subsets([(get_task("PosIR-Mini"), "default")])
    assert (sum(size.documents.texts), size.queries) == (72, 720)
    task, missing_file = (
        get_task("PosIR-English"),
        tmp_path / POSIR_FOLDER / "eng-Latn" / "sports" / "corpus.parquet",
    )
    missing_file.unlink()
    with pytest.raises(DataError, match=str(missing_file)):
        measure_subsets([(task, "sports")])


def test_samples_have_the_required_lengths(data):
    documents, queries, sampled = collect_samples(
        [get_task("PosIR-English")], count_one_by_one(data)
    )
    assert sampled
    assert sorted(text for texts in documents for text in texts) == sorted(data)
    assert sorted(queries) == sorted(question for question, _, _ in ASKED.values())
    counts_by_bucket = count_one_by_one(data) + TextCounts((0, 0, 3, 0), (0, 0, 4_000, 0))
    mixed, _, _ = collect_samples([get_task("PosIR-English")], counts_by_bucket)
    for index, texts in enumerate(mixed):
        assert bool(texts) == bool(counts_by_bucket.texts[index])
        assert all(count_one_by_one([text]).texts[index] for text in texts)
