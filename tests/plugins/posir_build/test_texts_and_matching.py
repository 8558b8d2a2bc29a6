"""Sentences, thirds and quotes, with their offsets."""

from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_build.locate import number_sentences, remove_span, split_thirds
from posir_build.quotes import QuoteError, find_quote
from posir_build.records import DiscardReason
from posir_tasks.text.interventions import find_part
from posir_tasks.text.languages import detect_other_language, find_two_letter_code
from posir_tasks.text.sentences import MAX_SENTENCE, find_sentences
from posir_tasks.text.spans import Span, find_third

TEXT = (
    "The mill stood by the river. It burned down in 1901, not 1902. The mill was rebuilt, but "
    "never “opened” again."
)
TEXTS = st.text(st.sampled_from("aB1 .!?\n\t。\u3000é😀ก\u0e33"), max_size=900)


def find_fault(quote, text=TEXT):
    with pytest.raises(QuoteError) as error:
        match(quote, text)
    return error.value.fault


def match(quote, text=TEXT, similarity=0.8):
    span = find_quote(quote, text, Span(0, len(text)), similarity)
    return text[span.start : span.end]


@pytest.mark.parametrize(
    ("quote", "expected"),
    [
        ("by the river", "by the river"),
        (" BY  THE river ".replace("  ", " "), "by the river"),
        ('never "opened" again', "never “opened” again"),
        ("burned down in 1901 not 1902", "burned down in 1901, not 1902"),
        (
            "The mill was re-built but never opened again",
            "The mill was rebuilt, but never “opened” again",
        ),
    ],
)
def test_a_quote_with_small_differences_is_found(quote, expected):
    assert match(quote) == expected


@pytest.mark.parametrize(
    ("quote", "reason"),
    [
        ("burned down in 1903", DiscardReason.CHANGED_NUMBER),
        ("It burned down in 1901, and 1902", DiscardReason.CHANGED_NEGATION),
        ("The mill was rebuilt, but “opened” again", DiscardReason.CHANGED_NEGATION),
        ("The mill", DiscardReason.QUOTE_REPEATED),
        ("a windmill on a hill", DiscardReason.QUOTE_NOT_FOUND),
        ("x" * 500, DiscardReason.QUOTE_NOT_FOUND),
    ],
)
def test_a_quote_without_a_unique_match_is_rejected(quote, reason):
    assert find_fault(quote) is reason


def test_a_similar_passage_elsewhere_makes_a_quote_ambiguous():
    text = "Ada keeps a dozen bees. Today Ada keeps a dozen bees there."
    assert find_fault("Ada keeps a dozen of bees", text) is DiscardReason.QUOTE_AMBIGUOUS


def test_digits_of_all_scripts_are_equal():
    assert match("عام ١٩٠١ كان حارا", "في عام 1901 كان حارا جدا", 0.7) == "عام 1901 كان حارا"


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("1 million", "He paid 21 million for it."),
        ("12", "It has 12,500 rooms."),
        ("5 percent", "It rose 3.5 percent."),
        ("It cost 3", "It cost 3.5 dollars."),
        ("5 degrees", "It was −5 degrees."),
        ("open from 1990 to 1980", "open from 1980 to 1990"),
        ("10³ people lived in the town", "10² people lived in the town"),
        ("其中三个村庄位于河的北岸附近", "其中五个村庄位于河的北岸附近。"),
        ("五人住在桥上", "三十五人住在桥上"),
    ],
)
def test_a_match_neither_changes_nor_cuts_a_number(quote, text):
    assert find_fault(quote, text) is DiscardReason.CHANGED_NUMBER


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("Das Haus wurde nicht gebaut", "Das Haus wurde neu gebaut, sagt Anna."),
        ("彼はその橋を渡らなかったと言った", "彼はその橋を渡ったと言った。"),
        ("able to fly", "The bird was unable to fly."),
        (
            "unhappy people of the old town came here",
            "Some happy people of the old town came here.",
        ),
        ("they can", "And they cannot go."),
        ("do", "They don’t know."),
        ("the king didnt cross the bridge", "the king did cross the bridge"),
        ("nothing was found under the bridge", "something was found under the bridge"),
        ("Das Haus hat nichts mit der Brücke zu tun", "Das Haus hat viel mit der Brücke zu tun"),
        ("никто не пришёл к старому мосту", "он не пришёл к старому мосту"),
        ("ولا يعبر الرجل الجسر القديم", "و يعبر الرجل الجسر القديم"),
        ("het huis werd niet gebouwd in de stad", "het huis werd net gebouwd in de stad"),
        ("ไม่สามารถข้ามแม่น้ำได้ในฤดูฝน", "พวกเขาสามารถข้ามแม่น้ำได้ในฤดูฝน"),
    ],
)
def test_a_match_neither_changes_nor_cuts_a_negation(quote, text):
    assert find_fault(quote, text) is DiscardReason.CHANGED_NEGATION


@pytest.mark.parametrize(
    ("quote", "text", "expected"),
    [
        ("New York", "He went to New\n    York.", "New\n    York"),
        (
            "한국의 오래된 다리",
            normalize("NFD", "그는 한국의 오래된 다리를"),
            normalize("NFD", "한국의 오래된 다리"),
        ),
        (normalize("NFD", "à Zürich"), "Er ging à Zürich.", "à Zürich"),
        ("the official flag", "It is the oﬃcial ﬂag.", "the oﬃcial ﬂag"),
        ("STRASSE", "Die Straße ist alt.", "Straße"),
        ("१२ लोग", "पुल पर 12 लोग थे", "12 लोग"),
        (
            "It was important to the village",
            "It was im-\nportant to the village.",
            "It was im-\nportant to the village",
        ),
        ("其中三個村莊位於河的北岸", "其中三個村莊，位於河的北岸。", "其中三個村莊，位於河的北岸"),
        (
            "他在桥上看到了很多的人，",
            "据说他在桥上看到了很多人，然后离开了。",
            "他在桥上看到了很多人，",
        ),
        ("何も知らず", "彼は何も知らず、帰った。", "何も知らず"),
        ("1990", "Am 12.10.1990 kam er.", "1990"),
    ],
)
def test_offsets_refer_to_the_original_text(quote, text, expected):
    assert match(quote, text, 0.85) == expected


@given(TEXTS, st.sampled_from(["en", "ja", "th"]))
def test_sentences_are_short_enough_to_be_numbered(text, code):
    sentences = find_sentences(text, code)
    assert all(0 < sentence.end - sentence.start <= MAX_SENTENCE for sentence in sentences)
    assert len(number_sentences(text, sentences).splitlines()) >= len(sentences)


@given(TEXTS, st.integers(0, 899), st.integers(1, 50))
def test_thirds_cover_the_text(text, start, length):
    parts = split_thirds(text, find_sentences(text, "en"))
    assert [part.start for part in parts] + [parts[-1].end] == [
        0,
        parts[0].end,
        parts[1].end,
        len(text),
    ]
    span = Span(start, min(start + length, len(text)))
    if span.start < span.end:
        part = parts[find_part(parts, span)]
        assert part.start <= (span.start + span.end) / 2 <= part.end


def test_the_third_contains_the_midpoint():
    assert [find_third(Span(start, start + 10), 90) for start in (0, 24, 25, 54, 55, 80)] == [
        0,
        0,
        1,
        1,
        2,
        2,
    ]


def test_a_document_without_its_span_has_one_space_at_the_seam():
    assert (
        remove_span("The mill stood.  It burned. It fell.", Span(17, 27))
        == "The mill stood. It fell."
    )
    assert remove_span("only", Span(0, 4)) == ""


@given(TEXTS, st.text(st.sampled_from("aB1 .é\u0301\u00adﬁ\ud800²"), min_size=1, max_size=30))
def test_a_found_quote_is_within_its_window(text, quote):
    if not quote.strip():
        return
    window = Span(len(text) // 4, len(text))
    try:
        span = find_quote(quote, text, window, 0.85)
    except QuoteError:
        return
    assert window.start <= span.start < span.end <= window.end


def test_languages():
    assert [
        find_two_letter_code(code) for code in ("deu-Latn", "cmn-Hans", "arb-Arab", "pes-Arab")
    ] == [
        "de",
        "zh",
        "ar",
        "fa",
    ]
    assert detect_other_language("Wo stand die alte Mühle?", "eng-Latn") == "de"
    assert detect_other_language("Where was the old mill?", "eng-Latn") is None
    assert detect_other_language("1901?", "eng-Latn") is None
    assert detect_other_language("Where was the old mill?", "kat-Geor") == "en"
    # The detector does not support this language.
    assert detect_other_language("Where was the old mill?", "ain-Kana") is None
