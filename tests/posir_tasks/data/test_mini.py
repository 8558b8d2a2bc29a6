"""PosIR-Mini has the documented size, variety and balance."""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from posir_tasks.data.mini import parse_document, read_documents, read_mini
from posir_tasks.values.schemes import RelativePositions


@pytest.fixture(scope="module")
def mini():
    return read_mini()


def test_markup_is_parsed_into_text_questions_and_spans():
    parsed = parse_document("d", "It is {late}[When?], and {dark 👻}[How?].")
    assert (parsed.text, parsed.questions) == ("It is late, and dark 👻.", ("When?", "How?"))
    assert [parsed.text[start:end] for start, end in parsed.spans] == ["late", "dark 👻"]


def test_documents_and_questions_are_balanced(
    mini,
):
    assert len(mini.corpus) >= 60
    assert len(mini.queries) == len(mini.evidence) >= 360
    words = [len(texts.split()) for texts in mini.corpus["text"]]
    assert 80 <= min(words) < max(words) <= 1_600
    for column in (
        mini.corpus["id"],
        mini.corpus["text"],
        mini.queries["id"],
        mini.queries["text"],
    ):
        assert len(set(column)) == len(column)
    assert mini.evidence.query_ids == mini.queries["id"][:]
    assert set(mini.evidence.document_ids) == set(mini.corpus["id"])
    assert not set("{}[]") & set("".join([*mini.corpus["text"], *mini.queries["text"]]))
    assert not any("===" in texts for texts in mini.corpus["text"])
    assert all(texts.endswith("?") for texts in mini.queries["text"])
    cells = RelativePositions().cells(mini.evidence)
    positions, lengths = (
        np.bincount(cells.position, minlength=20),
        np.bincount(cells.length, minlength=4),
    )
    share = positions / positions.sum()
    assert 0.03 <= share.min() <= share.max() <= 0.07
    assert chisquare(positions).pvalue > 0.05
    assert (np.abs(lengths / lengths.sum() - 0.25) <= 0.05).all()
    domains = Counter(name.split("/")[0] for name in mini.corpus["id"])
    assert len(domains) >= 4
    assert min(domains.values()) >= 8
    combinations = {
        *zip(
            [name.split("/")[0] for name in mini.evidence.document_ids],
            cells.length.tolist(),
            strict=True,
        )
    }
    assert len(combinations) == 4 * len(domains)


def test_spans_cover_the_marked_words(mini):
    marked = {
        f"{document.id}/{number}": document.text[slice(*span)]
        for document in read_documents()
        for number, span in enumerate(document.spans, start=1)
    }
    texts = dict(zip(mini.corpus["id"], mini.corpus["text"], strict=True))
    assert mini.evidence.characters.tolist() == [
        len(texts[name]) for name in mini.evidence.document_ids
    ]
    for query, _, name, span in mini.list_questions():
        assert 0 <= span.start < span.end <= len(texts[name])
        assert span.slice(texts[name]) == marked[query] == marked[query].strip()
