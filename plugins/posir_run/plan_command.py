"""`posir plan`: estimate the cost of a run before it starts."""

from dataclasses import asdict

import typer

from posir_run.cli_options import DEFAULT_BATCH_SIZE, BatchSize, Benchmarks, Models, MultiValueCommand, Revision, Tasks
from posir_run.jobs import RunRequest, resolve_request
from posir_tasks.command.explain_option import Explain
from posir_tasks.command.format_option import TableFormat
from posir_tasks.command.progress_option import with_progress
from posir_tasks.display.presentation import TableResult, present
from posir_tasks.display.tables import OutputFormat

app = typer.Typer(add_completion=False)


@app.command(cls=MultiValueCommand)
@with_progress
def plan_command(
    models: Models,
    tasks: Tasks = None,
    benchmarks: Benchmarks = None,
    revision: Revision = None,
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    format_: TableFormat = OutputFormat.TEXT,
    explain: Explain = False,
) -> None:
    """Estimate the texts, embeddings and time of a run; the time is from a short benchmark on this machine."""
    from posir_run.planning.plan import build_plans
    from posir_run.planning.sizes import BUCKETS
    from posir_run.planning.tables import BRIEF, build_records, build_table, describe_plan, explain_estimates

    plans = build_plans(resolve_request(RunRequest(tasks or (), benchmarks or (), models, revision)), batch_size)
    shown = TableResult(
        title="Estimated cost",
        rows=[record for plan in plans for record in build_records(plan)],
        tables=list(map(build_table, plans)),
        values=[{"length_buckets": BUCKETS, **asdict(plan)} for plan in plans],
        sentences=list(map(describe_plan, plans)),
        notes=[BRIEF],
        further=[f"{plan.model.name}: {note}" for plan in plans for note in explain_estimates(plan)],
    )
    present(shown, format_, explain=explain)
