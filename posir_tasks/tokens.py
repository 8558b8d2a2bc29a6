"""Length of a text in tokens, for the length buckets."""

from collections.abc import Callable

from posir_tasks.errors import PosirError, summarize_error

#: UTF-8 bytes that the default estimate counts as one token.
BYTES_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """Estimate the length of a text: one token per four bytes of UTF-8, rounded up.

    The estimate needs no vocabulary, is reproducible, and works for every script: with current subword vocabularies, English
    has about one token per four bytes, and so have Chinese and Japanese, at three bytes per character.
    """
    return -(-len(text.encode("utf-8")) // BYTES_PER_TOKEN)


def load_token_counter(tokenizer: str | None) -> Callable[[str], int]:
    """Return a function that counts the tokens of a text, at least one.

    The tokenizer is a name on the Hub or a folder; without one, `estimate_tokens` counts. PosirError if it cannot be loaded.
    """
    if tokenizer is None:
        return estimate_tokens
    from transformers import AutoTokenizer

    try:
        loaded = AutoTokenizer.from_pretrained(tokenizer)
    except Exception as error:
        raise PosirError(
            f"tokenizer '{tokenizer}' cannot be loaded ({summarize_error(error)}). Give a name on the Hub or a folder "
            "with its files; without --tokenizer, lengths are estimated as one token per four bytes."
        ) from error
    return lambda text: max(1, len(loaded.encode(text, add_special_tokens=False)))
