"""References to models: names, folders and endpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError
from posir_tasks.base.wording import suggest_name

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

#: Organizations in the names of local models, models behind endpoints, and runs of other systems.
LOCAL = "local"
ENDPOINT = "endpoint"
RUN = "run"
#: Descriptions of these models.
ORIGINS = {
    LOCAL: "a model in a local folder",
    ENDPOINT: "a model behind an endpoint",
    RUN: "a run of another system",
}
#: mteb's model type for models that only rerank.
CROSS_ENCODER = "cross-encoder"
#: mteb's values for a missing revision.
MISSING_REVISIONS = (None, "", "no_revision_available")
#: Name of a reranker behind an endpoint, optionally with its model: `MODEL:rerank`.
RERANK = "rerank"
RERANKER_NAME = re.compile(rf"(?:[^()]+:)?{RERANK}")
REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
#: A model name, with or without its organization.
MODEL_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)?")
#: A reference to a model behind an endpoint, and the possible kinds of server.
ENDPOINT_REFERENCE = re.compile(
    r"(?P<model>.*?)@?(?:(?<=@)(?P<kind>[a-z]+)\+)?(?P<address>https?://.*)", re.DOTALL
)
ENDPOINT_KINDS = ("openai", "tei", "ollama", "cohere", "voyage", "jina", "perplexity")
EXAMPLE = "Write MODEL@ADDRESS, such as bge-m3@http://localhost:8000/v1"


@dataclass(frozen=True)
class ModelReference:
    """A user's reference to a model."""

    name: str
    """Name of a model in mteb or on the Hub, or any other reference."""
    revision: str | None = None
    """By default, the registered revision, or else the newest one on the Hub."""


#: Metadata by full name.
RegisteredModels: TypeAlias = "Mapping[str, ModelMeta]"


class ModelLoader:
    """A loader in mteb's metadata. It is not a dataclass because pydantic would dump its fields."""

    def __init__(self, name: str, reference: str, load: Callable[..., MTEBModels]) -> None:
        """Create a loader.

        Args:
            name: The loader's name in mteb's records.
            reference: Reference to the model.
            load: Loads the model, given its name, revision and options.
        """
        self.__name__ = name
        self.reference = reference
        self._load = load

    def __call__(self, name: str, revision: str | None = None, **options: Any) -> MTEBModels:
        """Load the model. `options` are those that mteb passes to loaders."""
        return self._load(name, revision, **options)


def get_portable_reference(meta: ModelMeta) -> str:
    """Return a reference for any process: a full name, an absolute path or an endpoint."""
    return str(getattr(meta.loader, "reference", meta.name))


def find_origin(name: str) -> str | None:
    """Return a key of `ORIGINS`, or None if anyone can load the model by its full name."""
    organization = name.partition("/")[0]
    return organization if organization in ORIGINS else None


#: mteb's BM25 baseline.
BM25_BASELINE = "mteb/baseline-bm25s"
#: Maximum length of names that are derived from a folder or an endpoint.
MAX_NAME_LENGTH = 100
#: Number of digest bytes in a changed name.
NAME_DIGEST_BYTES = 4
#: A server with an unambiguous name in results: a host that does not end like `localhost-8000`, or
#: a host with a port.
DEFAULT_SERVER = re.compile(
    r"(?P<host>(?![A-Za-z0-9.-]+-\d+$)[A-Za-z0-9][A-Za-z0-9.-]*)|[A-Za-z0-9][A-Za-z0-9.-]*:\d+"
)


def resolve_bare_name(name: str, registered: RegisteredModels) -> ModelMeta | None:
    """Resolve a name without its organization if it is unique among the registered models."""
    full_names = [full_name for full_name in registered if strip_organization(full_name) == name]
    return registered[full_names[0]] if len(full_names) == 1 else None


def describe_unknown(name: str, registered: Collection[str]) -> str:
    """Return the start of an error message for an unknown name, with a suggestion."""
    names = {
        full_name if "/" in name else strip_organization(full_name) for full_name in registered
    }
    return f"no model '{name}'.{suggest_name(name, names)} It is not registered with mteb"


def make_unknown_model_error(name: str, registered: Collection[str], reason: str) -> PosirError:
    """Build the error for an unknown name."""
    return PosirError(
        f"{describe_unknown(name, registered)}, and {reason}. A model can also be a folder "
        "(./my-model) or an endpoint (bge-m3@http://localhost:8000/v1)."
    )


def strip_organization(full_name: str) -> str:
    """Return a model's name without its organization."""
    return full_name.rpartition("/")[2]


def to_file_name(text: str) -> str:
    """Convert a text to letters, digits and `._-`, which need no quotes in a shell.

    A digest is appended to a changed text, so that names stay unique.
    """
    name = _replace_special_characters(text)
    if name == text:
        return text
    return f"{name[: MAX_NAME_LENGTH - 2 * NAME_DIGEST_BYTES - 1]}-{_digest_name(text)}"


def _replace_special_characters(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-._")[:MAX_NAME_LENGTH] or "model"


def _digest_name(text: str) -> str:
    return digest(text, size=NAME_DIGEST_BYTES).hex()


@dataclass(frozen=True)
class Endpoint:
    """A model served at an address."""

    model: str
    address: str
    """Base address of the API, which usually ends in `/v1`."""
    revision: str | None
    kind: str = ""
    """Kind of the server, such as `tei`; empty to detect it."""

    def __str__(self) -> str:
        kind = self.kind and f"{self.kind}+"
        revision = f"#{self.revision}" if self.revision else ""
        return f"{self.model}@{kind}{self.address}{revision}"

    @property
    def host(self) -> str:
        """Host name of the server."""
        return urlsplit(self.address).hostname or ""

    @property
    def name(self) -> str:
        """Name in results, such as `endpoint/bge-m3 (localhost-8000)`.

        The name omits defaults: the path `/v1`, the scheme (`http` with a port, else `https`) and a
        detected kind. If anything else is omitted or changed, a digest of model, kind and address
        is appended, so that names are unique.
        """
        parts = urlsplit(self.address)
        model = _replace_special_characters(self.model)
        server = _replace_special_characters(parts.netloc + parts.path.removesuffix("/v1"))
        name = f"{ENDPOINT}/{model} ({server}"
        match = DEFAULT_SERVER.fullmatch(parts.netloc)
        scheme = "https" if match and match["host"] else "http"
        is_default = match and not self.kind and self.address == f"{scheme}://{parts.netloc}/v1"
        if is_default and model == self.model and server == parts.netloc.replace(":", "-"):
            return f"{name})"
        return f"{name} {_digest_name(str(replace(self, revision=None)))})"


def find_endpoint(name: str) -> Endpoint | None:
    """Return the endpoint in a reference, or None. Raises the same errors as `parse_endpoint`."""
    match = ENDPOINT_REFERENCE.fullmatch(name)
    return parse_endpoint(match["model"], match["address"], match["kind"] or "") if match else None


def parse_endpoint(model: str, address: str, kind: str = "") -> Endpoint:
    """Build an endpoint from the parts of a reference.

    Raises:
        PosirError: The endpoint is invalid. The message contains no passwords or keys.
    """
    try:
        parts = urlsplit(address)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        raise PosirError(
            f"the address of the model '{model}' is not valid ({error}). {EXAMPLE}."
        ) from None
    if parts.username or parts.password or parts.query:
        raise PosirError(
            f"the address of the model '{model}' contains a user, a password or a query. Addresses "
            "are shown in results and must not contain secrets. Set the key as OPENAI_API_KEY. "
            f"{EXAMPLE}."
        )
    if not model or not host or any(map(str.isspace, address)):
        raise PosirError(
            f"'{model}@{address}': {'no model' if host else 'no host'} is given. {EXAMPLE}."
        )
    if parts.fragment and not REVISION.fullmatch(parts.fragment):
        raise PosirError(
            f"'#{parts.fragment}': a revision may only contain letters, digits and ._-, such as "
            "#2025-06."
        )
    if kind not in ("", *ENDPOINT_KINDS):
        raise PosirError(
            f"'{kind}+{address}': no such kind of server. The kinds are "
            f"{', '.join(ENDPOINT_KINDS)}."
        )
    path = parts.path.rstrip("/").removesuffix(
        "/rerank" if RERANKER_NAME.fullmatch(model) else "/embeddings"
    )
    return Endpoint(
        model, f"{parts.scheme}://{parts.netloc.lower()}{path}", parts.fragment or None, kind
    )
