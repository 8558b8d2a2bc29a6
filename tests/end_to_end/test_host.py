"""The plain `mteb` command and `import mteb` know the tasks, and are unharmed where they cannot."""

import json

from tests.support.commands import python, run

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
    "Hindi",
    "Polish",
    "Bengali",
    "Japanese",
]
TASKS = {
    *(f"PosIR-{language}" for language in LANGUAGES),
    *(f"PosIR-{language}-English" for language in LANGUAGES[1:]),
    *("SQuAD-PosQ", "SQuAD-PosQ-Tiny", "FineWeb-PosQ", "FineWeb-PosQ-Tiny", "PosIR-Mini"),
}
NAMES = "import json, mteb; print(json.dumps([t.metadata.name for t in mteb.get_tasks(task_types=['Retrieval'])]))"


def test_available_tasks_lists_every_task():
    listed = run("mteb", "available-tasks", "-t", *sorted(TASKS))
    assert listed.returncode == 0, listed.stderr
    assert all(f"- {name}," in listed.stdout for name in TASKS)


def test_get_tasks_filters_by_type_and_language():
    names = json.loads(python(NAMES).stdout)
    assert set(names) >= TASKS
    german = python(NAMES.replace("task_types=['Retrieval']", "languages=['deu'], task_types=['Retrieval']"))
    assert {name for name in json.loads(german.stdout) if name.startswith("PosIR")} == {"PosIR-German", "PosIR-German-English"}


def test_benchmarks_are_the_papers():
    shown = python(
        "import json, mteb; print(json.dumps({b: [t.metadata.name for t in mteb.get_benchmark(b).tasks] "
        "for b in ('PosIR', 'PosIR(cross-lingual)', 'PosQ')}))"
    )
    benchmarks = json.loads(shown.stdout)
    assert len(benchmarks["PosIR"]) == 10
    assert len(benchmarks["PosIR(cross-lingual)"]) == 8
    assert benchmarks["PosQ"] == ["SQuAD-PosQ", "FineWeb-PosQ"]


def test_metadata_is_complete_and_subsets_are_domains():
    checked = python(
        "import mteb\n"
        "from posir_tasks.tasks.catalogue import builtin_task_classes\n"
        "for task in builtin_task_classes():\n"
        "    task.metadata._validate_metadata(); assert task.metadata.is_filled(), task; assert task.metadata.prompt\n"
        "one = mteb.get_task('PosIR-German', hf_subsets=['sports', 'game'])\n"
        "assert sorted(one.hf_subsets) == ['game', 'sports'], one.hf_subsets\n"
        "assert len(mteb.get_task('PosIR-German').hf_subsets) == 31\n"
        "print('ok')"
    )
    assert checked.stdout == "ok\n", checked.stderr


def test_autoload_off_leaves_mteb_alone_and_an_import_registers_in_either_order():
    assert json.loads(python(NAMES, POSIR_AUTOLOAD="0").stdout)
    assert not TASKS & set(json.loads(python(NAMES, POSIR_AUTOLOAD="0").stdout))
    for order in ("import posir_tasks, mteb", "import mteb, posir_tasks"):
        known = python(
            f"{order}\nmteb.get_task('SQuAD-PosQ'); mteb.get_benchmark('PosIR')\n"
            "print(len([t for t in mteb.get_tasks() if t.metadata.name.startswith('PosIR-')]))",
            POSIR_AUTOLOAD="0",
        )
        assert known.stdout == "28\n", known.stderr


def test_posir_modules_can_be_imported_first():
    for module in ("posir_tasks.tasks.mini", "posir_tasks.tasks.posir", "posir_tasks.host.mteb_patches", "posir_tasks.profile"):
        imported = python(f"import {module}, mteb; print(mteb.get_task('PosIR-Mini').metadata.name)")
        assert (imported.stdout, imported.stderr) == ("PosIR-Mini\n", "")


def test_a_host_that_changed_inside_gets_one_warning_line_and_goes_on():
    broken = python(
        "import sys, types\n"
        "broken = types.ModuleType('posir_tasks.host.mteb_patches')\n"
        "sys.modules['posir_tasks.host.mteb_patches'] = broken\n"
        "import mteb\n"
        "print(len(mteb.get_tasks(tasks=['NFCorpus'])))"
    )
    assert broken.stdout == "1\n"
    lines = broken.stderr.strip().splitlines()
    assert all(line.startswith("posir: could not add its tasks to mteb 2.") for line in lines)
    assert len(lines) == 1
    assert "posir doctor" in lines[0]


def test_a_bare_model_name_is_the_full_one_where_it_is_unambiguous():
    named = python(
        "import mteb\n"
        "print(mteb.get_model_meta('Qwen3-Embedding-0.6B').name, mteb.get_model_meta('Qwen/Qwen3-Embedding-0.6B').name)\n"
        "names = [meta.name for meta in mteb.get_model_metas()]\n"
        "print(len(names) == len(set(names)))\n"
        "try:\n    mteb.get_model_meta('no-such-model')\nexcept KeyError as error:\n    print('unknown')"
    )
    assert named.stdout.splitlines() == ["Qwen/Qwen3-Embedding-0.6B Qwen/Qwen3-Embedding-0.6B", "True", "unknown"]


def test_unused_it_imports_nothing():
    loaded = python("import sys; print(sorted(m for m in sys.modules if m.split('.')[0] in ('posir_tasks', 'pluggy', 'mteb')))")
    assert loaded.stdout == "[]\n"
