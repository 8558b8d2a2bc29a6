"""Test that `posir submit --model-card` only changes its section of a model card."""

import shutil
from pathlib import Path

import mteb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_leaderboard.model_card import BEGIN, END, write_section
from posir_tasks.base.errors import PosirError
from tests.support.cli import call_posir
from tests.support.guessing import write_guesses

TEXTS = st.binary(max_size=40).filter(lambda text: b"posir" not in text)


@given(before=TEXTS, after=TEXTS)
def test_later_section_replaces_the_first(tmp_path_factory, before, after):
    card = tmp_path_factory.mktemp("card") / "README.md"
    card.write_bytes(before)
    write_section(card, "first")
    appended = card.read_bytes()
    assert appended.startswith(before)
    card.write_bytes(appended + after)
    write_section(card, "second: é")
    assert card.read_bytes() == appended.replace(b"first", "second: é".encode()) + after


@pytest.mark.parametrize(
    "content", [BEGIN, END, END + BEGIN, BEGIN + END + END, BEGIN + END + BEGIN + END]
)
def test_unpaired_markers_are_rejected(tmp_path, content):
    card = tmp_path / "README.md"
    card.write_bytes(content)
    with pytest.raises(PosirError, match="once each"):
        write_section(card, "scores")
    assert card.read_bytes() == content


def test_section_has_scores_with_intervals(tmp_path: Path):
    write_guesses(tmp_path, [mteb.get_task("PosIR-Mini")])
    (results,) = (file.parent for file in tmp_path.rglob("PosIR-Mini.json"))
    card = tmp_path / "README.md"
    missing = call_posir(["submit", str(results), "--model-card", str(card)])
    assert (missing.exit_code, "Traceback" in missing.output) == (1, False)
    card.write_text("# A model")
    for arguments, is_written in ((["--dry-run"], False), ([], True)):
        done = call_posir(["submit", str(results), "--model-card", str(card), *arguments])
        assert done.exit_code == 0, done.output
        assert (BEGIN.decode() in card.read_text()) == is_written
    (row,) = (line for line in card.read_text().splitlines() if "PosIR-Mini |" in line)
    assert "[" in row
    other = results.parents[1] / "org__other" / results.name
    shutil.copytree(results, other)
    for file in other.iterdir():
        file.write_text(file.read_text().replace("org/guessing", "org/other"))
    written = card.read_bytes()
    refused = call_posir(["submit", str(tmp_path), "--model-card", str(card)])
    assert (refused.exit_code, card.read_bytes()) == (1, written)
    assert "org/other" in str(refused.exception)


def test_local_model_has_a_card(tmp_path: Path):
    write_guesses(tmp_path, [mteb.get_task("PosIR-Mini")])
    (results,) = (file.parent for file in tmp_path.rglob("PosIR-Mini.json"))
    tuned = results.parents[1] / "local__tuned" / results.name
    results = shutil.move(results, tuned)
    for file in results.iterdir():
        file.write_text(file.read_text().replace("org/guessing", "local/tuned"))
    card = tmp_path / "README.md"
    card.write_text("# Tuned")
    done = call_posir(["submit", str(results), "--model-card", str(card)])
    assert done.exit_code == 0, done.output
    assert BEGIN.decode() in card.read_text()
    # A leaderboard rejects it, since nobody else can run it.
    assert call_posir(["submit", str(results), "--dry-run"]).exit_code == 1
