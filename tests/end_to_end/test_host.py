"""The plain `mteb` command and `import mteb` have the tasks, and still work if posir cannot add
them.
"""

import json
import re

import pytest

from tests.support.commands import python, python_with_mteb
from tests.support.models import write_tiny_model

LANGUAGES = [
    "English",
    "Chinese",
    "Arabic",
    "German",
    "French",
    "Italian",
    "Korean",
    "Portuguese",
    "Russian",
    "Spanish",
]
TASKS = {
    *(f"PosIR-{language}{sample}" for language in LANGUAGES for sample in ("", "-Nano")),
    *(f"PosIR-{language}-English" for language in LANGUAGES[1:]),
    *("SQuAD-PosQ", "SQuAD-PosQ-Tiny", "FineWeb-PosQ", "FineWeb-PosQ-Tiny", "PosIR-Mini"),
    *("FineWeb-PosQ-Raw", "FineWeb-PosQ-Raw-Tiny"),
}
NAMES = (
    "import json, mteb; print(json.dumps([t.metadata.name for t in "
    "mteb.get_tasks(task_types=['Retrieval'])]))"
)


def test_tasks_and_models_are_found_by_name_type_and_language():
    german = "(languages=['deu'], task_types"
    asked = python_with_mteb(
        f"{NAMES.replace('(task_types', german)}\n{NAMES}\n"
        "print(json.dumps({b: [t.metadata.name for t in mteb.get_benchmark(b).tasks] "
        "for b in ('PosIR', 'PosIR(cross-lingual)', 'PosIR(nano)', 'PosQ')}))\n"
        "from posir_tasks.tasks.catalog import builtin_task_classes\n"
        "for task in builtin_task_classes():\n"
        "    task.metadata._validate_metadata(); assert task.metadata.prompt\n"
        "    assert task.metadata.is_filled() or task.metadata.date is None, task\n"
        "subsets = mteb.get_task('PosIR-German', hf_subsets=['sports', 'game']), "
        "mteb.get_task('PosIR-German')\n"
        "print(json.dumps([sorted(subsets[0].hf_subsets), len(subsets[1].hf_subsets)]))\n"
        "metas = [meta.name for meta in mteb.get_model_metas()]\n"
        "names = ('Qwen3-Embedding-0.6B', 'Qwen/Qwen3-Embedding-0.6B')\n"
        "print(json.dumps([*(mteb.get_model_meta(name).name for name in names), len(metas) == "
        "len(set(metas))]))\n"
        "try:\n    mteb.get_model_meta('no-such-model')\nexcept KeyError as error:\n    print('[]')"
    )
    german, names, benchmarks, subsets, models, unknown = map(json.loads, asked.stdout.splitlines())
    assert set(names) >= TASKS
    assert {name for name in german if name.startswith("PosIR")} == {
        "PosIR-German",
        "PosIR-German-English",
        "PosIR-German-Nano",
    }
    sizes = {"PosIR": 10, "PosIR(cross-lingual)": 8, "PosIR(nano)": 10, "PosQ": 2}
    assert {name: len(tasks) for name, tasks in benchmarks.items()} == sizes
    assert benchmarks["PosQ"] == ["SQuAD-PosQ", "FineWeb-PosQ"]
    assert (subsets, models, unknown) == (
        [["game", "sports"], 31],
        [*["Qwen/Qwen3-Embedding-0.6B"] * 2, True],
        [],
    )


#: Lists everything that mteb lists, in one process; prints which of the heavy packages are imported
#: after each step. Then prints the list of the command, and the names of all tasks for retrieval,
#: and describes some.
LISTING = """
import io, json, sys
from contextlib import redirect_stdout
import mteb
from mteb.cli.build_cli import main

printed = io.StringIO()

def show(step, function, *arguments):
    with redirect_stdout(printed):
        function(*arguments)
    imported = [name for name in HEAVY if name in sys.modules]
    print(json.dumps([step, imported]))

def call(*words):
    sys.argv = ["mteb", *words]
    main()

show("import", print)
show("get_tasks", mteb.get_tasks)
show("languages", lambda: mteb.get_tasks(languages=["deu"]))
show("task", mteb.get_task, TASK)
show("benchmark", mteb.get_benchmark, BENCHMARK)
show("benchmarks", mteb.get_benchmarks)
show("models", mteb.get_model_metas)
show("available-tasks", call, "available-tasks")
show("available-benchmarks", call, "available-benchmarks")
print(json.dumps(printed.getvalue()))
print(json.dumps([task.metadata.name for task in mteb.get_tasks(task_types=["Retrieval"])]))
for name in DESCRIBED:
    task = mteb.get_task(name)
    task.metadata.descriptive_stats, task.hf_subsets, task.k_values
    print(json.dumps([name, "torch" in sys.modules]))
"""
#: The task and the benchmark that are listed, and the tasks that are described, without and with
#: the tasks of posir.
LISTED = {
    "0": ("NFCorpus", "NanoBEIR", []),
    "1": (
        "PosIR-Mini",
        "PosIR",
        ["PosIR-Mini", "PosIR-Swedish-Nano", "FineWeb-PosQ-Tiny", "TyDiQA-PosIR"],
    ),
}
#: Steps of `LISTING`, a line each.
STEPS = LISTING.count("\nshow(")
HEAVY = [
    "torch",
    "transformers",
    "sentence_transformers",
    "datasets",
    "bm25s",
    "aiohttp",
    "altair",
    "ray",
]


@pytest.fixture(scope="module")
def listed():
    """The lines that `LISTING` prints, by the value of POSIR_AUTOLOAD."""
    lines = {}
    for autoload, (task, benchmark, described) in LISTED.items():
        values = f"{HEAVY!r}, {task!r}, {benchmark!r}, {described!r}"
        printed = python(
            f"HEAVY, TASK, BENCHMARK, DESCRIBED = {values}\n{LISTING}", POSIR_AUTOLOAD=autoload
        )
        assert printed.returncode == 0, printed.stderr
        lines[autoload] = [json.loads(line) for line in printed.stdout.splitlines()]
    return lines


def test_listing_imports_what_mteb_alone_imports(listed):
    steps = listed["1"][:STEPS]
    assert steps == listed["0"][:STEPS]
    torch = {"torch", "transformers", "sentence_transformers"}
    assert [step for step, imported in steps if torch & {*imported}] == []


def test_available_tasks_lists_every_task(listed):
    assert all(f"- {name}," in listed["1"][STEPS] for name in TASKS)


def test_autoload_off_leaves_mteb_alone(listed):
    names, ours = (listed[autoload][STEPS + 1] for autoload in "01")
    assert "NFCorpus" in names
    assert not TASKS & {*names}
    assert {*names} | TASKS <= {*ours}


def test_tasks_are_created_and_described_without_torch(listed):
    assert listed["1"][STEPS + 2 :] == [[name, False] for name in LISTED["1"][2]]


#: A run of a task without positions.
PLAIN_RUN = """
import mteb
from datasets import Dataset
from sentence_transformers import SentenceTransformer
task, rows = mteb.get_task("NFCorpus"), [{"id": f"d{row}", "text": "the mill " * row} for row in range(1, 20)]
data = {name: Dataset.from_list(rows) for name in ("corpus", "queries")} | {"top_ranked": None}
data["relevant_docs"] = {row["id"]: {row["id"]: 1} for row in rows}
task.dataset, task.data_loaded = {"default": {"test": data}}, True
mteb.evaluate(SentenceTransformer(MODEL), task, cache=mteb.ResultCache(FOLDER), show_progress_bar=False)
"""  # noqa: E501


@pytest.mark.slow
def test_a_task_without_positions_has_the_result_file_of_mteb(tmp_path):
    model, written = write_tiny_model(tmp_path / "tiny"), []
    for autoload in "01":
        folder = tmp_path / autoload
        done = python(
            f"MODEL, FOLDER = {str(model)!r}, {str(folder)!r}\n{PLAIN_RUN}", POSIR_AUTOLOAD=autoload
        )
        (file,) = folder.rglob("NFCorpus.json")
        written.append(
            re.sub(
                r'"(evaluation_time|date|kg_co2_emissions|start|end)": [^,\n]*',
                "",
                file.read_text(),
            )
        )
        assert (done.returncode, file.with_suffix(".tokens_read").exists()) == (0, autoload == "1")
    assert written[0] == written[1]


@pytest.mark.slow
@pytest.mark.parametrize("autoload", ["0", "1"])
@pytest.mark.parametrize(
    "order",
    ["mteb, posir_tasks", "posir_tasks.tasks.posq, mteb", "posir_tasks.mteb.mteb_patches, mteb"],
)
def test_an_import_registers_in_either_order(order, autoload):
    known = (
        "mteb.get_task('SQuAD-PosQ'); print(len([t for t in mteb.get_tasks() if "
        "t.metadata.name.startswith('PosIR-')]))"
    )
    imported = python(f"import {order}; {known}", POSIR_AUTOLOAD=autoload)
    assert (imported.stdout, imported.stderr) == ("30\n", "")


def test_the_hub_is_only_listed_for_an_unknown_name_or_a_listing():
    listed = python_with_mteb(
        "import mteb\n"
        "from posir_tasks.tasks import catalog\n"
        "catalog._list_hub_paths = lambda repository: print('listed') or "
        "['pes-Arab/sports/queries.parquet']\n"
        "for name in ('PosIR-German', 'NFCorpus', 'PosIR-Persian', 'PosIR-Thai-English'): "
        "mteb.get_task(name)\n"
        "mteb.get_benchmark('PosIR'); mteb.get_benchmarks()\n"
        "print('known names')\n"
        "print('PosIR-Persian' in {task.metadata.name for task in "
        "mteb.get_tasks(languages=['pes'])})\n"
        "try:\n    mteb.get_task('PosIR-Persien')\nexcept KeyError as error:\n    "
        "print(error.args[0])"
    )
    lines = listed.stdout.splitlines()
    assert lines[:2] == ["known names", "listed"], listed.stderr
    assert [line for line in lines[2:] if line != "listed"] == [
        "True",
        "KeyError: 'PosIR-Persien' not found. Did you mean: 'PosIR-Persian'?",
    ]


@pytest.mark.slow
def test_a_changed_mteb_prints_one_warning_and_works():
    broken = python(
        "import posir_autoload\n"
        "from posir_tasks.mteb import mteb_patches\n"
        "for name in posir_autoload.PATCHES.values():\n"
        "    delattr(mteb_patches, name)\n"
        "import mteb\n"
        "print(len(mteb.get_tasks(tasks=['NFCorpus'])))"
    )
    assert broken.stdout == "1\n"
    lines = broken.stderr.strip().splitlines()
    assert all(line.startswith("posir: ") and " failed for mteb 2." in line for line in lines)
    assert len(lines) == 1
    assert "posir doctor" in lines[0]


#: Evaluates three kinds of models with one name of mteb missing after the other, and prints what
#: became of each.
WITHOUT_A_NAME = """
import logging, sys
import mteb, numpy as np
from mteb.models import ModelMeta
from mteb.types import PromptType
from posir_tasks.base.errors import PosirError
from posir_tasks.base import private_names
from posir_tasks.models import dispatch
from posir_tasks.tasks.base import PositionTask
logging.disable()
# The default cut-offs take mteb longer than everything else.
PositionTask.k_values = (1, 10)

class Encoder:
    mteb_model_meta = ModelMeta.create_empty({"name": "test/encoder", "revision": "1"})
    def encode(self, inputs, **_):
        return np.array([[len(text), text.count("e")] for batch in inputs for text in batch["text"]], np.float32)
    def similarity(self, queries, documents):
        return queries @ documents.T
    def similarity_pairwise(self, queries, documents):
        return (queries * documents).sum(axis=1)

class Reranker:
    mteb_model_meta = ModelMeta.create_empty({"name": "test/reranker", "revision": "1"})
    def predict(self, inputs1, inputs2, **_):
        return [float(len(text)) for batch in inputs2 for text in batch["text"]]

def outcome(model):
    try:
        result = mteb.evaluate(model, mteb.get_task("PosIR-Mini"), cache=None, show_progress_bar=False)
    except PosirError as error:
        return "error" if "Not available without it" in str(error) else str(error)
    return "scores" if result.task_results[0].scores["test"][0]["psi_as_published"] >= 0 else "no scores"

models = mteb.get_model("mteb/baseline-bm25s"), Encoder(), Reranker()
loaders = sys.modules["mteb._create_dataloaders"]
create = vars(loaders).pop("create_dataloader")
print("create_dataloader", *map(outcome, models), sep=" | ")
loaders.create_dataloader = create
dispatch.BM25_TOKENIZER = private_names.PrivateName("mteb.models.model_implementations.bm25:BM25Search()._gone", "", "")
print("_tokenizer", outcome(models[0]), sep=" | ")
del mteb.abstasks.AbsTaskRetrieval._evaluate_subset, mteb.AbsTask._evaluate_subset
print("_evaluate_subset", outcome(models[0]), sep=" | ")
"""  # noqa: E501


def test_without_a_private_name_only_what_uses_it_is_missing(tmp_path):
    ran = python_with_mteb(WITHOUT_A_NAME, POSIR_CACHE=str(tmp_path))
    assert ran.stdout.splitlines() == [
        "create_dataloader | scores | error | scores",
        "_tokenizer | scores",
        "_evaluate_subset | error",
    ], ran.stderr


@pytest.mark.slow
def test_doctor_names_what_fails_and_the_rest_is_registered():
    checked = python(
        "import sys, mteb, mteb.cache.result_cache as cache\n"
        "del sys.modules['mteb.get_tasks'].TASK_LIST, cache.ResultCache.save_to_cache\n"
        "import posir_tasks\n"
        "print(mteb.get_task('PosIR-Mini'), mteb.get_benchmark('PosQ').name, "
        "mteb.get_model_meta('bge-m3').name)\n"
        "from posir_tasks.command.app import main\n"
        "sys.argv = ['posir', 'doctor']; main()",
        POSIR_AUTOLOAD="0",
    )
    assert checked.returncode == 1, checked.stderr
    lines = checked.stdout.splitlines()
    assert lines[0] == "PosIRMini(name='PosIR-Mini', languages=['eng']) PosQ BAAI/bge-m3"
    wrong = [line for line in lines if line.startswith("✗")]
    for said in (
        "mteb could not be patched: add_tasks: AttributeError",
        "mteb could not be patched: make_saving_safe: AttributeError",
        "has no mteb.get_tasks:TASK_LIST; not available: posir's tasks in `mteb.get_tasks`",
    ):
        assert any(said in line for line in wrong), (said, lines)
    assert any(
        re.fullmatch(r"✓ tasks: (\d{2}) of \1 are registered in mteb", line) for line in lines
    )
    assert len([line for line in checked.stderr.splitlines() if line.startswith("posir: ")]) == 1


def test_unused_it_imports_nothing():
    loaded = python(
        "import sys; print(sorted(m for m in sys.modules if m.split('.')[0] in ('posir_tasks', "
        "'pluggy', 'mteb')))"
    )
    assert loaded.stdout == "[]\n"
