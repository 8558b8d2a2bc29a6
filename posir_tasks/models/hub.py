"""Access to models on the Hugging Face Hub, with a single error message if the Hub is unreachable.

For each file of a model, the Hub's client retries requests for half a minute or more, and raises
errors from several libraries. This module sends one request to check whether the Hub responds. If
not, only the cache is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from huggingface_hub import HfApi, constants, get_session
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

from posir_tasks.base.errors import PosirError, hide_tracebacks, summarize_error
from posir_tasks.base.overrides import override
from posir_tasks.models.references import get_portable_reference

if TYPE_CHECKING:
    from mteb.models import ModelMeta

#: Timeout for requests to the Hub, in seconds.
TIMEOUT = 5
#: Advice if the Hub cannot be reached.
ALTERNATIVES = (
    "Give the folder of a model (./my-model), set HF_ENDPOINT to the address of a mirror, or copy "
    "the cache of a machine that has downloaded a registered model, and set HF_HUB_CACHE to its "
    "folder and HF_HUB_OFFLINE=1."
)
#: mteb's framework name for models behind an API.
API = "API"


def is_hub_model(meta: ModelMeta) -> bool:
    """Return True for models from the Hub, unlike folders, endpoints, services and BM25."""
    return (
        bool(meta.framework)
        and API not in meta.framework
        and get_portable_reference(meta) == meta.name
    )


@contextmanager
def explain_missing_hub(failure: str) -> Iterator[None]:
    """Use only the cache inside the context if the Hub does not respond.

    Raises:
        PosirError: A file is not in the cache. The message starts with `failure`.
    """
    problem = find_hub_problem()
    if problem is None:
        yield
        return
    hide_tracebacks()
    try:
        with override(constants, HF_HUB_OFFLINE=True):
            yield
    except OSError as error:
        # Errors from the operating system, such as a full disk, set `errno`.
        if error.errno is not None:
            raise
        raise make_missing_hub_error(failure, problem) from error


def make_missing_hub_error(failure: str, problem: str) -> PosirError:
    """Build the error for files that must be downloaded, with advice."""
    return PosirError(f"{failure} ({problem}).\n{ALTERNATIVES}")


def explain_missing_weights(meta: ModelMeta) -> AbstractContextManager[None]:
    """Return a context for loading a model; see `explain_missing_hub`."""
    if is_hub_model(meta):
        return explain_missing_hub(describe_missing_weights(str(meta.name)))
    return nullcontext()


def describe_missing_weights(name: str) -> str:
    """Return the start of the error message for a model that is not in the cache."""
    return (
        f"{name} is not complete in the cache ({constants.HF_HUB_CACHE}) and cannot be downloaded"
    )


def is_in_cache(name: str, revision: str | None = None) -> bool:
    """Return True if the Hub's cache contains files of a model, optionally of one revision."""
    folder = Path(constants.HF_HUB_CACHE, f"models--{name.replace('/', '--')}")
    return (folder / "snapshots" / revision if revision else folder).exists()


def is_on_hub(name: str) -> bool:
    """Return False if the Hub reports that a model does not exist, otherwise True."""
    try:
        HfApi().model_info(name, timeout=TIMEOUT)
    except (RepositoryNotFoundError, HFValidationError):
        return False
    except Exception:  # other errors are reported when the model is loaded
        return True
    return True


def find_hub_problem() -> str | None:
    """Return the reason why the Hub cannot be reached, or None if it responds."""
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    errors: list[Exception] = []

    def send_request() -> None:
        try:
            get_session().head(constants.ENDPOINT, timeout=TIMEOUT)
        # The HTTP library, and thus the error, depends on the version of the Hub's client.
        except Exception as error:
            errors.append(error)

    # DNS lookups have no timeout, so the request runs in a thread.
    request = Thread(target=send_request, daemon=True)
    request.start()
    request.join(TIMEOUT)
    if request.is_alive():
        return f"{constants.ENDPOINT} did not respond within {TIMEOUT} seconds"
    if errors:
        return f"{constants.ENDPOINT} cannot be reached: {summarize_error(errors[0])}"
    return None
