"""Attention calibration: the attention of the pooled token is made more even over the text, layer by layer.

Two forms of one method: that of arXiv 2601.16934 (Findings of ACL 2026), and that of its follow-up, arXiv 2606.02737.

After the softmax, the row of the pooled token is changed in each head. Some tokens are isolated; the L others are cut from left
to right into baskets of B tokens, and a shorter last basket has a full share. The calibrated row gives every basket the same
mass, keeps the ratios inside a basket, and is mixed with the plain row: `strength` of the one, 1 - `strength` of the other.
Written from a description of the code of the first paper's experiments and of the rule that the authors released for the second
in August 2026; no code of theirs was used:

================ =========== ===================================================
pooling          isolated    mass of isolated tokens in the calibrated row
================ =========== ===================================================
CLS (2601.16934) first       1 / (baskets + 1)
CLS              first       as in the plain row
last token       first, last first: as in the plain row; last: 1 / (baskets + 2)
mean             none        (every row is changed)
================ =========== ===================================================

The follow-up encodes texts of fewer than B tokens as the plain model does; the first paper calibrates all.

Ours: the mass of a last token never exceeds what the first one leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

#: Name of the attention in transformers' registries.
ATTENTION = "posir_calibrated"
#: Attention weights computed at a time, where all rows are needed: 256 MiB in single precision.
MAX_WEIGHTS = 2**26
#: Least attention to a basket that can be changed by a factor in single precision.
MIN_MASS = 1e-30


@dataclass(frozen=True)
class AttentionCalibration:
    """Settings of the calibration."""

    strength: float
    """Strength in [0, 1]: 0 leaves the attention as it is, 1 gives every basket the same mass."""
    basket: int
    """Tokens of a basket."""
    first_form: bool = False
    """Whether it has the form of arXiv 2601.16934: CLS gets a share like a basket, and no text is too short."""


@dataclass(frozen=True, eq=False)
class Baskets:
    """The tokens of a batch: B texts, padded to T tokens."""

    valid: Tensor
    """Whether each token is no padding, bool, shape (B, T)."""
    baskets: Tensor
    """Basket of each token, shape (B, T); that of padding and isolated tokens is `count`."""
    count: int
    """Most baskets of a text."""
    shared: Tensor
    """Whether each token is isolated and gets a share like a basket, bool, shape (B, T)."""
    isolated: int
    """Number of isolated tokens of a text."""
    long: Tensor
    """Whether each text has enough tokens to be calibrated, bool, shape (B,)."""
    rows: Tensor | None
    """The pooled token of each text, shape (B,); None for all."""

    @classmethod
    def of_batch(cls, mask: Tensor, pooling: str, size: int, *, first_form: bool = False) -> Baskets:
        """Return the baskets of a batch.

        Args:
            mask: 1 for tokens, 0 for padding on either side, shape (B, T).
            pooling: `cls`, `lasttoken` or `mean`.
            size: Tokens of a basket.
            first_form: Whether CLS gets a share like a basket, and short texts are calibrated, too.
        """
        valid = mask.bool()
        places = torch.arange(mask.shape[1], device=mask.device)
        first, last = valid.int().argmax(dim=1), mask.shape[1] - 1 - valid.flip(1).int().argmax(dim=1)
        is_first, is_last = places == first[:, None], places == last[:, None]
        isolated = {"cls": is_first, "lasttoken": is_first | is_last, "mean": torch.zeros_like(valid)}[pooling]
        content = valid & ~isolated
        count = int(-(-content.sum(dim=1).max() // size))
        baskets = ((content.cumsum(dim=1) - 1) // size).masked_fill(~content, count)
        shared = is_last & ~is_first if pooling == "lasttoken" else is_first & torch.tensor(first_form)
        rows = {"cls": first, "lasttoken": last, "mean": None}[pooling]
        long = content.sum(dim=1) >= (1 if first_form else size)
        return cls(valid, baskets, count, shared, {"cls": 1, "lasttoken": 2, "mean": 0}[pooling], long, rows)


def calibrate(weights: Tensor, baskets: Baskets, strength: float) -> Tensor:
    """Return calibrated attention weights; rows still sum to 1.

    Args:
        weights: Rows of plain attention, in [0, 1], shape (B, heads, rows, T).
        baskets: The tokens of the batch.
        strength: In [0, 1].
    """
    index = baskets.baskets[:, None, None, :].expand_as(weights)
    masses = weights.new_zeros((*weights.shape[:-1], baskets.count + 1)).scatter_add_(-1, index, weights)[..., :-1]
    # Where rounding has left nothing of a basket's mass, it stays as it is.
    filled = masses > MIN_MASS
    seen = filled.sum(dim=-1, keepdim=True)
    shared = baskets.shared[:, None, None, :]
    plain = weights.masked_fill(shared | (index < baskets.count), 0).sum(dim=-1, keepdim=True)
    rest = 1 - plain
    share = torch.where(seen > 0, torch.minimum(1 / (seen + baskets.isolated), rest), rest) * shared.any(dim=-1, keepdim=True)
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

    settings: AttentionCalibration
    pooling: str
    layers: frozenset[int]
    """Identities of the modules in the layers to calibrate."""
    batch: Baskets | None = None
    calibrated: int = 0
    """Times that the attention of a layer was calibrated."""


ACTIVE: ContextVar[ActiveCalibration | None] = ContextVar("active_calibration", default=None)


def attend(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Compute attention as transformers' `sdpa` does, then replace what the calibrated rows attend to.

    Only the weights of these rows are computed: for a pooled token, the cost is linear in the length of the text.
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
    causal = kwargs.get("is_causal") if kwargs.get("is_causal") is not None else getattr(module, "is_causal", False)
    output = output.clone()
    for rows in split_rows(active.batch, query):
        chosen = rows[:, None, :, None]
        queries = query.gather(2, chosen.expand(-1, query.shape[1], -1, query.shape[-1]))
        logits = (queries @ key.transpose(2, 3)).float() * scaling
        logits = logits.masked_fill(~find_visible(active.batch, rows, attention_mask, causal=bool(causal)), -torch.inf)
        weights = calibrate(logits.softmax(dim=-1).nan_to_num(), active.batch, active.settings.strength)
        replaced = (weights.to(value.dtype) @ value).transpose(1, 2)
        output.scatter_(1, rows[:, :, None, None].expand_as(replaced), replaced)
    return output, None


def split_rows(batch: Baskets, query: Tensor) -> Iterator[Tensor]:
    """Yield the rows to calibrate, shape (B, rows): the pooled tokens, or all rows in parts of limited size."""
    texts, heads, tokens, _ = query.shape
    if batch.rows is not None:
        yield batch.rows[:, None]
        return
    step = max(1, MAX_WEIGHTS // (texts * heads * tokens))
    for start in range(0, tokens, step):
        yield torch.arange(start, min(start + step, tokens), device=query.device).expand(texts, -1)


def find_visible(batch: Baskets, rows: Tensor, attention_mask: Tensor | None, *, causal: bool) -> Tensor:
    """Return which tokens each row attends to, shape (B, 1, rows, T).

    Args:
        batch: The tokens.
        rows: Shape (B, rows).
        attention_mask: The layer's mask, bool, or float with 0 where a token is attended to; shape (B or 1, 1, T, T). None if
            only padding and, if `causal`, what comes later are not attended to.
        causal: Whether a token attends to earlier ones only.
    """
    visible = batch.valid[:, None, None, :].expand(-1, -1, rows.shape[1], -1)
    if attention_mask is not None:
        allowed = attention_mask if attention_mask.dtype == torch.bool else attention_mask == 0
        allowed = allowed.expand(len(rows), 1, -1, -1)
        return visible & allowed.gather(2, rows[:, None, :, None].expand(-1, 1, -1, allowed.shape[-1]))
    if causal:
        visible = visible & (torch.arange(visible.shape[-1], device=rows.device) <= rows[:, None, :, None])
    return visible


def register_attention() -> None:
    """Let transformers' models use the calibrated attention by its name, with the mask of `sdpa`."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(ATTENTION, attend)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)


@contextmanager
def calibrated_attention(loaded: Any, model: Any, active: ActiveCalibration) -> Iterator[None]:
    """Calibrate the attention of a model while it encodes; afterward it is as before.

    Args:
        loaded: The model of sentence-transformers, whose first module receives the tokens.
        model: The model of transformers in it.
        active: What to calibrate.
    """
    before = model.config._attn_implementation
    register_attention()

    def note_batch(_: Any, arguments: tuple[Any, ...]) -> None:
        features = arguments[0]
        active.batch = Baskets.of_batch(
            features["attention_mask"], active.pooling, active.settings.basket, first_form=active.settings.first_form
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
