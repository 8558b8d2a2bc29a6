"""Next steps, derived from findings by one table. A step is named only where it can answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from posir_significance.findings import GroupFindings, NeededUnit, Quantity, Reason, State
from posir_tasks.data.declared import BUILTIN
from posir_tasks.models.command_reference import CommandReference
from posir_tasks.tasks.catalog import name_larger_task
from posir_tasks.values.read_part import KnownBy


class NextStep(StrEnum):
    """A next step."""

    CHUNK = "chunk"
    """Search in chunks that fit into the window."""
    TRAIN = "train"
    """Train on evidence at all positions."""
    MORE_QUESTIONS = "more_questions"
    """Test on more questions."""
    MORE_DOCUMENTS = "more_documents"
    """Test on more documents: there are too few for any state."""
    MEASURE_WINDOW = "measure_window"
    RUN_AGAIN = "run_again"
    """Run the model again, so that rotated versions are stored."""
    GIVE_EMBEDDER = "give_embedder"
    """Name the model behind a run, so that rotated versions can be scored."""
    NONE = "none"


@dataclass(frozen=True)
class Advice:
    """A next step, with the number of questions or documents that it needs."""

    step: NextStep
    number: int | None = None


#: Reasons for which nothing is tested, and what helps.
REMEDIES = {
    Reason.WINDOW_UNKNOWN: NextStep.MEASURE_WINDOW,
    Reason.NOT_STORED: NextStep.RUN_AGAIN,
    Reason.PARTLY_STORED: NextStep.RUN_AGAIN,
    Reason.NO_TEXTS: NextStep.GIVE_EMBEDDER,
    Reason.SCORES_DIFFER: NextStep.GIVE_EMBEDDER,
}


def advise(findings: GroupFindings) -> tuple[Advice, ...]:
    """Return the next steps, the most important first; one step `NONE` if there is nothing to
    do.
    """
    verdict = findings.verdict
    is_biased = verdict.state in (State.FAVORS_START, State.FAVORS_END)
    loss = findings[Quantity.TRUNCATION_LOSS].estimate
    loses = loss is not None and (loss.low or 0.0) > 0
    has_chunks = findings.read.known_by is KnownBy.CHUNKS
    steps = []
    if (is_biased and not has_chunks) or (loses and findings.value(Quantity.UNREAD_SHARE)):
        steps.append(Advice(NextStep.CHUNK))
    if is_biased:
        steps.append(Advice(NextStep.TRAIN))
    elif verdict.reason in REMEDIES:
        steps.append(Advice(REMEDIES[verdict.reason]))
    elif verdict.needed is not None:
        is_documents = verdict.needed.unit is NeededUnit.DOCUMENTS
        step = NextStep.MORE_DOCUMENTS if is_documents else NextStep.MORE_QUESTIONS
        steps.append(Advice(step, verdict.needed.number))
    return tuple(steps) or (Advice(NextStep.NONE),)


def build_commands(findings: GroupFindings, reference: CommandReference) -> tuple[str, ...]:
    """Return commands for the next steps that have one, each of which can be pasted into a
    shell.
    """
    commands = (write_command(advice, reference) for advice in advise(findings))
    return tuple(command for command in commands if command)


def write_command(advice: Advice, reference: CommandReference) -> str:
    """Write the command for a next step; empty if there is none.

    Args:
        advice: The step.
        reference: The model, the data and the settings of the run; there is no command for a model
            that none can load.
    """
    model = reference.model
    task = reference.data
    if not model:
        return ""
    # The registry takes long to import, and most reports need no command.
    from posir_tasks.models.registry import split_hybrid, split_reference

    is_plain = split_reference(model) == [model]
    match advice.step:
        case NextStep.CHUNK if task and is_plain:
            return reference.write("posir", "mitigate", model, task)
        case NextStep.MEASURE_WINDOW if is_plain:
            return reference.write("posir", "window", model)
        case NextStep.MEASURE_WINDOW if task and split_hybrid(model):
            return reference.write("posir", "run", "-t", task, "-m", *split_hybrid(model))
        case NextStep.RUN_AGAIN if task:
            return reference.write("posir", "run", "-t", task, "-m", model)
        case NextStep.MORE_QUESTIONS | NextStep.MORE_DOCUMENTS:
            larger = find_larger_task(task, advice.number or 0)
            return reference.write("posir", "run", "-t", larger, "-m", model) if larger else ""
    return ""


def find_larger_task(task: str, number: int) -> str:
    """Return the smallest larger task of the same data and language with so many questions; empty
    if there is none.
    """
    sizes = {builtin.name: builtin.about_questions or builtin.questions for builtin in BUILTIN}
    larger = name_larger_task(task)
    while larger:
        size = sizes.get(larger)
        if isinstance(size, int) and size >= number:
            break
        larger = name_larger_task(larger)
    return larger
