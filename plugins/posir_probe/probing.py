"""All probes, and their measurement of a dataset: in one pass over the texts, block by block,
resumable after each block.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from posir_probe import bias_learning, evidence_moving, pairs, posir_paper, segments
from posir_probe.data import ANY, ProbeData, ProbeSource, Selection
from posir_probe.mirror_reversal import MirrorReversal
from posir_probe.probe import Probe, run_plans
from posir_probe.results import ProbeResult, SubsetSums, load_probe_result, result_folder
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
        segments.SegmentSimilarity(3),
        segments.SegmentSimilarity(10),
        segments.Permutation(),
        evidence_moving.EvidenceMoving(),
        pairs.ControlledPairs(),
        pairs.ControlledPairsEffect(),
        bias_learning.NeedleInsertion(),
        bias_learning.TextRemoval(),
        bias_learning.SentenceRegression(),
        bias_learning.SentenceRegressionFit(),
        bias_learning.SentenceRegressionScatter(),
        posir_paper.EvidenceLocation(),
        posir_paper.QueryTypes(),
        MirrorReversal(),
        posir_paper.GradientSaliency(),
        segments.Permutation(within_text=True),
        bias_learning.NeedleInsertion(by_code=True),
        bias_learning.TextRemoval(by_code=True),
        posir_paper.GradientSaliencyMax(),
        posir_paper.EvidenceLocation(by_start=True),
        evidence_moving.EvidenceMovingRetrieval(),
    )


def all_probes() -> dict[str, Probe]:
    """Collect the probes of all plugins by name, the builtin ones first; warn about unusable
    ones.
    """
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
    builtin = [probe.name for probe in builtin_probes() if probe.name in probes]
    return {name: probes[name] for name in dict.fromkeys([*builtin, *probes])}


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
    results: dict[str, ProbeResult] = field(default_factory=dict)
    """Results by probe so far; changed in place."""
    problems: dict[str, str] = field(default_factory=dict)
    """Reasons why probes cannot measure model or data, by probe; changed in place."""

    def find_file(self, probe: str) -> Path:
        """Return the file of a probe's result."""
        return (
            result_folder(self.output, self.encoder.model.mteb_model_meta)
            / f"{self.source.name}.{probe}.json"
        )

    def load(self, probe: str) -> ProbeResult:
        """Return what an earlier run has saved of a probe, or an empty result."""
        limit = getattr(getattr(self.encoder.model, "model", None), "max_seq_length", None)
        window = int(limit) if limit else None
        file = self.find_file(probe)
        if file.exists():
            return replace(load_probe_result(file), window=window)
        meta = self.encoder.model.mteb_model_meta
        return ProbeResult(
            str(meta.name),
            str(meta.revision),
            meta.experiment_name,
            self.source.name,
            probe,
            {},
            window,
        )


def run_probes(run: ProbeRun, probes: Sequence[Probe]) -> list[ProbeResult]:
    """Measure what is not yet measured, and return all results; warn about probes that cannot
    measure model or data.

    Raises:
        PosirError: No probe can measure the model or the data, or the data cannot be read.
    """
    run = replace(run, results={probe.name: run.load(probe.name) for probe in probes}, problems={})
    for subset, read in run.source.subsets.items():
        _measure_subset(run, subset, read(), probes)
    problems = run.problems
    measured = []
    for result in run.results.values():
        if result.subsets and not result.sums.documents:
            problems[result.probe] = _find_problem(result)
        if result.subsets and result.probe not in problems:
            measured.append(result)
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


def _measure_subset(run: ProbeRun, subset: str, data: ProbeData, probes: Sequence[Probe]) -> None:
    """Draw the samples of the probes of texts and of questions, and measure them."""
    model = run.encoder.model
    found = find_tokenizer(model)
    tokenizer: Tokenizer = EstimatedTokenizer()
    if found is not None and found.locates_tokens:
        tokenizer = found
    data = replace(data, tokenizer=tokenizer, room=find_room(model, run.encoder.context))
    groups: dict[tuple[bool, bool], list[Probe]] = {}
    for probe in probes:
        key = (probe.needs_questions, run.split_at_periods and probe.needs_sentences)
        groups.setdefault(key, []).append(probe)
    steps: list[tuple[list[Probe], ProbeData]] = []
    texts: set[str] = set()
    for key in sorted(groups):
        needs_questions, at_periods = key
        split = replace(data, split_at_periods=at_periods)
        sample = split.sample(run.documents, run.selection, asked_about=needs_questions)
        texts |= {*sample.documents.values(), *(question.text for question in sample.questions)}
        if together := [probe for probe in groups[key] if not probe.needs_all]:
            steps.append((together, sample))
        steps += [([probe], sample) for probe in groups[key] if probe.needs_all]
    encoder = replace(run.encoder, memory=EmbeddingMemory(frozenset(texts)))
    run = replace(run, encoder=encoder)
    for number, (group, sample) in enumerate(steps, 1):
        if group[0].name not in run.problems:
            title = f"Probing {subset}, step {number} of {len(steps)}, documents"
            with track(title, len(sample.documents)) as advance:
                _measure(run, group, subset, replace(sample, encoder=encoder), advance)


def _measure(
    run: ProbeRun, probes: Sequence[Probe], subset: str, data: ProbeData, advance: Advance
) -> None:
    """Measure with a probe that needs all documents, or with several block by block, but for what
    they have measured.
    """
    sample = (
        data.revision,
        f"{run.selection}{', split at periods' if data.split_at_periods else ''}",
        len(data.documents),
    )
    saved = {probe.name: run.results[probe.name].subsets for probe in probes}
    stored = {name: subsets[subset] for name, subsets in saved.items() if subset in subsets}
    known = {
        name: sums
        for name, sums in stored.items()
        if (sums.data_revision, sums.selection, sums.sampled) == sample
    }
    end = 0
    lengths: tuple[int, ...] = ()
    for block in [data] if probes[0].needs_all else data.blocks(BLOCK):
        documents = len(block.documents)
        end += documents
        pending = [
            probe for probe in probes if probe.name not in known or known[probe.name].done < end
        ]
        if not pending:
            advance(documents)
            continue
        try:
            plans = [probe.plan(block) for probe in pending]
            measured = run_plans(
                run.encoder, plans, lambda share, documents=documents: advance(share * documents)
            )
        except PosirError as error:
            if not probes[0].needs_all:
                raise
            run.problems[probes[0].name] = str(error)
            return
        if not lengths and block.documents:
            lengths = tuple(
                map(len, data.tokenizer.find_tokens(list(islice(data.documents.values(), COUNTED))))
            )
        for probe, added in zip(pending, measured, strict=True):
            total = known[probe.name].sums + added if probe.name in known else added
            known[probe.name] = SubsetSums(*sample, end, total, lengths, data.available)
            earlier = run.results[probe.name]
            run.results[probe.name] = replace(
                earlier, subsets={**earlier.subsets, subset: known[probe.name]}
            )
            write_text(run.find_file(probe.name), json.dumps(run.results[probe.name].to_json()))
