"""Public functions: `posir.probe` and the studies over models and datasets."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from posir_published.api import tabulate_mmteb
from posir_published.probes import ArchitectureProperty, read_architectures
from posir_report.summary import summarize
from posir_significance.messages.probes import ARCHITECTURE_READING
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import track
from posir_tasks.base.public import (
    DataReference,
    Names,
    Option,
    OptionalPositive,
    Positive,
    public,
    to_list,
)
from posir_tasks.display.presentation import Result
from posir_tasks.models.command_reference import build_reference
from posir_tasks.models.protocols import PaperName, list_differences
from posir_tasks.models.run_settings import find_run_protocol, override_settings
from posir_tasks.results import read_results

if TYPE_CHECKING:
    from posir_probe.tables import ProbeMeasurements

#: Default maximum number of documents per subset.
MAX_DOCUMENTS = 1_000


def parse_bounds(text: str) -> tuple[int, int]:
    """Parse the exclusive bounds of `--words`, such as `100,512`."""
    try:
        low, high = map(int, text.split(","))
    except ValueError:
        low, high = 0, 0
    if not 0 <= low < high - 1:
        raise PosirError(
            f"--words {text}: expected LOW,HIGH with at least one number between them, such as "
            "100,512."
        )
    return low, high


@public(charts=True)
def probe(
    model: str | Path,
    data: Annotated[DataReference, Option(one_value=True)] = "PosIR-Mini",
    *,
    probe: Names | None = None,
    revision: str | None = None,
    window: OptionalPositive = None,
    protocol: PaperName | None = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    query_field: Names | None = None,
    passage_field: Names | None = None,
    documents: Positive = MAX_DOCUMENTS,
    seed: int = 1,
    words: Annotated[tuple[int, int] | None, Option(metavar="LOW,HIGH", parse=parse_bounds)] = None,
    min_tokens: Annotated[int, Option(min=0)] = 0,
    split_at_periods: bool = False,
    cut: Annotated[int | None, Option(min=2)] = None,
    tokenizer: str | Path | None = None,
    column: str | None = None,
    batch_size: Positive = 32,
    output: str | Path = "results",
) -> ProbeMeasurements:
    """Measure how embeddings depend on the position in a text; run again to resume.

        posir probe all-MiniLM-L6-v2 --documents 12
        posir probe all-MiniLM-L6-v2 questions.json --html probes.html

    Results are saved next to mteb's results, in the model's folder `probes`.

    Args:
        model: A registered model, a local folder, or an endpoint.
        data: A task, a dataset on the Hub, or any data with questions or plain texts; also
            `--data DATA`.
        probe: One or more probes or name prefixes; by default all probes except variants.
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
        documents: Maximum number of documents per domain, sampled at random.
        seed: Seed of the random sample.
        words: Sample only texts with more than LOW and fewer than HIGH words. PosQ uses 100,512
            for Table 4 on SQuAD v2.
        min_tokens: Sample only documents with at least this many tokens. PosIR uses 1024 for
            Figure 5.
        split_at_periods: Split sentences at line breaks and periods, as in the Bias Learning code.
        cut: Maximum number of tokens per text, including the largest needle, for the Bias Learning
            probes. By default, the value of the protocol is used (2,048).
        tokenizer: Tokenizer for `cut`, needles and removal: a name on the Hub, a folder, or a
            tiktoken file, such as the authors' cl100k_base.tiktoken; by default the model's
            tokenizer.
        column: Column or field of plain texts.
        batch_size: Number of texts per encoding batch.
        output: Folder for results, as in `mteb run`.

    Returns:
        A row for each summary and each position of every probe, with 95% intervals by bootstrap
        over documents. The unit depends on the probe, for example cosine similarity in [-1, 1].

    Raises:
        PosirError: The model, the probe or the data does not exist, or the probe cannot be applied
            to the model or the data.

    Examples:
        >>> import posir
        >>> measured = posir.probe("./my-model", probe="mirror", documents=3, output="my-results")
        >>> measured.to_polars()["kind"].unique().sort().to_list()
        ['position', 'summary']
    """
    with track("Loading"):
        from posir_tasks.models.registry import raise_if_unloadable

        raise_if_unloadable(str(model))
        from posir_probe.data import Selection, open_probe_source
        from posir_probe.probing import ProbeRun, run_probes, select_probes
        from posir_probe.tables import build_measurements
        from posir_tasks.models.embeddings.encoding import load_encoder

        selection = Selection(seed, words, min_tokens)
        probes = select_probes(probe)
        source = open_probe_source(data, column=column, limit=documents, selection=selection)
        with override_settings(
            protocol=protocol,
            window=window,
            query_prompt=query_prompt,
            document_prompt=document_prompt,
            query_field=query_field,
            passage_field=passage_field,
        ):
            encoder = load_encoder(str(model), revision, batch_size=batch_size)
            run_protocol = find_run_protocol(encoder.model.mteb_model_meta)
    can_cut = any(probe.cut_share for probe in probes)
    if run_protocol and can_cut and cut is None:
        cut = int(run_protocol.cut_tokens or 0)
    if (cut or tokenizer) and not (can_cut and cut):
        raise PosirError(
            "--cut and --tokenizer are for needle_insertion, text_removal and "
            "sentence_regression. Use --probe to select one of these probes, and --cut to set "
            "the window, such as --cut 2048."
        )
    run = ProbeRun(
        encoder=encoder,
        source=source,
        output=Path(output),
        documents=documents,
        selection=selection,
        split_at_periods=split_at_periods,
        cut=cut or 0,
        tokenizer=str(tokenizer) if tokenizer else None,
    )
    results = run_probes(run, probes)
    reference = build_reference(
        encoder.model.mteb_model_meta, str(model), str(data) if isinstance(data, str | Path) else ""
    )
    return build_measurements(results, Path(output), source.skipped, reference)


@public()
def correlate(
    results: str | Path | None = None,
    *,
    families: Path | None = None,
    architecture: bool = False,
    architectures: Path | None = None,
    benchmark: Path | None = None,
    published: bool = False,
) -> Result:
    """Correlate probes with the position effect, start minus end and PSI over models.

    With `architecture`, correlate position bias with the models' architecture. With `benchmark`,
    correlate nDCG@10 with another benchmark. With only `published`, show PosIR's Table 2 as
    published and corrected.

    Args:
        results: A folder with results of `mteb run` and `posir probe` on several models; optional
            with `published`.
        families: CSV file with the columns model,family. Variants of a model are not independent,
            so they form a family. By default, the family is the model name up to a +.
        architecture: Correlate position bias with parameters, dimension, attention, pooling and
            positional encoding.
        architectures: CSV file with the columns model,positional_encoding,attention,pooling, for
            additional models.
        benchmark: Correlate nDCG@10 with another benchmark: MMTEB, a CSV file with the columns
            model,score, or mteb results.
        published: Include the published results.

    Returns:
        A row for each probe, task and score: Spearman's rho in [-1, 1] with its 95% interval over
        models or families, the Holm-corrected p-value of a permutation test, the number of
        independent models needed, and a verdict.

    Raises:
        PosirError: The folder contains no task results or no probe results, or options cannot be
            combined.

    Examples:
        >>> import posir
        >>> posir.probe("./my-model", probe="mirror", documents=3, output="my-results")
        ProbeMeasurements: Probes of...
        >>> posir.evaluate("./my-model", "PosIR-Mini", output_folder="my-results")[0].task
        'PosIR-Mini'
        >>> posir.correlate("my-results").to_polars()["rho"].to_list()
        [None, None, None]
    """
    from posir_probe.correlation import (
        DETAILS,
        NOTES,
        build_table,
        correlate_probes,
        describe_correlations,
        read_families,
    )
    from posir_probe.probing import collect_probes
    from posir_probe.results import read_probe_results

    if results is None and not published:
        raise PosirError("no results given. Name a folder with results, or use --published.")
    folder = None if results is None else Path(results)
    if architecture or architectures or benchmark:
        if families:
            raise PosirError(
                "--families: applies to probes only. Omit --families, or --architecture and "
                "--benchmark."
            )
        return _correlate_models(folder, architectures, benchmark, published=published)
    if folder is None:
        return tabulate_mmteb()
    if published:
        raise PosirError(
            "--published: needs --architecture or --benchmark if a folder is given, since the "
            "papers publish no raw probe results."
        )
    rows = correlate_probes(
        read_probe_results(folder),
        summarize(read_results(folder)),
        collect_probes(),
        read_families(families) if families else {},
    )
    if not rows:
        raise _make_missing_error(folder)
    return Result(
        title="Which probe predicts retrieval?",
        rows=rows,
        tables=[build_table(rows)],
        sentences=describe_correlations(rows),
        notes=NOTES,
        details=DETAILS,
    )


def _correlate_models(
    folder: Path | None, architectures: Path | None, benchmark: Path | None, *, published: bool
) -> Result:
    """Correlate scores with a benchmark if one is given, else with the models' architecture."""
    from posir_probe.correlation import (
        BIAS_SCORES,
        NDCG,
        build_model_table,
        correct_rows,
        correlate_architecture,
        correlate_values,
        read_benchmark,
        read_model_metas,
        read_scores,
    )

    summaries = summarize(read_results(folder)) if folder else []
    names = (NDCG,) if benchmark else BIAS_SCORES
    scores = read_scores(summaries, names, published=published)
    if not scores:
        raise PosirError(
            f"{folder}: no results of position-aware tasks. Run `mteb run` first, or add "
            "--published."
        )
    if benchmark:
        excluded_results = read_results(benchmark) if benchmark.is_dir() else []
        values = read_benchmark(benchmark, excluded_results)
        rows = [
            correlate_values(key, benchmark.stem, scores_by_model, values)
            for key, scores_by_model in scores.items()
        ]
    else:
        metas = read_model_metas(folder)
        rows = correlate_architecture(scores, metas, read_architectures(architectures))
    rows = correct_rows(rows)
    runs = [(summary.task, summary.model) for summary in summaries]
    notes = [] if benchmark or not published else [ARCHITECTURE_READING]
    return Result(
        title="Position bias and models",
        rows=rows,
        tables=[build_model_table(rows)],
        notes=[*notes, *list_differences(runs)] if published else notes,
    )


def _make_missing_error(folder: str | Path) -> PosirError:
    output = shlex.quote(str(folder))
    return PosirError(
        f"{folder}: no results of these probes. Run `posir probe MODEL --output {output}` first."
    )


@public()
def model_means(results: str | Path, *, ending: Names | None = None) -> Result:
    """Average the main scores of `mteb run` over models, by task.

    Tables 4 and 14 of 'Built-in or learned?' average models with the same training.

        posir study model-means results --ending=-begin --ending=-uniform

    Args:
        results: The --output-folder of `mteb run` on several models.
        ending: Suffixes of model names. Each suffix defines a group. By default, all models form a
            group.

    Returns:
        A row for each ending and task, and for the mean over tasks: the unweighted mean in [0, 1].

    Raises:
        PosirError: There are no results, or no model of a group has results for all tasks.

    Examples:
        >>> import posir
        >>> posir.model_means("nowhere")
        Traceback (most recent call last):
        posir_tasks.base.errors.PosirError: nowhere: no results of mteb...
    """
    from posir_probe.model_means import average_models, build_mean_table

    rows = average_models(Path(results), to_list(ending))
    note = "Main score x 100: unweighted mean over models, subsets and splits."
    return Result(
        title="Means over models", rows=rows, tables=[build_mean_table(rows)], notes=[note]
    )


@public()
def probe_groups(
    results: str | Path,
    *,
    by: ArchitectureProperty = ArchitectureProperty.POSITIONAL_ENCODING,
    probe: Names | None = None,
    architectures: Path | None = None,
    published: bool = False,
) -> Result:
    """Average probes over groups of models, by positional encoding, attention or pooling.

    Args:
        results: A folder with results of `posir probe` on several models.
        by: Property that defines the groups.
        probe: One or more probes or name prefixes; by default all probes with results.
        architectures: CSV file with the columns model,positional_encoding,attention,pooling, for
            additional models.
        published: Include the published means by positional encoding.

    Returns:
        A row for each probe, dataset, model or group, and position, with a 95% interval by
        bootstrap over documents.

    Raises:
        PosirError: The folder contains no results of these probes.

    Examples:
        >>> import posir
        >>> posir.probe("./my-model", probe="segment_similarity_3", documents=3, output="my-groups")
        ProbeMeasurements: Probes of...
        >>> posir.probe_groups("my-groups").to_polars()["group"].unique().to_list()
        ['unknown']
    """
    from posir_probe.probing import collect_probes, select_probes
    from posir_probe.results import read_probe_results
    from posir_probe.studies import build_group_tables, group_results, list_published_groups

    if published and by is not ArchitectureProperty.POSITIONAL_ENCODING:
        raise PosirError(
            f"--published: needs --by {ArchitectureProperty.POSITIONAL_ENCODING}, since no means "
            f"by {by} are published."
        )
    names = [
        selected_probe.name for selected_probe in select_probes(probe or list(collect_probes()))
    ]
    stored_results = [
        result for result in read_probe_results(Path(results)) if result.probe in names
    ]
    if not stored_results:
        raise _make_missing_error(results)
    rows = group_results(stored_results, collect_probes(), read_architectures(architectures), by)
    if published:
        rows += list_published_groups(dict.fromkeys(result.probe for result in stored_results))
    note = (
        "95% intervals by bootstrap over documents. They are for these models and do not "
        "generalize to other models."
    )
    return Result(title="Probes by group", rows=rows, tables=build_group_tables(rows), notes=[note])


@public(charts=True)
def subset_validity(results: str | Path) -> Result:
    """Compare nDCG@10 by position on Tiny samples and on their complete tasks.

    Args:
        results: A folder with results of `mteb run` on a Tiny sample, such as SQuAD-PosQ-Tiny, and
            on its task.

    Returns:
        A row for each model, sample and position bucket: nDCG@10 in [0, 1] on both, and the
        difference with its 95% interval.

    Raises:
        PosirError: No model has results on both a sample and its task.

    Examples:
        >>> import posir
        >>> posir.subset_validity("nowhere")
        Traceback (most recent call last):
        posir_tasks.base.errors.PosirError: nowhere: no such folder...
    """
    from posir_probe.studies import (
        build_validity_table,
        compare_tiny,
        describe_validity,
        draw_samples,
        find_samples,
    )

    summaries = summarize(read_results(Path(results)))
    rows = [row for pair in find_samples(summaries) for row in compare_tiny(*pair)]
    if not rows:
        raise PosirError(
            f"{results}: no model has results on both a Tiny sample, such as SQuAD-PosQ-Tiny, and "
            "its task. Run `mteb run` on both."
        )
    return Result(
        title="Samples and complete data",
        rows=rows,
        tables=[build_validity_table(rows)],
        sentences=list(describe_validity(rows)),
        draw=lambda: draw_samples(summaries),
    )


@public(charts=True)
def domain_similarity(
    model: str | Path,
    *,
    data: str | Path = "PosIR-English",
    above: str | None = None,
    revision: str | None = None,
    batch_size: Positive = 32,
    output: str | Path = "results",
) -> Result:
    """Measure the similarity of a dataset's domains; run again to resume.

    The similarity of two domains is the cosine of the mean embeddings of their documents. The sums
    of embeddings are saved next to mteb's results, in the model's folder `domains`.

    Args:
        model: A registered model, a local folder, or an endpoint.
        data: A task, or a folder in the PosIR layout.
        above: A second dataset with the same domains, such as PosIR-Chinese, to show above the
            diagonal of the heat map.
        revision: Revision of the model.
        batch_size: Number of texts per encoding batch.
        output: Folder for results, as in `mteb run`.

    Returns:
        A row for each pair of domains with the cosine in [-1, 1], the most similar pair first.

    Raises:
        PosirError: The model or the data does not exist, or there is only one domain.

    Examples:
        >>> import posir
        >>> posir.domain_similarity("./my-model", data="PosIR-Mini", output="my-domains")
        Traceback (most recent call last):
        posir_tasks.base.errors.PosirError: PosIR-Mini: only one domain...
    """
    from posir_probe.data import open_probe_source
    from posir_probe.results import find_result_folder
    from posir_probe.studies import (
        build_domain_table,
        draw_domains,
        find_shared_domains,
        list_pairs,
        measure_domains,
    )
    from posir_tasks.models.embeddings.encoding import load_encoder

    sources = [open_probe_source(name) for name in (data, above) if name is not None]
    if len(sources) > 1:
        find_shared_domains(source.subsets for source in sources)
    encoder = load_encoder(str(model), revision, batch_size=batch_size)
    meta = encoder.model.mteb_model_meta
    folder = find_result_folder(Path(output), meta).with_name("domains")
    sums = {
        source.name: measure_domains(encoder, source, folder / f"{source.name}.json")
        for source in sources
    }
    return Result(
        title="Similarity of domains",
        rows=[pair for name, domains in sums.items() for pair in list_pairs(domains, name)],
        tables=[build_domain_table(domains, name) for name, domains in sums.items()],
        draw=lambda: [draw_domains(sums, str(meta.name))],
    )
