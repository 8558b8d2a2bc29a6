"""Models in local folders: of sentence-transformers (dense, sparse, multi-vector, cross-encoder) or transformers.

A model is named by its model card or its folder. Its revision is a digest of its weights and settings, so that a retrained
model never takes over results or cached embeddings of its predecessor.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_tasks.digests import digest_files
from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.host.private_names import RESOLVE_LOADER
from posir_tasks.models.names import legible_name
from posir_tasks.models.references import LOCAL

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

#: Either of these files makes a folder a model.
MODULES_FILE, CONFIG_FILE = "modules.json", "config.json"
#: Files in which a model names the folders of its parts.
STRUCTURE_FILES = (MODULES_FILE, "router_config.json")
#: Files that say what kind of model it is, in the order of mteb's `_resolve_loader`.
KIND_SETTINGS = ("config_sentence_transformers.json", "sentence_bert_config.json", MODULES_FILE, CONFIG_FILE)
#: Modules of posir that a model may have.
OWN_MODULES = frozenset(f"posir_tasks.models.landmarks.{name}" for name in ("LandmarkTransformer", "LandmarkPooling"))
#: Folder of templates that transformers reads beside a model's own files.
TEMPLATES = "additional_chat_templates"
#: Top-level files that do not affect embeddings: documentation, and the state of training.
IGNORED = (
    ".*", "*.md", "LICENSE*", "*.log", "*.csv", "*.png", "optimizer*", "scheduler*", "scaler*", "rng_state*",
    "trainer_state.json", "training_args.bin", "events.out.tfevents.*",
)  # fmt: skip
#: Settings that limit the number of tokens that a model reads, by file.
WINDOW_SETTINGS = {
    "sentence_bert_config.json": "max_seq_length",
    "tokenizer_config.json": "model_max_length",
    CONFIG_FILE: "max_position_embeddings",
}
#: The name that sentence-transformers gives a model if its author gives none.
DEFAULT_CARD_NAME = re.compile(r".*(Transformer|Encoder)( based on .*)?")
#: A folder with a name that says nothing without the folder it is in.
CHECKPOINT = re.compile(r"checkpoint-\d+|final|best|model")

#: Path, size in bytes, time of modification in nanoseconds, and inode of a file.
FileState = tuple[str, int, int, int]


class FolderLoader:
    """Loads the model in a folder, in place of a class of mteb that loads models by name. (pydantic would dump a dataclass.)"""

    def __init__(self, folder: Path, wrapper: Callable[..., MTEBModels]) -> None:
        self.folder = folder
        self.wrapper = wrapper
        # What mteb records as the loader, such as `SentenceTransformerEncoderWrapper`.
        self.__name__ = wrapper.__name__
        self.reference = str(folder)

    def __call__(self, name: str, revision: str | None = None, **options: Any) -> MTEBModels:
        """Load the model.

        Raises:
            PosirError: Its files cannot be loaded, or have changed since its revision was determined.
        """
        from safetensors import SafetensorError

        if has_own_modules(self.folder):
            options = {"trust_remote_code": True} | options
        try:
            model = self.wrapper(str(self.folder), **options)
        except (OSError, ValueError, SafetensorError) as error:
            raise PosirError(f"{self.folder}: the model cannot be loaded ({summarize_error(error)}).") from error
        if digest_folder(self.folder) != revision:
            raise PosirError(f"{self.folder}: {name} changed while it was loaded. Run again when it is no longer written to.")
        return model


def has_own_modules(folder: Path) -> bool:
    """Return whether a model has modules of posir, which are installed, and none other that sentence-transformers has not.

    sentence-transformers loads them only if it is told to trust code; then the folder itself must have none.
    """
    modules = _read_settings(folder, MODULES_FILE) or []
    others = {module.get("type", "") for module in modules if not module.get("type", "").startswith("sentence_transformers.")}
    return bool(others) and others <= OWN_MODULES and not any(folder.rglob("*.py")) and not _names_code(folder)


def _names_code(folder: Path) -> bool:
    """Return whether a settings file of transformers names code, of the folder or of the Hub."""
    return any("auto_map" in file.read_text(encoding="utf-8") for file in folder.glob("*config.json"))


def resolve_folder(name: str, registered: Mapping[str, ModelMeta]) -> ModelMeta | None:  # noqa: ARG001
    """Resolve the path of a folder with a model.

    Raises:
        PosirError: The name is certainly a path, such as `./my-model`, but there is no such folder or no model in it.
    """
    folder = Path(name).expanduser()
    if is_model_folder(folder):
        return describe_folder(folder.resolve())
    if not (name.startswith(("/", "./", "../", "~")) or name.endswith("/") or name in (".", "..")):
        return None
    if not folder.is_dir():
        raise PosirError(f"{name}: no such folder. Give the folder of a model, or the name of one that mteb or the Hub knows.")
    inside = [str(path) for path in sorted(folder.iterdir()) if is_model_folder(path)]
    suggestion = f" Did you mean {' or '.join(inside)}?" if inside else " Save the model with its `save_pretrained`."
    raise PosirError(f"{name}: not a model; there is neither {MODULES_FILE} nor {CONFIG_FILE}.{suggestion}")


def is_model_folder(folder: Path) -> bool:
    """Return whether a folder has a model of sentence-transformers or transformers."""
    return any((folder / file).is_file() for file in (MODULES_FILE, CONFIG_FILE))


def describe_folder(folder: Path) -> ModelMeta:
    """Return mteb's metadata of the model in a folder.

    Raises:
        PosirError: A settings file is not JSON, or the kind of the model is unknown.
    """
    from mteb.models import ModelMeta

    name = f"{LOCAL}/{name_folder(folder)}"
    settings = [_read_settings(folder, file) for file in KIND_SETTINGS]
    wrapper, kind, modalities = RESOLVE_LOADER.resolve()(name, *settings)
    limits = [(_read_settings(folder, file) or {}).get(setting) for file, setting in WINDOW_SETTINGS.items()]
    return ModelMeta.create_empty(
        {
            "loader": FolderLoader(folder, wrapper),
            "name": name,
            "revision": digest_folder(folder),
            "model_type": [kind],
            "modalities": modalities,
            "max_tokens": min((limit for limit in limits if isinstance(limit, int) and limit > 0), default=None),
            "framework": ["Sentence Transformers", "PyTorch"],
        }
    )


def _read_settings(folder: Path, file: str) -> Any:
    path = folder / file
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (OSError, ValueError) as error:
        raise PosirError(f"{path}: cannot be read ({summarize_error(error)}). Save the model again.") from error


def name_folder(folder: Path) -> str:
    """Return the name in the metadata of the model card; if there is none, the folder's name."""
    from huggingface_hub import ModelCard

    card = folder / "README.md"
    try:
        named = ModelCard.load(card, ignore_metadata_errors=True).data.get("model_name") if card.is_file() else None
    except Exception:  # a card is written by hand, and a mistake in it is no reason not to run the model
        named = None
    if isinstance(named, str) and not DEFAULT_CARD_NAME.fullmatch(named):
        return legible_name(named)
    parts = folder.parts[-2:] if CHECKPOINT.fullmatch(folder.name) else folder.parts[-1:]
    return legible_name("-".join(parts))


def digest_folder(folder: Path) -> str:
    """Return a revision: 16 hexadecimal digits that identify a model's weights and settings."""
    return digest_files({file.relative_to(folder).as_posix(): file for file in find_model_files(folder)})


def find_model_files(folder: Path) -> Iterator[Path]:
    """Yield the files that a model may be loaded from.

    These are the files at the top level, except `IGNORED` ones, and all files of the folders that the model names as its parts.
    Other folders, such as checkpoints, logs, and results of an evaluation, are not part of the model.
    """
    structure = " ".join((folder / file).read_text(encoding="utf-8") for file in STRUCTURE_FILES if (folder / file).is_file())
    for path in sorted(folder.iterdir()):
        if path.is_file() and not any(fnmatchcase(path.name, pattern) for pattern in IGNORED):
            yield path
        elif path.is_dir() and (f'"{path.name}' in structure or path.name == TEMPLATES):
            for parent, _, files in os.walk(path, followlinks=True):
                yield from (Path(parent) / file for file in sorted(files))
