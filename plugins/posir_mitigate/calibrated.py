"""Attention calibration as a method: which layers, which pooling, and an encoder that calibrates documents only.

`calibrated_first` has the form and the defaults of arXiv 2601.16934 (Findings of ACL 2026), `calibrated` those of its
follow-up, arXiv 2606.02737, and `calibrated_mean` those of the code that was released with it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from mteb.types import PromptType
from pydantic import Field
from torch import nn

from posir_mitigate.calibration import ActiveCalibration, AttentionCalibration, calibrated_attention
from posir_mitigate.method import format_method, refuse
from posir_mitigate.transformer import TransformerParts, find_parts
from posir_tasks.models.prompts import share_prompts

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels


@dataclass(frozen=True)
class Calibrated:
    """Calibrate the attention of the pooled token, as released for arXiv 2606.02737 (the follow-up of 2601.16934)."""

    NAME: ClassVar[str] = "calibrated"
    POOLING: ClassVar[tuple[str, ...]] = ("cls", "lasttoken")
    FIRST_FORM: ClassVar[bool] = False
    """Whether it has the form of arXiv 2601.16934."""
    PAPER: ClassVar[str] = "arXiv 2606.02737"

    strength: Annotated[float, Field(ge=0, le=1)] = 0.5
    """0 is the plain model, 1 gives every basket of tokens the same attention."""
    basket: Annotated[int, Field(gt=0)] = 128
    """Tokens of a basket; documents of fewer are encoded as by the plain model."""
    layers: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of the layers that are calibrated, the last ones; at least one layer."""

    def __str__(self) -> str:
        return format_method(self)

    @property
    def cost(self) -> str:
        """The cost: vectors per document, and work against the plain model."""
        return f"one vector; computes one row of attention per head and calibrated layer twice ({self.PAPER})"

    @property
    def changed_metadata(self) -> dict[str, Any]:
        """Nothing: the window is the plain model's."""
        return {}

    def apply(self, base: MTEBModels) -> MTEBModels:
        """Return the model that calibrates documents.

        Raises:
            PosirError: It pools in another way, or its attention cannot be calibrated.
        """
        parts = find_parts(self, base)
        if parts.pooling_mode not in self.POOLING:
            raise refuse(self, base, self._explain_pooling(parts.pooling_mode))
        model = parts.transformer.auto_model
        layers = find_layers(model)
        last = layers[self._find_first_layer(len(layers)) :]
        modules = frozenset(id(module) for layer in last for module in layer.modules())
        active = ActiveCalibration(
            AttentionCalibration(self.strength, self.basket, self.FIRST_FORM), parts.pooling_mode, modules
        )
        if not layers or not can_calibrate(parts, active, len(last)):
            raise refuse(
                self,
                base,
                "its code does not compute attention through transformers' AttentionInterface (remote code, or an older "
                "architecture), so its attention weights cannot be changed.",
            )
        return calibrate_documents(parts, active, str(self))

    def _find_first_layer(self, layers: int) -> int:
        """Return the first of N layers to calibrate: the last floor(N / 2) are by default, and always the last one."""
        return layers - max(1, int(layers * self.layers))

    def _explain_pooling(self, mode: str) -> str:
        if mode == "mean":
            return f"calibrates the row of one pooled token, and this model is mean-pooled: use {CalibratedMean()}."
        return f"no rule for {mode} pooling; calibration knows cls, lasttoken and, as {CalibratedMean.NAME}, mean."


@dataclass(frozen=True)
class CalibratedFirst(Calibrated):
    """Calibrate the attention of CLS, as the code of arXiv 2601.16934 (Findings of ACL 2026) does with its defaults.

    CLS gets the share of a basket, the calibrated row replaces the plain one, and no text is too short. The paper has baskets
    of 128 or 512 tokens and calibrates from layer floor(N / 2) on, or the last layer alone (`layers=0.01`). It has no queries:
    here they are encoded as by the plain model, as with the follow-up. Its segments on their own are documents here, so
    calibrated.
    """

    NAME: ClassVar[str] = "calibrated_first"
    POOLING: ClassVar[tuple[str, ...]] = ("cls",)
    FIRST_FORM: ClassVar[bool] = True
    PAPER: ClassVar[str] = "arXiv 2601.16934"

    strength: Annotated[float, Field(ge=0, le=1)] = 1.0
    """0 is the plain model, 1 gives CLS and every basket of tokens the same attention."""

    def _find_first_layer(self, layers: int) -> int:
        return min(layers - 1, int(layers * (1 - self.layers)))

    def _explain_pooling(self, mode: str) -> str:
        other = {"lasttoken": Calibrated(), "mean": CalibratedMean()}.get(mode)
        return f"is for CLS pooling, which arXiv 2601.16934 calibrates; this model pools by {mode}." + (
            f" Use {other}." if other else ""
        )


@dataclass(frozen=True)
class CalibratedMean(Calibrated):
    """Calibrate the attention of every token of a mean-pooled model, which was released but is not in the papers' abstracts."""

    NAME: ClassVar[str] = "calibrated_mean"
    POOLING: ClassVar[tuple[str, ...]] = ("mean",)

    @property
    def cost(self) -> str:
        """The cost: vectors per document, and work against the plain model."""
        return f"one vector; computes all attention weights of the calibrated layers twice ({self.PAPER})"

    def _explain_pooling(self, mode: str) -> str:
        other = f" Use {Calibrated()}." if mode in Calibrated.POOLING else ""
        return f"is for mean-pooled models; this one pools by {mode}.{other}"


def find_layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers of a transformer: the longest list of modules in it; empty if there is none."""
    lists = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len, default=[])


def can_calibrate(parts: TransformerParts, active: ActiveCalibration, layers: int) -> bool:
    """Return whether encoding a text calibrates every layer once."""
    active.calibrated = 0
    with calibrated_attention(parts.loaded, parts.transformer.auto_model, active):
        parts.loaded.encode(["A text."], show_progress_bar=False)
    return active.calibrated == layers


def calibrate_documents(parts: TransformerParts, active: ActiveCalibration, name: str) -> MTEBModels:
    """Return a copy of mteb's model, with the same weights, that calibrates the attention while it encodes documents.

    Its class is a subclass of the model's, so that prompts, window and similarity are found as for the plain model.
    """
    plain: Any = type(parts.encoder)

    @wraps(plain.encode)
    def encode(self: Any, inputs: Any, *, prompt_type: PromptType | None = None, **kwargs: Any) -> Any:
        if prompt_type is not PromptType.document:
            return plain.encode(self, inputs, prompt_type=prompt_type, **kwargs)
        with calibrated_attention(parts.loaded, parts.transformer.auto_model, active):
            return plain.encode(self, inputs, prompt_type=prompt_type, **kwargs)

    model: Any = copy.copy(parts.encoder)
    model.__class__ = type(f"Calibrated{plain.__name__}", (plain,), {"encode": share_prompts(encode, plain.encode)})
    # Part of the key of cached embeddings.
    model.calibration = name
    model.changes_model = True
    calibrated: MTEBModels = model
    return calibrated
