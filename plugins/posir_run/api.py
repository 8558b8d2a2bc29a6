"""The public function of this package: `posir.evaluate`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_report.api import Results
from posir_tasks.errors import PosirError
from posir_tasks.models.references import ModelReference
from posir_tasks.results import read_result_file

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask


def evaluate(
    model: str | Path | Any,
    tasks: str | AbsTask | Iterable[str | AbsTask],
    *,
    revision: str | None = None,
    output_folder: str | Path | None = None,
    batch_size: int = 32,
) -> Results:
    """Evaluate a model on tasks with `mteb.evaluate`; what has a result is not run again.

    Args:
        model: A name as in `mteb run -m`: of a registered model, a folder or an endpoint (`MODEL@ADDRESS`); or any object that
            `mteb.evaluate` takes, such as a SentenceTransformer.
        tasks: Names of tasks, or objects that `mteb.get_task` returns; one or several.
        revision: Revision of the model.
        output_folder: Folder for mteb's result files; None for mteb's own cache.
        batch_size: Number of texts encoded at a time.

    Returns:
        The results by position, as `posir.read_results` returns them: scores in [0, 1].

    Raises:
        PosirError: There is no such model or task, or no task has the positions of its evidence.

    Examples:
        >>> import posir
        >>> results = posir.evaluate("mteb/baseline-bm25s", "PosIR-Mini", output_folder="results-of-bm25")
        >>> results[0].task, results[0].profile.queries
        ('PosIR-Mini', 720)
    """
    import mteb

    from posir_tasks.models.registry import find_model

    chosen = _find_tasks(tasks)
    if isinstance(model, str | Path):
        model = find_model(ModelReference(str(model), revision))
    cache = mteb.ResultCache(Path(output_folder)) if output_folder else mteb.ResultCache()
    result = mteb.evaluate(model, chosen, cache=cache, encode_kwargs={"batch_size": batch_size}, show_progress_bar=False)
    names = [task.metadata.name for task in chosen]
    experiment = getattr(result, "experiment_name", None)
    files = [
        cache.get_task_result_path(name, result.model_name, result.model_revision, experiment_name=experiment) for name in names
    ]
    results = [subset for file in files if file.exists() for subset in read_result_file(file)]
    if not results:
        raise PosirError(f"no evidence positions in {', '.join(names)}. `posir tasks` lists the tasks that have them.")
    return Results(tuple(sorted(results, key=lambda subset: (subset.task, subset.subset))))


def _find_tasks(tasks: str | AbsTask | Iterable[str | AbsTask]) -> list[AbsTask]:
    import mteb

    # Registers the tasks where the start-up hook is switched off.
    import posir_tasks  # noqa: F401

    listed = [tasks] if isinstance(tasks, str) or not isinstance(tasks, Iterable) else list(tasks)
    try:
        return [mteb.get_task(task) if isinstance(task, str) else task for task in listed]
    except KeyError as error:
        raise PosirError(f"{str(error.args[0]).removeprefix('KeyError: ')} `posir tasks` lists the tasks.") from error
