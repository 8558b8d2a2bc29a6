"""Sentence boundaries in any text and language."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posir_tasks.text.sentences import find_sentences

WHITE_SPACE = st.text(st.sampled_from("AB. !?ab\u3000\u2009\u00a0\n\té日。ก\u0e35།។"), max_size=14)


@given(
    st.one_of(WHITE_SPACE, st.text(max_size=30)), st.sampled_from(["en", "de", "ja", "th", "xx"])
)
@example("กขค " * 30, "th")
@example("!? B\u3000.\u3000 !?", "en")
def test_sentences_are_ordered_and_omit_only_white_space(text, language):
    sentences = find_sentences(text, language)
    bounds = [0, *(bound for sentence in sentences for bound in sentence), len(text)]
    assert bounds == sorted(bounds)
    assert not "".join(
        text[end:start] for end, start in zip(bounds[::2], bounds[1::2], strict=True)
    ).strip()


@pytest.mark.parametrize("language", ["en", "eng-Latn"])
def test_sentence_spans_contain_the_sentences(language):
    text = (
        "Dr. Ash came home.  He slept.\n\n# A heading\nAda met B.\u3000Cole. They left. "
        "今日は雨。明日は晴れ。"
    )
    sentences = [span.slice(text) for span in find_sentences(text, language)]
    assert sentences[:2] == ["Dr. Ash came home.", "He slept."]
    assert sentences[-3:] == ["They left.", "今日は雨。", "明日は晴れ。"]


def test_thai_is_split_at_spaces_but_not_around_numbers():
    clause = "ประเทศไทยมีขนาดใหญ่เป็นอันดับที่ 50 ของโลก ตั้งแต่ปี พ.ศ. 2482"
    text = f"{clause} {clause}"
    sentences = [span.slice(text) for span in find_sentences(text, "tha-Thai")]
    assert 2 <= len(sentences) < len(text.split())
    assert not any(sentence.startswith("ศ.") for sentence in sentences)
