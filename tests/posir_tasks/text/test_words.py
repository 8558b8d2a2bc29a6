from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.text.words import find_terms, find_words, split_words


@given(st.text(alphabet=st.sampled_from("ab é.\n\t語日ก—"), max_size=60))
def test_split_words_can_be_joined(text: str):
    assert "".join(split_words(text)) == text


def test_words_in_scripts_with_and_without_spaces():
    assert [span.slice("R は晴れ。") for span in find_words("R は晴れ。")] == [*"Rは晴れ。"]
    assert [span.slice("It 晴れ rained.") for span in find_words("It 晴れ rained.")] == [
        "It",
        "晴れ",
        "rained.",
    ]


def test_terms_in_scripts_with_and_without_spaces():
    assert find_terms("Don't re-read, Ümit: 3 times") == ["don't", "re-read", "ümit", "3", "times"]
    assert find_terms("明日は晴れ") == ["明日", "は晴", "れ"]
