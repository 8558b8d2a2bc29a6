"""Fake records for a leaderboard, with plausible and reproducible numbers."""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from posir_leaderboard.board.groups import Group
from posir_leaderboard.board.published import list_published_records
from posir_leaderboard.board.records import (
    BIN_COLUMNS,
    BoardModel,
    BoardRecord,
    BoardRow,
    build_row_columns,
)
from posir_leaderboard.board.site import bundle_table_library
from posir_leaderboard.board.views import View
from posir_significance.decision import DEFAULT_MARGINS, decide_state
from posir_significance.findings import Finding, GroupFindings, Quantity, Reason, State
from posir_tasks.display.chart_library import load_chart_library
from posir_tasks.text.languages import DOMAINS
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.read_part import ReadPart, WindowSource

LENGTHS = ("all", "Q1", "Q2", "Q3", "Q4")
POSITIONS = [f"({index / 20:.2f}, {(index + 1) / 20:.2f}]" for index in range(20)]
KINDS = ("Dense", "Dense", "Dense", "Sparse", "Late interaction", "Cross-encoder")


def fake_model(number: int, name: str | None = None) -> BoardModel:
    rng = np.random.default_rng([number, 1])
    return BoardModel(
        name=name or f"org{number % 40}/model-{number}-{'base' if number % 3 else 'large'}",
        revision=f"{rng.integers(2**63):016x}",
        kind=str(rng.choice(KINDS)),
        parameters=int(10 ** rng.uniform(7, 10.2)),
        window=int(rng.choice([256, 512, 8192, 32768])),
        dimensions=int(rng.choice([384, 768, 1024, 4096])),
        open_weights=bool(rng.random() < 0.8),
        license="apache-2.0" if number % 4 else "mit",
        reference=f"https://huggingface.co/org{number % 40}/model-{number}",
    )


def fake_record(model: BoardModel, task: str, seed: int, *, detail: bool = True) -> BoardRecord:
    """Build a record; without `detail`, the model's page has only the rows."""
    rng = np.random.default_rng([seed, 2])
    level, slope = rng.uniform(0.3, 0.68), rng.uniform(-0.02, 0.25)
    scores = np.clip(
        level + slope * (0.5 - (np.arange(20) + 0.5) / 20) + rng.normal(0, 0.012, (5, 20)),
        0.01,
        0.99,
    )
    rows = [
        fake_row(model.name, task, length, scores[index]) for index, length in enumerate(LENGTHS)
    ]
    return BoardRecord(
        model, task, tuple(rows), fake_detail(model, task, scores, rng) if detail else NO_DETAIL
    )


#: Share of the evidence that every fake model truncates.
UNREAD_SHARE = 0.25


def fake_findings(effect: float, error: float = 0.02, state: State | None = None) -> GroupFindings:
    """Build findings with half the given effect within the window."""
    within = Estimate(effect / 2, (effect / 2 - 2 * error, effect / 2 + 2 * error))
    facts = {
        Quantity.NDCG_AT_10: Estimate(0.5, (0.45, 0.55)),
        Quantity.UNREAD_SHARE: Estimate(UNREAD_SHARE),
        Quantity.TRUNCATION_LOSS: Estimate(0.1, (0.05, 0.15)),
        Quantity.POSITION_EFFECT: Estimate(effect, (effect - 2 * error, effect + 2 * error)),
    }
    findings = {quantity: Finding(quantity, facts.get(quantity)) for quantity in Quantity}
    verdict = Quantity.POSITION_EFFECT_IN_WINDOW
    state = state or decide_state(within, DEFAULT_MARGINS.position_effect)
    reason = {State.INCONCLUSIVE: Reason.WIDE_INTERVAL, State.NOT_TESTED: Reason.NOT_STORED}.get(
        state
    )
    margin = DEFAULT_MARGINS.position_effect
    findings[verdict] = Finding(verdict, within, state=state, reason=reason, margin=margin)
    read = ReadPart.first(256, WindowSource.CLASS)
    return GroupFindings(
        findings=findings,
        read=read,
        questions=720,
        documents=72,
        tested_questions=331,
        tested_documents=72,
    )


def fake_row(model: str, task: str, length: str, bins: np.ndarray) -> BoardRow:
    queries = 42_000 if length == "all" else 10_500
    score, psi = float(bins.mean()), float(1 - bins.min() / bins.max())
    error = 1.96 * float(np.sqrt(0.17 / queries))
    difference = float(bins[:7].mean() - bins[14:].mean())
    chance = 4.7 * float(np.sqrt(0.17 / (queries / 20))) / score
    findings = fake_findings(difference)
    estimates = {
        finding.quantity.value: finding.estimate
        for finding in findings.findings.values()
        if finding.estimate
    }
    return BoardRow(
        model=model,
        task=task,
        length=length,
        findings=findings,
        scores={
            **estimates,
            "queries": queries,
            "ndcg_at_10": Estimate(score, (score - error, score + error)),
            "ndcg_at_10_as_published": Estimate(
                score - 0.005, (score - 0.005 - error, score - 0.005 + error)
            ),
            "psi_as_published": psi,
            "psi_by_chance": Estimate(chance * 0.7, (chance * 0.4, chance)),
            "start_minus_end": Estimate(
                difference, (difference - 2 * error, difference + 2 * error)
            ),
            "unread_share": UNREAD_SHARE,
            "state": findings.state.value,
        },
    )


NO_DETAIL = {
    "lengths": [],
    "positions": [],
    "position_title": "",
    "relative": True,
    "panels": [],
    "curves": [],
    "subsets": None,
    "data_revision": "main",
    "data": "0123456789abcdef",
    "date": "2026-01-31",
    "notes": [],
}


def fake_detail(
    model: BoardModel, task: str, scores: np.ndarray, rng: np.random.Generator
) -> dict[str, object]:
    domains = [
        fake_row(model.name, task, "all", np.clip(scores[0] + rng.normal(0, 0.06), 0.01, 0.99))
        for _ in DOMAINS
    ]
    panels = []
    for bins, queries in zip(scores, (2_100, 525, 525, 525, 525), strict=True):
        error = 1.96 * np.sqrt(0.17 / queries)
        ends = (bins, bins - error, bins + error)
        panels.append(
            dict(
                zip(
                    BIN_COLUMNS,
                    ([queries] * 20, *(end.clip(0, 1).round(6).tolist() for end in ends)),
                    strict=True,
                )
            )
        )
    return NO_DETAIL | {
        "lengths": ["All lengths", *(f"{name}: some tokens" for name in LENGTHS[1:])],
        "positions": POSITIONS,
        "position_title": "Position of the evidence (0: start of the document, 1: end)",
        "panels": panels,
        "subsets": {"name": list(DOMAINS), **build_row_columns(domains)},
        "notes": [f"{model.name} reads {model.window} tokens of a document."],
    }


LANGUAGES = {"PosIR-English": "English", "PosIR-German": "German", "PosIR-Hindi": "Hindi"}
#: Two groups of tasks, built without mteb.
GROUPS = [
    Group("PosIR", "Language", "Two languages.", LANGUAGES, ("PosIR-English", "PosIR-German")),
    Group("PosIR-Mini", "Dataset", "A small set.", {"PosIR-Mini": "PosIR-Mini"}),
]


#: Replaces the libraries if no browser loads them.
NO_LIBRARIES = {"datatables": "", "vega": ""}


@cache
def published() -> list[BoardRecord]:
    return list_published_records()


@cache
def libraries() -> dict[str, str]:
    return {"datatables": bundle_table_library(), "vega": load_chart_library()}


def hostile_names() -> list[str]:
    """List hostile model names, most of which are rejected on reading."""
    return [
        "<img src=x onerror=alert(1)>",
        "</script><script>alert(1)</script>",
        "org/\"quoted\" 'name' `${alert(1)}`",
        "org/\u202egnp.exe\u202c",
        "org/" + "long-" * 59 + "name",
        "../../../etc/passwd",
        "CON",
        "org/name\nwith\tbreaks\u2028here",
        '=HYPERLINK("http://evil.example","x")',
        "\ud800",
        "",
        "constructor",
        "__proto__",
        "org/a,b",
    ]


def columns_at(view: View, length: str) -> dict[str, list[Any]]:
    return view.build_columns(length, view.compute_differences())


def length_columns(data: Mapping[str, Any], file: str, length: str) -> dict[str, list[Any]]:
    view = data[f"views/{file}"]
    return (
        view["columns"]
        if length == view["opening"]
        else data[f"lengths/{file}-{view['lengths'].index(length)}"]
    )


def read_site(folder: Path) -> dict[str, bytes]:
    """Read every file of a site, by path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def contents(site: Mapping[str, bytes]) -> dict[str, Any]:
    """Parse the data files of a site, by name."""
    values = {}
    for path, body in site.items():
        if path.startswith("data/"):
            name, quoted = re.fullmatch(
                r"board\.receive\((\".*?\"),JSON\.parse\('(.*)'\)\);\n", body.decode("ascii")
            ).groups()
            values[json.loads(name)] = json.loads(re.sub(r"\\(.)", r"\1", quoted))
    return values
