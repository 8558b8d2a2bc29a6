"""Settings of a run that change what a model does: a paper's protocol, query prompt, input window,
a reranker's first stage.

They are environment variables, so that the plain `mteb run` has them, too. In mteb's terms they
make an experiment: results are in a folder of their own (`experiments/query_prompt_...`), so that
they neither replace those of the model as it is nor are taken for them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError
from posir_tasks.base.private_names import MODEL_REGISTRY
from posir_tasks.base.secrets import collect_secrets, redact_collected
from posir_tasks.models.protocols import Protocol, find_protocol
from posir_tasks.models.references import (
    BM25_BASELINE,
    CROSS_ENCODER,
    ENDPOINT,
    model_origin,
)
from posir_tasks.models.request_fields import (
    PASSAGE_FIELD_VARIABLE,
    QUERY_FIELD_VARIABLE,
    REQUEST_FIELDS,
)
from posir_tasks.values.rotation_ranks import ROTATED_VARIABLE

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

#: The model whose top 100 rerankers rerank, as `-m` takes it; without it BM25.
FIRST_STAGE_VARIABLE = "POSIR_FIRST_STAGE"
#: The text before each query, `\n` for a line break; without it the model's own.
PROMPT_VARIABLE = "POSIR_QUERY_PROMPT"
#: The text before each document, likewise.
DOCUMENT_PROMPT_VARIABLE = "POSIR_DOCUMENT_PROMPT"
#: The number of tokens of a text that the model reads; without it the model's own.
WINDOW_VARIABLE = "POSIR_WINDOW"
#: The paper whose protocol models are run with; without it mteb's settings.
PROTOCOL_VARIABLE = "POSIR_PROTOCOL"
#: The tokenizer that counts the tokens of an endpoint's window; without it the server's count, or
#: an estimate.
TOKENIZER_VARIABLE = "POSIR_TOKENIZER"
#: 1 to leave out texts that the server of an endpoint cannot embed.
SKIP_FAILED_VARIABLE = "POSIR_SKIP_FAILED"
#: Keys of the settings in mteb's `experiment_kwargs`.
FIRST_STAGE = "first_stage"
QUERY_PROMPT = "query_prompt"
WINDOW = "window"
PROTOCOL = "protocol"
TOKENIZER = "tokenizer"
SKIP_FAILED = "skip_failed"
DOCUMENT_PROMPT = "document_prompt"
#: The key of the digest of settings that mteb changes or shortens when it names an experiment.
DIGEST = "settings_digest"
DIGEST_BYTES = 4
#: What mteb keeps of a text in the name of an experiment, and from which length of all of them it
#: keeps a digest alone.
KEPT_TEXT = re.compile(r"[^<>:\"|?*\\/\0\s]*(?: [^<>:\"|?*\\/\0\s]+)*")
MAX_EXPERIMENT = 100
#: The variable of each setting.
SETTING_VARIABLES: Mapping[str, str] = {
    FIRST_STAGE: FIRST_STAGE_VARIABLE,
    QUERY_PROMPT: PROMPT_VARIABLE,
    DOCUMENT_PROMPT: DOCUMENT_PROMPT_VARIABLE,
    WINDOW: WINDOW_VARIABLE,
    PROTOCOL: PROTOCOL_VARIABLE,
    TOKENIZER: TOKENIZER_VARIABLE,
    SKIP_FAILED: SKIP_FAILED_VARIABLE,
    **REQUEST_FIELDS,
}
SETTINGS = (*SETTING_VARIABLES, DIGEST)
#: All of these variables.
VARIABLES = tuple(SETTING_VARIABLES.values())

_is_own: ContextVar[bool] = ContextVar("_is_own", default=False)


@contextmanager
def own_settings() -> Iterator[None]:
    """Load models as they are: the settings of the run are those of another model."""
    token = _is_own.set(True)
    try:
        yield
    finally:
        _is_own.reset(token)


@contextmanager
def with_settings(
    *,
    protocol: str | None = None,
    window: int | None = None,
    tokenizer: str | None = None,
    skip_failed: bool = False,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    query_field: str | Iterable[str] | None = None,
    passage_field: str | Iterable[str] | None = None,
    rotated: int | None = None,
) -> Iterator[None]:
    """Set the settings of a run that are not None, for this process and those that it starts
    meanwhile.
    """
    values: dict[str, object] = {
        PROTOCOL_VARIABLE: protocol,
        WINDOW_VARIABLE: window,
        TOKENIZER_VARIABLE: tokenizer,
        SKIP_FAILED_VARIABLE: 1 if skip_failed else None,
        ROTATED_VARIABLE: rotated,
        PROMPT_VARIABLE: query_prompt,
        DOCUMENT_PROMPT_VARIABLE: document_prompt,
        QUERY_FIELD_VARIABLE: _join_fields(query_field),
        PASSAGE_FIELD_VARIABLE: _join_fields(passage_field),
    }
    changes = {name: str(value) for name, value in values.items() if value is not None}
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _join_fields(fields: str | Iterable[str] | None) -> str | None:
    """Return fields of requests, one a line."""
    return fields if fields is None or isinstance(fields, str) else "\n".join(fields)


def find_run_protocol(meta: ModelMeta) -> Protocol | None:
    """Return how the paper of the run ran a model; None without one. Raise PosirError if it did
    not, or for two settings.
    """
    paper = os.environ.get(PROTOCOL_VARIABLE, "").strip()
    if not paper or (_is_own.get() and meta.name == BM25_BASELINE):
        return None
    protocol = find_protocol(paper, str(meta.name))
    for name in (PROMPT_VARIABLE, DOCUMENT_PROMPT_VARIABLE, FIRST_STAGE_VARIABLE, WINDOW_VARIABLE):
        if os.environ.get(name):
            raise PosirError(
                f"{PROTOCOL_VARIABLE} and {name}: a protocol sets prompts, window and first "
                "stage. Unset one."
            )
    return protocol


def find_first_stage(model: ModelMeta | None = None, task: str = "") -> str:
    """Return the full name of the model of the first stage, or the reference of one that mteb does
    not know.

    A protocol may say for a reranker which it is on a task.
    """
    protocol = find_run_protocol(model) if model is not None else None
    stage = protocol.find_first_stage(task) if protocol else None
    if stage:
        return stage
    reference = os.environ.get(FIRST_STAGE_VARIABLE, "").strip() or BM25_BASELINE
    registered = MODEL_REGISTRY.resolve()
    meta = registered[reference] if reference in registered else None  # noqa: SIM401 (the registry resolves references)
    return str(getattr(meta.loader, "reference", meta.name)) if meta else reference


def _read_window() -> int | None:
    """Return the window of the run; None for the model's own. Raise PosirError if it is no
    number.
    """
    text = os.environ.get(WINDOW_VARIABLE, "").strip()
    if text and (not text.isdecimal() or int(text) < 1):
        raise PosirError(
            f"{WINDOW_VARIABLE}={text}: not a number of tokens. Write a whole number such as "
            "512, or unset it."
        )
    return int(text) if text else None


def _reads_skip_failed() -> bool:
    """Return whether the run leaves out texts that a server cannot embed; raise PosirError if that
    is neither 0 nor 1.
    """
    text = os.environ.get(SKIP_FAILED_VARIABLE, "").strip()
    if text not in ("", "0", "1"):
        raise PosirError(
            f"{SKIP_FAILED_VARIABLE}={text}: must be 1 or 0. Write 1 to leave out texts, or "
            "unset it."
        )
    return text == "1"


def _find_endpoint_settings(meta: ModelMeta) -> dict[str, str | int]:
    """Return the settings of the run for requests to an endpoint; raise PosirError if the model is
    behind none.
    """
    settings: dict[str, str | int] = {}
    is_endpoint = model_origin(str(meta.name)) == ENDPOINT
    tokenizer = os.environ.get(TOKENIZER_VARIABLE, "").strip()
    # Other models have their own tokenizer, and without a window none is needed.
    if tokenizer and is_endpoint and _read_window() is not None:
        settings[TOKENIZER] = tokenizer
    if _reads_skip_failed():
        if not is_endpoint or CROSS_ENCODER in meta.model_type:
            raise PosirError(
                f"{SKIP_FAILED_VARIABLE}: {meta.name} is not an encoder behind an endpoint. Unset "
                "it."
            )
        settings[SKIP_FAILED] = 1
    for name, variable in REQUEST_FIELDS.items():
        fields = os.environ.get(variable, "").strip()
        if not fields:
            continue
        if not is_endpoint:
            raise PosirError(
                f"{variable}: {meta.name} is not behind an endpoint, whose requests have fields. "
                "Unset it."
            )
        collect_secrets()
        if redact_collected(fields) != fields:
            raise PosirError(
                f"{variable}: has a key or a password. Fields are written into results; set the "
                "key as OPENAI_API_KEY."
            )
        settings[name] = fields
    return settings


def find_run_settings(meta: ModelMeta) -> dict[str, str | int]:
    """Return the settings of the run for a model, other than its own, as mteb's
    `experiment_kwargs`.
    """
    if protocol := find_run_protocol(meta):
        return {PROTOCOL: protocol.paper}
    if _is_own.get() or meta.name == BM25_BASELINE:
        return {}
    first_stage = find_first_stage() if CROSS_ENCODER in meta.model_type else BM25_BASELINE
    settings: dict[str, str | int] = {}
    if first_stage != BM25_BASELINE:
        settings[FIRST_STAGE] = first_stage
    window = _read_window()
    if window is not None:
        settings[WINDOW] = window
    settings |= _find_endpoint_settings(meta)
    return settings | _read_prompts()


def _read_prompts() -> dict[str, str]:
    """Return the texts before queries and documents that are set, by the keys of their settings."""
    variables = {QUERY_PROMPT: PROMPT_VARIABLE, DOCUMENT_PROMPT: DOCUMENT_PROMPT_VARIABLE}
    return {
        name: os.environ[variable].replace("\\n", "\n")
        for name, variable in variables.items()
        if variable in os.environ
    }


def add_digest(settings: Mapping[str, str | int]) -> dict[str, str | int]:
    """Return settings with a digest of theirs if mteb would give others the name of their
    experiment.
    """
    texts = [str(value) for value in settings.values()]
    is_kept = all(KEPT_TEXT.fullmatch(text) and "__" not in text for text in texts)
    if is_kept and sum(map(len, texts)) <= MAX_EXPERIMENT:
        return {**settings}
    return {
        **settings,
        DIGEST: digest(json.dumps(settings, sort_keys=True), size=DIGEST_BYTES).hex(),
    }


def with_run_settings(meta: ModelMeta) -> ModelMeta:
    """Return metadata with the settings of the run, under which its results are filed."""
    settings = add_digest(find_run_settings(meta))
    if not settings:
        return meta
    experiment = {**(meta.experiment_kwargs or {}), **settings}
    return meta.model_copy(update={"experiment_kwargs": experiment})


def prepare_run_settings(meta: ModelMeta) -> ModelMeta:
    """Return metadata without settings of a run, which mteb would pass on, whose loader sets what a
    protocol leaves to it.
    """
    experiment = meta.experiment_kwargs or {}
    protocol = find_run_protocol(meta)
    rest = {name: value for name, value in experiment.items() if name not in SETTINGS}
    plain = (
        meta if rest == experiment else meta.model_copy(update={"experiment_kwargs": rest or None})
    )
    if protocol is None:
        return plain
    from posir_tasks.models.apply_protocol import prepare_loading

    return prepare_loading(plain, protocol)


def apply_run_settings(model: MTEBModels, described: ModelMeta | None = None) -> MTEBModels:
    """Apply the settings of the run to a loaded model, and record them; raise PosirError if it
    cannot take them.

    Args:
        model: The model.
        described: The metadata that it was to be loaded by; None for its own.
    """
    meta: Any = model.mteb_model_meta
    settings: Mapping[str, Any] = find_run_settings(meta)
    if not settings:
        return model
    if protocol := find_run_protocol(meta):
        from posir_tasks.models.apply_protocol import apply_protocol

        apply_protocol(model, protocol)
        # Loaders and their settings are filed as mteb has them.
        meta = meta.model_copy(
            update={name: getattr(described or meta, name) for name in ("loader", "loader_kwargs")}
        )
    if WINDOW in settings:
        from posir_tasks.models.window import set_window

        set_window(model, settings[WINDOW])
    if TOKENIZER in settings and (use_tokenizer := getattr(model, "use_tokenizer", None)):
        use_tokenizer(settings[TOKENIZER])
    if SKIP_FAILED in settings and hasattr(model, "skips_failed"):
        vars(model)["skips_failed"] = True
    if not settings.keys().isdisjoint((QUERY_PROMPT, DOCUMENT_PROMPT)):
        variable = PROMPT_VARIABLE if QUERY_PROMPT in settings else DOCUMENT_PROMPT_VARIABLE
        try:
            # It imports mteb's classes of models, which may be about to be imported before.
            from posir_tasks.models.prompts import replace_prompts
        except ImportError as error:
            raise PosirError(
                f"{variable}: the installed mteb has no such prompts ({error}). Unset it."
            ) from error
        if not replace_prompts(model, settings.get(QUERY_PROMPT), settings.get(DOCUMENT_PROMPT)):
            raise PosirError(
                f"{variable}: {meta.name} is of the class {type(model).__name__}, which chooses "
                "its own prompts. Unset the variable."
            )
    vars(model)["mteb_model_meta"] = with_run_settings(meta)
    return model
