"""The span of an answer is the declared span, the only match nearby, or an error."""

import json
import re
import unicodedata

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from posir_tasks.data.formats.passages import Answer, UnusableError
from posir_tasks.data.questions import (
    REPAIR_DISTANCE,
    find_occurrences,
    find_span,
    repair_span,
    resolve_span,
)
from posir_tasks.text.spans import Span

DOCUMENTS = st.text("ab ", max_size=40)
PIECES = st.text("ab ", min_size=1, max_size=3)


@given(st.text(max_size=30), st.text(min_size=1, max_size=10), st.integers(-50, 50))
def test_declared_spans_must_match_their_text(before, answer, shift):
    assume(answer.strip())
    document, start = before + answer + " after", len(before) + shift
    if start >= 0 and document.startswith(answer, start):
        assert resolve_span(Answer(answer, start), document) == Span(start, start + len(answer))
    else:
        with pytest.raises(ValueError, match="is not at character"):
            resolve_span(Answer(answer, start), document)


@given(DOCUMENTS, PIECES)
def test_an_answer_without_start_must_be_unique(document, text):
    starts = find_occurrences(text, document)
    assert starts == [match.start() for match in re.finditer(f"(?={text})", document)]
    assume(text.strip())
    if len(starts) == 1:
        assert resolve_span(Answer(text), document) == Span(starts[0], starts[0] + len(text))
    else:
        with pytest.raises(UnusableError, match=f"occurs {len(starts)} times in"):
            resolve_span(Answer(text), document)


@given(DOCUMENTS, st.integers(-3, 45), st.integers(-3, 45))
def test_a_span_without_answer_must_contain_text(document, start, end):
    if 0 <= start < end <= len(document) and document[start:end].strip():
        assert resolve_span(Answer(start=start, end=end), document) == Span(start, end)
    else:
        with pytest.raises(ValueError, match=f"its span {start} to {end} is"):
            resolve_span(Answer(start=start, end=end), document)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer("and", end=5), "neither an answer text nor both start and end"),
        (Answer(start=3), "neither an answer text nor both start and end"),
        (Answer("  ", 3), "has no answer"),
        (Answer("and", 4, 6), "its span 4 to 6 is not as long as its answer 'and'"),
        (Answer("And", 4, 7), "is not at character 4 or anywhere else"),
        (Answer("and", 6), "the nearest match is at 4"),
        (Answer("and", 10**30), "the nearest match is at 12"),
    ],
)
def test_mismatched_answers_are_rejected(answer, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        resolve_span(answer, "sun and sky and sea ..........")


@given(DOCUMENTS, PIECES, st.integers(-8, 48))
@example("Zoë flew.", "flew. ", 4)
@example("Zoë flew.", "\n flew", 2)
@example("abcdefgh and", "and", 4)
@example("aa", "a", -7)
def test_repair_finds_the_only_match_nearby(document, text, start):
    """Compare with a scan of all starts nearby, for the exact and then the stripped text."""
    assume(text.strip())

    def scan(match, position):
        nearby = range(max(0, position - REPAIR_DISTANCE), position + REPAIR_DISTANCE + 1)
        return [candidate for candidate in nearby if document[candidate:].startswith(match)]

    bare = text.strip()
    exact, stripped = scan(text, start), scan(bare, start + text.index(bare))
    match, starts = (text, exact) if exact else (bare, stripped)
    if len(starts) == 1:
        assert repair_span(text, start, document) == Span(starts[0], starts[0] + len(match))
    else:
        with pytest.raises(ValueError, match=r"occurs \d+ times near|is not at character"):
            repair_span(text, start, document)


PERSIAN = "در خانه کنار رود ماهیگیر پیری زندگی می\u200cکند که هر روز به بازار می\u200cرود."


@pytest.mark.parametrize(
    ("answer", "evidence", "document"),
    [
        ("\u0643نار رود ماه\u064aگ\u064aر", "کنار رود ماهیگیر", PERSIAN),
        ("زندگی می کند", "زندگی می\u200cکند", PERSIAN),
        ("زندگی میکند", "زندگی می\u200cکند", PERSIAN),
        ("سال \u0661\u0663\u0667\u0661", "سال ۱۳۷۱", "در سال ۱۳۷۱ بود."),
        ("locuieşte", "locuiește", "Aici locuiește un pescar."),
        ("two words", "two\u00a0words", "Here two\u00a0words are."),
    ],
)
def test_repair_finds_other_spellings(answer, evidence, document):
    start = document.index(evidence)
    with pytest.raises(ValueError, match="is not at character"):
        resolve_span(Answer(answer, start), document)
    for shift in (0, 2, -REPAIR_DISTANCE):
        assert repair_span(answer, start + shift, document) == Span(start, start + len(evidence))
    with pytest.raises(ValueError, match="is not at character"):
        repair_span(answer, start + REPAIR_DISTANCE + 1, document)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_other_unicode_forms_are_reported_but_not_matched(form):
    other = {"NFC": "NFD", "NFD": "NFC"}[form]
    document = unicodedata.normalize(form, "Das Café in Zürich.")
    answer = unicodedata.normalize(other, "Zürich")
    for declared_answer in (Answer(answer, document.index("Z")), Answer(answer)):
        with pytest.raises(ValueError, match="in another Unicode form"):
            find_span(declared_answer, document, repair=True)


def test_answers_are_rarely_repeated_nearby(squad_data):
    """Measure how often REPAIR_DISTANCE would allow a wrong match."""
    match_counts = []
    for article in json.loads((squad_data / "xquad.zh.json").read_text(encoding="utf-8"))["data"]:
        for context, qa in (
            (paragraph["context"], qa)
            for paragraph in article["paragraphs"]
            for qa in paragraph["qas"]
        ):
            start = qa["answers"][0]["answer_start"]
            first, last = max(0, start - REPAIR_DISTANCE), start + REPAIR_DISTANCE
            match_counts.append(
                len(find_occurrences(qa["answers"][0]["text"], context, first, last))
            )
    assert (sum(starts > 1 for starts in match_counts), len(match_counts)) == (4, 1_190)
