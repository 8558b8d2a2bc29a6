"""The declared scores of a result, by group."""

from posir_tasks.plugin_api import score_result
from posir_tasks.read_part import UNKNOWN
from posir_tasks.scores import ResultValues, scores_to_json
from tests.support.simulation import separate_documents


def score_groups(profile, ranks=None, read=UNKNOWN):
    """Return the scores of each group of queries as the result file has them; without ranks, each query has a document."""
    scores = score_result(ResultValues(ranks or separate_documents(profile), read))
    return {name: scores_to_json(group, scores.declared) for name, group in scores.groups.items()}
