"""Where files come from: a local folder, or a local HTTP server as the Hub, read by a client in its
own process.
"""

import json
import re

import pytest

from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.data.posir import SubsetKey, find_layout, list_domains
from posir_tasks.data.repository import (
    HubRepository,
    LocalRepository,
    choose_revision,
    combine_revisions,
    open_repository,
)
from tests.support.commands import python
from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain
from tests.support.hub import serve

REPO_ID = "infgrad/PosIR-Benchmark-v1"
COMMIT, OTHER_COMMIT = "a" * 40, "b" * 40
NOWHERE = "http://127.0.0.1:9"
READ = """
import json
from posir_tasks.data.declared import REPO_ID, REVISION
from posir_tasks.data.posir import list_domains, read_domain
from posir_tasks.data.repository import open_repository
repository = open_repository(REPO_ID, REVISION)
data = read_domain(repository, 'eng-Latn', 'eng-Latn', 'sports')
print(json.dumps({
    'domains': list_domains(repository, 'eng-Latn'),
    'queries': data.queries['text'][:],
    'documents': data.corpus['text'][:],
    'revision': data.revision,
}))
"""
WHOLE = {
    "domains": ["sports"],
    "queries": list(posir_tables()["queries"]["text"]),
    "documents": list(posir_tables()["corpus"]["text"]),
    "revision": COMMIT,
}


def expect_error(code=READ):
    """Code that prints the error that other code meets."""
    return f"""
from posir_tasks.base.errors import DataError
try:
    exec({code!r})
except DataError as error:
    print(error)
"""


@pytest.fixture
def hub(posir_folder):
    (posir_folder / "eng-Latn" / "game").mkdir()
    (posir_folder / "eng-Latn" / "game" / "README.md").write_text("# Notes, no data")
    with serve(REPO_ID, posir_folder, COMMIT) as running:
        yield running


@pytest.fixture
def client(tmp_path):
    """Run Python with a Hub at an address; the Hub's cache is kept between calls."""

    def call(code, url, **environment):
        code = (
            "import time; time.sleep = lambda seconds: None  # huggingface_hub waits between "
            "attempts\n" + code
        )
        variables = {"HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0"}
        done = python(code, **variables | environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def test_a_local_folder_lists_and_fetches_its_parquet_files(posir_folder):
    (posir_folder / "eng-Latn" / "notes.txt").write_text("no data")
    write_domain(posir_folder, posir_tables(), language="deu-Latn", domain="game")
    repository = LocalRepository(posir_folder)
    assert repository.list_paths("deu-Latn") == SubsetKey("deu-Latn", "deu-Latn", "game").files
    assert len(repository.list_paths()) == 6
    assert repository.list_paths("kor-Kore") == []
    assert (
        repository.fetch("deu-Latn/game/corpus.parquet")
        == posir_folder / "deu-Latn/game/corpus.parquet"
    )


def test_a_local_revision_follows_paths_and_content(posir_folder):
    repository = LocalRepository(posir_folder)
    paths = repository.list_paths()
    first = repository.resolve_revision(paths)
    assert re.fullmatch("local-[0-9a-f]{16}", first)
    assert repository.resolve_revision(reversed(paths)) == first
    assert repository.resolve_revision([*paths, "eng-Latn/gone/corpus.parquet"]) == first
    assert repository.resolve_revision(paths[1:]) != first
    file = posir_folder / paths[0]
    before = file.read_bytes()
    file.write_bytes(before + b" ")
    assert repository.resolve_revision(paths) != first
    file.write_bytes(before)
    assert repository.resolve_revision(paths) == first


def test_symbolic_links_are_followed(posir_folder, tmp_path):
    (posir_folder / "eng-Latn" / "sports").rename(tmp_path / "elsewhere")
    (posir_folder / "eng-Latn" / "sports").symlink_to(tmp_path / "elsewhere")
    (posir_folder / "deu-Latn").symlink_to(posir_folder / "eng-Latn")
    repository = LocalRepository(posir_folder)
    assert [list_domains(repository, code) for code in ("eng-Latn", "deu-Latn")] == [
        ["sports"],
        ["sports"],
    ]
    assert [str(key) for key in find_layout(posir_folder / "eng-Latn" / "sports")[1]] == [
        "eng-Latn/sports"
    ]


def test_several_local_revisions_are_shown_as_one():
    assert combine_revisions(["main"]) == "main"
    assert combine_revisions(["local-1", "local-1"]) == "local-1"
    both = combine_revisions(["local-1", "local-2"])
    assert re.fullmatch("local-[0-9a-f]{16}", both)
    assert combine_revisions(["unknown", "local-2", "local-1"]) == f"{both}, unknown"


def test_a_file_missing_locally_is_named_with_the_variable(posir_folder):
    with pytest.raises(DataError, match=r"deu-Latn/game/corpus\.parquet: missing\..*POSIR_DATA"):
        LocalRepository(posir_folder).fetch("deu-Latn/game/corpus.parquet")


def test_the_environment_chooses_between_folder_and_hub(posir_folder, monkeypatch):
    assert open_repository(REPO_ID, COMMIT) == HubRepository(REPO_ID, COMMIT)
    monkeypatch.setenv("POSIR_REVISIONS", f"owner/other@v1 {REPO_ID}@{OTHER_COMMIT}")
    assert open_repository(REPO_ID, COMMIT) == HubRepository(REPO_ID, OTHER_COMMIT)
    assert choose_revision("owner/third", COMMIT) == COMMIT
    monkeypatch.setenv("POSIR_DATA", str(posir_folder.parent))
    assert open_repository(REPO_ID, COMMIT) == LocalRepository(posir_folder)


@pytest.mark.parametrize("variable", ["POSIR_DATA", "POSIR_REVISIONS"])
@pytest.mark.parametrize(
    "entry", ["main", "infgrad/PosIR-Benchmark-v1", "infgrad/PosIR-Benchmark-v1@", "@main"]
)
def test_a_missing_folder_and_a_malformed_revision_are_refused(variable, entry, monkeypatch):
    monkeypatch.setenv(variable, entry)
    with pytest.raises(PosirError, match=f"{variable}.*{entry}.* (no such folder|is malformed)"):
        open_repository(REPO_ID, COMMIT)


def test_a_domain_is_read_from_the_hub_and_then_from_its_cache(hub, client):
    assert json.loads(client(READ, hub.url)) == WHOLE
    assert set(hub.revisions) == {"main"}
    asked = len(hub.revisions)
    assert json.loads(client(READ, NOWHERE)) == WHOLE
    assert json.loads(client(READ, hub.url, HF_HUB_OFFLINE="1")) == WHOLE
    assert len(hub.revisions) == asked


def test_the_revision_of_the_environment_is_requested(hub, client):
    hub.branches = ()
    other = f"import os; os.environ['POSIR_REVISIONS'] = '{REPO_ID}@{OTHER_COMMIT}'"
    code = f"{READ}\n{other}\n{expect_error()}"
    read, refused = client(code, hub.url, POSIR_REVISIONS=f"{REPO_ID}@{COMMIT}").split(
        "\n", maxsplit=1
    )
    assert json.loads(read) == WHOLE
    assert f"{REPO_ID}@{OTHER_COMMIT}: cannot be read" in refused
    assert {*hub.revisions} == {COMMIT, OTHER_COMMIT}
    assert hub.revisions[-1] == OTHER_COMMIT


def test_a_domain_is_read_from_a_partly_filled_cache(hub, client):
    write_domain(hub.root, posir_tables(), domain="game")
    part = (
        "import huggingface_hub as hub; hub.snapshot_download({!r}, repo_type='dataset', "
        "allow_patterns=['*/sports/*'])"
    )
    assert json.loads(client(part.format(REPO_ID) + READ, hub.url)) == WHOLE | {
        "domains": ["game", "sports"]
    }


def test_a_file_that_the_hub_lacks_is_named(hub, client):
    (hub.root / "eng-Latn" / "sports" / "corpus.parquet").unlink()
    assert "@main: no such file: eng-Latn/sports/corpus.parquet." in client(expect_error(), hub.url)


@pytest.mark.parametrize("offline", ["0", "1"])
def test_without_network_and_cache_the_error_names_the_folder(client, offline):
    listed = READ.replace("data = read_domain", "repository.list_paths(); data = read_domain")
    messages = client(expect_error() + expect_error(listed), NOWHERE, HF_HUB_OFFLINE=offline)
    for words in (
        f"Hub dataset {REPO_ID}@main: cannot be read",
        "set POSIR_DATA to a folder",
        f"$POSIR_DATA/{POSIR_FOLDER}",
    ):
        assert messages.count(words) == 2
