"""Length of a text in tokens, for the length buckets."""

from collections.abc import Callable

from posir_tasks.errors import PosirError, summarize_error

#: UTF-8 bytes that the default rule counts as one token.
BYTES_A_TOKEN = 4


def estimated_tokens(text: str) -> int:
    """Return the default length: one token for every four bytes of UTF-8, rounded up.

    It needs no vocabulary, is the same everywhere, and serves every script: English has about one token for four bytes
    in today's subword vocabularies, and so, with three bytes a character, has Chinese or Japanese.
    """
    return -(-len(text.encode("utf-8")) // BYTES_A_TOKEN)


def token_counter(tokenizer: str | None) -> Callable[[str], int]:
    """Return a function that counts tokens, at least one a text.

    Args:
        tokenizer: Name on the Hub or folder of a Hugging Face tokenizer; None for `estimated_tokens`.

    Raises:
        PosirError: The tokenizer cannot be loaded.
    """
    if tokenizer is None:
        return estimated_tokens
    from transformers import AutoTokenizer

    try:
        loaded = AutoTokenizer.from_pretrained(tokenizer)
    except Exception as error:
        raise PosirError(
            f"tokenizer '{tokenizer}': cannot be loaded ({summarize_error(error)}). Give a name on the Hub or a folder "
            "that holds its files; without --tokenizer one token is counted for every four bytes."
        ) from error
    return lambda text: max(1, len(loaded.encode(text, add_special_tokens=False)))
