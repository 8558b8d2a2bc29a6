"""Words of a text, for scripts with and without spaces between words.

A word is a place in a text, up to the next space; a term is what a word means to a search engine,
without punctuation and case.
"""

import re
from itertools import pairwise

from posir_tasks.text.spans import Span

#: ISO 15924 codes of those whose letters are an alphabet.
UNSPACED_ALPHABETS = frozenset({"Khmr", "Laoo", "Mymr", "Thai", "Tibt"})
#: ISO 15924 codes of all of them, as in language codes such as `jpn-Jpan`.
UNSPACED_SCRIPTS = UNSPACED_ALPHABETS | {"Hani", "Hans", "Hant", "Hira", "Hrkt", "Jpan", "Kana"}
#: Their letters, as ranges within a character class: Thai, Lao, Tibetan; Burmese; Khmer;
#: ideographic marks, kana; ideographs.
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
UNSPACED_LETTER = re.compile(rf"[{UNSPACED}]")
CHARACTER = re.compile(r"\S")

#: UTF-8 bytes that the default estimate counts as one token.
BYTES_PER_TOKEN = 4


def lacks_spaces(language: str) -> bool:
    """Return whether a language, such as `jpn-Jpan`, is written without spaces between words."""
    return language.rpartition("-")[2] in UNSPACED_SCRIPTS


def is_unspaced(text: str) -> bool:
    """Return whether most of a text is in a script without spaces between words."""
    return 2 * len(UNSPACED_LETTER.findall(text)) > len(CHARACTER.findall(text))


WORD = re.compile(r"\S+")
#: A run of letters, digits and marks within words; two letters of a script without spaces.
TERM = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\W{UNSPACED}]+(?:['’\-][^\W{UNSPACED}]+)*")


def find_words(text: str) -> list[Span]:
    """Return the words of a text: runs without white space; of a text in a script without spaces,
    characters.
    """
    pattern = CHARACTER if is_unspaced(text) else WORD
    return [Span(*match.span()) for match in pattern.finditer(text)]


def count_words(text: str) -> int:
    """Return the number of words of a text."""
    return len(find_words(text))


def split_words(text: str) -> list[str]:
    """Return pieces that join to the text: words with the white space after them, the first one
    also with that before it.
    """
    starts = [word.start for word in find_words(text)[1:]]
    pieces = [text[start:end] for start, end in pairwise([0, *starts, len(text)])]
    return [*filter(None, pieces)]


def find_terms(text: str) -> list[str]:
    """Return the terms of a text in lower case; two letters of a script without spaces count as one
    term.
    """
    return TERM.findall(text.casefold())


def estimate_tokens(text: str) -> int:
    """Estimate the length of a text: one token per four bytes of UTF-8, rounded up.

    The estimate needs no vocabulary, is reproducible, and works for every script: with current
    subword vocabularies, English has about one token per four bytes, and so have Chinese and
    Japanese, at three bytes per character.
    """
    return -(-len(text.encode("utf-8")) // BYTES_PER_TOKEN)
