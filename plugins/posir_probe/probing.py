"""Builtin probes, and probe runs. Runs process a dataset in blocks and can resume after each."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter
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
from posir_probe.data import DEFAULT_SELECTION, ProbeData, ProbeSource, Selection
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
from posir_probe.results import ProbeResult, SubsetSums, find_result_folder, load_probe_result
from posir_probe.segments import Permutation, PermutationParts, SegmentSimilarity
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import write_text
from posir_tasks.base.progress import Advance, track
from posir_tasks.base.public import Names, to_list
from posir_tasks.base.wording import suggest_name
from posir_tasks.models.embeddings.encoding import EmbeddingMemory, ModelEncoder
from posir_tasks.plugin_api import collect_unique
from posir_tasks.search.chunked import find_room
from posir_tasks.text.tokenizer import EstimatedTokenizer, Tokenizer, find_tokenizer, load_tokenizer

logger = logging.getLogger(__name__)

#: Number of documents to encode together.
BLOCK_SIZE = 50
#: Maximum number of sampled documents whose tokens are counted.
MAX_COUNTED_DOCUMENTS = 200


def build_builtin_probes() -> tuple[Probe, ...]:
    """Build the builtin probes, variants last."""
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


def collect_probes() -> dict[str, Probe]:
    """Collect the probes of all plugins by name. Warn about invalid probes."""
    declarations = collect_unique("posir_probes", Probe)
    return {name: probe for name, (_, probe) in declarations.items()}


def select_probes(names: Names | None) -> list[Probe]:
    """Select probes by name or by a name prefix that ends before an underscore.

    By default, all probes except variants are selected.

    Raises:
        PosirError: A name is unknown.
    """
    probes = collect_probes()
    defaults = [probe for probe in probes.values() if not probe.is_variant]
    if not names:
        return defaults
    probes_by_name: dict[str, Probe] = {}
    for name in to_list(names):
        matching = {probe.name: probe for probe in defaults if probe.name.startswith(f"{name}_")}
        if name in probes:
            matching = {name: probes[name]}
        if not matching:
            raise PosirError(
                f"unknown probe '{name}'.{suggest_name(name, probes)} The probes are "
                f"{', '.join(probes)}."
            )
        probes_by_name |= matching
    return list(probes_by_name.values())


@dataclass(frozen=True)
class ProbeRun:
    """Model, data and options of a run."""

    encoder: ModelEncoder
    source: ProbeSource
    output: Path
    documents: int
    """Maximum number of documents per subset."""
    selection: Selection = DEFAULT_SELECTION
    """Criteria and seed of the sample."""
    split_at_periods: bool = False
    """Whether to split sentences as in the Bias Learning code instead of by language."""
    cut: int = 0
    """Maximum number of tokens per text for probes with a `cut_share`; 0 for whole texts."""
    tokenizer: str | None = None
    """Tokenizer to cut, insert and remove tokens; None for the model's tokenizer."""

    def find_file(self, probe: str) -> Path:
        """Return the path of a probe's result file."""
        folder = find_result_folder(self.output, self.encoder.model.mteb_model_meta)
        return folder / f"{self.source.name}.{probe}.json"

    def load(self, probe: str) -> ProbeResult:
        """Read the result of a previous run. Return an empty result if there is none."""
        window = getattr(getattr(self.encoder.model, "model", None), "max_seq_length", None)
        file = self.find_file(probe)
        if file.exists():
            return replace(load_probe_result(file), window=window)
        meta = self.encoder.model.mteb_model_meta
        return ProbeResult(
            model=str(meta.name),
            revision=str(meta.revision),
            experiment=meta.experiment_name,
            data=self.source.name,
            probe=probe,
            subsets={},
            window=window,
        )


@dataclass(frozen=True)
class ProbeStep:
    """Probes that measure the same sample."""

    probes: Sequence[Probe]
    """One probe if it needs all documents, else one or more."""
    sample: ProbeData
    selection: str
    """Description of how the sample was selected and prepared."""


def run_probes(run: ProbeRun, probes: Sequence[Probe]) -> list[ProbeResult]:
    """Run probes on documents that have no results yet, and return all results.

    Results are saved after each block. Probes that cannot be applied to the model or the data are
    skipped with a warning.

    Raises:
        PosirError: No probe can be applied to the model and the data, or the data cannot be read.
    """
    results = {probe.name: run.load(probe.name) for probe in probes}
    problems: dict[str, str] = {}
    for subset, read_subset in run.source.subsets.items():
        steps = _plan_steps(run, read_subset(), probes)
        encoder = _cache_samples(run.encoder, steps)
        for number, step in enumerate(steps, 1):
            title = f"Probing {subset}, step {number} of {len(steps)}, documents"
            try:
                with track(title, len(step.sample.documents)) as advance:
                    for result in _measure_step(step, encoder, subset, results, advance):
                        results[result.probe] = result
                        write_text(run.find_file(result.probe), json.dumps(result.to_json()))
            except PosirError as error:
                if not step.probes[0].needs_all:
                    raise
                problems[step.probes[0].name] = str(error)
    for result in results.values():
        if result.subsets and not result.sums.documents:
            problems[result.probe] = _explain_empty_result(result)
    measured_results = [
        result for name, result in results.items() if result.subsets and name not in problems
    ]
    if not measured_results:
        no_documents = (
            f"{run.source.name}: no document meets the criteria ({run.selection}). Change --words "
            "or --min-tokens."
        )
        raise PosirError(" ".join(dict.fromkeys(problems.values())) or no_documents)
    for name, problem in problems.items():
        logger.warning("%s was not measured: %s", name, problem)
    return measured_results


def _explain_empty_result(result: ProbeResult) -> str:
    """Explain why a result contains no documents."""
    if reasons := result.sums.describe_skipped():
        return f"nothing in {result.data} can be measured. Skipped: {reasons}."
    return (
        f"{result.data} has no questions with evidence. Give a task, or a dataset with evidence "
        "spans."
    )


def _plan_steps(run: ProbeRun, data: ProbeData, probes: Sequence[Probe]) -> list[ProbeStep]:
    """Group the probes by the sample that they need."""
    model = run.encoder.model
    tokenizer: Tokenizer = EstimatedTokenizer()
    model_tokenizer = find_tokenizer(model)
    if model_tokenizer and model_tokenizer.returns_offsets:
        tokenizer = model_tokenizer
    cut_tokenizer = load_tokenizer(run.tokenizer) if run.tokenizer else None
    room = find_room(model, run.encoder.context)
    data = replace(data, tokenizer=tokenizer, cut_tokenizer=cut_tokenizer, room=room)
    groups = defaultdict[tuple[bool, bool, int, str], list[Probe]](list)
    for probe in probes:
        at_periods = run.split_at_periods and probe.needs_sentences
        cut_tokens = int(probe.cut_share * run.cut)
        # A probe that needs all documents is in a group by itself.
        group_name = probe.name if probe.needs_all else ""
        groups[probe.needs_questions, at_periods, cut_tokens, group_name].append(probe)
    steps = []
    for (needs_questions, at_periods, cut_tokens, _), group in sorted(
        groups.items(), key=itemgetter(0)
    ):
        selection = str(run.selection)
        if at_periods:
            selection += ", split at periods"
        split_data = replace(data, split_at_periods=at_periods)
        sample = split_data.sample(run.documents, run.selection, with_questions=needs_questions)
        if cut_tokens:
            tokenizer_name = Path(run.tokenizer).name if run.tokenizer else "the model"
            selection += f", cut to {cut_tokens:,} tokens of {tokenizer_name}"
            sample = sample.cut(cut_tokens)
        steps.append(ProbeStep(group, sample, selection))
    return steps


def _cache_samples(encoder: ModelEncoder, steps: Sequence[ProbeStep]) -> ModelEncoder:
    """Return an encoder that caches the embeddings of the sampled documents and questions."""
    texts = set[str]()
    for step in steps:
        texts.update(step.sample.documents.values())
        texts.update(question.text for question in step.sample.questions)
    return replace(encoder, memory=EmbeddingMemory(frozenset(texts)))


def _measure_step(
    step: ProbeStep,
    encoder: ModelEncoder,
    subset: str,
    results: Mapping[str, ProbeResult],
    advance: Advance,
) -> Iterator[ProbeResult]:
    """Run a step's probes on documents that have no results yet. Yield the updated result of each
    probe after each block.

    The caller must store each yielded result in `results`.
    """
    data = replace(step.sample, encoder=encoder)
    sample_key = (data.revision, step.selection, len(data.documents))
    texts = list(islice(data.documents.values(), MAX_COUNTED_DOCUMENTS))
    lengths = list(map(len, data.tokenizer.find_tokens(texts)))
    end = 0
    for block in [data] if step.probes[0].needs_all else data.iterate_blocks(BLOCK_SIZE):
        document_count = len(block.documents)
        end += document_count
        pending: list[tuple[Probe, SubsetSums | None]] = []
        for probe in step.probes:
            stored_subset = results[probe.name].subsets.get(subset)
            if (
                stored_subset
                and (stored_subset.data_revision, stored_subset.selection, stored_subset.sampled)
                != sample_key
            ):
                stored_subset = None
            if stored_subset is None or stored_subset.done < end:
                pending.append((probe, stored_subset))
        if not pending:
            advance(document_count)
            continue
        plans = [probe.plan(block) for probe, _ in pending]
        block_results = run_plans(
            encoder, plans, lambda share, count=document_count: advance(share * count)
        )
        for (probe, stored_subset), block_sums in zip(pending, block_results, strict=True):
            total = stored_subset.sums + block_sums if stored_subset else block_sums
            sums = SubsetSums(*sample_key, end, total, lengths, data.available)
            result = results[probe.name]
            yield replace(result, subsets={**result.subsets, subset: sums})
