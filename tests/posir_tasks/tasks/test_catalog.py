"""Tasks in all languages and from plugins: found by name, listed from data, rejected if invalid."""

import re
from collections.abc import Iterable, Iterator

import mteb
import pluggy
import pytest

from posir_tasks import PositionTask, plugin_api
from posir_tasks.data.declared import BUILTIN, MINI
from posir_tasks.data.task_metadata import build_metadata
from posir_tasks.plugin_api import PROJECT, Plugins, load_plugins
from posir_tasks.tasks import catalog
from posir_tasks.tasks.base import build_folder_task
from posir_tasks.tasks.catalog import (
    builtin_task_classes,
    collect_plugin_languages,
    collect_tasks,
    declare_tasks,
    find_language_task,
    find_language_tasks,
    find_task,
    list_languages,
    name_larger_task,
)
from posir_tasks.values.schemes import RelativePositions
from tests.posir_tasks.test_plugin_api import FakeEntryPoint, make_plugin
from tests.support.commands import python
from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain
from tests.support.hub import serve


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Persian and Thai data. The English corpus has none of Thai's domains."""
    root = tmp_path / POSIR_FOLDER
    for language, domain in (
        ("eng-Latn", "sports"),
        ("pes-Arab", "sports"),
        ("tha-Thai", "game"),
        ("fas-Arab", "game"),
    ):
        write_domain(root, posir_tables(), language=language, domain=domain)
    (root / "vie-Latn" / ".half.part").mkdir(parents=True)
    (root / "vie-Latn" / ".half.part" / "queries.parquet").write_text("")
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    return tmp_path


def test_every_small_task_has_a_larger_one():
    larger = {name: name_larger_task(name) for name in catalog.load_builtin_tasks()}
    assert {name for name, other in larger.items() if other} == {
        name for name in larger if name.endswith(("-Mini", "-Nano", "-Tiny"))
    }
    assert {other for other in larger.values() if other} <= larger.keys()
    assert (larger["PosIR-Mini"], name_larger_task("my-Mini")) == ("PosIR-English-Nano", "")


def test_languages_in_a_folder_are_listed_immediately(data):
    assert (
        " ".join(find_language_tasks())
        == "PosIR-Persian PosIR-Persian-English PosIR-Persian-Nano PosIR-Thai PosIR-Thai-Nano"
    )
    write_domain(data / POSIR_FOLDER, posir_tables(), language="srp-Latn")
    assert list(find_language_tasks())[3:5] == ["PosIR-Serbian-Latn", "PosIR-Serbian-Latn-English"]
    assert list_languages()["eng-Latn"] == {"sports"}


def read_citations(citations: Iterable[str | None]) -> Iterator[tuple[str, str]]:
    """Yield each cited paper's normalized title, DOI and eprint, each with its BibTeX id."""
    for entry in re.findall(r"@\w+\s*\{[^@]*", "\n".join(filter(None, citations))):
        key = entry.partition("{")[2].partition(",")[0].strip()
        for field, value in re.findall(
            r"\b(title|doi|eprint)\s*=\s*[{\"](.*?)[}\"],?\s*$", entry, re.MULTILINE | re.DOTALL
        ):
            name = (
                re.sub(r"[\W_]+", " ", value.replace("{", "").replace("}", "")).casefold().strip()
            )
            yield f"{field} {name}", key


def test_papers_that_mteb_cites_have_mtebs_bibtex_id():
    tasks = mteb.get_tasks(exclude_superseded=False)
    posir_benchmarks = catalog.build_benchmarks()
    names = {benchmark.name for benchmark in posir_benchmarks}
    own_tasks = [task for task in tasks if isinstance(task, PositionTask)]
    own = [
        *(task.metadata.bibtex_citation for task in own_tasks),
        *(benchmark.citation for benchmark in posir_benchmarks),
    ]
    others = [task.metadata.bibtex_citation for task in tasks if not isinstance(task, PositionTask)]
    others += [
        benchmark.citation for benchmark in mteb.get_benchmarks() if benchmark.name not in names
    ]
    others += [meta.citation for meta in mteb.get_model_metas()]
    ids: dict[str, set[str]] = {}
    for paper, key in read_citations(others):
        ids.setdefault(paper, set()).add(key)
    cited = dict(read_citations(own))
    assert {
        paper: (key, ids[paper])
        for paper, key in cited.items()
        if paper in ids and key not in ids[paper]
    } == {}
    assert {key for paper, key in cited.items() if paper in ids} == {
        "47761",
        "10.1162/tacl_a_00595",
    }


@pytest.mark.usefixtures("data")
def test_every_lookup_returns_the_same_task_class():
    persian = find_language_task("PosIR-Persian")
    assert persian is find_language_tasks()["PosIR-Persian"] is find_task("PosIR-Persian")
    assert (persian.language.code, persian.corpus_language.code) == ("pes-Arab", "pes-Arab")
    assert find_language_task("PosIR-Persian-English").corpus_language.code == "eng-Latn"
    assert find_language_task("PosIR-German") is find_task("PosIR-German")
    for name in (
        "PosIR-English-English",
        "PosIR-",
        "PosIR-Persien",
        "PosIR-Persian-German",
        "NFCorpus",
        "Persian",
    ):
        assert find_language_task(name) is None


def test_without_the_hub_tasks_are_found_but_not_listed():
    catalog._list_hub_paths.cache_clear()
    assert find_language_tasks() == {}
    assert find_task("PosIR-Persian") is not None


@pytest.mark.slow
def test_the_languages_on_the_hub_are_listed(data, tmp_path):
    names = "(task.metadata.name for task in mteb.get_tasks(languages=['pes', 'tha']))"
    code = f"import mteb; print([name for name in {names} if name.startswith('PosIR')])"
    with serve("infgrad/PosIR-Benchmark-v1", data / POSIR_FOLDER, "a" * 40) as hub:
        listed = python(code, HF_ENDPOINT=hub.url, HF_HOME=str(tmp_path / "hf"), HF_HUB_OFFLINE="0")
    assert (
        listed.stdout
        == "['PosIR-Persian', 'PosIR-Persian-English', 'PosIR-Persian-Nano', 'PosIR-Thai', "
        "'PosIR-Thai-Nano']\n"
    ), listed.stderr
    assert len(hub.revisions) == 1


def test_plugins_add_languages_and_invalid_ones_are_rejected(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(plugin_api)
    for name, codes in (("good", ["ell-Grek"]), ("wrong", ["fa"])):
        manager.register(make_plugin(posir_languages=lambda codes=codes: codes), name)
    monkeypatch.setattr(catalog, "get_plugins", lambda: Plugins(manager, ()))
    collect_plugin_languages.cache_clear()
    try:
        assert list(find_language_tasks()) == [
            "PosIR-Greek",
            "PosIR-Greek-English",
            "PosIR-Greek-Nano",
        ]
        _, (problem,) = collect_plugin_languages()
        assert "plugin 'wrong': posir_languages: PosirError: language fa" in problem
        assert problem in caplog.text
    finally:
        collect_plugin_languages.cache_clear()


@pytest.mark.parametrize(("domains", "missing"), [(["letters"], 0), (["letters", "sports"], 30)])
def test_only_data_with_posirs_domains_can_be_partial(domains, missing, tmp_path, monkeypatch):
    for domain in domains:
        write_domain(tmp_path / POSIR_FOLDER, posir_tables(), domain=domain)
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    task = find_task("PosIR-English")()
    task.load_data()
    assert sorted(task.hf_subsets) == domains
    assert len(task.list_missing_subsets()) == missing


def build_task_metadata(name, **fields):
    return build_metadata(
        name, dataset="none", revision="1", **{"languages": ["eng-Latn"], **fields}
    )


class ValidTask(PositionTask):
    scheme = RelativePositions()
    metadata = build_task_metadata("Good")

    def read_subset(self, subset):
        raise NotImplementedError


def change_task(**attributes):
    return type("Changed", (ValidTask,), {"__module__": "theirs", **attributes})


def name_task(name, **fields):
    return change_task(metadata=ValidTask.metadata.model_copy(update={"name": name, **fields}))


class IncompleteTask(PositionTask):
    pass


class FailingTask(ValidTask):
    metadata = build_task_metadata("Refusing")

    def __init__(self):
        raise OSError("no license on this machine")


def build_plugin(*tasks):
    return make_plugin(posir_task_classes=lambda: list(tasks))


def raise_error():
    raise ZeroDivisionError("division by zero")


def collect(*plugins, taken=()):
    points = [FakeEntryPoint(f"plugin{number}", plugin) for number, plugin in enumerate(plugins)]
    return collect_tasks(load_plugins(points), dict.fromkeys(taken, "mteb.tasks.theirs"))


def test_plugin_tasks_are_found_with_their_plugin():
    # A hook may return an iterator.
    yielding = make_plugin(posir_task_classes=lambda: iter([name_task("Fourth")]))
    tasks, _ = collect(
        build_plugin(ValidTask),
        make_plugin(posir_scores=lambda: {}),
        build_plugin(name_task("Other"), name_task("Third")),
        yielding,
    )
    owners = {"Good": "plugin0", "Other": "plugin2", "Third": "plugin2", "Fourth": "plugin3"}
    assert {name: plugin for name, (plugin, _) in tasks.items()} == owners
    assert all(task.metadata.name == name for name, (_, task) in tasks.items())


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (42, "42 is not a task class; a task is a subclass of posir_tasks.PositionTask"),
        (
            IncompleteTask,
            "IncompleteTask lacks `metadata`, a TaskMetadata of mteb, `scheme`, an object such as "
            "RelativePositions()",
        ),
        (IncompleteTask, ", `read_subset`"),
        (
            change_task(scheme=RelativePositions),
            "task theirs.Changed lacks `scheme`, an object such as RelativePositions()",
        ),
        (
            change_task(metadata={"name": "Letters"}),
            "task theirs.Changed lacks `metadata`, a TaskMetadata of mteb",
        ),
        (
            name_task("Letters", eval_splits=["dev"]),
            "eval_splits=['dev']; position-aware tasks have ['test']",
        ),
        (name_task("let/ters"), "the name 'let/ters' is not allowed; use A-Z"),
        (
            name_task("Letters", eval_langs=["eng"]),
            "language eng: the script is missing; did you mean eng-Latn?",
        ),
        (FailingTask, "FailingTask cannot be created: OSError: no license on this machine"),
        (
            name_task("NFCorpus"),
            "the name 'NFCorpus' is taken by mteb.tasks.theirs; choose another",
        ),
    ],
)
def test_only_the_invalid_task_is_rejected(task, message):
    tasks, (problem,) = collect(
        build_plugin(task, ValidTask), build_plugin(name_task("After")), taken=["NFCorpus"]
    )
    assert problem.startswith("plugin 'plugin0': ")
    assert message in problem
    assert list(tasks) == ["Good", "After"]


@pytest.mark.parametrize(
    ("provide", "message"),
    [
        (raise_error, "ZeroDivisionError: division by zero"),
        (lambda: None, "must return a list of task classes"),
        (lambda: 42, "'int' object is not iterable"),
    ],
)
def test_a_hook_that_returns_no_list_is_reported(provide, message):
    tasks, (problem,) = collect(make_plugin(posir_task_classes=provide), build_plugin(ValidTask))
    assert re.match(f"plugin 'plugin0' could not provide its tasks: .*{message}", problem)
    assert list(tasks) == ["Good"]


@pytest.mark.parametrize(
    "plugins",
    [
        [build_plugin(ValidTask), build_plugin(change_task())],
        [build_plugin(ValidTask, change_task())],
    ],
)
def test_the_first_of_two_tasks_with_one_name_is_kept(plugins):
    tasks, (problem,) = collect(*plugins)
    assert tasks["Good"][1] is ValidTask
    assert problem.endswith(
        ": task theirs.Changed: the name 'Good' is taken by plugin 'plugin0'; choose another"
    )


def test_packaged_data_becomes_a_task_in_one_line(posir_folder):
    tasks, problems = collect(
        build_plugin(build_folder_task(posir_folder, name="Shipped", language="eng-Latn"))
    )
    assert problems == []
    assert [subset.partition("@")[0] for subset in tasks["Shipped"][1]().hf_subsets] == ["sports"]


def test_task_classes_match_their_declarations():
    classes = builtin_task_classes()
    assert [task.metadata.name for task in classes] == [declared.name for declared in BUILTIN]
    for declared, task in zip(BUILTIN, classes, strict=True):
        metadata = task.metadata
        assert (declared.repository, declared.revision) == (
            metadata.dataset["path"],
            metadata.dataset["revision"],
        )
        spoken = (
            declared.languages
            if isinstance(declared.languages, dict)
            else {"default": declared.languages}
        )
        assert {
            subset: sorted(codes) for subset, codes in metadata.hf_subsets_to_langscripts.items()
        } == {subset: sorted(codes) for subset, codes in spoken.items()}
    stats = find_task(MINI.name).metadata.descriptive_stats["test"]
    assert (stats["num_documents"], stats["num_queries"]) == (MINI.documents, MINI.questions)
    assert {
        task.benchmark: task.name for task in BUILTIN if "English" in task.name and task.benchmark
    } == {
        "PosIR": "PosIR-English",
        "PosIR(nano)": "PosIR-English-Nano",
        "PosIR(cross-lingual)": "PosIR-Spanish-English",
    }


@pytest.mark.usefixtures("data")
def test_the_list_contains_tasks_in_additional_languages():
    assert {"PosIR-Persian", "PosIR-Persian-English", "PosIR-Thai-Nano"} <= {
        task.name for task in declare_tasks()
    }
