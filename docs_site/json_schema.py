"""Generate the JSON schemas for the output of `--format json` from the dataclasses of the commands.

Other keys are not allowed. An estimate `x` has the keys `x` and `x_interval`, which contains the
bounds of the interval or is null.
"""

import ast
import inspect
import sys
import textwrap
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, fields
from enum import Enum
from typing import Any

from posir_inspect.inspection import Inspection
from posir_inspect.live_index import IndexInspection
from posir_inspect.sections import COLUMNS, OtherWords, PositionScores
from posir_report.columns import list_score_columns
from posir_score.evaluation import RunCounts, RunScores
from posir_score.retrieved_chunks import EvidenceScores
from posir_significance.findings import (
    WITHOUT_INTERVAL,
    ChangeRow,
    ChangeSubject,
    DataUnit,
    Quantity,
    Reason,
    State,
)
from posir_tasks.data.judgment_audit import AUDIT_CHECKS, TOTALS, SuspiciousItems
from posir_tasks.display.presentation import Result
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.judgments import METRICS
from posir_tasks.values.read_part import ReadPart
from posir_tasks.values.schemes import Axes
from posir_tasks.values.scores import BINS_KEY, GROUPS_KEY, Unit

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
COUNT: Schema = {"type": "integer"}
COUNT_OR_NULL: Schema = {"type": ["integer", "null"]}
NUMBER: Schema = {"type": "number"}
NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
PLAIN_TYPES = {
    str: TEXT,
    int: COUNT,
    float: NUMBER,
    bool: {"type": "boolean"},
    types.NoneType: {"type": "null"},
}
INTERVAL: Schema = {"type": ["array", "null"], "items": NUMBER, "minItems": 2, "maxItems": 2}

#: Schema of a value or an interval.
ESTIMATES: Schema = {"type": ["number", "array", "null"]}


def build_array(items: Schema) -> Schema:
    """Build the schema of a list."""
    return {"type": "array", "items": items}


def build_object(properties: Mapping[str, Schema], optional: Iterable[str] = ()) -> Schema:
    """Build the schema of an object with only these keys."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in set(optional)],
        "additionalProperties": False,
    }


def build_mapping(values: Schema) -> Schema:
    """Build the schema of an object with arbitrary keys."""
    return {"type": "object", "additionalProperties": values}


def describe_estimate(name: str) -> dict[str, Schema]:
    """Describe the two keys of an estimate, both of which may be null."""
    return {name: NUMBER_OR_NULL, f"{name}_interval": INTERVAL}


def describe_type(kind: Any) -> Schema:
    """Describe the values of a type."""
    if kind is Any:
        return {}
    if kind in PLAIN_TYPES:
        return PLAIN_TYPES[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return describe_type(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [describe_type(argument) for argument in arguments]}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    return describe_class(kind) if origin is None else describe_collection(kind)


def describe_class(kind: type) -> Schema:
    """Describe the members of an enumeration or the fields of a dataclass."""
    if issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if kind is ReadPart:
        return READ
    properties = describe_fields(kind)
    return build_object(properties, find_intervals(properties))


def describe_collection(kind: Any) -> Schema:
    """Describe a mapping or a sequence."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        is_estimate = isinstance(arguments[1], type) and issubclass(arguments[1], Estimate)
        return build_mapping(ESTIMATES if is_estimate else describe_type(arguments[1]))
    if isinstance(origin, type) and issubclass(origin, Sequence):
        items = [describe_type(argument) for argument in arguments if argument is not Ellipsis]
        return build_array({"anyOf": items} if len(items) > 1 else items[0])
    raise TypeError(f"{kind} has no schema")


def describe_fields(kind: type, omit: Iterable[str] = ()) -> dict[str, Schema]:
    """Describe the fields of a dataclass with their docstrings. An estimate has two keys."""
    texts = read_docstrings(kind)
    properties: dict[str, Schema] = {}
    for field in fields(kind):
        if field.name in omit:
            continue
        hint = read_type(kind, field)
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        if any(isinstance(option, type) and issubclass(option, Estimate) for option in options):
            properties |= describe_estimate(field.name)
        else:
            properties[field.name] = describe_type(hint)
        if field.name in texts:
            properties[field.name] = properties[field.name] | {"description": texts[field.name]}
    return properties


def read_type(kind: type, field: Field[Any]) -> Any:
    """Return the type of a field, which may be an annotation in a string."""
    if not isinstance(field.type, str):
        return field.type
    owner = next(base for base in kind.__mro__ if field.name in inspect.get_annotations(base))
    return eval(field.type, vars(sys.modules[owner.__module__]))


def read_docstrings(kind: type) -> dict[str, str]:
    """Return the docstring of each field of a class."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    texts: dict[str, str] = {}
    for statement, after in zip(tree.body, tree.body[1:], strict=False):
        is_field = isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
        if is_field and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            texts[statement.target.id] = " ".join(str(after.value.value).split())
    return texts


def find_intervals(properties: Iterable[str]) -> list[str]:
    """Return the keys of intervals, which are missing if the estimate is null."""
    return [name for name in properties if name.endswith("_interval")]


def describe_findings() -> dict[str, Schema]:
    """Describe the JSON of `GroupFindings`."""
    properties: dict[str, Schema] = {
        "state": describe_type(State),
        "reason": describe_type(Reason | None),
        "margin": NUMBER,
        "level": NUMBER,
        "questions": COUNT,
        "documents": COUNT,
        "tested_questions": COUNT,
        "tested_documents": COUNT,
        "read": READ,
    }
    properties |= {f"{unit.value}_needed": COUNT_OR_NULL for unit in DataUnit}
    for quantity in Quantity:
        name = quantity.value
        properties |= (
            {name: NUMBER_OR_NULL} if quantity in WITHOUT_INTERVAL else describe_estimate(name)
        )
    return properties


def describe_scores() -> Schema:
    """Describe the declared scores of a group of questions. Undefined scores are missing."""
    properties: dict[str, Schema] = {}
    for score in list_score_columns():
        kind = TEXT_OR_NULL if score.unit is Unit.TEXT else NUMBER_OR_NULL
        properties |= describe_estimate(score.key) if score.interval else {score.key: kind}
        properties[score.key] = properties[score.key] | {"description": score.description}
    return build_object(properties, properties)


def describe_report() -> Schema:
    """Describe the JSON of `posir report`: results with evidence positions and judged results."""
    group = build_object(
        {
            **describe_findings(),
            "answer": {"anyOf": [build_mapping(TEXT), {"type": "null"}]},
            "scores": describe_scores(),
        }
    )
    # A group without findings has only scores.
    group["required"] = ["answer", "scores"]
    places = {
        "queries": COUNT,
        "places": COUNT,
        "left_out": COUNT,
        "place_recall_at_10": NUMBER_OR_NULL,
        "place_recall_at_100": NUMBER_OR_NULL,
        "shares": {"anyOf": [build_array(NUMBER), {"type": "null"}]},
        "ndcg_at_10_by_third": {"anyOf": [build_array(NUMBER_OR_NULL), {"type": "null"}]},
        **describe_findings(),
    }
    profile = {
        "schema": COUNT,
        "axes": describe_type(Axes),
        "ranks": TEXT,
        "queries": COUNT,
        "totals": build_array(TEXT),
        "counts": build_array(build_array(TEXT)),
    }
    with_positions = {
        "model": TEXT,
        "revision": TEXT,
        "task": TEXT,
        "data_revision": TEXT,
        "subsets": build_array(TEXT),
        "missing_subsets": build_array(TEXT),
        GROUPS_KEY: build_mapping(group),
        BINS_KEY: build_array(build_object({"position": TEXT, "scores": describe_scores()})),
        "position_profile": build_object(profile),
        "training_overlap": build_object({"sources": build_array(TEXT), "share": NUMBER_OR_NULL}),
        "places": build_object(
            places, describe_findings() | describe_estimate("place_recall_at_10")
        ),
    }
    metrics: dict[str, Schema] = {}
    for metric in METRICS:
        metrics |= describe_estimate(metric)
    without_positions = {
        "model": TEXT,
        "revision": TEXT,
        "task": TEXT,
        "length": TEXT,
        "queries": COUNT_OR_NULL,
        "clusters": COUNT_OR_NULL,
        "clusters_by": TEXT_OR_NULL,
        **metrics,
        **describe_estimate("corpus_not_read"),
        "subsets": COUNT,
        "subset": TEXT_OR_NULL,
        "data_revision": TEXT,
    }
    intervals = find_intervals(without_positions)
    results = [build_object(with_positions, ["places"]), build_object(without_positions, intervals)]
    return build_array({"anyOf": results})


def describe_comparison() -> Schema:
    """Describe the JSON of `posir compare`."""
    subject = describe_fields(ChangeSubject)
    row = describe_fields(ChangeRow, omit=["estimate", "needed", "subject"])
    names = ("baseline", "model", "task", "subsets", "length", "queries", "documents", "method")
    columns = {
        **{name: subject[name] for name in names},
        **row,
        **describe_estimate("difference"),
        "needed": COUNT_OR_NULL,
        "needed_unit": describe_type(DataUnit | None),
        "answer": TEXT,
        "baseline_reads": TEXT,
        "model_reads": TEXT,
    }
    return build_object(
        {
            "baseline": TEXT,
            "comparisons": build_array(build_object(columns, find_intervals(columns))),
            "notes": build_array(TEXT),
        }
    )


def describe_statistics() -> Schema:
    """Describe the JSON of `posir stats`. Additional keys of a row are counts and lengths."""
    row = {
        "language": TEXT,
        "domain": TEXT,
        "documents": COUNT,
        "queries": COUNT,
        "relevant_documents": COUNT,
        "length_unit": TEXT,
        "histogram": build_mapping(build_array(COUNT)),
    }
    rows = build_object(row) | {"additionalProperties": NUMBER_OR_NULL}
    return build_object(
        {
            "dataset": TEXT,
            "source": TEXT,
            "scheme": TEXT,
            "positions": build_array(TEXT),
            "rows": build_array(rows),
        }
    )


def describe_audit() -> Schema:
    """Describe the JSON of a judgment audit."""
    items = describe_type(SuspiciousItems)
    properties = {key: describe_type(int) | {"description": text} for key, text in TOTALS.items()}
    properties |= {key: items | {"description": kind.label} for key, kind in AUDIT_CHECKS.items()}
    properties["lost"] = build_array(build_array({"anyOf": [TEXT, items]}))
    return build_object(properties)


def describe_runs() -> Schema:
    """Describe the JSON of `posir score` without --chunker."""
    omit = ("counts", "folder", "evidence", "audit", "main_score", "retriever_description")
    optional = {"retriever": TEXT, "evidence": describe_type(EvidenceScores)}
    properties = {
        **describe_fields(RunScores, omit=omit),
        **describe_fields(RunCounts),
        "judgments": describe_audit(),
        **optional,
    }
    # Scores of chunks at each depth, such as evidence_recall_at_5 and lost_not_read_at_5.
    pattern = r"^(evidence_recall|iou|precision|lost_\w+)_at_\d+(_interval)?$"
    return build_array(
        build_object(properties, optional) | {"patternProperties": {pattern: ESTIMATES}}
    )


def describe_inspection() -> Schema:
    """Describe the JSON of `posir inspect` for models and retrievers."""
    base = {field.name for field in fields(Result)} | {"snippets"}
    omit = base | {"window", "other_words", "fading", "chunks"}
    null: Schema = {"type": "null"}
    window = {
        **dict.fromkeys(("model", "part", "unit"), TEXT),
        **dict.fromkeys(("revision", "claimed_by", "refusal"), TEXT_OR_NULL),
    }
    chunks = build_object(
        {
            "chosen": TEXT,
            "decided": {"type": "boolean"},
            "chunked_model": TEXT_OR_NULL,
            "sentences": build_array(TEXT),
        }
    )
    scores = describe_fields(PositionScores, omit=["groups", "group"])
    scores["groups"] = build_mapping(build_object(describe_findings()))
    texts = ("model", "chunker", "wording", "length", "state", "reason", "change_state")
    row: dict[str, Schema] = {}
    for name in COLUMNS:
        row |= {name: TEXT_OR_NULL} if name in texts else describe_estimate(name)
    properties = {
        **describe_fields(Inspection, omit),
        "window": build_object(window) | {"additionalProperties": True},
        "read": READ,
        "other_words": {"anyOf": [build_object(describe_fields(OtherWords, ["chunks"])), null]},
        "fading": build_array(build_object(scores)),
        "chunks": {"anyOf": [chunks, null]},
        "chunks_in_other_words": {"anyOf": [chunks, null]},
        "rows": build_array(build_object(row, find_intervals(row))),
    }
    omit = {field.name for field in fields(Result)} - {"rows"}
    retriever = describe_fields(IndexInspection, omit)
    model = build_object(properties, find_intervals(properties))
    return {"anyOf": [model, build_object(retriever, find_intervals(retriever))]}


READ = build_object(describe_fields(ReadPart))
READ["required"] = ["kind"]
SCHEMAS = {
    "report": describe_report,
    "compare": describe_comparison,
    "stats": describe_statistics,
    "score": describe_runs,
    "inspect": describe_inspection,
}


def build_schema(command: str) -> Schema:
    """Build the JSON schema of a command."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"posir {command} --format json",
        **SCHEMAS[command](),
    }
