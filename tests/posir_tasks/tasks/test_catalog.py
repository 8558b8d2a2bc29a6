"""Tasks of any language: found by name, listed from the data, the Hub and plugins."""

from types import ModuleType

import pluggy
import pytest

from posir_tasks import plugin_api
from posir_tasks.plugin_api import PROJECT, Plugins, hookimpl
from posir_tasks.tasks import catalog
from posir_tasks.tasks.catalog import find_language_task, find_task, language_tasks, list_languages, plugin_languages
from tests.support.commands import python
from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain
from tests.support.hub import serve


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Persian and Thai; of Thai, no domain is in English."""
    root = tmp_path / POSIR_FOLDER
    for language, domain in (("eng-Latn", "sports"), ("pes-Arab", "sports"), ("tha-Thai", "game"), ("fas-Arab", "game")):
        write_domain(root, posir_tables(), language=language, domain=domain)
    (root / "vie-Latn" / ".half.part").mkdir(parents=True)
    (root / "vie-Latn" / ".half.part" / "queries.parquet").write_text("")
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    return tmp_path


def test_the_languages_in_a_folder_are_listed_and_new_ones_at_once(data):
    assert list(language_tasks()) == ["PosIR-Persian", "PosIR-Persian-English", "PosIR-Thai"]
    write_domain(data / POSIR_FOLDER, posir_tables(), language="srp-Latn")
    assert list(language_tasks())[2:4] == ["PosIR-Serbian-Latn", "PosIR-Serbian-Latn-English"]
    assert list_languages()["eng-Latn"] == {"sports"}


@pytest.mark.usefixtures("data")
def test_a_task_is_one_class_wherever_it_comes_from():
    persian = find_language_task("PosIR-Persian")
    assert persian is language_tasks()["PosIR-Persian"] is find_task("PosIR-Persian")
    assert (persian.language.code, persian.corpus_language.code) == ("pes-Arab", "pes-Arab")
    assert find_language_task("PosIR-Persian-English").corpus_language.code == "eng-Latn"
    assert find_language_task("PosIR-German") is find_task("PosIR-German")
    for name in ("PosIR-English-English", "PosIR-", "PosIR-Persien", "PosIR-Persian-German", "NFCorpus", "Persian"):
        assert find_language_task(name) is None


def test_without_the_hub_nothing_is_listed_and_names_are_found():
    catalog._hub_paths.cache_clear()
    assert language_tasks() == {}
    assert find_task("PosIR-Persian") is not None


@pytest.mark.slow
def test_the_languages_on_the_hub_are_listed(data, tmp_path):
    with serve("infgrad/PosIR-Benchmark-v1", data / POSIR_FOLDER, "a" * 40) as hub:
        listed = python(
            "import mteb\n"
            "print([task.metadata.name for task in mteb.get_tasks(languages=['pes', 'tha']) "
            "if task.metadata.name.startswith('PosIR')])",
            HF_ENDPOINT=hub.url,
            HF_HOME=str(tmp_path / "hf"),
            HF_HUB_OFFLINE="0",
        )
    assert listed.stdout == "['PosIR-Persian', 'PosIR-Persian-English', 'PosIR-Thai']\n", listed.stderr
    assert len(hub.revisions) == 1


def test_plugins_name_languages_and_a_wrong_one_is_refused(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(plugin_api)
    for name, codes in (("good", ["ell-Grek"]), ("wrong", ["fa"])):
        manager.register(build_plugin(codes), name)
    monkeypatch.setattr(catalog, "loaded_plugins", lambda: Plugins(manager, ()))
    plugin_languages.cache_clear()
    try:
        assert list(language_tasks()) == ["PosIR-Greek", "PosIR-Greek-English"]
        _, (problem,) = plugin_languages()
        assert "plugin 'wrong': posir_languages: PosirError: language fa" in problem
        assert problem in caplog.text
    finally:
        plugin_languages.cache_clear()


def build_plugin(codes):
    @hookimpl
    def posir_languages():
        return codes

    plugin = ModuleType("plugin")
    plugin.posir_languages = posir_languages
    return plugin


@pytest.mark.parametrize(("domains", "missing"), [(["letters"], 0), (["letters", "sports"], 30)])
def test_only_data_of_posirs_own_domains_can_be_partial(domains, missing, tmp_path, monkeypatch):
    for domain in domains:
        write_domain(tmp_path / POSIR_FOLDER, posir_tables(), domain=domain)
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    task = find_task("PosIR-English")()
    task.load_data()
    assert sorted(task.hf_subsets) == domains
    assert len(task.missing_subsets()) == missing
