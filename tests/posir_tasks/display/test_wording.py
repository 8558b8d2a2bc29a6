import pytest

from posir_tasks.display.wording import pluralize


@pytest.mark.parametrize(("number", "words"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (1_380, "1,380 files")])
def test_pluralize(number, words):
    assert pluralize(number, "file") == words
