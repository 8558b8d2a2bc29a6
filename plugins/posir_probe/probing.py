"""Run probes on a dataset: in one pass over the texts, block by block, and resumable after each block."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from posir_probe.needles import NeedleWriter
from posir_probe.permuted_languages import NOT_PARALLEL
from posir_probe.probe import (
    ANY,
    ModelProbe,
    ProbeData,
    Selection,
    TextProbe,
    needs_needles,
    needs_questions,
    needs_translations,
    run_plans,
)
from posir_probe.results import ProbeResult, SubsetSums, load_result, result_file, result_folder, save_result
from posir_probe.sources import ProbeSource, SubsetData, read_parallel
from posir_probe.sums import ProbeSums
from posir_tasks.display.progress import progress
from posir_tasks.embeddings.encoding import EmbeddingMemory, ModelEncoder
from posir_tasks.errors import PosirError
from posir_tasks.search.chunked import find_room
from posir_tasks.text.tokenizer import EstimatedTokenizer, Tokenizer, find_tokenizer

logger = logging.getLogger(__name__)

#: Documents whose texts are encoded together.
BLOCK = 50
#: Documents whose tokens are counted, of a random order.
COUNTED = 200
#: Name of the documents of all languages among the subsets of a result.
ALL_LANGUAGES = "all languages"
NO_WRITER = "needs an embedder that writes questions in other words. Name one with --question-writer."


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
    writer: NeedleWriter | None = None
    """Writes the questions of probes of needles."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's own tokenizer if it is here and locates tokens in a text, or else an estimate from bytes."""
        tokenizer = find_tokenizer(self.encoder.model)
        return tokenizer if tokenizer is not None and tokenizer.locates_tokens else EstimatedTokenizer()

    @property
    def folder(self) -> Path:
        """The folder of the model's results of probes."""
        return result_folder(self.output, self.encoder.model.mteb_model_meta)

    def load(self, probe: str) -> ProbeResult:
        """Return what an earlier run has saved of a probe, or an empty result."""
        file = result_file(self.folder, self.source.name, probe)
        if file.exists():
            return replace(load_result(file), window=self.window)
        meta = self.encoder.model.mteb_model_meta
        names = str(meta.name), str(meta.revision), meta.experiment_name, self.source.name, probe
        return ProbeResult(*names, {}, self.window)

    @property
    def window(self) -> int | None:
        """Most tokens of a text that the model reads, its special ones included; None where that is unknown."""
        window = getattr(getattr(self.encoder.model, "model", None), "max_seq_length", None)
        return int(window) if window else None


@dataclass(frozen=True)
class Sample:
    """The documents of a subset that are measured."""

    subset: str
    revision: str
    selection: str
    """Selection by which its documents were drawn."""
    data: ProbeData

    def find_done(self, result: ProbeResult) -> SubsetSums | None:
        """Return what has been measured of this sample; None if it is another one."""
        known = result.subsets.get(self.subset)
        wanted = (self.revision, self.selection, len(self.data.documents))
        return known if known and (known.data_revision, known.selection, known.sampled) == wanted else None

    def count(self, done: int, sums: ProbeSums) -> SubsetSums:
        """Return the sums of the first `done` documents."""
        return SubsetSums(self.revision, self.selection, len(self.data.documents), done, sums, self.tokens)

    @cached_property
    def tokens(self) -> int | None:
        """Median tokens of its documents, over the first of them; None without documents."""
        texts = list(islice(self.data.documents.values(), COUNTED))
        return int(statistics.median(map(len, self.data.tokenizer.find_tokens(texts)))) if texts else None


class ProbeRunner:
    """Measures with several probes; `results` and `failures` are by the name of the probe."""

    def __init__(self, run: ProbeRun, probes: Sequence[TextProbe | ModelProbe]) -> None:
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
                self._measure_texts([probe for probe in probes if isinstance(probe, TextProbe)], sample, encoder)
                for probe in probes:
                    if isinstance(probe, ModelProbe):
                        self._measure_model(probe, sample, encoder)

    def _read_samples(self) -> Iterator[list[tuple[Sample, list[TextProbe | ModelProbe]]]]:
        """Yield for each subset the samples of the probes of texts and of questions, with these probes."""
        run = self._run
        parallel = [probe for probe in self._probes if needs_translations(probe)]
        about_needles = [probe for probe in self._probes if needs_needles(probe)]
        if run.writer is None:
            self.failures |= {probe.name: f"{probe.name} {NO_WRITER}" for probe in about_needles}
        others = [probe for probe in self._probes if probe not in parallel and probe not in about_needles]
        groups = [[probe for probe in others if needs_questions(probe) is asked] for asked in (False, True)]
        for subset in run.source.subsets if others or (about_needles and run.writer) else ():
            texts = subset.read()
            samples = [
                (self._sample(subset.name, texts, asked_about=needs_questions(probes[0])), probes)
                for probes in filter(None, groups)
            ]
            if about_needles and run.writer:
                samples.append((self._sample_needles(subset.name, texts, run.writer, about_needles), about_needles))
            yield samples
        translated = read_parallel(run.source) if parallel else None
        if translated:
            yield [(self._sample(ALL_LANGUAGES, translated, asked_about=False), parallel)]
        else:
            self.failures |= {probe.name: f"{run.source.name} {NOT_PARALLEL}" for probe in parallel}

    def _sample(self, subset: str, texts: SubsetData, *, asked_about: bool) -> Sample:
        run = self._run
        data = replace(texts.data, tokenizer=run.tokenizer, room=find_room(run.encoder.model, run.encoder.context))
        sampled = data.sample(run.documents, run.selection, asked_about=asked_about)
        return Sample(subset, texts.revision, str(run.selection), sampled)

    def _sample_needles(
        self, subset: str, texts: SubsetData, writer: NeedleWriter, probes: Sequence[TextProbe | ModelProbe]
    ) -> Sample:
        """Return the sample of all documents with needles in it, unless all is measured; other writers make another sample."""
        sample = self._sample(subset, texts, asked_about=False)
        sample = replace(sample, selection=f"{sample.selection}, questions by {writer.name}")
        known = [sample.find_done(self.results[probe.name]) for probe in probes]
        if all(subset_sums and subset_sums.is_complete for subset_sums in known):
            return sample
        return replace(sample, data=writer.write(sample.data))

    def _measure_texts(self, probes: Sequence[TextProbe], sample: Sample, encoder: ModelEncoder) -> None:
        """Measure block by block; a block is skipped by the probes that have measured it."""
        blocks = list(sample.data.blocks(BLOCK)) if probes else []
        known = {probe.name: sample.find_done(self.results[probe.name]) for probe in probes}
        done = {name: subset.done if subset else 0 for name, subset in known.items()}
        sums = {name: subset.sums for name, subset in known.items() if subset}
        for number, block in enumerate(progress(blocks, f"Probing {sample.subset}")):
            end = number * BLOCK + len(block.documents)
            pending = [probe for probe in probes if done[probe.name] < end]
            measured = run_plans(encoder, [probe.plan(block) for probe in pending]) if pending else []
            for probe, added in zip(pending, measured, strict=True):
                sums[probe.name] = sums[probe.name] + added if probe.name in sums else added
                self._save(probe.name, sample, sample.count(end, sums[probe.name]))

    def _measure_model(self, probe: ModelProbe, sample: Sample, encoder: ModelEncoder) -> None:
        if probe.name in self.failures or sample.find_done(self.results[probe.name]):
            return
        try:
            sums = probe.measure(encoder, sample.data)
        except PosirError as error:
            self.failures[probe.name] = str(error)
        else:
            self._save(probe.name, sample, sample.count(len(sample.data.documents), sums))

    def _save(self, probe: str, sample: Sample, sums: SubsetSums) -> None:
        self.results[probe] = self.results[probe].with_subset(sample.subset, sums)
        save_result(self._run.folder, self.results[probe])


def run_probes(run: ProbeRun, probes: Sequence[TextProbe | ModelProbe]) -> list[ProbeResult]:
    """Measure what is not yet measured, and return all results; warn about probes that cannot measure model or data.

    Raises:
        PosirError: No probe can measure the model or the data, or the data cannot be read.
    """
    runner = ProbeRunner(run, probes)
    runner.measure()
    results = [result for result in runner.results.values() if result.subsets]
    problems = runner.failures | {result.probe: describe_unmeasured(result) for result in results if not result.sums.documents}
    measured = [result for result in results if result.probe not in problems]
    if not measured:
        nothing = f"{run.source.name}: no document can be drawn ({run.selection}). Choose other --words or --min-tokens."
        raise PosirError(" ".join(dict.fromkeys(problems.values())) or nothing)
    for name, problem in problems.items():
        logger.warning("%s was not measured: %s", name, problem)
    return measured


def describe_unmeasured(result: ProbeResult) -> str:
    """Return why a result has no document."""
    reasons = ", ".join(f"{count:,} ({reason})" for reason, count in sorted(result.sums.skipped.items()))
    if reasons:
        return f"nothing in {result.data} can be measured. Skipped: {reasons}."
    return f"{result.data} has no questions with evidence, which it needs. Give a task, or a dataset with evidence spans."
