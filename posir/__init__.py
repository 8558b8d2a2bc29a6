"""PosIR in Python: a flat namespace with one function per question.

Functions return immutable results with `to_polars`, `to_pandas` and `to_json`, which terminals and
notebooks display. Invalid input raises `PosirError`. Functions are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posir_build.api import build as build
    from posir_build.api import build_agreement as build_agreement
    from posir_build.api import build_sample as build_sample
    from posir_build.api import rate_translations as rate_translations
    from posir_compare.api import compare as compare
    from posir_data.api import import_data as import_data
    from posir_data.api import validate as validate
    from posir_inspect.api import inspect as inspect
    from posir_inspect.api import window as window
    from posir_leaderboard.api import leaderboard_build as leaderboard_build
    from posir_leaderboard.api import leaderboard_pin as leaderboard_pin
    from posir_leaderboard.api import leaderboard_push as leaderboard_push
    from posir_leaderboard.api import leaderboard_serve as leaderboard_serve
    from posir_leaderboard.api import submit as submit
    from posir_mitigate.api import mitigate as mitigate
    from posir_mitigate.api import open_model as open_model
    from posir_probe.api import correlate as correlate
    from posir_probe.api import domain_similarity as domain_similarity
    from posir_probe.api import model_means as model_means
    from posir_probe.api import probe as probe
    from posir_probe.api import probe_groups as probe_groups
    from posir_probe.api import subset_validity as subset_validity
    from posir_psi.api import psi as psi
    from posir_published.api import published as published
    from posir_recipes.api import recipe as recipe
    from posir_report.api import read_results as read_results
    from posir_report.api import report as report
    from posir_run.api import evaluate as evaluate
    from posir_run.api import nano as nano
    from posir_run.api import run as run
    from posir_score.api import score as score
    from posir_significance.api import power as power
    from posir_stats.api import stats as stats
    from posir_tasks.base.errors import PosirError as PosirError
    from posir_tasks.command.api import doctor as doctor
    from posir_tasks.command.api import rescore as rescore
    from posir_tasks.command.api import tasks as tasks
    from posir_tasks.datasets.opening import open_data as open_data
    from posir_train.api import compose as compose
    from posir_train.api import train as train
    from posir_train.evaluation import PositionCurveCallback as PositionCurveCallback
    from posir_train.evaluation import PositionEvaluator as PositionEvaluator

#: Module of each public name, the same as in the imports for type checkers.
_MODULES = {
    name: module
    for module, names in {
        "posir_build.api": "build build_agreement build_sample rate_translations",
        "posir_compare.api": "compare",
        "posir_data.api": "import_data validate",
        "posir_inspect.api": "inspect window",
        "posir_leaderboard.api": "leaderboard_build leaderboard_pin leaderboard_push "
        "leaderboard_serve submit",
        "posir_mitigate.api": "mitigate open_model",
        "posir_probe.api": "correlate domain_similarity model_means probe probe_groups "
        "subset_validity",
        "posir_psi.api": "psi",
        "posir_published.api": "published",
        "posir_recipes.api": "recipe",
        "posir_report.api": "read_results report",
        "posir_run.api": "evaluate nano run",
        "posir_score.api": "score",
        "posir_significance.api": "power",
        "posir_stats.api": "stats",
        "posir_tasks.command.api": "doctor rescore tasks",
        "posir_tasks.base.errors": "PosirError",
        "posir_tasks.datasets.opening": "open_data",
        "posir_train.api": "compose train",
        "posir_train.evaluation": "PositionCurveCallback PositionEvaluator",
    }.items()
    for name in names.split()
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(
            f"module 'posir' has no attribute '{name}'; it has {', '.join(__all__)}"
        )
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
