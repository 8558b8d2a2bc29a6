"""All probes, and their measurement of a dataset: in one pass over the texts, block by block,
resumable after each block.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from posir_probe.bias_learning import (
    NeedleInsertion,
    NeedleInsertionCode,
    SentenceRegression,
    SentenceRegressionFit,
    SentenceRegressionScatter,
    TextRemoval,
    TextRemovalCode,
)
from posir_probe.data import ANY, ProbeData, ProbeSource, Selection
from posir_probe.evidence_moving import EvidenceMoving, EvidenceMovingRetrieval
from posir_probe.mirror_reversal import MirrorReversal
from posir_probe.pairs import ControlledPairs, ControlledPairsEffect
from posir_probe.posir_paper import (
    EvidenceLocation,
    EvidenceLocationStart,
    GradientSaliency,
    GradientSaliencyMax,
    QueryTypes,
)
from posir_probe.probe import Probe, run_plans
from posir_probe.results import ProbeResult, SubsetSums, load_probe_result, result_folder
from posir_probe.segments import Permutation, PermutationParts, SegmentSimilarity
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import write_text
from posir_tasks.base.progress import Advance, track
from posir_tasks.base.public import to_list
from posir_tasks.base.wording import suggest_name
from posir_tasks.models.embeddings.encoding import EmbeddingMemory, ModelEncoder
from posir_tasks.plugin_api import collect_items
from posir_tasks.search.chunked import find_room
from posir_tasks.text.tokenizer import EstimatedTokenizer, Tokenizer, find_tokenizer

logger = logging.getLogger(__name__)

#: Documents whose texts are encoded together.
BLOCK = 50
#: Documents whose tokens are counted, of a random order.
COUNTED = 200


def builtin_probes() -> tuple[Probe, ...]:
    """Return the builtin probes, those that run only if they are named last."""
    return (
        SegmentSimilarity(3),
        SegmentSimilarity(10),
        Permutation(),
        EvidenceMoving(),
        ControlledPairs(),
        ControlledPairsEffect(),
        NeedleInsertion(),
        TextRemoval(),
        SentenceRegression(),
        SentenceRegressionFit(),
        SentenceRegressionScatter(),
        EvidenceLocation(),
        QueryTypes(),
        MirrorReversal(),
        GradientSaliency(),
        PermutationParts(),
        NeedleInsertionCode(),
        TextRemovalCode(),
        GradientSaliencyMax(),
        EvidenceLocationStart(),
        EvidenceMovingRetrieval(),
    )


def all_probes() -> dict[str, Probe]:
    """Collect the probes of all plugins by name; warn about unusable ones."""
    probes: dict[str, Probe] = {}
    for plugin, probe in collect_items("posir_probes", "probes"):
        if not isinstance(probe, Probe):
            logger.warning("posir plugin '%s': %r is not a posir_probe.probe.Probe", plugin, probe)
        elif probe.name in probes:
            logger.warning(
                "posir plugin '%s': the name '%s' of a probe is taken; choose another",
                plugin,
                probe.name,
            )
        else:
            probes[probe.name] = probe
    return probes


def select_probes(names: str | Iterable[str] | None) -> list[Probe]:
    """Select probes by name, or the beginning of names up to an underscore; without names all but
    variants.
    """
    probes = all_probes()
    default = [probe for probe in probes.values() if not probe.is_variant]
    if not names:
        return default
    chosen: dict[str, Probe] = {}
    for name in to_list(names):
        matching = {probe.name: probe for probe in default if probe.name.startswith(f"{name}_")}
        if name in probes:
            matching = {name: probes[name]}
        if not matching:
            raise PosirError(
                f"there is no probe '{name}'.{suggest_name(name, probes)} The probes are: "
                f"{', '.join(probes)}."
            )
        chosen |= matching
    return list(chosen.values())


@dataclass(frozen=True)
class ProbeRun:
    """A model, data, and where results are saved."""

    encoder: ModelEncoder
    source: ProbeSource
    output: Path
    documents: int
    """Maximum number of documents of a subset."""
    selection: Selection = ANY
    """Documents that the sample is drawn from."""
    split_at_periods: bool = False
    """Whether probes of sentences split as the code of Bias Learning, and not by the rules of the
    language.
    """

    def find_file(self, probe: str) -> Path:
        """Return the file of a probe's result."""
        folder = result_folder(self.output, self.encoder.model.mteb_model_meta)
        return folder / f"{self.source.name}.{probe}.json"

    def load(self, probe: str) -> ProbeResult:
        """Return what an earlier run has saved of a probe, or an empty result."""
        window = getattr(getattr(self.encoder.model, "model", None), "max_seq_length", None)
        file = self.find_file(probe)
        if file.exists():
            return replace(load_probe_result(file), window=window)
        meta = self.encoder.model.mteb_model_meta
        name = meta.experiment_name
        return ProbeResult(
            str(meta.name), str(meta.revision), name, self.source.name, probe, {}, window
        )


def run_probes(run: ProbeRun, probes: Sequence[Probe]) -> list[ProbeResult]:
    """Measure what is not yet measured, and return all results; warn about probes that cannot
    measure model or data.

    Raises:
        PosirError: No probe can measure the model or the data, or the data cannot be read.
    """
    results = {probe.name: run.load(probe.name) for probe in probes}
    problems: dict[str, str] = {}
    for subset, read in run.source.subsets.items():
        encoder, steps = _plan_steps(run, read(), probes)
        for number, (group, sample) in enumerate(steps, 1):
            title = f"Probing {subset}, step {number} of {len(steps)}, documents"
            try:
                with track(title, len(sample.documents)) as advance:
                    data = replace(sample, encoder=encoder)
                    for result in _measure(run, group, subset, data, results, advance):
                        results[result.probe] = result
                        write_text(run.find_file(result.probe), json.dumps(result.to_json()))
            except PosirError as error:
                if not group[0].needs_all:
                    raise
                problems[group[0].name] = str(error)
    for result in results.values():
        if result.subsets and not result.sums.documents:
            problems[result.probe] = _find_problem(result)
    measured = [
        result for name, result in results.items() if result.subsets and name not in problems
    ]
    if not measured:
        nothing = (
            f"{run.source.name}: no document can be drawn ({run.selection}). Choose other --words "
            "or --min-tokens."
        )
        raise PosirError(" ".join(dict.fromkeys(problems.values())) or nothing)
    for name, problem in problems.items():
        logger.warning("%s was not measured: %s", name, problem)
    return measured


def _find_problem(result: ProbeResult) -> str:
    """Return why nothing is measured."""
    if reasons := result.sums.describe_skipped():
        return f"nothing in {result.data} can be measured. Skipped: {reasons}."
    return (
        f"{result.data} has no questions with evidence, which it needs. Give a task, or a dataset "
        "with evidence spans."
    )


def _plan_steps(
    run: ProbeRun, data: ProbeData, probes: Sequence[Probe]
) -> tuple[ModelEncoder, list[tuple[list[Probe], ProbeData]]]:
    """Draw the samples of the probes of texts and of questions; return the probes that measure one
    together, and an encoder that remembers the texts of all.
    """
    model = run.encoder.model
    tokenizer: Tokenizer = EstimatedTokenizer()
    if (own := find_tokenizer(model)) and own.locates_tokens:
        tokenizer = own
    data = replace(data, tokenizer=tokenizer, room=find_room(model, run.encoder.context))
    groups = defaultdict[tuple[bool, bool], list[Probe]](list)
    for probe in probes:
        groups[probe.needs_questions, run.split_at_periods and probe.needs_sentences].append(probe)
    steps = []
    texts = set[str]()
    for needs_questions, at_periods in sorted(groups):
        group = groups[needs_questions, at_periods]
        split = replace(data, split_at_periods=at_periods)
        sample = split.sample(run.documents, run.selection, asked_about=needs_questions)
        texts.update(sample.documents.values(), (question.text for question in sample.questions))
        together = [probe for probe in group if not probe.needs_all]
        alone = [[probe] for probe in group if probe.needs_all]
        steps += [(members, sample) for members in (together, *alone) if members]
    return replace(run.encoder, memory=EmbeddingMemory(frozenset(texts))), steps


def _measure(
    run: ProbeRun,
    probes: Sequence[Probe],
    subset: str,
    data: ProbeData,
    results: Mapping[str, ProbeResult],
    advance: Advance,
) -> Iterator[ProbeResult]:
    """Measure with a probe that needs all documents, or with several block by block, but for what
    they have measured; yield each result as it grows.
    """
    periods = ", split at periods" if data.split_at_periods else ""
    sample = (data.revision, f"{run.selection}{periods}", len(data.documents))
    stored: dict[str, SubsetSums] = {}
    for probe in probes:
        sums = results[probe.name].subsets.get(subset)
        if sums and (sums.data_revision, sums.selection, sums.sampled) == sample:
            stored[probe.name] = sums
    encoder = data.encoder
    assert encoder is not None
    end = 0
    for block in [data] if probes[0].needs_all else data.blocks(BLOCK):
        documents = len(block.documents)
        end += documents
        pending = [
            probe for probe in probes if probe.name not in stored or stored[probe.name].done < end
        ]
        if not pending:
            advance(documents)
            continue
        plans = [probe.plan(block) for probe in pending]
        measured = run_plans(
            encoder, plans, lambda share, documents=documents: advance(share * documents)
        )
        counted = list(islice(data.documents.values(), COUNTED))
        lengths = list(map(len, data.tokenizer.find_tokens(counted)))
        for probe, added in zip(pending, measured, strict=True):
            total = stored[probe.name].sums + added if probe.name in stored else added
            stored[probe.name] = SubsetSums(*sample, end, total, lengths, data.available)
            earlier = results[probe.name]
            subsets = {**earlier.subsets, subset: stored[probe.name]}
            yield replace(earlier, subsets=subsets)
