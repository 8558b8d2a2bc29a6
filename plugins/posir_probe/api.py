"""The public functions of this package: `posir.probe` and `posir.correlate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_report.summary import summarize
from posir_tasks.display.presentation import Presentable, TableResult
from posir_tasks.display.progress import track
from posir_tasks.display.sections import DisplaySection
from posir_tasks.errors import PosirError
from posir_tasks.results import read_results
from posir_tasks.sources.opening import DataReference

if TYPE_CHECKING:
    from rich.console import Console

    from posir_probe.results import ProbeResult
    from posir_probe.tables import IndexRow
    from posir_tasks.display.charts.figures import Figure
    from posir_tasks.sources.formats.passages import SkippedText

#: Most documents of a subset.
DOCUMENTS = 1_000
#: Most probes whose values a terminal shows without being asked.
MOST_SECTIONS = 3


@dataclass(frozen=True, repr=False)
class ProbeMeasurements(Presentable):
    """The values that probes of a model measured."""

    results: tuple[ProbeResult, ...]
    """One for each probe."""
    folder: Path
    """Folder of results, in which other models' results on the same data are drawn beside these."""
    skipped: tuple[SkippedText, ...] = ()
    """Texts and questions that cannot be used."""

    @property
    def title(self) -> str:
        """Subject in a few words."""
        from posir_report.labels import short_labels

        return f"Probes of {short_labels(self.results)[0]} on {self.results[0].data}"

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the verdict with the first summary of each probe; then each probe with its figure, summaries and values."""
        from posir_probe.catalog import all_probes
        from posir_probe.findings import describe_model
        from posir_probe.tables import build_overview

        verdict = describe_model(self.results, all_probes())
        overview = build_overview(self.records(), all_probes())
        return (DisplaySection(sentences=(verdict,), tables=(overview,)), *map(self._build_section, self.results))

    def _build_section(self, result: ProbeResult) -> DisplaySection:
        from posir_probe.catalog import all_probes
        from posir_probe.tables import build_probe_tables, build_rows

        probe = all_probes().get(result.probe)
        tables = build_probe_tables(build_rows([result], all_probes()), probe)
        title = probe.title if probe else result.probe
        return DisplaySection(title=title, tables=tuple(tables), draw=lambda: self._draw(result))

    def print_on(self, console: Console, *, explain: bool = False) -> None:
        """Print the verdict and the overview; of many probes, the values of each only if asked to explain."""
        verdict, *probes = self.sections()
        verdict.print_on(console)
        for section in probes if explain or len(probes) <= MOST_SECTIONS else ():
            section.print_on(console)
        self.print_legend(console, explain=explain)

    def records(self) -> list[IndexRow]:
        """Return a row for each summary and each position of every probe."""
        from posir_probe.catalog import all_probes
        from posir_probe.tables import build_rows

        return build_rows(self.results, all_probes())

    def document(self) -> dict[str, Any]:
        """Return the rows, and the additive values that they are computed from."""
        return {"rows": self.records(), "results": [result.to_json() for result in self.results]}

    def legend(self) -> list[str]:
        """Return how to read the intervals, and where all values are."""
        from posir_probe.tables import INTERVALS, MORE

        return [INTERVALS, *([MORE] if len(self.results) > MOST_SECTIONS else [])]

    def explanation(self) -> list[str]:
        """Return notes of the probes, and what was skipped."""
        from posir_probe.catalog import all_probes
        from posir_probe.tables import describe_probe

        probes = all_probes()
        return [note for result in self.results for note in describe_probe(result, probes.get(result.probe))]

    def _draw(self, shown: ProbeResult) -> Sequence[Figure]:
        """Return the figure of a probe, in which other models' results on the same data are drawn after this one's."""
        from posir_probe.catalog import all_probes
        from posir_probe.figures import build_figures

        others = [result for result in self._others if (result.data, result.probe) == (shown.data, shown.probe)]
        distinct = {(result.model, result.revision, result.experiment): result for result in (shown, *others)}
        return build_figures([shown, *list(distinct.values())[1:]], all_probes())

    @cached_property
    def _others(self) -> list[ProbeResult]:
        from posir_probe.results import read_results as read_probe_results

        return list(read_probe_results(self.folder))


def probe(
    model: str | Path,
    data: DataReference = "PosIR-Mini",
    *,
    probes: Sequence[str] = (),
    revision: str | None = None,
    documents: int = DOCUMENTS,
    seed: int = 1,
    words: tuple[int, int] | None = None,
    min_tokens: int = 0,
    column: str | None = None,
    question_writer: str | None = None,
    llm: str | None = None,
    output_folder: str | Path = "results",
    batch_size: int = 32,
) -> ProbeMeasurements:
    """Measure how a model's embeddings depend on where in a text something is; what has a result is not measured again.

    Args:
        model: A registered model, a local folder, or an endpoint.
        data: A task, a file or folder of questions or plain texts, a dataset on the Hub, or a list of texts.
        probes: Names of probes, or their beginnings; empty for all.
        revision: Revision of the model.
        documents: Most documents of each domain, drawn at random.
        seed: Seed of the random sample.
        words: Draw texts of more than the first and fewer than the second number of words.
        min_tokens: Draw documents of at least so many tokens.
        column: Column or field of plain texts.
        question_writer: For `needle_distractors`: an embedder, other than `model`, that chooses near-misses of a sentence and
            writes questions in other words.
        llm: A language model that writes these questions in its place: `MODEL`, or `MODEL@ADDRESS`.
        output_folder: Folder for results, as in `mteb run`; these are in `probes` beside them.
        batch_size: Number of texts encoded at a time.

    Returns:
        A row for each summary and each position of every probe, with 95 % intervals by bootstrap over documents; the unit is
        that of the probe, such as cosine similarity in [-1, 1].

    Raises:
        PosirError: There is no such model, probe or data, or the probe cannot be used with them.

    Examples:
        >>> import posir
        >>> measured = posir.probe("./my-model", probes=["mirror"], documents=3, output_folder="my-results")
        >>> measured.to_polars()["kind"].unique().sort().to_list()
        ['position', 'summary']
    """
    with track("Loading"):
        from posir_probe.catalog import select_probes
        from posir_probe.needles import NeedleWriter
        from posir_probe.probe import Selection, needs_needles
        from posir_probe.probing import ProbeRun, run_probes
        from posir_probe.sources import open_probe_source
        from posir_tasks.embeddings.encoding import load_encoder

        selection = Selection(seed, words, min_tokens)
        chosen = select_probes(probes)
        if (question_writer or llm) and not any(map(needs_needles, chosen)):
            raise PosirError("--question-writer and --llm go with --probe needle_distractors.")
        if llm and not question_writer:
            raise PosirError("--llm writes questions; near-misses need an embedder, too. Add --question-writer.")
        source = open_probe_source(data, column=column, limit=documents, selection=selection)
        encoder = load_encoder(str(model), revision, batch_size=batch_size)
        writer = NeedleWriter(load_encoder(question_writer, batch_size=batch_size), llm) if question_writer else None
    results = run_probes(ProbeRun(encoder, source, Path(output_folder), documents, selection, writer), chosen)
    return ProbeMeasurements(tuple(results), Path(output_folder), tuple(source.skipped))


def correlate(results: str | Path, *, families: str | Path | None = None) -> TableResult:
    """Correlate what probes measure with PSI and the difference from start to end, over models: which probe predicts retrieval?

    Args:
        results: A folder with results of `posir.evaluate` and `posir.probe` on several models.
        families: CSV file with the columns `model,family`: models of a family are variants of one model and not independent.
            Of other models the family is the name before a `+`.

    Returns:
        A row for each probe, task and score: Spearman's rho in [-1, 1] with its 95 % interval over models or families, the
        p-value of a permutation, Holm-corrected for the probes, how many independent models would be needed, and a verdict.

    Raises:
        PosirError: There are no results of tasks or of probes in the folder.

    Examples:
        >>> import posir
        >>> posir.probe("./my-model", probes=["mirror"], documents=3, output_folder="my-results")
        ProbeMeasurements: Probes of...
        >>> posir.evaluate("./my-model", "PosIR-Mini", output_folder="my-results")[0].task
        'PosIR-Mini'
        >>> posir.correlate("my-results").to_polars()["rho"].to_list()
        [None, None]
    """
    from posir_probe.catalog import all_probes
    from posir_probe.correlation import FURTHER, NOTES, build_table, describe_findings, read_families
    from posir_probe.correlation import correlate as correlate_probes
    from posir_probe.results import read_results as read_probe_results

    folder = Path(results)
    known = read_families(Path(families)) if families else {}
    rows = correlate_probes(read_probe_results(folder), summarize(read_results(folder)), all_probes(), known)
    if not rows:
        raise PosirError(f"{folder}: no results of probes. Run `posir probe MODEL --output {folder}` first.")
    return TableResult(
        title="Which probe predicts retrieval?",
        rows=rows,
        tables=[build_table(rows)],
        sentences=describe_findings(rows),
        notes=NOTES,
        further=FURTHER,
    )
