"""Attention calibration: the attention of the pooled token is made more even over the text, layer
by layer (arXiv 2606.02737).

After the softmax, the row of the pooled token is changed in each head. Some tokens are isolated;
the L others are cut from left to right into baskets of B tokens, and a shorter last basket has a
full share. The calibrated row gives every basket the same mass, keeps the ratios inside a basket,
and is mixed with the plain row: `strength` of the one, 1 - `strength` of the other. Written from a
description of the rule that the authors released in August 2026; no code of theirs was used:

========== =========== ===================================================
pooling    isolated    mass of isolated tokens in the calibrated row
========== =========== ===================================================
CLS        first       as in the plain row
last token first, last first: as in the plain row; last: 1 / (baskets + 2)
mean       none        (every row is changed; released, not in the paper's abstract)
========== =========== ===================================================

Texts of fewer than B tokens are encoded as by the plain model. Ours: the mass of a last token never
exceeds what the first one leaves. Only documents are calibrated.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

import torch
from mteb.types import PromptType
from pydantic import Field
from torch import Tensor, nn

from posir_mitigate.method import Mitigation, TransformerParts

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

#: Name of the attention in transformers' registries.
ATTENTION = "posir_calibrated"
#: Attention weights computed at a time, where all rows are needed: 256 MiB in single precision.
MAX_WEIGHTS = 2**26
#: Least attention to a basket that can be changed by a factor in single precision.
MIN_MASS = 1e-30


@dataclass(frozen=True, eq=False)
class Baskets:
    """The tokens of a batch: B texts, padded to T tokens."""

    valid: Tensor
    """Whether each token is no padding, bool, shape (B, T)."""
    baskets: Tensor
    """Basket of each token, shape (B, T); that of padding and isolated tokens is `count`."""
    count: int
    shared: Tensor
    """Whether each token is isolated and gets a share like a basket, bool, shape (B, T)."""
    isolated: int
    long: Tensor
    """Whether each text has enough tokens to be calibrated, bool, shape (B,)."""
    rows: Tensor | None
    """The pooled token of each text, shape (B,); None for all."""

    @classmethod
    def of_batch(cls, mask: Tensor, pooling: str, size: int) -> Baskets:
        """Return the baskets of so many tokens, for a pooling; the mask is 0 for padding on either
        side, shape (B, T).
        """
        valid = mask.bool()
        places = torch.arange(mask.shape[1], device=mask.device)
        first, last = (
            valid.int().argmax(dim=1),
            mask.shape[1] - 1 - valid.flip(1).int().argmax(dim=1),
        )
        is_first, is_last = places == first[:, None], places == last[:, None]
        isolated = {
            "cls": is_first,
            "lasttoken": is_first | is_last,
            "mean": torch.zeros_like(valid),
        }[pooling]
        content = valid & ~isolated
        count = int(-(-content.sum(dim=1).max() // size))
        baskets = ((content.cumsum(dim=1) - 1) // size).masked_fill(~content, count)
        shared = is_last & ~is_first if pooling == "lasttoken" else torch.zeros_like(valid)
        rows = {"cls": first, "lasttoken": last, "mean": None}[pooling]
        long = content.sum(dim=1) >= size
        return cls(
            valid,
            baskets,
            count,
            shared,
            {"cls": 1, "lasttoken": 2, "mean": 0}[pooling],
            long,
            rows,
        )


def calibrate(weights: Tensor, baskets: Baskets, strength: float) -> Tensor:
    """Return rows of attention, in [0, 1], shape (B, heads, rows, T), calibrated with a strength in
    [0, 1]; they sum to 1.
    """
    index = baskets.baskets[:, None, None, :].expand_as(weights)
    masses = weights.new_zeros((*weights.shape[:-1], baskets.count + 1)).scatter_add_(
        -1, index, weights
    )[..., :-1]
    # Where rounding has left nothing of a basket's mass, it stays as it is.
    filled = masses > MIN_MASS
    seen = filled.sum(dim=-1, keepdim=True)
    shared = baskets.shared[:, None, None, :]
    plain = weights.masked_fill(shared | (index < baskets.count), 0).sum(dim=-1, keepdim=True)
    rest = 1 - plain
    share = torch.where(
        seen > 0, torch.minimum(1 / (seen + baskets.isolated), rest), rest
    ) * shared.any(dim=-1, keepdim=True)
    target = (rest - share) / seen.clamp(min=1)
    ratios = torch.where(filled, target / masses.clamp(min=MIN_MASS), 1)
    # Isolated tokens keep their weight.
    even = weights * torch.cat([ratios, torch.ones_like(ratios[..., :1])], dim=-1).gather(-1, index)
    even = torch.where(shared, share, even)
    mixed = strength * even + (1 - strength) * weights
    return torch.where(baskets.long[:, None, None, None], mixed, weights)


@dataclass(eq=False)
class ActiveCalibration:
    """The calibration of the model that is being run."""

    strength: float
    """A share in [0, 1]."""
    basket: int
    pooling: str
    layers: frozenset[int]
    """Identities of the modules in the layers to calibrate."""
    batch: Baskets | None = None
    calibrated: int = 0
    """Times that the attention of a layer was calibrated."""


ACTIVE: ContextVar[ActiveCalibration | None] = ContextVar("active_calibration", default=None)


def _attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute attention as transformers' `sdpa` does, then replace what the calibrated rows _attend
    to.

    Only the weights of these rows are computed: for a pooled token, the cost is linear in the
    length of the text.
    """
    from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward

    output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    active = ACTIVE.get()
    if active is None or active.batch is None or id(module) not in active.layers:
        return output, None
    active.calibrated += 1
    groups = query.shape[1] // key.shape[1]
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    scaling = kwargs.get("scaling") or query.shape[-1] ** -0.5
    causal = (
        kwargs.get("is_causal")
        if kwargs.get("is_causal") is not None
        else getattr(module, "is_causal", False)
    )
    output = output.clone()
    for rows in _split_rows(active.batch, query):
        chosen = rows[:, None, :, None]
        queries = query.gather(2, chosen.expand(-1, query.shape[1], -1, query.shape[-1]))
        logits = (queries @ key.transpose(2, 3)).float() * scaling
        logits = logits.masked_fill(
            ~_find_visible(active.batch, rows, attention_mask, causal=bool(causal)), -torch.inf
        )
        weights = calibrate(logits.softmax(dim=-1).nan_to_num(), active.batch, active.strength)
        replaced = (weights.to(value.dtype) @ value).transpose(1, 2)
        output.scatter_(1, rows[:, :, None, None].expand_as(replaced), replaced)
    return output, None


def _split_rows(batch: Baskets, query: Tensor) -> Iterator[Tensor]:
    """Yield the rows to calibrate, shape (B, rows): the pooled tokens, or all rows in parts of
    limited size.
    """
    if batch.rows is not None:
        yield batch.rows[:, None]
        return
    texts, heads, tokens, _ = query.shape
    step = max(1, MAX_WEIGHTS // (texts * heads * tokens))
    every = torch.arange(tokens, device=query.device).expand(texts, -1)
    yield from torch.tensor_split(every, list(range(step, tokens, step)), dim=1)


def _find_visible(
    batch: Baskets, rows: Tensor, attention_mask: Tensor | None, *, causal: bool
) -> Tensor:
    """Return which tokens each row, shape (B, rows), attends to, shape (B, 1, rows, T).

    The layer's mask is bool, or float with 0 where a token is attended to, shape (B or 1, 1, T, T);
    None if only padding and, if `causal`, what comes later are not attended to.
    """
    visible = batch.valid[:, None, None, :].expand(-1, -1, rows.shape[1], -1)
    if attention_mask is not None:
        allowed = attention_mask if attention_mask.dtype == torch.bool else attention_mask == 0
        allowed = allowed.expand(len(rows), 1, -1, -1)
        return visible & allowed.gather(
            2, rows[:, None, :, None].expand(-1, 1, -1, allowed.shape[-1])
        )
    return (
        visible & (torch.arange(visible.shape[-1], device=rows.device) <= rows[:, None, :, None])
        if causal
        else visible
    )


@contextmanager
def calibrated_attention(loaded: Any, model: Any, active: ActiveCalibration) -> Iterator[None]:
    """Calibrate the attention of a model of transformers, in one of sentence-transformers, while
    that encodes.
    """
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(ATTENTION, _attend)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    before = model.config._attn_implementation

    def note_batch(_: Any, arguments: tuple[Any, ...]) -> None:
        active.batch = Baskets.of_batch(
            arguments[0]["attention_mask"], active.pooling, active.basket
        )

    hook = loaded[0].register_forward_pre_hook(note_batch)
    token = ACTIVE.set(active)
    try:
        model.set_attn_implementation(ATTENTION)
        yield
    finally:
        hook.remove()
        ACTIVE.reset(token)
        active.batch = None
        model.set_attn_implementation(before)


@dataclass(frozen=True)
class Calibrated(Mitigation):
    """Calibrate the attention of the pooled token, as released for arXiv 2606.02737; of every token
    if the mean is pooled.
    """

    NAME: ClassVar[str] = "calibrated"
    DEPLOYMENT: ClassVar[str] = (
        "changes attention inside the model, so only in Python (posir.open_model); it cannot be "
        "exported to a server"
    )
    POOLING: ClassVar[tuple[str, ...]] = ("cls", "lasttoken", "mean")

    strength: Annotated[float, Field(ge=0, le=1)] = 0.5
    """0 is the plain model, 1 gives every basket of tokens the same attention."""
    basket: Annotated[int, Field(gt=0)] = 128
    """Tokens of a basket; documents of fewer are encoded as by the plain model."""
    layers: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of the layers that are calibrated, the last ones: of N by default the last floor(N /
    2); at least one layer.
    """

    def _describe_cost(self) -> str:
        return (
            "one vector; computes one row of attention per head and calibrated layer twice; all "
            "rows if the mean is pooled"
        )

    def apply(self, base: MTEBModels) -> MTEBModels:
        """Return the model that calibrates documents; raise PosirError if its attention, or its
        pooling, cannot be.
        """
        parts = self.find_parts(base)
        if parts.pooling.pooling_mode not in self.POOLING:
            raise self.refuse(
                base,
                f"no rule for {parts.pooling.pooling_mode} pooling; it knows "
                f"{', '.join(self.POOLING)}.",
            )
        model = parts.transformer.auto_model
        # The layers are the longest list of modules.
        lists = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList)]
        layers: list[nn.Module] = max(lists, key=len, default=[])
        last = layers[len(layers) - max(1, int(len(layers) * self.layers)) :]
        modules = frozenset(id(module) for layer in last for module in layer.modules())
        active = ActiveCalibration(self.strength, self.basket, parts.pooling.pooling_mode, modules)
        with calibrated_attention(parts.loaded, model, active):
            parts.loaded.encode(["A text."], show_progress_bar=False)
        if not layers or active.calibrated != len(last):
            raise self.refuse(
                base,
                "its code does not compute attention through transformers' AttentionInterface "
                "(remote code, or an older "
                "architecture), so its attention weights cannot be changed.",
            )
        return calibrate_documents(parts, active, str(self))


def calibrate_documents(
    parts: TransformerParts, active: ActiveCalibration, name: str
) -> MTEBModels:
    """Return a copy of mteb's model, with the same weights, that calibrates the attention while it
    encodes documents.

    Its class is a subclass of the model's, so that prompts, window and similarity are found as for
    the plain model.
    """
    plain: Any = type(parts.encoder)

    @wraps(plain.encode)
    def encode(
        self: Any, inputs: Any, *, prompt_type: PromptType | None = None, **kwargs: Any
    ) -> Any:
        if prompt_type is not PromptType.document:
            return plain.encode(self, inputs, prompt_type=prompt_type, **kwargs)
        with calibrated_attention(parts.loaded, parts.transformer.auto_model, active):
            return plain.encode(self, inputs, prompt_type=prompt_type, **kwargs)

    model: Any = copy.copy(parts.encoder)
    model.__class__ = type(f"Calibrated{plain.__name__}", (plain,), {"encode": encode})
    # Part of the key of cached embeddings.
    model.calibration = name
    model.changes_model = True
    return cast("MTEBModels", model)
