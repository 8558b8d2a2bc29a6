"""Test that submitted models exist, and that the registry or the Hub describes them."""

import json

import huggingface_hub
import mteb
import pytest

from posir_leaderboard.board.build import build_site
from posir_leaderboard.board.comparable import compute_pin, format_pins
from posir_leaderboard.board.records import REPRODUCED
from posir_leaderboard.identity import identify_models
from posir_tasks.models.protocols import find_protocol
from tests.support.board import contents, read_site
from tests.support.guessing import write_guesses
from tests.support.hub import Failure, Store, serve_all

pytestmark = pytest.mark.usefixtures("no_published_results")
COMMIT, OTHER = "a" * 40, "b" * 40


@pytest.fixture
def hub(monkeypatch):
    with serve_all(Store("honest/one", kind="models", commits=[COMMIT])) as running:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", running.url)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        yield running


def identify(tmp_path, name, revision):
    return identify_models([(name, revision)], tmp_path / "models")[name, revision]


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("name", "revision", "problem"),
    [
        ("honest/one", COMMIT, ""),
        ("honest/one+both_orders(1)", COMMIT, ""),
        ("honest/one+chunks(128,64,max,tokens)", COMMIT, ""),
        ("honest/one+chunks(128)", COMMIT, "spelled honest/one+chunks(128,64,max,tokens)"),
        ("honest/one+made", COMMIT, "variant of honest/one"),
        ("honest/one+chunks(-1)", COMMIT, "variant of honest/one"),
        ("honest/one=x", COMMIT, "neither"),
        ("honest/one", OTHER, "not in the revision"),
        ("honest/one", "main", "not a commit"),
        ("made/up", COMMIT, "neither"),
        ("mteb/baseline-bm25s", OTHER, "not on the Hub"),
        ("MTEB/Baseline-BM25s", OTHER, "spelled mteb/baseline-bm25s"),
        (
            "Sentence-Transformers/all-MiniLM-L6-v2",
            OTHER,
            "spelled sentence-transformers/all-MiniLM-L6-v2",
        ),
    ],
)
def test_models_are_looked_up_by_name_and_revision(tmp_path, name, revision, problem):
    identity = identify(tmp_path, name, revision)
    assert not identity.lookup_problem
    assert problem in identity.problem
    assert bool(problem) == bool(identity.problem)


def test_registered_models_need_no_network(hub, tmp_path, monkeypatch):
    assert identify(tmp_path, "honest/one", COMMIT).meta["open_weights"] is True
    asked = len(hub.requests)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert identify(tmp_path, "honest/one", COMMIT).meta["open_weights"] is True
    meta = mteb.get_model_meta("sentence-transformers/all-MiniLM-L6-v2")
    assert identify(tmp_path, meta.name, meta.revision).meta["n_parameters"] == meta.n_parameters
    assert "HF_HUB_OFFLINE" in identify(tmp_path, "honest/two", COMMIT).lookup_problem
    assert len(hub.requests) == asked


@pytest.mark.usefixtures("hub")
def test_other_spelling_removes_no_known_result(tmp_path, monkeypatch):
    """This also holds while the Hub does not answer, since mteb's registry knows spellings."""
    task = mteb.get_task("PosIR-Mini")
    write_guesses(tmp_path / "both", [task], name="honest/one", revision=COMMIT)
    pins = format_pins({"PosIR-Mini": compute_pin("PosIR-Mini")})
    (tmp_path / "both" / "pins.json").write_text(pins)
    assert build_site(tmp_path / "both", tmp_path / "site", tmp_path / "cache").results == 1
    write_guesses(tmp_path / "both", [task], name="Honest/ONE", revision=COMMIT)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    built = build_site(tmp_path / "both", tmp_path / "site", tmp_path / "cache")
    assert (built.results, len(built.problems)) == (1, 1)
    assert "Honest__ONE" in built.problems[0].file
    for names, kept in (
        (("mteb/baseline-bm25s", "MTEB/Baseline-BM25s"), 1),
        (("my/model", "My/Model"), 0),
    ):
        own = tmp_path / names[0].replace("/", "-")
        for name in names:
            write_guesses(own, [task], name=name, revision=COMMIT)
        built = build_site(own, tmp_path / "site", tmp_path / "cache")
        assert (built.results, len(built.problems)) == (kept, 2 - kept)


def test_gated_model_is_reported(hub, tmp_path):
    hub.failures.append(Failure("revision", 403, {"X-Error-Code": "GatedRepo"}, times=9))
    identity = identify(tmp_path, "honest/one", OTHER)
    assert "gated" in identity.lookup_problem
    assert identity.meta == {}


@pytest.mark.usefixtures("hub")
def test_hub_describes_submitted_models(tmp_path):
    task = mteb.get_task("PosIR-Mini")
    for name, revision in (
        ("honest/one", COMMIT),
        ("Honest/ONE", COMMIT),
        ("honest/one", OTHER),
        ("made/up", COMMIT),
    ):
        folder = write_guesses(tmp_path, [task], name=name, revision=revision)
        meta = json.loads((folder / "model_meta.json").read_text())
        described = {
            "n_parameters": 1,
            "max_tokens": 1e9,
            "reference": "https://example.org/false",
            "license": "mit",
        }
        (folder / "model_meta.json").write_text(json.dumps(meta | described))
    write_guesses(tmp_path / REPRODUCED, [task], name="honest/one", revision=COMMIT)
    (tmp_path / "pins.json").write_text(format_pins({"PosIR-Mini": compute_pin("PosIR-Mini")}))
    built = build_site(tmp_path, tmp_path / "site", tmp_path / "cache")
    assert (built.results, built.lookup_problems, built.unranked) == (1, [], [])
    assert len(built.problems) == 3
    assert all(
        "honest__one" not in problem.file or OTHER in problem.file for problem in built.problems
    )
    pages = "".join(file.read_text() for file in (tmp_path / "site").rglob("*.js"))
    assert "https://huggingface.co/honest/one" in pages
    assert "example.org" not in pages
    assert '"reproduced"' in pages


def test_protocol_run_belongs_to_its_model(tmp_path):
    meta = mteb.get_model_meta("BAAI/bge-m3")
    task = mteb.get_task("PosIR-Mini")
    folder = write_guesses(tmp_path, [task], name=meta.name, revision=meta.revision)
    experiment = folder / "experiments" / "protocol_posir"
    experiment.mkdir(parents=True)
    for file in folder.glob("*.json"):
        data = json.loads(file.read_text())
        if file.name != "model_meta.json":
            run = data["scores"]["test"][0]["position_run"]
            run["protocol"] = {"asked": find_protocol("posir", meta.name).list_values()}
        (experiment / file.name).write_text(json.dumps(data))
    (tmp_path / "pins.json").write_text(format_pins({"PosIR-Mini": compute_pin("PosIR-Mini")}))
    built = build_site(tmp_path, tmp_path / "site", tmp_path / "cache")
    assert (built.results, built.problems, built.lookup_problems) == (2, [], [])
    assert built.unranked == [f"{meta.name} (protocol posir), PosIR-Mini: protocol posir"]
    models = contents(read_site(tmp_path / "site"))["board"]["models"]
    at = models["name"].index(f"{meta.name} (protocol posir)")
    assert models["window"][at] == meta.max_tokens
