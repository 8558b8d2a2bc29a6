"""The scores that plugins declare, and their values for a result."""

import logging
from collections.abc import Iterator

from posir_tasks.plugin_api.manager import loaded_plugins
from posir_tasks.scores import ResultScores, ResultValues, Score, ScoreValue, check_value

logger = logging.getLogger(__name__)


def declared_scores() -> list[Score]:
    """Return the scores that all plugins declare, in the order of the plugins' names; warn about each that cannot be used."""
    return [score for _, score in _declared()]


def _declared() -> Iterator[tuple[str, Score]]:
    """Yield the name of the plugin and the score for each declared score whose key is not in use."""
    owners: dict[str, str] = {}
    for name, caller in loaded_plugins().callers("posir_scores"):
        try:
            scores = [score for answer in caller() for score in answer]
        except Exception as error:
            logger.warning("posir plugin '%s' raised %s: %s; its scores are missing", name, type(error).__name__, error)
            continue
        for score in scores:
            if not isinstance(score, Score):
                logger.warning(
                    "posir plugin '%s' declared %r, which is no posir_tasks.scores.Score; it is omitted", name, score
                )
            elif score.key in owners:
                logger.warning(
                    "posir plugin '%s' declared a score '%s', a key of plugin '%s'; it is omitted",
                    name,
                    score.key,
                    owners[score.key],
                )
            else:
                owners[score.key] = name
                yield name, score


def score_result(values: ResultValues) -> ResultScores:
    """Compute every declared score for each group of queries, and for each position bin those declared for bins.

    A score that raises for one group is omitted from all, with a warning that names its plugin.
    """
    declared: list[Score] = []
    # Plugins cache by group what several of their scores need.
    query_groups, position_bins = list(values.groups()), list(values.bins())
    groups: dict[str, dict[str, ScoreValue]] = {group.name: {} for group in query_groups}
    bins: list[dict[str, ScoreValue]] = [{} for _ in position_bins]
    for name, score in _declared():
        try:
            by_group = [check_value(score.compute(group)) for group in query_groups]
            by_bin = [check_value(score.compute(group)) for group in position_bins] if score.by_position else []
        except Exception as error:
            logger.warning(
                "posir plugin '%s': score '%s' raised %s: %s; it is missing", name, score.key, type(error).__name__, error
            )
            continue
        declared.append(score)
        for group, value in zip(groups.values(), by_group, strict=True):
            group[score.key] = value
        for bin_, value in zip(bins, by_bin, strict=bool(by_bin)):
            bin_[score.key] = value
    return ResultScores(tuple(declared), groups, tuple(bins))
