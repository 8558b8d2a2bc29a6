"""All probes, and their measurement of a dataset: in one pass over the texts, block by block, resumable after each block."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from pathlib import Path

from posir_probe import bias_learning, evidence_moving, pairs, posir_paper, segments
from posir_probe.data import ANY, ProbeData, ProbeSource, Selection, read_parallel
from posir_probe.mirror_reversal import MirrorReversal
from posir_probe.probe import Probe, run_plans
from posir_probe.results import ProbeResult, SubsetSums, load_probe_result, result_file, result_folder, save_result
from posir_tasks.display.progress import progress
from posir_tasks.embeddings.encoding import EmbeddingMemory, ModelEncoder
from posir_tasks.errors import PosirError
from posir_tasks.plugin_api import collect_items
from posir_tasks.search.chunked import find_room
from posir_tasks.text.tokenizer import EstimatedTokenizer, find_tokenizer

logger = logging.getLogger(__name__)

#: Documents whose texts are encoded together.
BLOCK = 50
#: Documents whose tokens are counted, of a random order.
COUNTED = 200
#: Name of the documents of all languages among the subsets of a result.
ALL_LANGUAGES = "all languages"
NO_WRITER = "needs an embedder that writes questions in other words. Name one with --question-writer."


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
        segments.PermutationParts(),
        segments.PermutedLanguages(),
        bias_learning.NeedleInsertionCode(),
        bias_learning.TextRemovalCode(),
        posir_paper.GradientSaliencyMax(),
        posir_paper.EvidenceLocationStart(),
        evidence_moving.EvidenceMovingRetrieval(),
        pairs.NeedleDistractors(),
    )


def all_probes() -> dict[str, Probe]:
    """Return the probes of all plugins by name, the builtin ones first; warn about what cannot be used."""
    probes: dict[str, Probe] = {}
    for plugin, probe in collect_items("posir_probes", "probes"):
        if not isinstance(probe, Probe):
            logger.warning("posir plugin '%s': %r is not a posir_probe.probe.Probe", plugin, probe)
        elif probe.name in probes:
            logger.warning("posir plugin '%s': the name '%s' of a probe is taken; choose another", plugin, probe.name)
        else:
            probes[probe.name] = probe
    builtin = [probe.name for probe in builtin_probes() if probe.name in probes]
    return {name: probes[name] for name in dict.fromkeys([*builtin, *probes])}


def select_probes(names: Sequence[str]) -> list[Probe]:
    """Return probes by name, or the beginning of names up to an underscore; without names all but variants."""
    probes = all_probes()
    if not names:
        return [probe for probe in probes.values() if not probe.is_variant]
    chosen: dict[str, Probe] = {}
    for name in names:
        begun = {known: probe for known, probe in probes.items() if known.startswith(f"{name}_") and not probe.is_variant}
        matching = {name: probes[name]} if name in probes else begun
        if not matching:
            close = get_close_matches(name, probes)
            suggestion = f" Did you mean {' or '.join(close)}?" if close else ""
            raise PosirError(f"there is no probe '{name}'.{suggestion} The probes are: {', '.join(probes)}.")
        chosen |= matching
    return list(chosen.values())


@dataclass(frozen=True)
class ProbeRun:
    """A model, data, and where results are saved."""

    encoder: ModelEncoder
    source: ProbeSource
    output: Path
    documents: int
    """Most documents of a subset."""
    selection: Selection = ANY
    """Documents that the sample is drawn from."""
    writer: pairs.NeedleWriter | None = None
    """Writes the questions of probes of needles."""
    split_at_periods: bool = False
    """Whether probes of sentences split as the code of Bias Learning, and not by the rules of the language."""

    @property
    def folder(self) -> Path:
        """The folder of the model's results of probes."""
        return result_folder(self.output, self.encoder.model.mteb_model_meta)

    def load(self, probe: str) -> ProbeResult:
        """Return what an earlier run has saved of a probe, or an empty result."""
        limit = getattr(getattr(self.encoder.model, "model", None), "max_seq_length", None)
        window = int(limit) if limit else None
        file = result_file(self.folder, self.source.name, probe)
        if file.exists():
            return replace(load_probe_result(file), window=window)
        meta = self.encoder.model.mteb_model_meta
        return ProbeResult(str(meta.name), str(meta.revision), meta.experiment_name, self.source.name, probe, {}, window)


@dataclass(frozen=True)
class _Sample:
    """The documents of a subset that are measured."""

    subset: str
    selection: str
    """Selection by which its documents were drawn."""
    data: ProbeData

    def find_done(self, result: ProbeResult) -> SubsetSums | None:
        """Return what has been measured of this sample; None if it is another one."""
        known = result.subsets.get(self.subset)
        wanted = (self.data.revision, self.selection, len(self.data.documents))
        return known if known and (known.data_revision, known.selection, known.sampled) == wanted else None

    @cached_property
    def tokens(self) -> int | None:
        """Median tokens of its documents, over the first of them; None without documents."""
        texts = list(islice(self.data.documents.values(), COUNTED))
        return int(statistics.median(map(len, self.data.tokenizer.find_tokens(texts)))) if texts else None


class _ProbeRunner:
    """Measures with several probes; `results` and `failures` are by the name of the probe."""

    def __init__(self, run: ProbeRun, probes: Sequence[Probe]) -> None:
        self._run = run
        self._probes = probes
        self.results = {probe.name: run.load(probe.name) for probe in probes}
        self.failures: dict[str, str] = {}

    def measure(self) -> None:
        """Measure all that is not yet measured; raise PosirError if the data cannot be read."""
        for samples in self._read_samples():
            kept = {text for sample, _ in samples for text in sample.data.documents.values()}
            kept |= {question.text for sample, _ in samples for question in sample.data.questions}
            encoder = replace(self._run.encoder, memory=EmbeddingMemory(frozenset(kept)))
            for sample, probes in samples:
                together = [probe for probe in probes if not probe.needs_all]
                for group in (together, *([probe] for probe in probes if probe.needs_all)):
                    self._measure(group, sample, encoder)

    def _read_samples(self) -> Iterator[list[tuple[_Sample, list[Probe]]]]:
        """Yield for each subset the samples of the probes of texts and of questions, with these probes."""
        run = self._run
        parallel = [probe for probe in self._probes if probe.needs_translations]
        about_needles = [probe for probe in self._probes if probe.needs_needles]
        if run.writer is None:
            self.failures |= {probe.name: f"{probe.name} {NO_WRITER}" for probe in about_needles}
        groups: dict[tuple[bool, bool], list[Probe]] = {}
        for probe in self._probes:
            if probe not in parallel and probe not in about_needles:
                groups.setdefault((probe.needs_questions, run.split_at_periods and probe.needs_sentences), []).append(probe)
        for subset, read in run.source.subsets.items() if groups or (about_needles and run.writer) else ():
            data = read()
            samples = [
                (self._sample(subset, data, asked_about=asked, split_at_periods=at_periods), groups[asked, at_periods])
                for asked, at_periods in sorted(groups)
            ]
            if about_needles and run.writer:
                sample = self._sample(subset, data, asked_about=False)
                # Questions by another writer make another sample.
                sample = replace(sample, selection=f"{sample.selection}, questions by {run.writer.name}")
                known = [sample.find_done(self.results[probe.name]) for probe in about_needles]
                if not all(done and done.is_complete for done in known):
                    sample = replace(sample, data=run.writer.write(sample.data))
                samples.append((sample, about_needles))
            yield samples
        if translated := read_parallel(run.source) if parallel else None:
            yield [(self._sample(ALL_LANGUAGES, translated, asked_about=False), parallel)]
        else:
            self.failures |= {probe.name: f"{run.source.name} {segments.NOT_PARALLEL}" for probe in parallel}

    def _sample(self, subset: str, data: ProbeData, *, asked_about: bool, split_at_periods: bool = False) -> _Sample:
        run = self._run
        own = find_tokenizer(run.encoder.model)
        data = replace(
            data,
            tokenizer=own if own is not None and own.locates_tokens else EstimatedTokenizer(),
            room=find_room(run.encoder.model, run.encoder.context),
            split_at_periods=split_at_periods,
        )
        sampled = data.sample(run.documents, run.selection, asked_about=asked_about)
        return _Sample(subset, f"{run.selection}{', split at periods' if split_at_periods else ''}", sampled)

    def _measure(self, probes: Sequence[Probe], sample: _Sample, encoder: ModelEncoder) -> None:
        """Measure with a probe that needs all documents, or with several block by block, but for what they have measured."""
        probes = [probe for probe in probes if probe.name not in self.failures]
        if not probes:
            return
        data = sample.data
        known = {probe.name: sample.find_done(self.results[probe.name]) for probe in probes}
        done = {name: subset.done if subset else -1 for name, subset in known.items()}
        sums = {name: subset.sums for name, subset in known.items() if subset}
        end = 0
        for block in progress([data] if probes[0].needs_all else list(data.blocks(BLOCK)), f"Probing {sample.subset}"):
            end += len(block.documents)
            pending = [probe for probe in probes if done[probe.name] < end]
            try:
                plans = [probe.plan(replace(block, encoder=encoder)) for probe in pending]
                measured = run_plans(encoder, plans) if plans else []
            except PosirError as error:
                if not probes[0].needs_all:
                    raise
                self.failures[probes[0].name] = str(error)
                return
            for probe, added in zip(pending, measured, strict=True):
                total = sums[probe.name] = sums[probe.name] + added if probe.name in sums else added
                subset = SubsetSums(data.revision, sample.selection, len(data.documents), end, total, sample.tokens)
                result = self.results[probe.name]
                self.results[probe.name] = replace(result, subsets={**result.subsets, sample.subset: subset})
                save_result(self._run.folder, self.results[probe.name])


def run_probes(run: ProbeRun, probes: Sequence[Probe]) -> list[ProbeResult]:
    """Measure what is not yet measured, and return all results; warn about probes that cannot measure model or data.

    Raises:
        PosirError: No probe can measure the model or the data, or the data cannot be read.
    """
    runner = _ProbeRunner(run, probes)
    runner.measure()
    results = [result for result in runner.results.values() if result.subsets]
    problems = dict(runner.failures)
    for result in (result for result in results if not result.sums.documents):
        if reasons := result.sums.describe_skipped():
            problems[result.probe] = f"nothing in {result.data} can be measured. Skipped: {reasons}."
        else:
            lacking = "has no questions with evidence, which it needs. Give a task, or a dataset with evidence spans."
            problems[result.probe] = f"{result.data} {lacking}"
    measured = [result for result in results if result.probe not in problems]
    if not measured:
        nothing = f"{run.source.name}: no document can be drawn ({run.selection}). Choose other --words or --min-tokens."
        raise PosirError(" ".join(dict.fromkeys(problems.values())) or nothing)
    for name, problem in problems.items():
        logger.warning("%s was not measured: %s", name, problem)
    return measured
