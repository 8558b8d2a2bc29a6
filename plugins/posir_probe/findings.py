"""The verdict on a model in sentences, from what its probes measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from posir_probe.probe import ModelProbe, TextProbe
from posir_probe.results import ProbeResult
from posir_probe.sums import FEWEST_DOCUMENTS
from posir_probe.view import find_view, includes_zero
from posir_report.labels import short_labels
from posir_tasks.display.wording import pluralize

#: Verdicts by the sign of what favors the beginning of a text.
BEGINNING = "gives the beginning of a text more weight than its end"
END = "gives the end of a text more weight than its beginning"
NEITHER = "shows no difference in weight between the beginning and the end of a text"


def describe_model(results: Sequence[ProbeResult], probes: Mapping[str, TextProbe | ModelProbe]) -> str:
    """Return the verdict on a model: which end of a text weighs more, whether it does within its window, and how sure that is.

    Args:
        results: The model's results on one dataset, at least one; the first that has a beginning and an end leads.
        probes: All probes by name.
    """
    model, *_ = short_labels(results)
    contrasts = [result for result in results if find_view(probes.get(result.probe)).contrast]
    whole = [result for result in contrasts if not find_view(probes.get(result.probe)).in_window]
    inside = [result for result in contrasts if result not in whole]
    lead = next(iter([*whole, *inside]), None)
    if lead is None:
        findings = [finding for result in results if (finding := find_view(probes.get(result.probe)).find(result.sums))]
        return " ".join([f"{model}: {'. '.join(findings[:1]) or 'nothing could be measured'}.", *_describe_intervals(results)])
    sentences = [f"{model} {_judge(lead, probes)}: {_state(lead, probes)}."]
    within = inside[0] if inside and inside[0] is not lead else None
    if within:
        window = f"its {within.window:,} tokens" if within.window else "its window"
        sentences.append(f"Within {window}: {_state(within, probes)}.")
    return " ".join([*sentences, *_describe_window(lead, probes), *_describe_intervals(results)])


def _judge(result: ProbeResult, probes: Mapping[str, TextProbe | ModelProbe]) -> str:
    probe = probes[result.probe]
    estimate = result.sums.estimate(probe.summaries[find_view(probe).contrast or ""])
    if estimate is None or includes_zero(estimate):
        return NEITHER
    return BEGINNING if estimate.value > 0 else END


def _state(result: ProbeResult, probes: Mapping[str, TextProbe | ModelProbe]) -> str:
    finding = find_view(probes[result.probe]).find(result.sums) or "nothing could be measured"
    return finding[0].lower() + finding[1:]


def _describe_window(result: ProbeResult, probes: Mapping[str, TextProbe | ModelProbe]) -> Iterator[str]:
    """Yield how much of a text the model reads, if that is less than all and matters to the result."""
    if result.share_read and result.window and find_view(probes[result.probe]).shows_window:
        yield f"It reads {result.window:,} tokens, {100 * result.share_read:.0f} % of a median document."


def _describe_intervals(results: Sequence[ProbeResult]) -> Iterator[str]:
    counts = [result.sums.documents for result in results]
    if max(counts) < FEWEST_DOCUMENTS:
        yield f"{pluralize(max(counts), 'document')} are too few for intervals."
