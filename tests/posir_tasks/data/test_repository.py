"""Files are read from a local folder or, in a separate process, from a local server as the Hub."""

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
from tests.support.commands import python_with_mteb
from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain
from tests.support.hub import serve

REPO_ID = "infgrad/PosIR-Benchmark-v1"
COMMIT, OTHER_COMMIT = "a" * 40, "b" * 40
UNREACHABLE = "http://127.0.0.1:9"
READ_CODE = """
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
EXPECTED = {
    "domains": ["sports"],
    "queries": list(posir_tables()["queries"]["text"]),
    "documents": list(posir_tables()["corpus"]["text"]),
    "revision": COMMIT,
}


def print_error(code=READ_CODE):
    """Wrap code to print the error that it raises."""
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
    """Run Python code with a Hub address. Calls share a cache."""

    def run(code, url, **environment):
        code = (
            "import time; time.sleep = lambda seconds: None  # huggingface_hub waits between "
            "attempts\n" + code
        )
        variables = {"HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0"}
        process = python_with_mteb(code, **variables | environment)
        assert process.returncode == 0, process.stderr
        return process.stdout

    return run


def test_local_folders_list_and_fetch_parquet_files(posir_folder):
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


def test_local_revisions_depend_on_paths_and_content(posir_folder):
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


def test_several_local_revisions_are_combined():
    assert combine_revisions(["main"]) == "main"
    assert combine_revisions(["local-1", "local-1"]) == "local-1"
    both = combine_revisions(["local-1", "local-2"])
    assert re.fullmatch("local-[0-9a-f]{16}", both)
    assert combine_revisions(["unknown", "local-2", "local-1"]) == f"{both}, unknown"


def test_errors_for_missing_local_files_name_the_variable(posir_folder):
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
def test_missing_folders_and_malformed_revisions_are_rejected(variable, entry, monkeypatch):
    monkeypatch.setenv(variable, entry)
    with pytest.raises(PosirError, match=f"{variable}.*{entry}.* (no such folder|is malformed)"):
        open_repository(REPO_ID, COMMIT)


def test_a_domain_is_read_from_the_hub_and_then_from_the_cache(hub, client):
    assert json.loads(client(READ_CODE, hub.url)) == EXPECTED
    assert set(hub.revisions) == {"main"}
    request_count = len(hub.revisions)
    assert json.loads(client(READ_CODE, UNREACHABLE)) == EXPECTED
    assert json.loads(client(READ_CODE, hub.url, HF_HUB_OFFLINE="1")) == EXPECTED
    assert len(hub.revisions) == request_count


def test_the_revision_in_the_environment_is_requested(hub, client):
    hub.branches = ()
    other = f"import os; os.environ['POSIR_REVISIONS'] = '{REPO_ID}@{OTHER_COMMIT}'"
    code = f"{READ_CODE}\n{other}\n{print_error()}"
    read, message = client(code, hub.url, POSIR_REVISIONS=f"{REPO_ID}@{COMMIT}").split(
        "\n", maxsplit=1
    )
    assert json.loads(read) == EXPECTED
    assert f"{REPO_ID}@{OTHER_COMMIT}: cannot be read" in message
    assert {*hub.revisions} == {COMMIT, OTHER_COMMIT}
    assert hub.revisions[-1] == OTHER_COMMIT


def test_a_domain_is_read_from_a_partly_filled_cache(hub, client):
    write_domain(hub.root, posir_tables(), domain="game")
    download_code = (
        "import huggingface_hub as hub; hub.snapshot_download({!r}, repo_type='dataset', "
        "allow_patterns=['*/sports/*'])"
    )
    assert json.loads(client(download_code.format(REPO_ID) + READ_CODE, hub.url)) == EXPECTED | {
        "domains": ["game", "sports"]
    }


def test_files_missing_on_the_hub_are_named(hub, client):
    (hub.root / "eng-Latn" / "sports" / "corpus.parquet").unlink()
    assert "@main: no such file: eng-Latn/sports/corpus.parquet." in client(print_error(), hub.url)


@pytest.mark.parametrize("offline", ["0", "1"])
def test_without_network_and_cache_the_error_names_the_folder(client, offline):
    list_code = READ_CODE.replace(
        "data = read_domain", "repository.list_paths(); data = read_domain"
    )
    messages = client(print_error() + print_error(list_code), UNREACHABLE, HF_HUB_OFFLINE=offline)
    for words in (
        f"Hub dataset {REPO_ID}@main: cannot be read",
        "set POSIR_DATA to a folder",
        f"$POSIR_DATA/{POSIR_FOLDER}",
    ):
        assert messages.count(words) == 2
