"""All probes: the builtin ones and those of plugins."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from posir_probe import controlled_pairs, needle_distractors, needle_insertion, permutation, text_removal
from posir_probe.controlled_pairs import ControlledPairs
from posir_probe.evidence_dilution import EvidenceDilution
from posir_probe.evidence_location import EvidenceLocation
from posir_probe.evidence_moving import EvidenceMoving, EvidenceMovingRetrieval
from posir_probe.gradient_saliency import GradientSaliency
from posir_probe.mirror_reversal import MirrorReversal
from posir_probe.needle_distractors import NeedleDistractors
from posir_probe.needle_insertion import NeedleInsertion
from posir_probe.permutation import Permutation
from posir_probe.permuted_languages import PermutedLanguages
from posir_probe.probe import ModelProbe, TextProbe
from posir_probe.query_types import QueryTypes
from posir_probe.segment_similarity import SegmentSimilarity
from posir_probe.sentence_regression import SentenceRegression, SentenceRegressionFit, SentenceRegressionScatter
from posir_probe.text_removal import TextRemoval
from posir_tasks.errors import PosirError
from posir_tasks.plugin_api.manager import loaded_plugins

logger = logging.getLogger(__name__)

#: Run unless others are named.
DEFAULT: tuple[TextProbe | ModelProbe, ...] = (
    SegmentSimilarity(3),
    SegmentSimilarity(10),
    Permutation(),
    EvidenceMoving(),
    ControlledPairs(),
    controlled_pairs.EFFECT,
    controlled_pairs.WINS,
    EvidenceDilution(),
    NeedleInsertion(),
    TextRemoval(),
    SentenceRegression(),
    SentenceRegressionFit(),
    SentenceRegressionScatter(),
    EvidenceLocation(),
    QueryTypes(),
    MirrorReversal(),
    GradientSaliency(),
)
#: The other readings of a paper and its code, and probes that need a second model.
VARIANTS: tuple[TextProbe | ModelProbe, ...] = (
    permutation.PARTS,
    PermutedLanguages(),
    EvidenceDilution("evidence_dilution_64", 64),
    NeedleInsertion("needle_insertion_code", needle_insertion.CODE, "Meaningless words at five places"),
    TextRemoval("text_removal_code", text_removal.CODE, "Tokens of a text removed"),
    GradientSaliency("gradient_saliency_max", 100.0, "Gradient of tokens, divided by the maximum"),
    EvidenceLocation(midpoint=False),
    EvidenceMovingRetrieval(),
    NeedleDistractors(),
    needle_distractors.WINS,
)


def builtin_probes() -> tuple[TextProbe | ModelProbe, ...]:
    """Return the builtin probes."""
    return (*DEFAULT, *VARIANTS)


def all_probes() -> dict[str, TextProbe | ModelProbe]:
    """Return the probes of all plugins by name; warn about what cannot be used."""
    probes: dict[str, TextProbe | ModelProbe] = {}
    for plugin, caller in loaded_plugins().callers("posir_probes"):
        try:
            offered = [probe for answer in caller() for probe in answer]
        except Exception as error:
            logger.warning("posir plugin '%s' could not provide its probes: %s: %s", plugin, type(error).__name__, error)
            continue
        for probe in offered:
            name = getattr(probe, "name", None)
            if not isinstance(probe, TextProbe | ModelProbe):
                logger.warning("posir plugin '%s': %r is not a probe; see posir_probe.probe", plugin, probe)
            elif name in probes:
                logger.warning("posir plugin '%s': the name '%s' of a probe is taken; choose another", plugin, name)
            else:
                probes[str(name)] = probe
    order = [probe.name for probe in builtin_probes()]
    return dict(sorted(probes.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))


def select_probes(names: Sequence[str]) -> list[TextProbe | ModelProbe]:
    """Return probes by name, or the beginning of names up to an underscore; without names all but variants.

    Raises:
        PosirError: There is no such probe.
    """
    probes = all_probes()
    if not names:
        variants = {probe.name for probe in VARIANTS}
        return [probe for name, probe in probes.items() if name not in variants]
    return list({probe.name: probe for name in names for probe in _find(name, probes)}.values())


def _find(name: str, probes: dict[str, TextProbe | ModelProbe]) -> Iterable[TextProbe | ModelProbe]:
    if name in probes:
        return [probes[name]]
    variants = [probe for known, probe in probes.items() if known.startswith(f"{name}_") and probe not in VARIANTS]
    if variants:
        return variants
    close = get_close_matches(name, probes)
    suggestion = f" Did you mean {' or '.join(close)}?" if close else ""
    raise PosirError(f"there is no probe '{name}'.{suggestion} The probes are: {', '.join(probes)}.")
