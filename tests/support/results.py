"""Results of mteb on disk, made without a model, and the declared scores of one by group."""

import json
from dataclasses import replace
from pathlib import Path

from posir_tasks.plugin_api import score_result
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.profile import PositionProfile
from posir_tasks.values.read_part import UNKNOWN, ReadPart
from posir_tasks.values.result_schema import SCHEMA
from posir_tasks.values.scores import ResultValues, serialize_scores
from tests.support.rotations import rotate_ranks
from tests.support.simulation import separate_documents

MODEL, REVISION = "org/model", "rev1"


def write_result(
    output: Path,
    profiles: dict[str, PositionProfile | DocumentRanks],
    *,
    task: str = "PosIR-English",
    model: str = MODEL,
    revision: str = REVISION,
    experiment: str | None = None,
    read: ReadPart = UNKNOWN,
    hit_rates: tuple[float, float, float] | None = None,
    **scores: object,
) -> Path:
    """Write one task's result as mteb lays it out: ranks for each subset, and further scores;
    return the file.

    A profile stands for ranks in which every query has a document of its own. With `hit_rates`, the
    documents are rotated, and moved evidence is ranked first with that probability in each third.
    """
    ranks = {
        subset: replace(value, sets=tuple(replace(part, subset=subset) for part in value.sets))
        if isinstance(value, DocumentRanks)
        else separate_documents(value, subset)
        for subset, value in profiles.items()
    }
    folder = output / "results" / model.replace("/", "__") / revision
    if experiment:
        folder = folder / "experiments" / experiment
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model_meta.json").write_text(json.dumps({"name": model, "revision": revision}))
    entries = [
        {
            "hf_subset": subset,
            "languages": ["eng-Latn"],
            "main_score": round(value.profile.score(), 6),
            "ndcg_at_10": round(value.profile.score(), 6),
            **ResultValues(
                value, read, rotations=rotate_ranks(value, hit_rates) if hit_rates else None
            ).to_json(),
            "position_run": {"schema": SCHEMA, "data_revision": "local", "missing_subsets": []},
            **scores,
        }
        for subset, value in ranks.items()
    ]
    file = folder / f"{task}.json"
    file.write_text(
        json.dumps(
            {"dataset_revision": "main", "task_name": task, "scores": {"test": entries}}, indent=2
        )
    )
    return file


def score_groups(profile, ranks=None, read=UNKNOWN):
    """Return the scores of each group of queries as the result file has them; without ranks, each
    query has a document.
    """
    scores = score_result(ResultValues(ranks or separate_documents(profile), read))
    return {
        name: serialize_scores(group, scores.declarations) for name, group in scores.groups.items()
    }


def describe_run(revision: str, corpus: str = "c0", queries: str = "q0") -> dict[str, object]:
    """Return what a result on some data records of its run."""
    digest = {"corpus": corpus, "queries": queries}
    return {
        "schema": SCHEMA,
        "data_revision": revision,
        "data_digest": digest,
        "missing_subsets": [],
    }


def as_of_the_hub(file: Path, revision: str) -> Path:
    """Make a result of a local folder one of the Hub's."""
    data = json.loads(file.read_text())
    data["dataset_revision"] = revision
    for scores in data["scores"]["test"]:
        scores["position_run"]["data_revision"] = revision
    file.write_text(json.dumps(data))
    return file
