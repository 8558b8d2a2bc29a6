"""Tiny models with random weights in place of a registered one, which mteb's own class loads:
nothing is downloaded.

They have the model's dimensions, and bytes as tokens, so that every text can be read back from its
ids.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mteb
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3Model,
)
from transformers.utils.logging import disable_progress_bar

from posir_tasks.models.loaded_model import find_pooling
from posir_tasks.models.protocols import Protocol
from posir_tasks.models.reference_parts import HEAD_SUFFIX
from posir_tasks.models.registry import HEAD_FILE

if TYPE_CHECKING:
    from mteb.models import ModelMeta

START, END = "<s>", "</s>"
SPECIAL = (START, END, "<pad>", "<|im_start|>", "<|im_end|>", "yes", "no")
#: Most tokens of a text that the weights could read.
POSITIONS = 40_960
#: What the weights have where a class sets nothing else; texts have no prompt.
OWN = {
    "query_prompt": "",
    "document_prompt": "",
    "max_query_tokens": str(POSITIONS),
    "max_document_tokens": str(POSITIONS),
    "dtype": "float32",
    "attention": "sdpa",
    "padding_side": "right",
    "pooling": "mean",
}
#: Most tokens that models like BERT could read.
BERT_POSITIONS = 8_200


#: Special tokens around a text, by mteb's class; NV-Embed and Qwen3's reranker put the end of a
#: text themselves.
SINGLE = {"_NVEmbedWrapper": f"{START} $A", "Qwen3RerankerWrapper": ""}
PAIR = f"{START} $A {END} {END} $B {END}"
CROSS_ENCODERS = ("CrossEncoderWrapper", "BGEReranker")
#: Rerankers that score by the logit of a word.
LANGUAGE_MODELS = ("Qwen3RerankerWrapper", "load_flag_reranker")
#: The multi-vector head of a model.
HEAD = "MultiVectorWrapper"


def build_tokenizer(single: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are bytes, with special tokens around a text."""
    bpe = Tokenizer(BPE())
    bpe.pre_tokenizer, bpe.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
    bpe.train_from_iterator(
        [], BpeTrainer(special_tokens=[*SPECIAL], initial_alphabet=ByteLevel.alphabet())
    )
    if single:
        special = [(token, bpe.token_to_id(token)) for token in (START, END)]
        bpe.post_processor = TemplateProcessing(single=single, pair=PAIR, special_tokens=special)
    # Its class has no annotations in some versions.
    fast: Any = PreTrainedTokenizerFast
    named = {
        "bos_token": START,
        "cls_token": START,
        "eos_token": END,
        "pad_token": "<pad>",
        "unk_token": "<pad>",
    }
    tokenizer: PreTrainedTokenizerFast = fast(
        tokenizer_object=bpe, model_max_length=POSITIONS, **named
    )
    return tokenizer


def write_tiny_model(folder: Path, protocol: Protocol, loader: str) -> None:
    """Write a model for mteb's class or function of this name, with the dimensions and pooling of a
    row.
    """
    tokenizer = build_tokenizer(SINGLE.get(loader, f"{START} $A {END}"))
    size = int(protocol.find("dimensions") or 16)
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "num_hidden_layers": 1,
        "intermediate_size": 16,
    }
    with tempfile.TemporaryDirectory() as name:
        plain = Path(name)
        tokenizer.save_pretrained(plain)
        if loader in CROSS_ENCODERS:
            heads: dict[str, Any] = {
                "num_attention_heads": 2,
                "max_position_embeddings": BERT_POSITIONS,
                "num_labels": 1,
            }
            config = BertConfig(hidden_size=16, **heads, **sizes)
            BertForSequenceClassification(config).save_pretrained(plain)
            CrossEncoder(str(plain)).save_pretrained(str(folder))
            return
        heads = {
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": POSITIONS,
        }
        kind = Qwen3ForCausalLM if loader in LANGUAGE_MODELS else Qwen3Model
        kind(Qwen3Config(hidden_size=size, **heads, **sizes)).save_pretrained(plain)
        if loader in (*LANGUAGE_MODELS, "LlamaEmbedNemotron", HEAD):
            shutil.copytree(plain, folder, dirs_exist_ok=True)
            if loader == HEAD:
                torch.save({"weight": torch.randn(size, size)}, folder / HEAD_FILE)
            return
        model = SentenceTransformer(str(plain))
        pooling = find_pooling(model)
        if protocol.paper != "bias-learning" and protocol.pooling in ("cls", "lasttoken"):
            pooling.pooling_mode = protocol.pooling
        model.save_pretrained(str(folder))


@contextmanager
def with_tiny_weights(meta: ModelMeta, protocol: Protocol) -> Iterator[ModelMeta]:
    """Return metadata whose loader loads tiny random weights by mteb's class, as long as the
    context is open.
    """
    loader: Any = meta.loader
    # The bar of transformers is shown even if the output is piped.
    disable_progress_bar()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        name = getattr(loader, "__name__", "")
        write_tiny_model(Path(folder), protocol, name)
        if name == HEAD:
            # That of a registered model is loaded by its name.
            loader = mteb.get_model_meta(folder + HEAD_SUFFIX, fetch_from_hf=False).loader

        @wraps(loader)
        def load(_: str, revision: str | None = None, **options: Any) -> Any:
            return loader(folder, revision=revision, **options)

        yield meta.model_copy(update={"loader": load, "extra_requirements_groups": None})
