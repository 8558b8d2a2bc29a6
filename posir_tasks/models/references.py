"""References to models: names, folders, endpoints, and what a new kind of reference has to
provide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError
from posir_tasks.base.wording import suggest_name

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

#: First part of the name of a model in a local folder, of a model behind an endpoint, and of a run
#: of any system.
LOCAL = "local"
ENDPOINT = "endpoint"
RUN = "run"
#: What a model of each kind is, in words.
ORIGINS = {
    LOCAL: "a model in a local folder",
    ENDPOINT: "a model behind an endpoint",
    RUN: "a run that another system made",
}
#: mteb's type of models that rerank and do not search.
CROSS_ENCODER = "cross-encoder"
#: What mteb reports as the revision of a model without one.
MISSING_REVISIONS = (None, "", "no_revision_available")
#: Kind of a reranker, in references, and the name of one with or without its model.
RERANK = "rerank"
RERANKER = re.compile(rf"(?:[^()]+:)?{RERANK}")
REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
#: A reference to a model behind an endpoint, and the kinds of servers that it may name.
ENDPOINT_REFERENCE = re.compile(
    r"(?P<model>.*?)@?(?:(?<=@)(?P<kind>[a-z]+)\+)?(?P<address>https?://.*)", re.DOTALL
)
ENDPOINT_KINDS = ("openai", "tei", "ollama", "cohere", "voyage", "jina", "perplexity")
EXAMPLE = "Write MODEL@ADDRESS, such as bge-m3@http://localhost:8000/v1"


@dataclass(frozen=True)
class ModelReference:
    """A model as a user names it."""

    name: str
    """The name of a registered model, with or without its organization; of a model on the Hub; or
    what a resolver accepts.
    """
    revision: str | None = None
    """None for the registered revision, or the newest one on the Hub if the model is not
    registered.
    """


class ModelLoader:
    """Loads a model instead of a class of mteb that loads models by name. (pydantic would dump a
    dataclass.)
    """

    def __init__(self, name: str, reference: str, load: Callable[..., MTEBModels]) -> None:
        """Make a loader from the name that mteb records, the reference to the model, and a
        function of name, revision and options.
        """
        self.__name__ = name
        self.reference = reference
        self._load = load

    def __call__(self, name: str, revision: str | None = None, **options: Any) -> MTEBModels:
        """Load the model with the options that mteb's models take."""
        return self._load(name, revision, **options)


def portable_name(meta: ModelMeta) -> str:
    """Return a reference that holds in every process: a full name, the absolute path of a folder,
    or an endpoint.
    """
    return str(getattr(meta.loader, "reference", meta.name))


def model_origin(name: str) -> str | None:
    """Return the key in `ORIGINS` for the full name of a model that others cannot load by it, None
    for all others.
    """
    organization = name.partition("/")[0]
    return organization if organization in ORIGINS else None


#: mteb's BM25 baseline.
BM25_BASELINE = "mteb/baseline-bm25s"
#: Longest name of a model in a local folder or behind an endpoint.
MAX_NAME = 100
#: Bytes of the digest in a name that was changed to be legible.
NAME_DIGEST_BYTES = 4
#: The server in the address of an endpoint: a name that does not end as `localhost-8000` does, or a
#: name with a port.
USUAL_SERVER = re.compile(
    r"(?P<host>(?![A-Za-z0-9.-]+-\d+$)[A-Za-z0-9][A-Za-z0-9.-]*)|[A-Za-z0-9][A-Za-z0-9.-]*:\d+"
)


def resolve_bare_name(name: str, registered: Mapping[str, ModelMeta]) -> ModelMeta | None:
    """Resolve a name without its organization, if only one registered model has it."""
    full_names = [full for full in registered if bare_name(full) == name]
    return registered[full_names[0]] if len(full_names) == 1 else None


def describe_unknown(name: str, registered: Collection[str]) -> str:
    """Write a clause: mteb registers no model of this name, and which name is most similar."""
    names = {full if "/" in name else bare_name(full) for full in registered}
    return f"no model '{name}'.{suggest_name(name, names)} It is not registered with mteb"


def unknown_model(name: str, registered: Collection[str], reason: str) -> PosirError:
    """Return the error for a name that no model has."""
    return PosirError(
        f"{describe_unknown(name, registered)}, and {reason}. A model can also be a folder "
        "(./my-model) or an endpoint (bge-m3@http://localhost:8000/v1)."
    )


def bare_name(full_name: str) -> str:
    """Return a model's name without its organization."""
    return full_name.rpartition("/")[2]


def legible_name(text: str) -> str:
    """Return a text as part of a name: letters, digits and `._-` only, which need no quotes in a
    shell.

    Where that changes or shortens it, a digest of the text follows: no two texts have one name.
    """
    legible = _replace_signs(text)
    if legible == text:
        return text
    return f"{legible[: MAX_NAME - 2 * NAME_DIGEST_BYTES - 1]}-{_digest_name(text)}"


def _replace_signs(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-._")[:MAX_NAME] or "model"


def _digest_name(text: str) -> str:
    return digest(text, size=NAME_DIGEST_BYTES).hex()


@dataclass(frozen=True)
class Endpoint:
    """A model behind an address."""

    model: str
    address: str
    """Base address of the API, which usually ends in `/v1`."""
    revision: str | None
    kind: str = ""
    """Kind of the server, such as `tei`; empty if that is found out."""

    def __str__(self) -> str:
        kind = self.kind and f"{self.kind}+"
        revision = f"#{self.revision}" if self.revision else ""
        return f"{self.model}@{kind}{self.address}{revision}"

    @property
    def host(self) -> str:
        """Name of the server's machine."""
        return urlsplit(self.address).hostname or ""

    @property
    def name(self) -> str:
        """Name under which results are filed, such as `endpoint/bge-m3 (localhost-8000)`.

        It is without what is usual: the path `/v1`, the scheme (`http` with a port, else `https`),
        and a kind of server that is found out. Where anything else is not in it, a digest of model,
        kind and address is: no two endpoints have one name.
        """
        parts = urlsplit(self.address)
        model = _replace_signs(self.model)
        server = _replace_signs(parts.netloc + parts.path.removesuffix("/v1"))
        name = f"{ENDPOINT}/{model} ({server}"
        matched = USUAL_SERVER.fullmatch(parts.netloc)
        scheme = "https" if matched and matched["host"] else "http"
        is_usual = matched and not self.kind and self.address == f"{scheme}://{parts.netloc}/v1"
        if is_usual and model == self.model and server == parts.netloc.replace(":", "-"):
            return f"{name})"
        return f"{name} {_digest_name(str(replace(self, revision=None)))})"


@dataclass(frozen=True)
class RequestFields:
    """Fields that a user adds to the requests for queries and for documents, such as
    `input_type`.
    """

    query: Mapping[str, Any] = field(default_factory=dict)
    passage: Mapping[str, Any] = field(default_factory=dict)


def find_endpoint(name: str) -> Endpoint | None:
    """Return the endpoint that a reference names, None if it names none; raise PosirError as
    `parse_endpoint`.
    """
    match = ENDPOINT_REFERENCE.fullmatch(name)
    return parse_endpoint(match["model"], match["address"], match["kind"] or "") if match else None


def parse_endpoint(model: str, address: str, kind: str = "") -> Endpoint:
    """Return a checked endpoint, or raise PosirError, which repeats no address that may contain a
    password or key.
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
            f"the address of the model '{model}' has a user, a password or a query. Addresses are "
            "shown in results, so they "
            f"must not contain secrets: set the key as OPENAI_API_KEY. {EXAMPLE}."
        )
    if not model or not host or any(map(str.isspace, address)):
        raise PosirError(
            f"'{model}@{address}': {'no model' if host else 'no host'} is given. {EXAMPLE}."
        )
    if parts.fragment and not REVISION.fullmatch(parts.fragment):
        raise PosirError(
            f"'#{parts.fragment}': a revision has letters, digits and ._- only, such as #2025-06."
        )
    if kind not in ("", *ENDPOINT_KINDS):
        raise PosirError(
            f"'{kind}+{address}': no such kind of server. The kinds are "
            f"{', '.join(ENDPOINT_KINDS)}."
        )
    path = parts.path.rstrip("/").removesuffix(
        "/rerank" if RERANKER.fullmatch(model) else "/embeddings"
    )
    return Endpoint(
        model, f"{parts.scheme}://{parts.netloc.lower()}{path}", parts.fragment or None, kind
    )
