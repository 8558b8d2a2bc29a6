"""Next steps after a verdict, and their shell commands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from posir_significance.findings import DataUnit, GroupFindings, Quantity, Reason, State
from posir_tasks.data.declared import BUILTIN
from posir_tasks.models.command_reference import CommandReference
from posir_tasks.models.reference_parts import split_hybrid, split_reference
from posir_tasks.tasks.catalog import name_larger_task
from posir_tasks.values.read_part import WindowSource


class NextStep(StrEnum):
    """What to do after a verdict."""

    CHUNK = "chunk"
    """Search in chunks that fit into the window."""
    TRAIN = "train"
    """Train on evidence at all positions."""
    MORE_QUESTIONS = "more_questions"
    """Test on more questions."""
    MORE_DOCUMENTS = "more_documents"
    """Test on more documents; there are too few for a verdict."""
    MEASURE_WINDOW = "measure_window"
    RUN_AGAIN = "run_again"
    """Run the model again to store rotated versions."""
    GIVE_EMBEDDER = "give_embedder"
    """Name the model behind a run to score rotated versions."""
    OTHER_DATA = "other_data"
    """Test on other data; more of the same data would not lead to a verdict."""
    NONE = "none"


@dataclass(frozen=True)
class Advice:
    """A next step, with the required number of questions or documents."""

    step: NextStep
    number: int | None = None


#: Next steps for reasons that more of the same data would not remove.
REMEDIES = {
    Reason.WINDOW_UNKNOWN: NextStep.MEASURE_WINDOW,
    Reason.NOT_STORED: NextStep.RUN_AGAIN,
    Reason.PARTLY_STORED: NextStep.RUN_AGAIN,
    Reason.NO_TEXTS: NextStep.GIVE_EMBEDDER,
    Reason.SCORES_DIFFER: NextStep.GIVE_EMBEDDER,
    Reason.NO_ROOM: NextStep.OTHER_DATA,
    Reason.ONE_UNIT: NextStep.OTHER_DATA,
    Reason.SEVERAL_POSITIONS: NextStep.OTHER_DATA,
}


def advise(findings: GroupFindings) -> tuple[Advice, ...]:
    """List the next steps, most important first, or only `NONE` if there is nothing to do."""
    verdict = findings.verdict
    is_biased = verdict.state in (State.FAVORS_START, State.FAVORS_END)
    has_chunks = findings.read.known_by is WindowSource.CHUNKS
    steps = []
    if (is_biased and not has_chunks) or _has_truncation_loss(findings):
        steps.append(Advice(NextStep.CHUNK))
    if is_biased:
        steps.append(Advice(NextStep.TRAIN))
    elif verdict.reason in REMEDIES:
        steps.append(Advice(REMEDIES[verdict.reason]))
    elif verdict.needed is not None:
        is_documents = verdict.needed.unit is DataUnit.DOCUMENTS
        step = NextStep.MORE_DOCUMENTS if is_documents else NextStep.MORE_QUESTIONS
        steps.append(Advice(step, verdict.needed.number))
    elif verdict.state is State.INCONCLUSIVE:
        steps.append(Advice(NextStep.OTHER_DATA))
    return tuple(steps) or (Advice(NextStep.NONE),)


def _has_truncation_loss(findings: GroupFindings) -> bool:
    """Return True if truncation lowers scores, or if most evidence is truncated and the loss may
    exceed the margin.
    """
    loss = findings[Quantity.TRUNCATION_LOSS].estimate
    share = findings.get_value(Quantity.UNREAD_SHARE) or 0.0
    if loss is None or loss.interval is None or not share:
        return False
    low, high = loss.interval
    return low > 0 or (share > 0.5 and high > findings.margin)


def build_commands(findings: GroupFindings, reference: CommandReference) -> tuple[str, ...]:
    """Build shell commands for the next steps; steps without a command are skipped."""
    commands = (write_command(advice, reference) for advice in advise(findings))
    return tuple(filter(None, commands))


def write_command(advice: Advice, reference: CommandReference) -> str:
    """Write the shell command for a next step; empty if there is none.

    Args:
        advice: The next step.
        reference: Model, data and settings of the run. There is no command for a model that cannot
            be loaded.
    """
    model = reference.model
    task = reference.data
    if not model:
        return ""
    match advice.step:
        case NextStep.CHUNK if task and _is_plain(model):
            return reference.format("posir", "mitigate", model, task)
        case NextStep.MEASURE_WINDOW if _is_plain(model):
            return reference.format("posir", "window", model)
        case NextStep.MEASURE_WINDOW if task and split_hybrid(model):
            return reference.format("posir", "run", "-t", task, "-m", *split_hybrid(model))
        case NextStep.RUN_AGAIN if task:
            return reference.format("posir", "run", "-t", task, "-m", model)
        case NextStep.MORE_QUESTIONS | NextStep.MORE_DOCUMENTS:
            larger = find_larger_task(task, advice.number or 0)
            return reference.format("posir", "run", "-t", larger, "-m", model) if larger else ""
    return ""


def _is_plain(model: str) -> bool:
    """Return True unless the reference names a hybrid, a method or a multi-vector head."""
    return split_reference(model) == [model]


def find_larger_task(task: str, min_questions: int) -> str:
    """Find the smallest larger task on the same data and in the same language; empty if none has
    `min_questions`.
    """
    sizes = {builtin.name: builtin.question_estimate or builtin.questions for builtin in BUILTIN}
    larger = name_larger_task(task)
    while larger:
        size = sizes.get(larger)
        if isinstance(size, int) and size >= min_questions:
            break
        larger = name_larger_task(larger)
    return larger
