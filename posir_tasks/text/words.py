"""Split texts into words and terms, in scripts with and without spaces between words.

Words are separated by spaces. Terms are words as in search engines: in lower case, without
punctuation.
"""

import re
from itertools import pairwise

from posir_tasks.text.spans import Span

#: ISO 15924 codes of alphabets without spaces between words.
UNSPACED_ALPHABETS = frozenset({"Khmr", "Laoo", "Mymr", "Thai", "Tibt"})
#: ISO 15924 codes of all scripts without spaces between words, as in `jpn-Jpan`.
UNSPACED_SCRIPTS = UNSPACED_ALPHABETS | {"Hani", "Hans", "Hant", "Hira", "Hrkt", "Jpan", "Kana"}
#: Letters of scripts without spaces, as ranges of a character class: Thai, Lao, Tibetan; Burmese;
#: Khmer; ideographic marks, kana; ideographs.
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
UNSPACED_LETTER = re.compile(rf"[{UNSPACED}]")
CHARACTER = re.compile(r"\S")

#: UTF-8 bytes per token in the default estimate.
BYTES_PER_TOKEN = 4


def is_unspaced_language(language: str) -> bool:
    """Return True if a language such as `jpn-Jpan` is written without spaces between words."""
    return language.rpartition("-")[2] in UNSPACED_SCRIPTS


def is_unspaced(text: str) -> bool:
    """Return True if most of a text is in a script without spaces between words."""
    return 2 * len(UNSPACED_LETTER.findall(text)) > len(CHARACTER.findall(text))


WORD = re.compile(r"\S+")
#: A word of letters, digits, apostrophes and hyphens, or two letters in a script without spaces.
TERM = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\W{UNSPACED}]+(?:['’\-][^\W{UNSPACED}]+)*")


def find_words(text: str) -> list[Span]:
    """Find the words of a text. In scripts without spaces, each character is a word."""
    pattern = CHARACTER if is_unspaced(text) else WORD
    return [Span(*match.span()) for match in pattern.finditer(text)]


def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(find_words(text))


def split_words(text: str) -> list[str]:
    """Split a text into words with trailing white space, and leading white space of the text."""
    starts = [word.start for word in find_words(text)[1:]]
    pieces = [text[start:end] for start, end in pairwise([0, *starts, len(text)])]
    return [*filter(None, pieces)]


def find_terms(text: str) -> list[str]:
    """Return the terms of a text in lower case."""
    return TERM.findall(text.casefold())


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens: one per four bytes of UTF-8, rounded up.

    The estimate is reproducible and works for all scripts. With current vocabularies, English texts
    have about one token per four bytes, as do Chinese and Japanese texts with three bytes per
    character.
    """
    return -(-len(text.encode("utf-8")) // BYTES_PER_TOKEN)
