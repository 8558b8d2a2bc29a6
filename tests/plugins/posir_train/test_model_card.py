from pathlib import Path

import pytest

from posir_train.preparation import find_base
from posir_train.report import CARD_FILE, HEADING, add_to_card
from posir_train.settings import TrainingSettings


@pytest.mark.parametrize(
    ("card", "base"),
    [
        (None, "my-model"),
        ("No metadata.", "my-model"),
        ("---\nbase_model: org/encoder\n---\n", "org/encoder"),
        ("---\nbase_model:\n- org/encoder\n- org/other\n---\n", "org/encoder"),
        ("---\nbase_model: [\n---\n", "my-model"),
    ],
)
def test_the_base_of_a_folder_is_named(card, base, tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    if card is not None:
        (folder / CARD_FILE).write_text(card)
    assert find_base(folder) == base


@pytest.mark.parametrize(
    ("base", "shown"), [("begin", "begin"), ("org/begin", "[org/begin](https://huggingface.co/org/begin)")]
)
def test_a_folder_is_no_link_to_the_hub(base, shown, tmp_path):
    (tmp_path / CARD_FILE).write_text(f"Finetuned from [{base}](https://huggingface.co/{base}).")
    add_to_card(tmp_path, "The report.", base)
    assert (tmp_path / CARD_FILE).read_text() == f"Finetuned from {shown}.\n\n{HEADING}\n\nThe report.\n"


def test_settings_say_nothing_of_where_files_are(tmp_path):
    folders = [tmp_path / name for name in ("secret", "base")]
    for folder in folders:
        folder.mkdir()
    settings = TrainingSettings(model=str(folders[1]), data=str(folders[0]))
    recorded = settings.to_json()
    assert (recorded["data"], recorded["model"]) == ("secret", "base")
    assert str(Path(tmp_path)) not in str(recorded)
