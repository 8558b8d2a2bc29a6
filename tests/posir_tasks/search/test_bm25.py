"""BM25 in scripts without spaces."""

import mteb
import pytest

from posir_tasks.search.bm25 import BASELINE, fit_to_script, split_trigrams


def test_trigrams_ignore_white_space_and_invisible_characters():
    assert split_trigrams("A b\u200bcd\n") == ["abc", "bcd"]
    assert split_trigrams("ab") == ["ab"]
    assert split_trigrams("กินข้าว")[:2] == ["กิน", "ินข"]


@pytest.mark.parametrize(
    ("language", "fitted"), [("tha-Thai", True), ("shn-Mymr", True), ("jpn-Jpan", False), ("deu-Latn", False)]
)
def test_only_the_baseline_and_only_scripts_without_spaces_have_trigrams(language, fitted):
    model = mteb.get_model(BASELINE)
    assert (fit_to_script(model, language) is not model) is fitted
    assert fit_to_script(model, language).mteb_model_meta.name == BASELINE
    other = object()
    assert fit_to_script(other, language) is other
