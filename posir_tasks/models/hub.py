"""The Hugging Face Hub as the source of models: one request shows whether it answers, and one
sentence says what to do if not.

The Hub's client repeats every request for half a minute and more, once per file of a model, and
ends in the errors of several libraries. Here it is asked once; while it does not answer, only its
cache is used.
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
from posir_tasks.models.references import portable_name

if TYPE_CHECKING:
    from mteb.models import ModelMeta

#: Seconds that the Hub has to answer.
TIMEOUT = 5
#: What to do without the Hub.
ALTERNATIVES = (
    "Give the folder of a model (./my-model), set HF_ENDPOINT to the address of a mirror, or copy "
    "the cache of a machine that "
    "has downloaded a registered model, and set HF_HUB_CACHE to its folder and HF_HUB_OFFLINE=1."
)
#: What mteb calls the framework of models that are reached over the network and not downloaded.
API = "API"


def is_downloaded(meta: ModelMeta) -> bool:
    """Return whether a model is downloaded from the Hub: no folder, endpoint, service, BM25 or
    random model of mteb.
    """
    return bool(meta.framework) and API not in meta.framework and portable_name(meta) == meta.name


@contextmanager
def explain_missing_hub(failure: str) -> Iterator[None]:
    """Use only the cache if the Hub does not answer; if that is not enough, raise PosirError with
    `failure`, a clause.
    """
    problem = find_hub_problem()
    if problem is None:
        yield
        return
    hide_tracebacks()
    online = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    except OSError as error:
        # Of the operating system, such as a full disk; the libraries' own errors have none.
        if error.errno is not None:
            raise
        raise missing_hub(failure, problem) from error
    finally:
        constants.HF_HUB_OFFLINE = online


def missing_hub(failure: str, problem: str) -> PosirError:
    """Return the error for what the Hub would have: a clause, why the Hub does not answer, and what
    to do.
    """
    return PosirError(f"{failure} ({problem}).\n{ALTERNATIVES}")


def explain_missing_weights(meta: ModelMeta) -> AbstractContextManager[None]:
    """Return a context in which a model is loaded; see `explain_missing_hub`."""
    if is_downloaded(meta):
        return explain_missing_hub(describe_missing_weights(str(meta.name)))
    return nullcontext()


def describe_missing_weights(name: str) -> str:
    """Return a clause: the model of this name is not in the cache."""
    return (
        f"{name} is not complete in the cache ({constants.HF_HUB_CACHE}) and cannot be downloaded"
    )


def is_in_cache(name: str, revision: str | None = None) -> bool:
    """Return whether the Hub's cache has files of a model, of this revision or of any."""
    folder = Path(constants.HF_HUB_CACHE, f"models--{name.replace('/', '--')}")
    return (folder / "snapshots" / revision if revision else folder).exists()


def is_on_hub(name: str) -> bool:
    """Ask the Hub for a model; return whether it may have it, which is so unless it says that it
    has not.
    """
    try:
        HfApi().model_info(name, timeout=TIMEOUT)
    except (RepositoryNotFoundError, HFValidationError):
        return False
    except Exception:  # of the HTTP library; loading the model says what is wrong
        return True
    return True


def find_hub_problem() -> str | None:
    """Return why nothing can be downloaded from the Hub, None if it answers, whatever the
    answer.
    """
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    errors: list[Exception] = []

    def ask() -> None:
        try:
            get_session().head(constants.ENDPOINT, timeout=TIMEOUT)
        # The Hub's client uses another HTTP library in each major version.
        except Exception as error:
            errors.append(error)

    # A thread, since the lookup of a host's address has no limit of its own.
    request = Thread(target=ask, daemon=True)
    request.start()
    request.join(TIMEOUT)
    if request.is_alive():
        return f"{constants.ENDPOINT} does not answer within {TIMEOUT} seconds"
    if errors:
        return f"{constants.ENDPOINT} cannot be reached: {summarize_error(errors[0])}"
    return None
