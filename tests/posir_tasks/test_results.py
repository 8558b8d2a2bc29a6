"""Results are read with clear errors, and rescored completely or not at all."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.base.errors import PosirError, ProfileError
from posir_tasks.base.files import LOCK_FILE
from posir_tasks.base.wording import sanitize
from posir_tasks.plugin_api import score_result
from posir_tasks.results import read_results, rescore_file, sanitize_strings
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.profile import PositionProfile
from posir_tasks.values.result_schema import SCHEMA, map_json, round_floats
from posir_tasks.values.schemes import RelativePositions
from posir_tasks.values.scores import ResultValues
from tests.support.cli import call_posir
from tests.support.results import MODEL, write_result
from tests.support.simulation import separate_documents


def make_profile(ranks):
    count = len(ranks)
    starts = np.arange(count) * 900 // count
    columns = (starts, starts + 20, np.full(count, 1_000), np.full(count, 250))
    return PositionProfile.from_ranks(
        RelativePositions(),
        Evidence([f"q{k}" for k in range(count)], ["d"] * count, *columns),
        ranks,
    )


@pytest.fixture
def profiles():
    return {
        "sports": make_profile(np.array([1, 2, 0, 4, 1])),
        "game": make_profile(np.array([1, 1, 11])),
    }


@pytest.fixture
def file(tmp_path, profiles):
    return write_result(tmp_path, profiles)


def read_entries(file):
    return json.loads(file.read_text())["scores"]["test"]


def test_results_are_sorted_by_model_task_and_subset(tmp_path, file, profiles):
    write_result(tmp_path, profiles, model="a/first", task="PosIR-German")
    results = read_results(tmp_path)
    assert [(result.model, result.revision, result.task, result.subset) for result in results] == [
        ("a/first", "rev1", "PosIR-German", "game"),
        ("a/first", "rev1", "PosIR-German", "sports"),
        ("org/model", "rev1", "PosIR-English", "game"),
        ("org/model", "rev1", "PosIR-English", "sports"),
    ]
    assert [result.profile for result in results] == [profiles["game"], profiles["sports"]] * 2
    assert results[3].file == file
    assert results[3].run["data_revision"] == "local"


def test_results_of_other_tasks_and_other_json_are_skipped(tmp_path, file):
    (file.parent / "NFCorpus.json").write_text(
        json.dumps({"task_name": "NFCorpus", "scores": {"test": [{"main_score": 1}]}})
    )
    (tmp_path / "settings.json").write_text("[1, 2")
    # `mteb submit-results` leaves a clone of the results repository.
    shutil.copytree(tmp_path / "results", tmp_path / "remote/results")
    (tmp_path / "remote/.git").mkdir()
    assert len(read_results(tmp_path)) == 2
    assert {result.task for result in read_results(tmp_path)} == {"PosIR-English"}


@pytest.mark.parametrize("meta", ["", "[]", '{"revision": "x"}'])
def test_folder_names_replace_missing_model_metadata(tmp_path, file, meta):
    (file.parent / "model_meta.json").write_text(meta)
    assert {(result.model, result.revision) for result in read_results(tmp_path)} == {
        ("org/model", "rev1")
    }


@pytest.mark.usefixtures("file")
def test_names_that_differ_only_in_case_are_unified(tmp_path, profiles, caplog):
    write_result(tmp_path, {"game": profiles["game"]}, model="ORG/Model", revision="rev2")
    results = read_results(tmp_path)
    assert [(result.model, result.revision) for result in results] == [
        (MODEL, "rev1"),
        (MODEL, "rev1"),
        (MODEL, "rev2"),
    ]
    assert "ORG/Model: counts as org/model" in caplog.text


def test_an_empty_folder_error_explains_how_to_create_results(tmp_path):
    with pytest.raises(PosirError, match=re.escape(f"{tmp_path / 'typo'}: no such folder")):
        read_results(tmp_path / "typo")
    with pytest.raises(
        PosirError, match=r"no result with a position profile below it\..*mteb run -t PosIR-Mini"
    ):
        read_results(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"task_name": "A", "scores": []}',
        '{"task_name": "A", "scores": {"test": [1]}}',
        '{"task_name": 1, "scores": {}}',
        '{"task_name": "A", "scores": {"test": 1}}',
    ],
)
def test_invalid_result_files_are_named(tmp_path, file, content):
    file.write_text(content)
    for read in (read_results, lambda _: rescore_file(file)):
        with pytest.raises(PosirError, match=re.escape(f"{file}: not a task result of mteb")):
            read(tmp_path)
    assert file.read_text() == content


@pytest.mark.parametrize("content", ["notes", "{}", '{"task_name": "A"}'])
def test_other_json_files_are_skipped_with_a_warning(tmp_path, file, content, caplog):
    other_file = file.with_name("notes.json")
    other_file.write_text(content)
    assert len(read_results(tmp_path)) == 2
    assert f"skipped: {other_file}: not a task result" in caplog.text
    caplog.clear()
    done = call_posir(["rescore", str(tmp_path)])
    assert " ".join(done.output.split()).endswith("rescored 2 profiles in 1 file")
    assert f"skipped: {other_file}: not a task result" in caplog.text


TOKEN_COUNTS = {"schema": SCHEMA, "read": "1", "not_read": "0", "counted_with": "tokenizer"}


@pytest.mark.parametrize(
    ("key", "change", "message"),
    [
        ("position_profile", {"schema": 9}, ".*schema 9"),
        ("position_profile", {"counts": None}, ".*damaged"),
        ("position_profile", {"queries": 1}, ".*'queries' is 1"),
        ("document_keys", {"sets": 3}, ".*field 'document_keys'"),
        ("position_scores", [["all", {}]], "field 'position_scores': "),
        ("position_scores", {"all": [1]}, r"field 'position_scores\.all': "),
        (
            "position_run",
            {"plugin_score_names": [{}]},
            r"field 'position_run\.plugin_score_names\.0': ",
        ),
        ("position_run", {"schema": "1"}, r"field 'position_run\.schema': "),
        ("position_run", {"schema": -1}, r"field 'position_run\.schema': "),
        (
            "tokens_read",
            TOKEN_COUNTS | {"counted_with": "guess"},
            ".*field 'tokens_read'.*counted_with.*rough_estimate",
        ),
        ("tokens_read", TOKEN_COUNTS, ".*field 'tokens_read'.*variance"),
    ],
)
def test_errors_name_file_subset_and_field(tmp_path, file, key, change, message):
    data = json.loads(file.read_text())
    entry = data["scores"]["test"][1]
    entry[key] = entry[key] | change if key in ("position_profile", "document_keys") else change
    file.write_text(json.dumps(data))
    before = file.read_bytes()
    for read in (read_results, lambda _: rescore_file(file)):
        with pytest.raises(ProfileError, match=re.escape(f"{file}: subset 'game': ") + message):
            read(tmp_path)
    assert file.read_bytes() == before


@pytest.mark.parametrize("remaining_key", ["document_ranks", "read_ranks", "document_keys"])
def test_a_missing_profile_is_named(tmp_path, file, remaining_key):
    data = json.loads(file.read_text())
    for name in {"position_profile", "document_ranks", "read_ranks", "document_keys"} - {
        remaining_key
    }:
        for entry in data["scores"]["test"]:
            entry.pop(name)
    file.write_text(json.dumps(data))
    with pytest.raises(ProfileError, match=re.escape(f"{file}: subset 'sports': ")):
        read_results(tmp_path)


def compute_scores(profile):
    """Compute the scores of a profile as stored in a result file."""
    return round_floats(
        score_result(ResultValues(separate_documents(profile))).to_json(profile.positions)
    )


def test_rescoring_adds_scores_rounded_like_mteb(file, profiles):
    before = read_entries(file)
    assert rescore_file(file) == 2
    for old, new in zip(before, read_entries(file), strict=True):
        expected = {
            name: value
            for name, value in compute_scores(profiles[new["hf_subset"]]).items()
            if name not in old
        }
        assert {name: new[name] for name in expected} == expected
        assert new.keys() - old.keys() == expected.keys()
        assert new["position_run"]["plugin_score_names"] == sorted(expected)
        assert {name: new[name] for name in old if name != "position_run"} == {
            name: old[name] for name in old if name != "position_run"
        }
    content = file.read_bytes()
    rescore_file(file)
    assert file.read_bytes() == content


def test_rescoring_preserves_scores_of_missing_plugins(tmp_path, profiles):
    run = {
        "plugin_score_names": ["gone", "psi_as_published", "position_scores"],
        "data_revision": "local",
    }
    groups = {"all": {"gone": 7, "psi_as_published": 0.123}, "q1": {"gone": 8}}
    file = write_result(
        tmp_path, profiles, psi_as_published=0.123, gone=7, position_scores=groups, position_run=run
    )
    rescore_file(file)
    for scores in read_entries(file):
        expected = compute_scores(profiles[scores["hf_subset"]])
        assert (scores["psi_as_published"], scores["gone"]) == (expected["psi_as_published"], 7)
        assert scores["position_scores"]["all"] == {"gone": 7, **expected["position_scores"]["all"]}
        assert scores["position_scores"]["q1"]["gone"] == 8
        assert {"gone", "psi_as_published", "position_bins"} <= set(
            scores["position_run"]["plugin_score_names"]
        )


def test_rescoring_does_not_overwrite_mteb_scores(tmp_path, profiles):
    file = write_result(tmp_path, profiles, psi_as_published="mteb's own")
    rescore_file(file)
    assert {scores["psi_as_published"] for scores in read_entries(file)} == {"mteb's own"}
    assert "psi_as_published" not in read_entries(file)[0]["position_run"]["plugin_score_names"]


def test_a_file_without_profiles_is_not_written(file):
    file.write_text('{"task_name":   "NFCorpus", "scores": {"test": [{"main_score": 1}]}}')
    before = (file.read_bytes(), file.stat().st_mtime_ns)
    assert rescore_file(file) == 0
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before


def test_interrupted_rescoring_preserves_the_file(file, monkeypatch):
    before, names_before = file.read_bytes(), sorted(path.name for path in file.parent.iterdir())
    write = Path.write_text

    def write_half(path, text, **options):
        write(path, text[: len(text) // 2], **options)
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_text", write_half)
    with pytest.raises(OSError, match="disk full"):
        rescore_file(file)
    assert file.read_bytes() == before
    assert (
        sorted(path.name for path in file.parent.iterdir() if path.name != LOCK_FILE)
        == names_before
    )


STRINGS = st.text(max_size=8) | st.sampled_from(
    ["hf_subset", "hf_" + "a1" * 10, "\x1b[31m", "https://user:pass@host", "Bearer", "abc12345"]
)


@given(
    st.dictionaries(STRINGS, st.recursive(STRINGS | st.integers(), lambda value: st.lists(value)))
)
def test_all_strings_are_sanitized(data):
    def change(value):
        return sanitize(value, None) if isinstance(value, str) else value

    assert sanitize_strings(data) == map_json(data, change)
