"""Resolving a folder: the data, a part of it, or neither."""

from pathlib import Path

import pytest

from posir_tasks.errors import PosirError
from posir_tasks.sources.opening import open_data
from posir_tasks.sources.posir import resolve_folder
from tests.support.datasets import posir_tables, write_domain


def test_the_data_one_language_or_one_domain_can_be_given(posir_folder):
    write_domain(posir_folder, posir_tables(), domain="game")
    write_domain(posir_folder, posir_tables(), language="deu-Latn")
    named = {
        posir_folder: 4,
        posir_folder.parent: 4,
        posir_folder / "eng-Latn": 2,
        posir_folder / "deu-Latn": 2,
        posir_folder / "eng-Latn" / "game": 1,
        posir_folder / "deu-Latn" / "sports": 2,
    }
    for folder, count in named.items():
        root, keys = resolve_folder(folder)
        assert (root, len(keys)) == (posir_folder, count), folder


def test_a_path_without_data_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for name in ("none", "empty", "file"):
        with pytest.raises(PosirError, match=r"in the PosIR layout, <language>/<domain>/"):
            resolve_folder(tmp_path / name)


def test_the_card_of_a_dataset_is_no_text_of_it(tmp_path: Path):
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\nTexts on mills.")
    (tmp_path / "data").mkdir()
    assert len(open_data(tmp_path).rows) == 1
    (tmp_path / "data" / "train.jsonl").write_text('{"text": "The mill burned down."}\n')
    assert [row["text"] for row in open_data(tmp_path).rows] == ["The mill burned down."]
