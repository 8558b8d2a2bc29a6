"""Protocols: the settings that the authors of a paper used for a model.

`protocols.csv` has a row per paper and model, with its source in the authors' code or text. An
empty cell means that the authors kept the default of the library or model; for prompts, it means
no prompt. `unknown` is printed but not applied.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias, get_args

from posir_tasks.base.errors import PosirError
from posir_tasks.models.references import LOCAL, strip_organization

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
#: Papers with published results, by prefix of the task name.
PAPERS_BY_TASK: Mapping[str, str] = {"SQuAD-PosQ": "posq", "FineWeb-PosQ": "posq", "PosIR": "posir"}
UNKNOWN = "unknown"
#: Fields in which an empty value means no prompt.
PROMPT_FIELDS = ("query_prompt", "document_prompt")
#: Fields that are applied to a model, in this order, with their names on screen.
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
#: Other fields, which are reported but not applied.
REPORTED_FIELDS = {
    "cut_tokens": "probe text length in tokens",
    "first_stage": "first stage",
    "depth": "reranked",
    "index": "index",
    "versions": "versions",
}


@dataclass(frozen=True)
class Protocol:
    """A row of `protocols.csv`: the settings of a paper's authors for a model."""

    paper: str
    model: str
    """The model's full name in mteb."""
    kind: str
    query_prompt: str
    document_prompt: str
    prompt_is_pooled: str
    eos: str
    """Suffix of every text, or `none` if the tokenizer must not append one."""
    max_query_tokens: str
    max_document_tokens: str
    """Window for documents; for rerankers, for pairs of a query and a document."""
    dimensions: str
    dtype: str
    attention: str
    padding_side: str
    pooling: str
    rerank_instruction: str
    rerank_template: str
    cut_tokens: str
    """Length in tokens of the texts in probes, including a needle."""
    depth: str
    """Number of documents to rerank."""
    first_stage: str
    """First-stage models, as `TASK=MODEL` with a prefix of task names."""
    index: str
    versions: str
    mteb_differs: str
    """Fields, separated by spaces, for which mteb's settings differ or are the model's default."""
    source: str
    """`repository@commit` and location, or section of the paper."""
    status: str
    """Kind of the source: `code` or `text`."""

    def find(self, name: str) -> str | None:
        """Return the value of a field, or None for defaults and unknown values."""
        value: str = getattr(self, name)
        # Probes and training runs have no query prompt.
        is_prompt = name == "document_prompt" or (
            name == "query_prompt" and self.kind not in ("probe", "training")
        )
        return None if value == UNKNOWN or (not value and not is_prompt) else value

    def find_first_stage(self, task: str) -> str | None:
        """Return the first-stage model of a task, or None if the authors did not run the task."""
        stages = (pair.partition("=") for pair in self.first_stage.split())
        return next((model for prefix, _, model in stages if task.startswith(prefix)), None)

    def list_values(self) -> dict[str, str]:
        """Return the values of all fields that are set, including unknown ones."""
        values = {
            name: getattr(self, name)
            for name in ("paper", *SETTINGS, *REPORTED_FIELDS, "source", "status")
        }
        return {name: value for name, value in values.items() if value or name in PROMPT_FIELDS}


@cache
def read_protocols() -> list[Protocol]:
    """Read the protocols of all papers."""
    text = (files("posir_tasks.models") / "protocols.csv").read_text(encoding="utf-8")
    return [
        Protocol(**{name: value.replace("\\n", "\n") for name, value in row.items()})
        for row in csv.DictReader(text.splitlines())
    ]


def list_protocols(paper: str) -> list[Protocol]:
    """Return the protocols of a paper. Raise PosirError for an unknown paper."""
    if paper not in PAPERS:
        raise PosirError(f"protocol '{paper}': no such paper. There are {', '.join(PAPERS)}.")
    return [row for row in read_protocols() if row.paper == paper]


def find_protocol(paper: str, model: str) -> Protocol:
    """Return a paper's protocol for a model, given by its full or bare name.

    Raises:
        PosirError: The paper is unknown, or its authors did not run the model.
    """
    rows = list_protocols(paper)
    name = model.partition("+")[0].removeprefix(f"{LOCAL}/")
    protocol = next(
        (row for row in rows if name in (row.model, strip_organization(row.model))), None
    )
    if protocol is None:
        raise PosirError(
            f"protocol {paper}: the paper's authors did not run {model}. They ran "
            f"{', '.join(row.model for row in rows)}."
        )
    return protocol


def describe_differences(paper: str, model: str) -> str:
    """Describe how a paper's protocol differs from mteb's settings; empty if it does not."""
    name = _normalize_name(model)
    row = next((row for row in list_protocols(paper) if _normalize_name(row.model) == name), None)
    if row is None or not row.mteb_differs:
        return ""
    settings = [
        _describe_setting(row, name)
        for name in row.mteb_differs.split()
        if name != "max_query_tokens" or row.kind == "reranker"
    ]
    return f"mteb's settings; the authors of {TITLES[paper]}: {', '.join(settings)}"


def list_differences(runs: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each difference between mteb's settings and the papers' protocols.

    Each run consists of a paper, or a task with results in the paper, and a model.
    """
    models_by_difference: dict[str, dict[str, None]] = {}
    for subject, model in runs:
        papers = [subject] if subject in PAPERS else []
        papers += [paper for prefix, paper in PAPERS_BY_TASK.items() if subject.startswith(prefix)]
        difference = describe_differences(papers[0], model) if papers else ""
        if difference:
            models_by_difference.setdefault(difference, {})[model] = None
    return [
        f"{', '.join(models)}: {difference}." for difference, models in models_by_difference.items()
    ]


def _describe_setting(row: Protocol, name: str) -> str:
    title = {**SETTINGS, **REPORTED_FIELDS}[name]
    value: str = getattr(row, name)
    if value or name in PROMPT_FIELDS:
        return f"{title} {quote_value(value)}"
    return f"the model's own {title}"


def _normalize_name(model: str) -> str:
    return strip_organization(model).casefold().removesuffix("-dense")


def quote_value(value: str) -> str:
    """Format a protocol's value for a message."""
    if value.isdecimal():
        return f"{int(value):,}"
    needs_quotes = value != value.strip() or " " in value or not value
    return '"' + value.replace("\n", "\\n") + '"' if needs_quotes else value
