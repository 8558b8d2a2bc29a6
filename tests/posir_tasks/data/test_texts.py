"""Evidence in texts in memory is located in code points, for any script."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.base.errors import DataError
from posir_tasks.data.texts import build_position_data

DOCUMENTS = {
    "bell": "The bell is of copper. The bell rings.",
    "crane": "Its jar holds plums.",
    "overlap": "banana",
}


def test_evidence_is_located_in_its_document():
    questions = [("Which metal?", "bell", "copper"), ("Which fruit?", "crane", "plums")]
    data = build_position_data(DOCUMENTS, questions, revision="7")
    assert data.evidence.map_positives() == {"q0": "bell", "q1": "crane"}
    assert (data.evidence.starts.tolist(), data.evidence.ends.tolist()) == ([15, 14], [21, 19])
    assert data.evidence.characters.tolist() == [38, 20]
    assert data.evidence.tokens.tolist() == [10, 5]
    assert data.queries.to_dict() == {"id": ["q0", "q1"], "text": ["Which metal?", "Which fruit?"]}
    assert data.corpus.to_dict() == {"id": list(DOCUMENTS), "text": list(DOCUMENTS.values())}
    assert data.revision == "7"


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(before=TEXT, after=TEXT)
def test_spans_count_code_points_of_any_script(before, after):
    evidence = "\N{BELL}e\N{COMBINING ACUTE ACCENT}\N{ARABIC LETTER MEEM}"
    data = build_position_data(
        {"d": before + evidence + after}, [("q", "d", evidence)], revision="1"
    )
    assert data.locate_spans() == [(len(before), len(before) + 4)]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (("Which metal?", "bell", "iron"), "its evidence 'iron' occurs 0 times in document 'bell'"),
        (
            ("Which?", "bell", "The bell"),
            "its evidence 'The bell' occurs 2 times in document 'bell'",
        ),
        (("Which?", "ferry", "copper"), "its document 'ferry' is not among the documents"),
        (("Which?", "bell", ""), "its evidence '' occurs 0 times"),
        ((" ", "bell", "copper"), "has no text"),
        (
            ("Which?", "overlap", "ana"),
            "its evidence 'ana' occurs 2 times in document 'overlap'",
        ),
    ],
)
def test_unusable_questions_are_named(question, message):
    with pytest.raises(DataError) as error_info:
        build_position_data(
            DOCUMENTS, [("Which metal?", "bell", "copper"), question, question], revision="1"
        )
    first, second = str(error_info.value).splitlines()
    assert first.startswith(f"question 1 ({question[0]!r}): {message}")
    assert second.startswith("question 2 ")


def test_missing_questions_and_empty_documents_are_named():
    with pytest.raises(DataError, match="there is no question"):
        build_position_data(DOCUMENTS, [], revision="1")
    with pytest.raises(DataError, match="document 'blank': has no text"):
        build_position_data(
            {"blank": " "} | DOCUMENTS, [("Which metal?", "bell", "copper")], revision="1"
        )
