"""Patches for mteb modules, which the import hook applies when mteb is imported.

Patches are independent. Each patch checks the names and parameters that it needs, and falls back to
mteb's behavior if they have changed.
"""

from __future__ import annotations

import logging
import re
import shlex
import sys
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from importlib.machinery import ModuleSpec, PathFinder
from inspect import signature
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.logs import sanitize_log
from posir_tasks.base.private_names import (
    BENCHMARK_REGISTRY,
    MODEL_REGISTRY,
    TASKS_REGISTRY,
    fall_back,
    record_failure,
    warn_untested_mteb,
)
from posir_tasks.base.progress import clear_bars
from posir_tasks.base.public import Function
from posir_tasks.base.wording import suggest_name
from posir_tasks.plugin_api import collect_items

if TYPE_CHECKING:
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

logger = logging.getLogger(__name__)
T = TypeVar("T")
#: Task classes by name.
Tasks: TypeAlias = dict[str, type[Any]]

#: Prefixes of uninformative log lines of mteb.
SUPPRESSED_LOG_LINES = ("Running with parameters", "Using prompt_name", "Unloaded dataset")
#: Package in which transformers imports code from model repositories.
REPOSITORY_CODE = "transformers_modules."


def check_parameters(function: Function, *names: str) -> Function:
    """Return the function; raise PosirError if its first parameters have other names."""
    parameters = [name for name in signature(function).parameters if name not in ("self", "cls")]
    if parameters[: len(names)] != [*names]:
        raise PosirError(
            f"{function.__qualname__} takes {', '.join(parameters)} instead of {', '.join(names)}"
        )
    return function


def add_tasks(module: ModuleType) -> None:
    """Let `mteb.get_tasks` find the tasks of posir and its plugins, created on demand."""
    from posir_tasks.tasks.catalog import collect_plugin_tasks, load_builtin_tasks

    def create_builtin_tasks() -> Tasks:
        if sentence := warn_untested_mteb():
            print(f"posir: {sentence}", file=sys.stderr)
        return load_builtin_tasks()

    # ChainMap adds new tasks to the first mapping.
    mappings = (LazyTasks(create_builtin_tasks), LazyTasks(collect_plugin_tasks), LanguageTasks())
    registry = Registry(module._TASKS_REGISTRY, *mappings)  # type: ignore[arg-type]
    replace_everywhere("_TASKS_REGISTRY", module._TASKS_REGISTRY, registry)
    replace_everywhere("TASK_LIST", module.TASK_LIST, registry.values())


def add_benchmarks(module: ModuleType) -> None:
    """Add posir's benchmarks to `mteb.benchmarks.benchmarks`."""
    from posir_tasks.tasks.catalog import build_benchmarks

    for benchmark in build_benchmarks():
        setattr(module, re.sub(r"\W+", "_", benchmark.name).upper().strip("_"), benchmark)
    if not BENCHMARK_REGISTRY.is_missing():
        BENCHMARK_REGISTRY.resolve().cache_clear()


def add_model_references(module: ModuleType) -> None:
    """Let `mteb.models.model_implementations` resolve posir's model references."""
    from posir_tasks.models.registry import ModelRegistry

    replace_everywhere(
        "MODEL_REGISTRY", module.MODEL_REGISTRY, ModelRegistry(module.MODEL_REGISTRY)
    )


def explain_missing_models(module: ModuleType) -> None:
    """Let mteb apply run settings to models, and report an unreachable Hub immediately in one
    sentence.

    Tokenizers without a padding token get one, so that batches can be encoded.

    Args:
        module: `mteb.models.model_meta`.
    """
    from posir_tasks.models.hub import explain_missing_hub, explain_missing_weights
    from posir_tasks.models.packaged import restore_loader, use_package
    from posir_tasks.models.prefixes import warn_about_missing_prompts
    from posir_tasks.models.references import describe_unknown
    from posir_tasks.models.run_settings import apply_run_settings, prepare_for_loading

    model_meta = module.ModelMeta
    attempt = partial(fall_back, explain_missing_models.__name__)
    load_model = model_meta.load_model
    from_hub = check_parameters(model_meta.from_hub, "model")

    @wraps(load_model)
    def load_or_explain(self: ModelMeta, *arguments: Any, **options: Any) -> MTEBModels:
        meta = attempt(prepare_for_loading, self, otherwise=self)
        code_before = find_repository_code()
        source = attempt(use_package, meta, otherwise=meta)
        context: AbstractContextManager[None] = attempt(
            explain_missing_weights, source, otherwise=nullcontext()
        )
        with context:
            model: MTEBModels = load_model(source, *arguments, **options)
        if source is not self:
            attempt(restore_loader, model, self, otherwise=None)
        attempt(warn_repository_code, self, code_before, otherwise=None)
        attempt(ensure_padding, model, otherwise=None)
        model = attempt(apply_run_settings, model, otherwise=model)
        attempt(warn_about_missing_prompts, model, otherwise=None)
        return model

    @wraps(from_hub)
    def describe_or_explain(model: str, *arguments: Any, **options: Any) -> ModelMeta:
        registry = () if MODEL_REGISTRY.is_missing() else MODEL_REGISTRY.resolve()
        failure = f"{describe_unknown(model, registry)}, and the Hub cannot be searched for it"
        with explain_missing_hub(failure):
            meta: ModelMeta = from_hub(model, *arguments, **options)
        return meta

    model_meta.load_model = load_or_explain
    model_meta.from_hub = staticmethod(describe_or_explain)


def ensure_padding(model: Any) -> None:
    """Let a tokenizer without a padding token, such as GPT-2's, pad with the end-of-text token.

    Any token works, since the attention mask excludes padding.
    """
    tokenizer: Any = getattr(getattr(model, "model", model), "tokenizer", None)
    if getattr(tokenizer, "pad_token", "") is None:
        tokenizer.pad_token = tokenizer.eos_token


def find_repository_code() -> set[str]:
    """Return the names of modules imported from model repositories."""
    return {name for name in sys.modules if name.startswith(REPOSITORY_CODE)}


def warn_repository_code(meta: ModelMeta, modules_before: Collection[str]) -> None:
    """Warn if a registered model ran code from its repository."""
    if find_repository_code() - {*modules_before} and not hasattr(meta.loader, "reference"):
        logger.warning(
            "%s ran code from its repository (revision %s), as registered in mteb.",
            meta.name,
            meta.revision,
        )


def make_saving_safe(module: ModuleType) -> None:
    """Let `mteb.cache.result_cache` save results of posir's tasks atomically, and merge them with
    results from other processes.
    """
    from posir_tasks.mteb.result_saving import get_result_saver, skip_corrupt

    results = module.ResultCache
    result = ("model_name", "model_revision")
    check_parameters(results.get_task_result_path, "task_name", *result)
    save = get_result_saver().make_safe(
        check_parameters(results.save_to_cache, "task_result", *result)
    )
    load = skip_corrupt(check_parameters(results.load_task_result, "task_name", *result))
    results.save_to_cache = save
    results.load_task_result = load


def answer_runs(module: ModuleType) -> None:
    """Let `mteb run` (`mteb.cli.build_cli`) print the plugins' findings about results."""
    run = check_parameters(module.run, "args")

    @wraps(run)
    def run_and_answer(args: Any) -> None:
        from posir_tasks.command.app import INTERRUPTED
        from posir_tasks.command.exit_status import exit_with

        if args.model is None:
            exit_with("Missing option '-m', a model, such as mteb/baseline-bm25s.", 2)
        sanitize_log()
        for handler in logging.getLogger().handlers if args.verbosity < 3 else ():
            handler.addFilter(keep_log_line)
        if getattr(args, "batch_size", 0) is None:
            args.batch_size = 32  # mteb would set this default and log it
        try:
            run(args)
        except PosirError as error:
            exit_with(str(error), 1)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(INTERRUPTED)
        except KeyError as error:
            match = re.match("KeyError: '(.+)' not found", str(error.args[0] if error.args else ""))
            if not match:
                raise
            suggestion = suggest_name(match[1], TASKS_REGISTRY.resolve())
            exit_with(
                f"There is no task or benchmark '{match[1]}'.{suggestion} `posir tasks` lists "
                "those with positions.",
                1,
            )
        if args.verbosity:
            fall_back(answer_runs.__name__, print_answers, args.output_folder, otherwise=None)

    module.run = run_and_answer  # type: ignore[attr-defined]


def keep_log_line(record: logging.LogRecord) -> bool:
    """Return False for uninformative log lines; clear progress bars before other lines."""
    clear_bars()
    return not str(record.msg).startswith(SUPPRESSED_LOG_LINES)


def print_answers(output_folder: str | None) -> None:
    """Print the plugins' findings about the results of this run, and the results folder."""
    from mteb import ResultCache
    from rich.console import Console

    from posir_tasks.base.progress import report_progress
    from posir_tasks.display.tables import DisplaySection
    from posir_tasks.mteb.result_saving import get_result_saver

    with report_progress(quiet=True):
        answers = [
            answer
            for file in get_result_saver().used_files
            for _, answer in collect_items("posir_answers", "answer", file=file)
        ]
    if not answers:
        return
    folder = str(ResultCache(output_folder).cache_path)
    console = Console(stderr=True, highlight=False)
    console.print()
    for answer in answers:
        title, _, text = answer.partition("\n")
        DisplaySection(title, (text,)).print_on(console)
    command = f"posir report {shlex.quote(folder)}"
    DisplaySection(sentences=(f"Results: {folder}",), commands=(command,)).print_on(console)


def count_corpora(module: ModuleType) -> None:
    """Let `mteb.abstasks.retrieval` count and save the corpus tokens that a model reads."""
    task = module.AbsTaskRetrieval
    evaluate = check_parameters(task.evaluate, "model", "split")

    @wraps(evaluate)
    def evaluate_and_count(
        self: AbsTaskRetrieval, model: MTEBModels, split: str = "test", *args: Any, **kwargs: Any
    ) -> Any:
        from posir_tasks.mteb.result_saving import get_result_saver

        scores = evaluate(self, model, split, *args, **kwargs)
        try:
            get_result_saver().count_corpora(self, model, split, scores)
        except Exception as error:
            logger.warning(
                "%s: the tokens read in the corpus cannot be counted (%s)",
                self.metadata.name,
                summarize_error(error),
            )
        return scores

    task.evaluate = evaluate_and_count


def replace_everywhere(name: str, old: object, new: object) -> None:
    """Replace an object in all imported mteb modules that contain it under this name."""
    for module in [module for key, module in sys.modules.items() if key.startswith("mteb.")]:
        if getattr(module, name, None) is old:
            setattr(module, name, new)


class LazyTasks(Mapping[str, type[Any]]):
    """Task classes by name, created at the first lookup; empty if that fails."""

    def __init__(self, create: Callable[[], Tasks]) -> None:
        self._create = create
        self._task_classes: Tasks | None = None

    def _load_tasks(self) -> Tasks:
        if self._task_classes is None:
            # Prevents recursion, since creating tasks may look up tasks.
            self._task_classes = {}
            self._task_classes = _call_or_record(self._create, otherwise=self._task_classes)
        return self._task_classes

    def __getitem__(self, name: str) -> type[Any]:
        return self._load_tasks()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._load_tasks())

    def __len__(self) -> int:
        return len(self._load_tasks())


class LanguageTasks(LazyTasks):
    """Task classes by name, for any language. Iteration is limited to languages that the data and
    plugins currently provide.
    """

    def __init__(self) -> None:
        from posir_tasks.tasks import catalog

        super().__init__(catalog.find_language_tasks)
        self._find = catalog.find_language_task

    def __getitem__(self, name: str) -> type[Any]:
        task = _call_or_record(self._find, name, otherwise=None)
        if task is None:
            raise KeyError(name)
        return task

    def _load_tasks(self) -> Tasks:
        try:
            return fall_back("language_tasks", self._create, otherwise={})
        except PosirError as error:
            logger.warning("%s", error)
            return {}


class Registry(ChainMap[str, type[Any]]):
    """mteb's task registry, extended by other mappings. New tasks are added to mteb's registry."""

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(chain.from_iterable(self.maps)))


def find_patched_spec(
    name: str, path: Sequence[str] | None, target: ModuleType | None, patch: str
) -> ModuleSpec | None:
    """Return a module spec whose loader also applies a patch."""
    spec = PathFinder.find_spec(name, path, target)
    if spec is not None and spec.loader is not None:
        execute = spec.loader.exec_module

        def execute_and_patch(module: ModuleType) -> None:
            execute(module)
            apply_patch(patch, module)

        spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
    return spec


def apply_patch(patch: str, module: ModuleType) -> None:
    """Call a patch by its function name, and record any failure."""
    try:
        globals()[patch](module)
    except Exception as error:
        record_failure(patch, error)


def _call_or_record(function: Callable[..., T], *arguments: Any, otherwise: T) -> T:
    try:
        return function(*arguments)
    except Exception as error:
        record_failure(function.__name__, error)
        return otherwise
