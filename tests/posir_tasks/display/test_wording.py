import pytest

from posir_tasks.display.wording import counted


@pytest.mark.parametrize(("number", "words"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (1_380, "1,380 files")])
def test_counted(number, words):
    assert counted(number, "file") == words
