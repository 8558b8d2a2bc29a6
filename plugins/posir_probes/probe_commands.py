"""`posir probe`: measure why a model prefers what is early or late in a text."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from posir_report.summary import summarise
from posir_tasks.display.tables import TableFormat, print_as
from posir_tasks.errors import PosirError
from posir_tasks.plugin_api.panels import READ, RUN
from posir_tasks.results import read_results

if TYPE_CHECKING:
    from posir_probes.results import ProbeResult

#: Most documents of a subset, unless `--documents` says otherwise.
DOCUMENTS = 1_000


class ProbeFormat(StrEnum):
    """Output formats of `posir probe`."""

    CONSOLE = "console"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"

    @property
    def table_format(self) -> TableFormat:
        """The format of the tables."""
        return TableFormat.TABLE if self is ProbeFormat.CONSOLE else TableFormat(self)


def add_commands(app: typer.Typer) -> None:
    """Add `posir probe`, and the commands about its results and about datasets."""

    @app.command(rich_help_panel=RUN)
    def probe(
        model: Annotated[str, typer.Argument(help="A registered model, a local folder, or an endpoint.")],
        data: Annotated[str, typer.Option(help="A task, or a folder in the PosIR layout.")] = "PosIR-Mini",
        probe: Annotated[
            list[str] | None,
            typer.Option(help="A probe, or the beginning of its name; repeatable.  [default: all]"),
        ] = None,
        format_: Annotated[ProbeFormat, typer.Option("--format", help="Output format.")] = ProbeFormat.CONSOLE,
        revision: Annotated[str | None, typer.Option(help="Revision of the model.")] = None,
        documents: Annotated[int, typer.Option(min=1, help="Most documents of each domain.")] = DOCUMENTS,
        output_folder: Annotated[Path, typer.Option(help="Folder for results, as in `mteb run`.")] = Path("results"),
        batch_size: Annotated[int, typer.Option(min=1, help="Texts encoded at a time.")] = 32,
        html: Annotated[Path | None, typer.Option(help="File for the curves as one page that needs no network.")] = None,
        png: Annotated[Path | None, typer.Option(help="Folder for the curves as PNG files.")] = None,
    ) -> None:
        """Measure how a model's embeddings depend on where in a text something is; run again to resume.

        Results are saved beside mteb's, in the folder `probes` of the model.
        """
        with Console(stderr=True).status("Loading"):
            from posir_probes.catalogue import select_probes
            from posir_probes.encoding import load_encoder
            from posir_probes.probing import ProbeRun, run_probes
            from posir_stats.dataset import find_dataset

            chosen, dataset = select_probes(probe or ()), find_dataset(data)
            encoder = load_encoder(model, revision, batch_size=batch_size)
        results = run_probes(ProbeRun(encoder, dataset, output_folder, documents), chosen)
        show(results, format_)
        if html or png:
            write_charts(results, output_folder, html, png)

    @app.command(rich_help_panel=READ)
    def correlate(
        results: Annotated[Path, typer.Argument(help="A folder with results of `mteb run` and `posir probe`.")],
        format_: Annotated[ProbeFormat, typer.Option("--format", help="Output format.")] = ProbeFormat.CONSOLE,
    ) -> None:
        """Show whether probes predict retrieval: rank correlations with PSI and start-to-end nDCG@10 over models."""
        from posir_probes.catalogue import all_probes
        from posir_probes.correlation import build_table, correlate
        from posir_probes.results import read_results as read_probe_results

        rows = correlate(read_probe_results(results), summarise(read_results(results)), all_probes())
        if not rows:
            raise PosirError(f"{results}: no results of probes. Run `posir probe MODEL --output-folder {results}` first.")
        print_as(format_.table_format, [build_table(rows)], rows)

    @app.command("subset-validity", rich_help_panel=READ)
    def subset_validity(
        results: Annotated[Path, typer.Argument(help="The --output-folder of `mteb run`.")],
        format_: Annotated[ProbeFormat, typer.Option("--format", help="Output format.")] = ProbeFormat.CONSOLE,
    ) -> None:
        """Compare the position profiles of Tiny samples with those of the complete tasks."""
        from posir_probes.subset_validity import build_table, compare_tiny

        rows = compare_tiny(summarise(read_results(results)))
        if not rows:
            raise PosirError(f"{results}: no model has results of both a Tiny sample, such as SQuAD-PosQ-Tiny, and its task.")
        print_as(format_.table_format, [build_table(rows)], rows)

    @app.command("domain-similarity", rich_help_panel=RUN)
    def domain_similarity(
        model: Annotated[str, typer.Argument(help="A registered model, a local folder, or an endpoint.")],
        data: Annotated[str, typer.Option(help="A task, or a folder in the PosIR layout.")] = "PosIR-English",
        format_: Annotated[ProbeFormat, typer.Option("--format", help="Output format.")] = ProbeFormat.CONSOLE,
        revision: Annotated[str | None, typer.Option(help="Revision of the model.")] = None,
    ) -> None:
        """Show how similar the domains of a dataset are: the cosine of their documents' mean embeddings."""
        from posir_probes.encoding import load_encoder
        from posir_probes.inter_domain_similarity import build_table, list_pairs, measure_domains
        from posir_stats.dataset import find_dataset

        sums = measure_domains(load_encoder(model, revision), find_dataset(data))
        print_as(format_.table_format, [build_table(sums)], list_pairs(sums))


def show(results: list[ProbeResult], format_: ProbeFormat) -> None:
    """Print results."""
    from posir_probes.catalogue import all_probes
    from posir_probes.tables import build_legend, build_rows, build_tables

    probes = all_probes()
    rows = build_rows(results, probes)
    document = {"rows": rows, "results": [result.to_json() for result in results]}
    print_as(format_.table_format, build_tables(rows), rows, document, legend=build_legend(results, probes))


def write_charts(results: list[ProbeResult], output: Path, html: Path | None, png: Path | None) -> None:
    """Write the curves of these results, and of other models' results on the same data; print the names of the files."""
    # Altair takes a second to import, which no other command should pay for.
    from posir_probes.catalogue import all_probes
    from posir_probes.figures import build_figures, combine_charts
    from posir_probes.results import read_results as read_probe_results
    from posir_report.figure_export import export

    probes = all_probes()
    shown = {(result.data, result.probe) for result in results}
    measured = [*results, *(one for one in read_probe_results(output) if (one.data, one.probe) in shown)]
    distinct = list({(one.model, one.revision, one.experiment, one.data, one.probe): one for one in measured}.values())
    page = combine_charts(distinct, probes)
    export(build_figures(distinct, probes), png, html, lambda file: page.save(file, format="html", inline=True))
