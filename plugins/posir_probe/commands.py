"""`posir probe`: measure why a model prefers what is early or late in a text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posir_probe import api
from posir_published.architectures import Kind
from posir_report.summary import summarize
from posir_tasks.command.explain_option import Explain
from posir_tasks.command.format_option import TableFormat
from posir_tasks.command.progress_option import with_progress
from posir_tasks.display.presentation import TableResult, present, write_charts
from posir_tasks.display.tables import OutputFormat, print_as
from posir_tasks.errors import PosirError
from posir_tasks.results import read_results
from posir_tasks.sources.formats.passages import describe_skipped

if TYPE_CHECKING:
    from posir_probe.model_correlations import ModelCorrelation

Model = Annotated[str, typer.Argument(help="A registered model, a local folder, or an endpoint.")]
Revision = Annotated[str | None, typer.Option(help="Revision of the model.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Texts encoded at a time.")]
OutputFolder = Annotated[Path, typer.Option("--output", help="Folder for results, as in `mteb run`.")]
Html = Annotated[Path | None, typer.Option(help="File for the figures as one page that needs no network.")]
Png = Annotated[Path | None, typer.Option(help="Folder for the figures as PNG files.")]


@with_progress
def probe(
    model: Model,
    data: Annotated[
        str,
        typer.Option(
            help="A task; a folder in the PosIR layout or of BEIR; a file or folder of questions or plain texts; or a dataset "
            "on the Hub."
        ),
    ] = "PosIR-Mini",
    probe: Annotated[
        list[str] | None,
        typer.Option(help="A probe, or the beginning of its name; repeatable.  [default: all]"),
    ] = None,
    format_: TableFormat = OutputFormat.TEXT,
    revision: Revision = None,
    documents: Annotated[int, typer.Option(min=1, help="Most documents of each domain, drawn at random.")] = api.DOCUMENTS,
    seed: Annotated[int, typer.Option(help="Seed of the random sample.")] = 1,
    words: Annotated[
        str | None,
        typer.Option(
            help="LOW,HIGH: draw texts of more than LOW and fewer than HIGH words: 100,512 for table 4 of PosQ on SQuAD v2.",
            metavar="LOW,HIGH",
        ),
    ] = None,
    min_tokens: Annotated[
        int, typer.Option(min=0, help="Draw documents of at least so many tokens: 1024 for figure 5 of PosIR.")
    ] = 0,
    column: Annotated[str | None, typer.Option(help="Column or field of plain texts.")] = None,
    question_writer: Annotated[
        str | None,
        typer.Option(help="For needle_distractors: an embedder, other than MODEL, that writes questions in other words."),
    ] = None,
    llm: Annotated[
        str | None, typer.Option(help="A language model that writes them instead: MODEL, or MODEL@ADDRESS of a chat API.")
    ] = None,
    output_folder: OutputFolder = Path("results"),
    batch_size: BatchSize = 32,
    html: Html = None,
    png: Png = None,
    explain: Explain = False,
) -> None:
    """Measure how a model's embeddings depend on where in a text something is; run again to resume.

    Results are saved beside mteb's, in the folder `probes` of the model.
    """
    measured = api.probe(
        model,
        data,
        probes=probe or (),
        revision=revision,
        documents=documents,
        seed=seed,
        words=parse_bounds(words) if words else None,
        min_tokens=min_tokens,
        column=column,
        question_writer=question_writer,
        llm=llm,
        output_folder=output_folder,
        batch_size=batch_size,
    )
    if sentence := describe_skipped(measured.skipped):
        typer.echo(sentence, err=True)
    present(measured, format_, explain=explain)
    write_charts(measured, png, html)


def parse_bounds(text: str) -> tuple[int, int]:
    """Return the two numbers of `--words`."""
    try:
        low, high = map(int, text.split(","))
    except ValueError:
        low, high = 0, 0
    if not 0 <= low < high - 1:
        raise PosirError(f"--words {text}: expected two numbers with a number between them, such as 100,512.")
    return low, high


def correlate(
    results: Annotated[
        Path | None, typer.Argument(help="A folder with results of `mteb run` and `posir probe`; not needed with --published.")
    ] = None,
    architecture: Annotated[
        bool,
        typer.Option("--architecture", help="PSI against parameters, dimension, attention, pooling and positional encoding."),
    ] = False,
    architectures: Annotated[
        Path | None, typer.Option(help="CSV file with columns model,positional_encoding,attention,pooling of further models.")
    ] = None,
    benchmark: Annotated[
        Path | None,
        typer.Option(help="nDCG@10 against another benchmark: MMTEB, a CSV file with columns model,score, or mteb results."),
    ] = None,
    published: Annotated[bool, typer.Option("--published", help="Include the published results.")] = False,
    families: Annotated[
        Path | None, typer.Option(help="CSV file with columns model,family: models that are variants of one model.")
    ] = None,
    format_: TableFormat = OutputFormat.TEXT,
    explain: Explain = False,
) -> None:
    """Show which probe predicts retrieval: rank correlations with PSI and start to end over models.

    With --architecture or --benchmark: PSI or nDCG@10 against the models' architecture or another benchmark.
    """
    if results is None and not published:
        raise PosirError("Give a folder with results, or --published.")
    if architecture or architectures or benchmark:
        from posir_probe.model_correlations import build_table as build_model_table

        if families:
            raise PosirError("--families goes with probes, not with --architecture or --benchmark.")
        rows = correlate_models(results, architectures, benchmark, published=published)
        print_as(format_, [build_model_table(rows)], rows)
        return
    if published or results is None:
        raise PosirError(
            "--published goes with --architecture or --benchmark: probes of the papers' models have no raw results."
        )
    present(api.correlate(results, families=families), format_, explain=explain)


def probe_groups(
    results: Annotated[Path, typer.Argument(help="A folder with results of `posir probe` on several models.")],
    by: Annotated[Kind, typer.Option(help="What models are grouped by.")] = Kind.POSITIONAL_ENCODING,
    probe: Annotated[
        list[str] | None,
        typer.Option(help="A probe, or the beginning of its name; repeatable.  [default: all with results]"),
    ] = None,
    architectures: Annotated[
        Path | None, typer.Option(help="CSV file with columns model,positional_encoding,attention,pooling of further models.")
    ] = None,
    published: Annotated[bool, typer.Option("--published", help="Include the published means by positional encoding.")] = False,
    format_: TableFormat = OutputFormat.TEXT,
) -> None:
    """Show probes of every model, averaged over models of a positional encoding, kind of attention or pooling."""
    from posir_probe.catalog import all_probes, select_probes
    from posir_probe.groups import build_tables, group_results, published_groups
    from posir_probe.results import read_results as read_probe_results
    from posir_published.architectures import read_architecture_file, read_architectures

    if published and by is not Kind.POSITIONAL_ENCODING:
        raise PosirError(f"--published goes with --by {Kind.POSITIONAL_ENCODING}: no means by {by} are published.")
    chosen = {selected.name for selected in select_probes(probe)} if probe else None
    measured = [result for result in read_probe_results(results) if chosen is None or result.probe in chosen]
    if not measured:
        raise PosirError(f"{results}: no such results of probes. Run `posir probe MODEL --output {results}` first.")
    known = {**read_architectures(), **(read_architecture_file(architectures) if architectures else {})}
    rows = group_results(measured, all_probes(), known, by)
    rows += published_groups(dict.fromkeys(result.probe for result in measured)) if published else []
    note = "95 % intervals by bootstrap over documents, with the models held fixed: they say nothing about other models."
    present(TableResult(title="Probes by group", rows=rows, tables=build_tables(rows), notes=[note]), format_)


def correlate_models(
    results: Path | None, architectures: Path | None, benchmark: Path | None, *, published: bool
) -> list[ModelCorrelation]:
    """Return correlations with another benchmark if there is one, else with architecture; raise PosirError without results."""
    from posir_probe.correlation import PSI, START_TO_END
    from posir_probe.model_correlations import (
        NDCG,
        correlate_architecture,
        correlate_benchmark,
        join_scores,
        own_scores,
        published_scores,
        read_benchmark,
        read_model_metas,
    )
    from posir_published.architectures import read_architecture_file, read_architectures

    names = (NDCG,) if benchmark else (PSI, START_TO_END)
    own = read_results(results) if results else []
    scores = join_scores(own_scores(summarize(own), names), published_scores(names) if published else {})
    if not scores:
        raise PosirError(f"{results}: no results of position-aware tasks. Run `mteb run` first, or add --published.")
    if benchmark:
        inside = read_results(benchmark) if benchmark.is_dir() else []
        return correlate_benchmark(scores, benchmark.stem, read_benchmark(benchmark, inside))
    known = {**read_architectures(), **(read_architecture_file(architectures) if architectures else {})}
    return correlate_architecture(scores, read_model_metas(results), known)


def subset_validity(
    results: Annotated[Path, typer.Argument(help="The --output-folder of `mteb run`.")],
    format_: TableFormat = OutputFormat.TEXT,
    html: Html = None,
    png: Png = None,
) -> None:
    """Compare the position profiles of Tiny samples with those of the complete tasks, bucket by bucket."""
    from posir_probe.subset_validity import build_tables, compare_tiny, describe_validity

    rows = compare_tiny(summarize(read_results(results)))
    if not rows:
        raise PosirError(f"{results}: no model has results of both a Tiny sample, such as SQuAD-PosQ-Tiny, and its task.")
    sentences = list(describe_validity(rows))
    present(TableResult(title="Samples and complete data", rows=rows, tables=build_tables(rows), sentences=sentences), format_)
    if html or png:
        # Altair takes a second to import, which no other command should pay for.
        from posir_probe.figures import draw_samples
        from posir_tasks.display.charts.figures import export
        from posir_tasks.display.page import render_figures

        figures = draw_samples(rows)
        export(figures, png, html, lambda: render_figures("Samples and complete data", figures))


@with_progress
def domain_similarity(
    model: Model,
    data: Annotated[str, typer.Option(help="A task, or a folder in the PosIR layout.")] = "PosIR-English",
    above: Annotated[
        str | None,
        typer.Option(help="A second dataset with the same domains, such as PosIR-Chinese: above the diagonal of the heat map."),
    ] = None,
    format_: TableFormat = OutputFormat.TEXT,
    revision: Revision = None,
    output_folder: OutputFolder = Path("results"),
    batch_size: BatchSize = 32,
    html: Html = None,
    png: Png = None,
) -> None:
    """Show how similar the domains of a dataset are: the cosine of their documents' mean embeddings.

    Run again to resume. The sums of embeddings are saved beside mteb's results, in the folder `domains` of the model.
    """
    from posir_probe.inter_domain_similarity import (
        build_table,
        check_shared_domains,
        list_pairs,
        locate_sums,
        measure_domains,
    )
    from posir_probe.sources import open_probe_source
    from posir_tasks.embeddings.encoding import load_encoder

    sources = [open_probe_source(name) for name in (data, above) if name is not None]
    check_shared_domains(sources)
    encoder = load_encoder(model, revision, batch_size=batch_size)
    meta = encoder.model.mteb_model_meta
    sums = {source.name: measure_domains(encoder, source, locate_sums(output_folder, meta, source.name)) for source in sources}
    tables = [build_table(domains, name) for name, domains in sums.items()]
    print_as(format_, tables, [pair for name, domains in sums.items() for pair in list_pairs(domains, name)])
    if html or png:
        # Altair takes a second to import, which no other command should pay for.
        from posir_probe.figures import draw_domains
        from posir_tasks.display.charts.figures import export
        from posir_tasks.display.page import render_figures

        figure = draw_domains(sums, str(meta.name))
        export([figure], png, html, lambda: render_figures("Similarity of domains", [figure]))
