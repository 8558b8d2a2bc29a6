"""Temperature of attention at inference: TempScale of 'Length Collapse' (Zhou et al. 2025, arXiv
2410.24200v2).

In every layer, the weights of attention are softmax(Q K' / (temperature sqrt(d))), of queries and
documents alike. Below 1 they are sharper, so that a token of a long text is mixed less with all
others. The authors choose the temperature for each model; the default here is ours.
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

#: The implementation of attention of which the temperature is changed.
PLAIN = "sdpa"


@dataclass(frozen=True)
class Temperature(Mitigation):
    """Encode with another temperature of attention."""

    NAME: ClassVar[str] = "temperature"
    DEPLOYMENT: ClassVar[str] = "changes the weights of attention, so only in Python"

    temperature: Annotated[float, Field(gt=0)] = 0.9

    def wrap(self, base: MTEBModels) -> MTEBModels:
        """Return the model with the temperature; raise PosirError if its weights are not here."""
        encoder = self.require_encoder(base)
        if find_transformer(base) is None:
            raise self.unsupported(base, "works for models of transformers that are loaded here.")
        return TemperatureEncoder(encoder, self)


class TemperatureEncoder(WrappedEncoder):
    """One of mteb's encoders with another temperature of attention, which the plain model keeps."""

    def __init__(self, base: EncoderProtocol, method: Temperature) -> None:
        super().__init__(base)
        self.method = method
        self.read_part = find_read_part(base)
        #: The model whose tokens count.
        self.reads_as = base

    def encode(self, inputs: DataLoader[BatchedInput], **arguments: Any) -> Array:
        """Return the embeddings of the texts; raise PosirError if the model computes attention by
        code of its own.
        """
        # Versions of transformers that some models need have none of these.
        from transformers import AttentionInterface
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        transformer: Any = find_transformer(self.base)
        plain: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS[PLAIN]
        calls = 0

        def attend(module: Any, query: Any, *others: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            return plain(module, query / self.method.temperature, *others, **options)

        name = f"{PLAIN}_{self.method.temperature}"
        AttentionInterface.register(name, attend)
        AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[PLAIN])
        before = transformer.config._attn_implementation
        transformer.set_attn_implementation(name)
        try:
            embeddings = self.base.encode(inputs, **arguments)
        finally:
            transformer.set_attn_implementation(before)
        if not calls:
            raise self.method.unsupported(
                self.base, "computes attention by code of its own, whose temperature is fixed."
            )
        return embeddings
