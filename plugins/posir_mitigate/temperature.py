"""TempScale, an attention temperature ('Length Collapse', Zhou et al. 2025, arXiv 2410.24200v2).

In every layer, the attention weights are softmax(Q K' / (temperature sqrt(d))), for both queries
and documents. A temperature below 1 sharpens them, so that tokens of long texts attend to fewer
other tokens. The authors tune the temperature for each model; the default here is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from mteb.models import EncoderProtocol
from pydantic import Field

from posir_mitigate.method import Mitigation
from posir_tasks.models.embeddings.cached_encoder import WrappedEncoder
from posir_tasks.models.loaded_model import find_transformer
from posir_tasks.models.window import find_read_part

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels
    from mteb.types import Array, BatchedInput
    from torch.utils.data import DataLoader

#: Attention implementation to call with scaled queries.
BASE_ATTENTION = "sdpa"


@dataclass(frozen=True)
class Temperature(Mitigation):
    """Encode with an attention temperature."""

    NAME: ClassVar[str] = "temperature"
    DEPLOYMENT: ClassVar[str] = "changes the attention weights, so it works only in Python"

    temperature: Annotated[float, Field(gt=0)] = 0.9

    def wrap(self, base: MTEBModels) -> MTEBModels:
        """Return a model with this temperature. Raise PosirError for a remote model."""
        encoder = self.require_encoder(base)
        if find_transformer(base) is None:
            raise self.make_error(base, "needs a local transformers model.")
        return TemperatureEncoder(encoder, self)


class TemperatureEncoder(WrappedEncoder):
    """An encoder that sets the attention temperature of its base model during `encode`."""

    def __init__(self, base: EncoderProtocol, method: Temperature) -> None:
        super().__init__(base)
        self.method = method
        self.read_part = find_read_part(base)
        # The model whose tokenizer counts tokens.
        self.reads_as = base

    def encode(self, inputs: DataLoader[BatchedInput], **arguments: Any) -> Array:
        """Return the embeddings of n texts, shape (n, dimensions).

        Raises:
            PosirError: The model has a custom attention implementation.
        """
        # Old versions of transformers, which some models need, do not have these classes.
        from transformers import AttentionInterface
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        transformer: Any = find_transformer(self.base)
        base_attention: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS[BASE_ATTENTION]
        calls = 0

        def attend(module: Any, query: Any, *tensors: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            return base_attention(module, query / self.method.temperature, *tensors, **options)

        name = f"{BASE_ATTENTION}_{self.method.temperature}"
        AttentionInterface.register(name, attend)
        AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[BASE_ATTENTION])
        implementation = transformer.config._attn_implementation
        transformer.set_attn_implementation(name)
        try:
            embeddings = self.base.encode(inputs, **arguments)
        finally:
            transformer.set_attn_implementation(implementation)
        if not calls:
            raise self.method.make_error(
                self.base, "has a custom attention implementation with a fixed temperature."
            )
        return embeddings
