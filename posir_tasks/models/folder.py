"""Model folders of sentence-transformers (dense, sparse, multi-vector, cross-encoder) and
transformers.

The name comes from the model card or the folder. The revision is a digest of weights and settings,
so that a retrained model never reuses old results or cached embeddings.

Folders are untrusted: code in them is never run. A folder whose settings would make a library
import, unpickle or download code is rejected before anything is loaded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_tasks.base.digests import digest_files
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.files import find_files, read_decompressed
from posir_tasks.base.private_names import RESOLVE_LOADER
from posir_tasks.base.wording import sanitize
from posir_tasks.models.references import LOCAL, ModelLoader, RegisteredModels, to_file_name

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

#: A folder with one of these files is a model.
MODULES_FILE = "modules.json"
CONFIG_FILE = "config.json"
ROUTER_FILE = "router_config.json"
ADAPTER_FILE = "adapter_config.json"
#: Files that refer to the model's subfolders.
STRUCTURE_FILES = (MODULES_FILE, ROUTER_FILE)
#: The file with the prompts.
PROMPTS_FILE = "config_sentence_transformers.json"
#: Files that determine the kind of model, in the order of the arguments of mteb's
#: `_resolve_loader`.
KIND_FILES = (
    PROMPTS_FILE,
    "sentence_bert_config.json",
    MODULES_FILE,
    CONFIG_FILE,
)
#: Packages of allowed module classes. sentence-transformers replaces PyLate's classes with its own.
MODULE_PACKAGES = ("sentence_transformers.", "pylate.")
#: Folder of chat templates, which transformers also reads.
TEMPLATE_FOLDER = "additional_chat_templates"
#: Top-level files that do not affect embeddings: documentation and training state.
IGNORED_FILES = (
    ".*",
    "*.md",
    "LICENSE*",
    "*.log",
    "*.csv",
    "*.png",
    "optimizer*",
    "scheduler*",
    "scaler*",
    "rng_state*",
    "trainer_state.json",
    "training_args.bin",
    "events.out.tfevents.*",
)
#: Keys of the context window, by file.
WINDOW_SETTINGS = {
    "sentence_bert_config.json": "max_seq_length",
    "tokenizer_config.json": "model_max_length",
    CONFIG_FILE: "max_position_embeddings",
}
#: Default names in model cards of sentence-transformers.
DEFAULT_CARD_NAME = re.compile(r".*(Transformer|Encoder)( based on .*)?")
#: Keys for the number of layers in transformers, and the maximum number. A huge number would
#: exhaust the memory, since layers are created before the weights are read.
LAYER_COUNT_KEY = re.compile(r"(n|num|encoder|decoder)_(\w+_)?layers?")
MAX_LAYERS = 10_000
#: Maximum number of weights to list in a message.
MAX_LISTED = 3
#: Maximum length of a setting in a message, in characters.
MAX_SHOWN = 80
#: Advice for a folder that would run code.
NO_CODE = (
    "Models in folders must not run code. Save it without code, or, if you trust it, load it "
    "with sentence-transformers and pass the object to mteb."
)
#: Folder names that need the parent folder's name to be meaningful.
GENERIC_FOLDER_NAME = re.compile(r"checkpoint-\d+|final|best|model")


def _is_kernel(value: Any) -> bool:
    """Return True if an implementation, or any in a mapping, is a repository on the Hub."""
    implementations = value.values() if isinstance(value, dict) else [value]
    return any("/" in str(implementation) for implementation in implementations)


def _is_foreign_class(packages: str, value: Any) -> bool:
    return isinstance(value, str) and "." in value and not value.startswith(packages)


#: Settings at any depth that can make a library import, unpickle or download code, with a check for
#: such values.
CODE_SETTINGS: Mapping[str, Callable[[Any], bool]] = {
    # The key may also be a word in a vocabulary, where the value is a number.
    "auto_map": lambda value: isinstance(value, (dict, list, str)) and bool(value),
    "custom_generate": lambda value: isinstance(value, str),
    "trust_remote_code": lambda value: isinstance(value, (bool, str)) and bool(value),
    "weights_only": lambda value: value is None or value is False,
    "allow_all_kernels": lambda value: value is True,
    "use_kernels": lambda value: value is True,
    "attn_implementation": _is_kernel,
    "_attn_implementation": _is_kernel,
    "experts_implementation": _is_kernel,
    "activation_fn": partial(_is_foreign_class, "torch.nn."),
    "activation_function": partial(_is_foreign_class, "torch.nn."),
    "sbert_ce_default_activation_function": partial(_is_foreign_class, "torch.nn."),
    "parent_library": partial(_is_foreign_class, "transformers."),
}


def _load_folder(
    folder: Path,
    wrapper: Callable[..., MTEBModels],
    name: str,
    revision: str | None,
    **options: Any,
) -> MTEBModels:
    """Load a model. Raise PosirError if it would run code, cannot be loaded or has changed."""
    if options.get("trust_remote_code"):
        raise PosirError(f"{folder}: {NO_CODE} Load it without trust_remote_code.")
    try:
        _require_revision(folder, name, revision)
        check_module_classes(folder)
        with require_weights(folder):
            model = wrapper(str(folder), **options)
        _require_revision(folder, name, revision)
    except PosirError as error:
        raise PosirError(f"{folder}: {error}") from error
    except Exception as error:
        # Libraries raise any kind of error for unusual files.
        raise PosirError(
            f"{folder}: the model cannot be loaded ({summarize_error(error)})."
        ) from error
    # If the tokenizer files are missing, transformers creates a tokenizer without a vocabulary.
    tokenizer: Any = getattr(getattr(model, "model", None), "tokenizer", None)
    special = getattr(tokenizer, "all_special_tokens", None)
    if special and len(tokenizer) <= len(special):
        raise PosirError(
            f"{folder}: the tokenizer only has the {len(special)} special tokens. Its files, such "
            "as tokenizer.json, are missing. Save the model again."
        )
    return model


def _require_revision(folder: Path, name: str, revision: str | None) -> None:
    if check_folder(folder) != revision:
        raise PosirError(
            f"{name} changed while it was loaded. Wait until it is saved, and run again."
        )


def check_folder(folder: Path) -> str:
    """Return the revision of a model. Raise PosirError if its settings are unsafe or not JSON."""
    revision = digest_folder(folder)
    _check_files(folder, revision)
    return revision


@lru_cache(maxsize=64)
def _check_files(folder: Path, revision: str) -> None:  # noqa: ARG001 (part of the cache key)
    model_files = set(find_model_files(folder))
    for file in sorted(model_files | set(folder.rglob("*.json"))):
        if file.suffix != ".json" or not file.is_file():
            continue
        try:
            settings = _read_settings(file)
        except PosirError:
            if file in model_files:
                raise
            continue  # not part of the model, such as a result that is being written
        _check_settings(file, settings)
        if file.name == PROMPTS_FILE and isinstance(settings, dict):
            _check_prompts(file, settings.get("prompts"))
        if file.name == ADAPTER_FILE and isinstance(settings, dict):
            _check_base(file, settings.get("base_model_name_or_path"))


def _check_prompts(file: Path, prompts: Any) -> None:
    """Raise PosirError unless each prompt is a text or null, since texts are appended to it."""
    if prompts is not None and not isinstance(prompts, dict):
        raise PosirError(f"{file}: prompts must be an object with a text for each name.")
    for name, text in (prompts or {}).items():
        if text is not None and not isinstance(text, str):
            raise PosirError(
                f"{file}: prompts.{sanitize(name)} is {sanitize(json.dumps(text), MAX_SHOWN)}; "
                "must be a text or null."
            )


def _check_base(file: Path, base: Any) -> None:
    if not isinstance(base, str):
        return
    folder = Path(base).resolve()
    if is_model_folder(folder):
        adapter = file.parent.resolve()
        if folder in (adapter, *adapter.parents):
            raise PosirError(f"{file}: the base model of the adapter is the adapter itself.")
        check_folder(folder)


def _check_settings(file: Path, settings: Any) -> None:
    for key, value in _walk_settings(settings):
        if key in CODE_SETTINGS and CODE_SETTINGS[key](value):
            raise PosirError(
                f"{file}: {key} is {json.dumps(value)[:MAX_SHOWN]}, which would run code. {NO_CODE}"
            )
        is_number = (
            isinstance(value, int) and file.name == CONFIG_FILE and LAYER_COUNT_KEY.fullmatch(key)
        )
        if is_number and not 0 <= value <= MAX_LAYERS:
            raise PosirError(
                f"{file}: {sanitize(key)} is {sanitize(value)}; must be from 0 to {MAX_LAYERS:,}."
            )
    for reference in _find_classes(settings) if file.name in STRUCTURE_FILES else ():
        if not reference.startswith(MODULE_PACKAGES):
            raise PosirError(
                f"{file}: the module {reference} is not part of sentence-transformers. {NO_CODE}"
            )


def _walk_settings(settings: Any) -> Iterator[tuple[str, Any]]:
    """Yield keys and values of a JSON value at any depth."""
    values = [settings]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            yield from value.items()
            values += value.values()
        elif isinstance(value, list):
            values += value


def _find_classes(settings: Any) -> Iterator[str]:
    """Yield the module classes in a file of `STRUCTURE_FILES`."""
    for key, value in _walk_settings(settings):
        if key == "type":
            yield str(value)
        elif key == "types" and isinstance(value, dict):
            yield from map(str, value.values())


def check_module_classes(folder: Path) -> None:
    """Raise PosirError if a module of the model is not a class of sentence-transformers."""
    from sentence_transformers.util import import_from_string
    from torch import nn

    references = set[str]()
    for file in find_model_files(folder):
        if file.name in STRUCTURE_FILES:
            references.update(_find_classes(_read_settings(file)))
    for reference in sorted(references):
        if not reference.startswith(MODULE_PACKAGES[0]):
            continue
        module_class = None
        with suppress(ImportError):
            module_class = import_from_string(reference)
        if not (isinstance(module_class, type) and issubclass(module_class, nn.Module)):
            raise PosirError(
                f"{MODULES_FILE}: {reference} is not a module of the installed "
                "sentence-transformers."
            )


@contextmanager
def require_weights(folder: Path) -> Iterator[None]:
    """Raise PosirError for missing weights, which transformers would initialize randomly."""
    from transformers import PreTrainedModel

    original = vars(PreTrainedModel)["from_pretrained"]
    # Many models are saved without a pooler, which is only needed if its output is used.
    has_pooler = any(
        "pooler_output" in _find_texts(_read_settings(file))
        for file in find_model_files(folder)
        if file.suffix == ".json"
    )
    optional_prefixes = () if has_pooler else ("pooler.",)

    def load(
        cls: Any, /, *arguments: Any, output_loading_info: bool = False, **options: Any
    ) -> Any:
        options["ignore_mismatched_sizes"] = True
        model, info = original.__func__(cls, *arguments, output_loading_info=True, **options)
        # A mismatched key may be a tuple with both shapes.
        keys = {key if isinstance(key, str) else key[0] for key in info["mismatched_keys"]}
        missing = sorted(
            key for key in keys | {*info["missing_keys"]} if not key.startswith(optional_prefixes)
        )
        if missing:
            raise PosirError(
                f"the weights do not match {CONFIG_FILE}: {len(missing):,} are missing or have "
                f"another shape, and would be random: {', '.join(missing[:MAX_LISTED])}. Save the "
                "model again."
            )
        return (model, info) if output_loading_info else model

    # mypy rejects an assignment.
    setattr(PreTrainedModel, "from_pretrained", classmethod(load))  # noqa: B010
    try:
        yield
    finally:
        setattr(PreTrainedModel, "from_pretrained", original)  # noqa: B010


def resolve_model_folder(name: str, registered: RegisteredModels) -> ModelMeta | None:  # noqa: ARG001
    """Resolve the path of a model folder. Raises the same errors as `find_model_folder`."""
    folder = find_model_folder(name)
    return build_folder_meta(folder.resolve()) if folder else None


def find_model_folder(name: str) -> Path | None:
    """Return the folder of a model, or None if the name is not a path.

    Raises:
        PosirError: The name is clearly a path, such as `./x`, but not to a model.
    """
    folder = Path(name).expanduser()
    if is_model_folder(folder):
        return folder
    if not (name.startswith(("/", "./", "../", "~")) or name.endswith("/") or name in (".", "..")):
        return None
    if not folder.is_dir():
        raise PosirError(
            f"{name}: no such folder. Give a model's folder, or its name in mteb or on the Hub."
        )
    raise PosirError(
        f"{name}: not a model; it has neither {MODULES_FILE} nor {CONFIG_FILE}. Save the model "
        "with its `save_pretrained`."
    )


def is_model_folder(folder: Path) -> bool:
    """Return True if a folder contains a model of sentence-transformers or transformers."""
    return any((folder / file).is_file() for file in (MODULES_FILE, CONFIG_FILE))


def build_folder_meta(folder: Path) -> ModelMeta:
    """Build mteb's metadata for a folder. Raise PosirError if a settings file cannot be read."""
    from mteb.models import ModelMeta

    name = f"{LOCAL}/{read_model_name(folder)}"
    revision = check_folder(folder)
    settings = [_read_settings(folder / file) for file in KIND_FILES]
    wrapper, kind, modalities = RESOLVE_LOADER.resolve()(name, *settings)
    limits = []
    for file, key in WINDOW_SETTINGS.items():
        limit = (_read_settings(folder / file) or {}).get(key)
        if isinstance(limit, int) and limit > 0:
            limits.append(limit)
    load = partial(_load_folder, folder, wrapper)
    return ModelMeta.create_empty(
        {
            "loader": ModelLoader(wrapper.__name__, str(folder), load),
            "name": name,
            "revision": revision,
            "model_type": [kind],
            "modalities": modalities,
            "max_tokens": min(limits, default=None),
            "framework": ["Sentence Transformers", "PyTorch"],
        }
    )


def _read_settings(path: Path) -> Any:
    try:
        return json.loads(read_decompressed(path).decode()) if path.is_file() else None
    except (OSError, ValueError, RecursionError) as error:
        raise PosirError(
            f"{path}: cannot be read ({summarize_error(error)}). Save the model again."
        ) from error


def read_model_name(folder: Path) -> str:
    """Return the name from the model card, or else from the folder."""
    from huggingface_hub import ModelCard

    card_name = None
    # Cards are written by hand. An error in a card must not stop the run.
    with suppress(Exception):
        card = ModelCard.load(folder / "README.md", ignore_metadata_errors=True)
        card_name = card.data.get("model_name")
    if isinstance(card_name, str) and not DEFAULT_CARD_NAME.fullmatch(card_name):
        return to_file_name(card_name)
    parts = folder.parts[-2:] if GENERIC_FOLDER_NAME.fullmatch(folder.name) else folder.parts[-1:]
    return to_file_name("-".join(parts))


def digest_folder(folder: Path) -> str:
    """Return the revision, 16 hexadecimal digits that identify weights and settings."""
    return digest_files(
        {file.relative_to(folder).as_posix(): file for file in find_model_files(folder)}
    )


def find_model_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a model: top-level files, except `IGNORED_FILES`, and files in the
    subfolders of its modules.

    Other folders, such as checkpoints, logs and evaluation results, are skipped.
    """
    subfolders = {TEMPLATE_FOLDER}
    for file in STRUCTURE_FILES:
        for value in _find_texts(_read_settings(folder / file)):
            subfolders.update(Path(value).parts[:1])
    for path in sorted(folder.iterdir()):
        if path.is_file() and not any(fnmatchcase(path.name, pattern) for pattern in IGNORED_FILES):
            yield path
        elif path.is_dir() and path.name in subfolders:
            yield from find_files(path, "")


def _find_texts(settings: Any) -> Iterator[str]:
    """Yield all strings in a JSON value, including keys."""
    for key, value in _walk_settings([settings]):
        yield key
        for entry in value if isinstance(value, list) else [value]:
            if isinstance(entry, str):
                yield entry
