"""Protocols: how the authors of each paper ran each model.

`protocols.csv` has a row for a paper and a model, with the place in the authors' code or text that
says so. An empty cell means that the authors set nothing there, so that the library's or the
model's own setting holds; before texts, it means no prompt. `unknown` is not known, is not applied,
and is printed as such.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias, get_args

from posir_tasks.base.errors import PosirError
from posir_tasks.models.references import LOCAL, bare_name

PaperName: TypeAlias = Literal[
    "posq", "myopic-trap", "posir", "posir-saliency", "built-in-or-learned", "bias-learning"
]
PAPERS: tuple[str, ...] = get_args(PaperName)
#: Short titles of the papers.
TITLES = {
    "posq": "PosQ",
    "myopic-trap": "Myopic Trap",
    "posir": "PosIR",
    "posir-saliency": "PosIR, figure 5",
    "built-in-or-learned": "Built-in or Learned",
    "bias-learning": "Bias Learning",
}
#: Papers with published results, by the beginning of the tasks' names.
TASKS: Mapping[str, str] = {"SQuAD-PosQ": "posq", "FineWeb-PosQ": "posq", "PosIR": "posir"}
UNKNOWN = "unknown"
#: Fields that a loaded model is given, with their names in sentences; in the order in which they
#: are listed.
SETTINGS = {
    "query_prompt": "query prompt",
    "document_prompt": "document prompt",
    "prompt_is_pooled": "prompt pooled",
    "eos": "end of text",
    "max_query_tokens": "query window",
    "max_document_tokens": "window",
    "dimensions": "dimensions",
    "dtype": "dtype",
    "attention": "attention",
    "padding_side": "padding side",
    "pooling": "pooling",
    "rerank_instruction": "instruction",
    "rerank_template": "template",
}
#: Fields that are stated: how probes cut texts, what searches, and with what it was run.
STATED = {
    "cut_tokens": "texts of probes cut to tokens",
    "first_stage": "first stage",
    "depth": "reranked",
    "index": "index",
    "versions": "versions",
}


@dataclass(frozen=True)
class Protocol:
    """A way in which the authors of a paper ran a model: a row of `protocols.csv`."""

    paper: str
    model: str
    """Name under which mteb files results."""
    kind: str
    query_prompt: str
    document_prompt: str
    prompt_is_pooled: str
    eos: str
    """Text that is appended to every text, or `none` if the tokenizer must append none."""
    max_query_tokens: str
    max_document_tokens: str
    """Window; of rerankers, of question and text together."""
    dimensions: str
    dtype: str
    attention: str
    padding_side: str
    pooling: str
    rerank_instruction: str
    rerank_template: str
    cut_tokens: str
    """Tokens that probes cut texts to; of a text with a needle, of both together."""
    depth: str
    """Documents that are reranked."""
    first_stage: str
    """The model whose documents are reranked, as `TASK=MODEL`, for tasks whose names begin like
    that.
    """
    index: str
    versions: str
    mteb_differs: str
    """Fields, separated by spaces, in which mteb's own settings of the model are others or are left
    to the model.
    """
    source: str
    """Repository@commit and place, or the part of the paper's text."""
    status: str
    """Whether it was read in `code` or `text`."""

    def find(self, name: str) -> str | None:
        """Return the value of a field; None if the authors set nothing, or it is unknown."""
        value: str = getattr(self, name)
        # Papers whose probes have no queries say nothing of them.
        is_prompt = name == "document_prompt" or (
            name == "query_prompt" and self.kind not in ("probe", "training")
        )
        return None if value == UNKNOWN or (not value and not is_prompt) else value

    def find_first_stage(self, task: str) -> str | None:
        """Return the model whose documents the authors reranked on a task; None if they ran nothing
        on it.
        """
        stages = (pair.partition("=") for pair in self.first_stage.split())
        return next((model for prefix, _, model in stages if task.startswith(prefix)), None)

    def asked(self) -> dict[str, str]:
        """Return every field that the row sets or declares unknown."""
        values = {
            name: getattr(self, name) for name in ("paper", *SETTINGS, *STATED, "source", "status")
        }
        prompts = ("query_prompt", "document_prompt")
        return {name: value for name, value in values.items() if value or name in prompts}


@cache
def read_protocols() -> Mapping[tuple[str, str], Protocol]:
    """Return every row by paper and model."""
    text = (files("posir_tasks.models") / "protocols.csv").read_text(encoding="utf-8")
    rows = [
        Protocol(**{name: value.replace("\\n", "\n") for name, value in row.items()})
        for row in csv.DictReader(text.splitlines())
    ]
    return {(row.paper, row.model): row for row in rows}


def list_protocols(paper: str) -> list[Protocol]:
    """Return the rows of a paper; raise PosirError if there is no such paper."""
    if paper not in PAPERS:
        raise PosirError(f"protocol '{paper}': no such paper. There are {', '.join(PAPERS)}.")
    return [row for row in read_protocols().values() if row.paper == paper]


def find_protocol(paper: str, model: str) -> Protocol:
    """Return the row of a paper and a model by its full or bare name; raise PosirError if there is
    none.
    """
    rows = list_protocols(paper)
    plain = model.partition("+")[0].removeprefix(f"{LOCAL}/")
    protocol = next((row for row in rows if plain in (row.model, bare_name(row.model))), None)
    if protocol is None:
        raise PosirError(
            f"protocol {paper}: the paper's authors did not run {model}. They ran "
            f"{', '.join(row.model for row in rows)}."
        )
    return protocol


def describe_difference(paper: str, model: str) -> str:
    """Describe the settings in which mteb is known to differ from how a paper's authors ran a
    model; "" if there are none.
    """
    name = _plain_name(model)
    row = next((row for row in list_protocols(paper) if _plain_name(row.model) == name), None)
    if row is None or not row.mteb_differs:
        return ""
    names = {**SETTINGS, **STATED}
    differing = [
        name
        for name in row.mteb_differs.split()
        if name != "max_query_tokens" or row.kind == "reranker"
    ]
    parts = (
        f"{names[name]} {quote_value(getattr(row, name) or 'of the model itself')}"
        for name in differing
    )
    return f"mteb's settings; the authors of {TITLES[paper]}: {', '.join(parts)}"


def list_differences(runs: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each difference between mteb's settings and those of the authors whose
    figures are shown next to the models.

    Runs are pairs of a paper, or a task that it has figures on, and a model.
    """
    models: dict[str, dict[str, None]] = {}
    for subject, model in runs:
        papers = [subject] if subject in PAPERS else []
        papers += [paper for start, paper in TASKS.items() if subject.startswith(start)]
        difference = describe_difference(papers[0], model) if papers else ""
        if difference:
            models.setdefault(difference, {})[model] = None
    return [f"{', '.join(names)}: {difference}." for difference, names in models.items()]


def _plain_name(model: str) -> str:
    """Reduce a name to the form that results and papers share."""
    return bare_name(model).casefold().removesuffix("-dense")


def quote_value(value: str) -> str:
    """Format a value of a row for a sentence."""
    if value.isdecimal():
        return f"{int(value):,}"
    quoted = value != value.strip() or " " in value or not value
    return '"' + value.replace("\n", "\\n") + '"' if quoted else value
