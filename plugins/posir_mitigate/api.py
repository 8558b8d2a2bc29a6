"""Public functions `posir.mitigate` and `posir.open_model`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from posir_compare.comparison import SCORE_FORMATS
from posir_significance.findings import Metric
from posir_significance.messages.comparisons import format_change, group_by_state
from posir_significance.messages.verdicts import label_state
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import track
from posir_tasks.base.public import (
    Names,
    OptionalPositive,
    Positive,
    public,
    to_list,
)
from posir_tasks.display.labels import Term
from posir_tasks.display.numbers import MISSING, format_estimate, format_number
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import Column, Table
from posir_tasks.models.protocols import PaperName
from posir_tasks.models.run_settings import override_settings

if TYPE_CHECKING:
    from posir_mitigate.trials import Trial
    from posir_tasks.search.chunked import TextModel

#: Methods to try by default. The output lists the methods that the model does not support.
DEFAULT_METHODS = (
    "chunks(128)",
    "chunks(64)",
    "chunks(sentences)",
    "chunks(128,mean)",
    "late_chunks",
    "long_late_chunks",
    "both_orders",
)
#: Additional methods to try with endpoints: the same chunks with and without context.
ENDPOINT_METHODS = ("context_chunks(64)", "chunks(64,64)")
#: Titles of the compared scores.
METRIC_TITLES = {Metric.NDCG_AT_10: "nDCG@10", Metric.POSITION_EFFECT: "Position effect"}
BRIEF = (
    "nDCG@10 and position effect (same evidence, first minus last third of its document) x 100, "
    "with 95% intervals. Changes from the plain model have 98.33% intervals. Vectors: per "
    "document. Time: relative to the plain model."
)
LEGEND = Term(
    "Better",
    "a higher nDCG@10, or a position effect closer to 0. Equivalent: the interval of the "
    "change is within the margin (2 points of nDCG@10, 5 points of position effect). Chunks change "
    "the window, so bias within the window is reported for each method but not compared. "
    "Intervals are not corrected for the number of methods. Time: encoding queries and documents, "
    "and searching.",
)
SOURCES = (
    "Sources. Chunks with one vector: the mean of DICE, arXiv 2606.18781. Late chunks: arXiv "
    "2409.04701. Temperature: arXiv 2410.24200."
)


def open_model(
    model: str | Path, *, revision: str | None = None, batch_size: int = 32
) -> TextModel:
    """Load a model for an application, optionally with a mitigation: `MODEL+chunks(64)`.

    Args:
        model: A registered model, a local folder, or an endpoint, optionally with a method after a
            `+`.
        revision: Revision of the model.
        batch_size: Number of texts per encoding batch.

    Returns:
        An object with `encode`, which returns the vectors of each text, and `search`.

    Raises:
        PosirError: The model does not exist or produces no vectors (rerankers, BM25).

    Examples:
        >>> import posir
        >>> model = posir.open_model("./my-model+chunks(32)")
        >>> [row for row, score in model.search(["what"], ["a text", "what is it"], k=1)[0]]
        [1]
    """
    with track("Loading the model"):
        from posir_tasks.search.chunked import TextModel

        return TextModel.load(str(model), revision, batch_size)


@public()
def mitigate(
    model: str | Path,
    data: str | Path,
    *,
    method: Names | None = None,
    revision: str | None = None,
    window: OptionalPositive = None,
    protocol: PaperName | None = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    query_field: Names | None = None,
    passage_field: Names | None = None,
    batch_size: Positive = 32,
    output: str | Path = "results",
) -> Result:
    """Try position bias mitigations that need no training; run again to resume.

        posir mitigate all-MiniLM-L6-v2 PosIR-Mini
        posir mitigate all-MiniLM-L6-v2 questions.json --method "chunks(128)"

    Each method that the model supports is evaluated and compared with the plain model on the same
    queries.

    Args:
        model: A registered model, a local folder, or an endpoint.
        data: A task, or any other data with evidence spans.
        method: One or more methods with arguments, such as `chunks(64,mean)`; by default a
            selection.
        revision: Revision of the model.
        window: Override the model's context window, in tokens. Results are stored separately, as
            an experiment.
        protocol: Use the settings of this paper's authors. Results are stored separately, as an
            experiment.
        query_prompt: Override the model's query prompt. Results are stored separately, as an
            experiment.
        document_prompt: Override the model's document prompt. Results are stored separately, as
            an experiment.
        query_field: A field to add to an endpoint's query requests, such as `input_type=query`.
        passage_field: A field to add to an endpoint's document requests, such as `truncate=true`.
        batch_size: Number of texts per encoding batch.
        output: Folder for results, as in `mteb run`.

    Returns:
        A row for the plain model and a row per method: nDCG@10 in [0, 1], position effect in
        [-1, 1], their paired changes (better, worse, equivalent, inconclusive), the bias state
        within the window, vectors per document and seconds.

    Raises:
        PosirError: A name is unknown, the data has no evidence, or the model supports no method.

    Examples:
        >>> import posir
        >>> mitigations = posir.mitigate(
        ...     "./my-model", "squad.json", method="chunks(32)", output="my-results"
        ... )
        >>> mitigations.to_polars()["method"].to_list()
        ['plain', 'chunks(32,16,max,tokens)']
    """
    with track("Loading libraries"):
        from posir_tasks.models.registry import raise_if_unknown
        from posir_tasks.tasks.catalog import raise_if_missing

        raise_if_unknown(str(model))
        raise_if_missing(str(data))
        from datasets import disable_progress_bars
        from transformers.utils.logging import disable_progress_bar

        from posir_mitigate.references import parse_reference
        from posir_mitigate.trials import compare_trials, open_task, run_trials
        from posir_tasks.models.references import ModelReference, find_endpoint

    disable_progress_bar()  # type: ignore[no-untyped-call]
    disable_progress_bars()
    methods = to_list(method) or [*DEFAULT_METHODS]
    if method is None and find_endpoint(str(model)):
        methods += ENDPOINT_METHODS
    parsed_methods = list(dict.fromkeys(map(parse_reference, methods)))
    task = open_task(str(data))
    folder = Path(output)
    with override_settings(
        protocol=protocol,
        window=window,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        query_field=query_field,
        passage_field=passage_field,
        # The embedding cache would distort the timings.
        embeddings="",
    ):
        plain, mitigated_models, errors = run_trials(
            ModelReference(str(model), revision), parsed_methods, task, batch_size, folder
        )
    if not mitigated_models:
        raise PosirError("no method works for this model. " + " ".join(errors))
    trials = compare_trials(plain, mitigated_models, task.metadata.name, folder)
    return present_trials(str(plain.name), trials, errors)


def present_trials(model: str, trials: Sequence[Trial], errors: Sequence[str]) -> Result:
    """Present trials. The first trial must be the plain model."""
    rows = [trial.to_record() for trial in trials]
    methods_by_deployment = defaultdict[str, list[str]](list)
    for trial in trials[1:]:
        methods_by_deployment[trial.deployment].append(trial.method)
    deployment = "; ".join(
        f"{', '.join(methods)}: {text}" for text, methods in methods_by_deployment.items()
    )
    return Result(
        title=f"Mitigations of {model}",
        rows=rows,
        tables=[build_table(trials)],
        values={"outcomes": rows, "not_tried": errors},
        sentences=[
            group_by_state(title, {trial.method: trial.changes[metric] for trial in trials[1:]})
            for metric, title in METRIC_TITLES.items()
        ],
        notes=[BRIEF, f"Deployment. {deployment}."],
        details=[LEGEND, SOURCES, *errors],
        warnings=[f"not tried: {error}" for error in errors],
    )


def build_table(trials: Sequence[Trial]) -> Table:
    """Build a table with one row per trial."""
    score_columns = [
        Column(name, "right", title)
        for title in METRIC_TITLES.values()
        for name in (title, "Change")
    ]
    columns = (
        Column("Method"),
        *score_columns,
        Column("Bias within the window"),
        Column("Vectors", "right", "Cost"),
        Column("Time", "right", "Cost"),
    )
    rows = []
    for trial in trials:
        cells = [trial.method]
        for metric in METRIC_TITLES:
            cells.append(format_estimate(trial.find_estimate(metric), SCORE_FORMATS[metric]))
            change = trial.changes.get(metric)
            cells.append(format_change(change) if change else MISSING)
        cells += [
            label_state(trial.findings),
            format_number(trial.vectors_per_document, ",.1f"),
            format_ratio(trial.time_ratio),
        ]
        rows.append(tuple(cells))
    return Table(columns, tuple(rows))


def format_ratio(ratio: float | None) -> str:
    """Format a time ratio, such as `x 1.25`, or `MISSING` for None."""
    if ratio is None:
        return MISSING
    return "x <0.01" if ratio < 0.005 else f"x {format_number(ratio, ',.2f')}"
