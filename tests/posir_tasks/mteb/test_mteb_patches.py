"""Patches extend mteb's registries, create tasks on demand, and tolerate changes of mteb."""

import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pluggy
import pytest
from packaging.version import Version

from posir_probe.data import ProbeData
from posir_probe.probe import run_plans
from posir_probe.segments import SegmentSimilarity
from posir_tasks import plugin_api
from posir_tasks.base import private_names
from posir_tasks.base.errors import PosirError
from posir_tasks.base.private_names import NEWEST_TESTED, fall_back, warn_untested_mteb
from posir_tasks.models import hub, registry, run_settings
from posir_tasks.models.embeddings.encoding import load_encoder
from posir_tasks.mteb import mteb_patches, result_saving
from posir_tasks.mteb.mteb_patches import LazyTasks, Registry, ensure_padding
from posir_tasks.plugin_api import hookimpl
from tests.support.models import write_tiny_gpt2


@pytest.fixture
def problems(monkeypatch):
    monkeypatch.setattr(private_names, "failures", [])
    return private_names.failures


def test_the_first_registry_takes_precedence_and_all_are_listed():
    own_tasks, plugin_tasks = (
        Mock(return_value={"Own": int, "Host": bool}),
        Mock(return_value={"Own": set, "Other": str}),
    )
    host = {"Host": dict}
    registry = Registry(host, LazyTasks(own_tasks), LazyTasks(plugin_tasks))
    for name, task, calls in (
        ("Host", dict, (0, 0)),
        ("Own", int, (1, 0)),
        ("None", None, (1, 1)),
        ("Other", str, (1, 1)),
    ):
        assert (registry.get(name), name in registry) == (task, task is not None)
        assert (own_tasks.call_count, plugin_tasks.call_count) == calls
    tasks = registry.values()
    assert list(registry.items()) == [("Host", dict), ("Own", int), ("Other", str)]
    registry["New"] = list
    assert host == {"Host": dict, "New": list}
    assert list(tasks) == [dict, list, int, str]


def test_tasks_may_be_looked_up_during_creation():
    def make():
        lookups.append("Own" in registry)
        return {"Own": int}

    lookups = []
    registry = Registry({}, LazyTasks(make))
    assert registry["Own"] is int
    assert lookups == [False]


def test_task_creation_failures_are_reported_once(problems, capsys):
    def fail():
        raise ImportError("mteb moved it")

    registry = Registry({"Host": dict}, LazyTasks(fail))
    assert list(registry) == ["Host"]
    assert "None" not in registry
    assert problems == ["fail: ImportError: mteb moved it"]
    assert capsys.readouterr().err.count("posir: fail failed for mteb 2.") == 1


def build_model_meta(
    load=lambda self, device=None: f"{self.name} on {device}", from_hub=lambda model: model
):
    module = ModuleType("mteb.models.model_meta")
    module.ModelMeta = type(
        "ModelMeta",
        (),
        {"name": "org/model", "revision": "5f1b", "loader": None, "load_model": load},
    )
    module.ModelMeta.from_hub = staticmethod(from_hub)
    return module


def fail(*_, **__):
    raise ImportError("mteb moved it")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (hub, "explain_missing_weights"),
        (run_settings, "prepare_for_loading"),
        (run_settings, "apply_run_settings"),
        (mteb_patches, "ensure_padding"),
        (mteb_patches, "warn_repository_code"),
    ],
)
def test_loading_falls_back_to_mteb_if_a_patch_fails(problems, capsys, monkeypatch, module, name):
    for owner, attribute, value in (
        (hub, "explain_missing_weights", lambda _: mteb_patches.nullcontext()),
        (run_settings, "prepare_for_loading", lambda meta: meta),
        (run_settings, "apply_run_settings", lambda model: model),
        (module, name, fail),
    ):
        monkeypatch.setattr(owner, attribute, value)
    mteb = build_model_meta()
    mteb_patches.explain_missing_models(mteb)
    assert [mteb.ModelMeta().load_model(device="cpu") for _ in range(2)] == ["org/model on cpu"] * 2
    assert problems == ["explain_missing_models: ImportError: mteb moved it"]
    assert capsys.readouterr().err.count("\n") == 1


def test_errors_from_mteb_and_user_errors_are_not_patch_failures(problems, monkeypatch):
    monkeypatch.setattr(hub, "explain_missing_weights", lambda _: mteb_patches.nullcontext())
    monkeypatch.setattr(run_settings, "prepare_for_loading", lambda meta: meta)
    mteb = build_model_meta(load=fail)
    mteb_patches.explain_missing_models(mteb)
    with pytest.raises(ImportError):
        mteb.ModelMeta().load_model()

    def refuse():
        raise PosirError("no such prompt")

    with pytest.raises(PosirError):
        fall_back("patch", refuse, otherwise=None)
    assert not problems


def test_methods_with_other_parameters_are_not_patched():
    mteb = build_model_meta(from_hub=lambda repository: repository)
    before = dict(vars(mteb.ModelMeta))
    with pytest.raises(PosirError, match="instead of model"):
        mteb_patches.explain_missing_models(mteb)
    assert dict(vars(mteb.ModelMeta)) == before


def test_a_run_prints_findings_despite_failing_plugins(monkeypatch, capsys, tmp_path):
    # mteb creates the results folder.
    monkeypatch.chdir(tmp_path)

    class Working:
        @hookimpl
        def posir_answers(self, file):
            return [f"{file.stem}\nNo bias."]

    class Failing:
        @hookimpl
        def posir_answers(self):
            raise PosirError("unreadable")

    manager = pluggy.PluginManager(plugin_api.PROJECT)
    manager.add_hookspecs(plugin_api)
    manager.register(Failing(), name="fails")
    manager.register(Working(), name="says")
    monkeypatch.setattr(plugin_api, "get_plugins", lambda: plugin_api.Plugins(manager, ()))
    monkeypatch.setattr(
        result_saving,
        "get_result_saver",
        lambda: SimpleNamespace(used_files={Path("PosIR-Mini.json"): None}),
    )
    verbosities = []
    mteb = SimpleNamespace(run=lambda args: verbosities.append(args.verbosity))
    mteb_patches.answer_runs(mteb)
    for verbosity, expected in (
        (2, ["PosIR-Mini", "No bias.", "  posir report 'my results'"]),
        (0, []),
    ):
        mteb.run(SimpleNamespace(model="a", verbosity=verbosity, output_folder="my results"))
        lines = capsys.readouterr().err.splitlines()
        assert [line for line in lines if line in expected] == expected
        assert bool(lines) == bool(expected)
    assert verbosities == [2, 0]


def test_other_resolvers_work_despite_a_failing_one(problems, monkeypatch):
    monkeypatch.setattr(
        registry,
        "collect_plugin_resolvers",
        lambda: (fail, lambda name, _: name if name == "mine" else None),
    )
    monkeypatch.setattr(registry, "RESOLVERS", ())
    models = registry.ModelRegistry(known=1)
    assert (models["mine"], models["known"], "other" in models) == ("mine", 1, False)
    assert problems == ["add_model_references: ImportError: mteb moved it"]


def test_models_that_ran_repository_code_are_named(caplog, monkeypatch):
    meta = SimpleNamespace(name="org/model", revision="5f1b", loader=print)
    before = mteb_patches.find_repository_code()
    mteb_patches.warn_repository_code(meta, before)
    assert not caplog.messages
    monkeypatch.setitem(
        sys.modules, "transformers_modules.org.model.modeling", ModuleType("modeling")
    )
    mteb_patches.warn_repository_code(meta, before)
    (line,) = caplog.messages
    assert "org/model" in line
    assert "5f1b" in line


def test_an_untested_mteb_version_is_reported_in_one_line(problems, monkeypatch, capsys):
    assert Version(version("mteb")) <= Version(NEWEST_TESTED), (
        "test with it, then raise NEWEST_TESTED"
    )
    assert warn_untested_mteb() is None
    monkeypatch.setattr(private_names, "version", lambda _: "99.1")
    module = ModuleType("mteb.get_tasks")
    module._TASKS_REGISTRY, module.TASK_LIST = {"Host": dict}, [dict]
    monkeypatch.setattr(
        mteb_patches, "replace_everywhere", lambda name, _, after: setattr(module, name, after)
    )
    mteb_patches.add_tasks(module)
    assert capsys.readouterr().err == ""
    assert "PosIR-Mini" in module._TASKS_REGISTRY
    assert len(module._TASKS_REGISTRY) > 1
    error = capsys.readouterr().err
    assert ("99.1" in error, error.count("\n"), problems) == (True, 1, [])


TEXTS = [
    "The mill burned in 1901, and nobody in the village knew why.",
    "It was built again of stone in the dry summer of 1902.",
]


def test_a_gpt2_model_gives_the_same_values_in_batches(tmp_path):
    folder = str(write_tiny_gpt2(tmp_path / "gpt2"))
    probe = SegmentSimilarity(3)
    (batched,) = run_plans(
        load_encoder(folder, None, batch_size=8), [probe.plan(ProbeData.from_texts(TEXTS))]
    )
    (unbatched,) = run_plans(
        load_encoder(folder, None, batch_size=1), [probe.plan(ProbeData.from_texts(TEXTS))]
    )
    np.testing.assert_allclose(batched.values, unbatched.values, atol=1e-5)
    assert np.ptp(batched.values) > 1e-4


@pytest.mark.parametrize(
    ("pad_token", "eos_token", "expected"),
    [(None, "</s>", "</s>"), ("<pad>", "</s>", "<pad>"), (None, None, None)],
)
def test_only_a_missing_padding_token_is_replaced(pad_token, eos_token, expected):
    model = SimpleNamespace(tokenizer=SimpleNamespace(pad_token=pad_token, eos_token=eos_token))
    ensure_padding(model)
    assert model.tokenizer.pad_token == expected
    ensure_padding(object())
