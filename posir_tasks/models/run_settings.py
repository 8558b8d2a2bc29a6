"""Run settings that change a model: a paper's protocol, prompts, window, first stage and others.

Settings are environment variables, so they also apply to `mteb run`. For mteb, a run with settings
is an experiment, with results in a separate folder (`experiments/query_prompt_...`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.private_names import MODEL_REGISTRY
from posir_tasks.base.secrets import collect_secrets, redact_collected
from posir_tasks.models.protocols import Protocol, find_protocol
from posir_tasks.models.references import (
    BM25_BASELINE,
    CROSS_ENCODER,
    ENDPOINT,
    find_origin,
    get_portable_reference,
)

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

#: A run's settings as mteb's `experiment_kwargs`.
RunSettings: TypeAlias = dict[str, str | int]
# Keys of the settings.
#: Model whose top 100 a reranker reranks; BM25 by default.
FIRST_STAGE = "first_stage"
#: Text to put before each query; `\n` is a line break.
QUERY_PROMPT = "query_prompt"
#: Text to put before each document.
DOCUMENT_PROMPT = "document_prompt"
#: Context window in tokens.
WINDOW = "window"
#: Paper whose protocol the run follows.
PROTOCOL = "protocol"
#: Tokenizer that counts tokens for an endpoint's window.
TOKENIZER = "tokenizer"
#: 1 to skip texts that an endpoint cannot embed.
SKIP_FAILED = "skip_failed"
#: Backend of sentence-transformers, optionally with a file: `onnx:model_qint8_avx512.onnx`.
BACKEND = "backend"
#: Additional request fields for an endpoint, one per line.
REQUEST_FIELDS = ("query_field", "passage_field")
#: Domains of PosIR's tasks to evaluate.
SELECTED_DOMAINS = "domains"
#: Environment variable of each setting.
SETTING_VARIABLES: Mapping[str, str] = {
    name: f"POSIR_{name.upper()}"
    for name in (
        FIRST_STAGE,
        QUERY_PROMPT,
        DOCUMENT_PROMPT,
        WINDOW,
        PROTOCOL,
        TOKENIZER,
        SKIP_FAILED,
        BACKEND,
        *REQUEST_FIELDS,
        SELECTED_DOMAINS,
    )
}
VARIABLES = tuple(SETTING_VARIABLES.values())
FIRST_STAGE_VARIABLE = SETTING_VARIABLES[FIRST_STAGE]
#: Key for a digest, which is added to settings that mteb's experiment name would change or shorten.
SETTINGS_DIGEST = "settings_digest"
#: Text that mteb does not change in an experiment's name, and the maximum total length.
SAFE_TEXT = re.compile(r"[^<>:\"|?*\\/\0\s]*(?: [^<>:\"|?*\\/\0\s]+)*")
MAX_EXPERIMENT = 100
#: Module that each backend of sentence-transformers needs.
BACKENDS: Mapping[str, str] = {
    "onnx": "optimum.onnxruntime.modeling",
    "openvino": "optimum.intel.openvino.modeling",
}
#: Advice on the versions of a backend's package.
BACKEND_LIMITS = {
    "onnx": ", with optimum-onnx above 0.1.0: version 0.1.0 needs transformers below 4.58, but "
    "posir needs 5.0. Or use openvino."
}
#: mteb's classes with a `backend` parameter.
BACKEND_CLASSES = (
    "SentenceTransformerEncoderWrapper",
    "InstructSentenceTransformerModel",
    "CrossEncoderWrapper",
)

_ignores_settings: ContextVar[bool] = ContextVar("_ignores_settings", default=False)


@contextmanager
def ignore_run_settings() -> Iterator[None]:
    """Ignore the run's settings inside the context, since they are for another model."""
    token = _ignores_settings.set(True)
    try:
        yield
    finally:
        _ignores_settings.reset(token)


@contextmanager
def override_settings(**settings: str | int | Iterable[str] | None) -> Iterator[None]:
    """Set run settings, such as `window`, for this process and new child processes inside the
    context. None and False do not change a setting.
    """
    changes: dict[str, str] = {}
    for name, value in settings.items():
        if value is None or value is False:
            continue
        # `True` becomes "1".
        text = f"{value:d}" if isinstance(value, int) else value
        changes[f"POSIR_{name.upper()}"] = text if isinstance(text, str) else "\n".join(text)
    original = {name: os.environ[name] for name in changes if name in os.environ}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name in changes:
            os.environ.pop(name)
        os.environ.update(original)


def _read_setting(name: str) -> str:
    return os.environ.get(SETTING_VARIABLES[name], "").strip()


def select_domains(available: Iterable[str]) -> list[str]:
    """Return the domains of a task that the run selects; by default, all."""
    selection = _list_selected_domains()
    return [domain for domain in available if not selection or domain in selection]


def check_selected_domains(domains: Iterable[str], where: object) -> None:
    """Raise PosirError if `domains` lacks a domain that the run selects. `where` is the location
    of the data, for the message.
    """
    available = {*domains}
    missing = [domain for domain in _list_selected_domains() if domain not in available]
    if missing:
        names = ", ".join(sorted(available)) or "none"
        raise PosirError(
            f"{SETTING_VARIABLES[SELECTED_DOMAINS]}: {where} has no domain {', '.join(missing)}. "
            f"Available: {names}. Select some of them with --domains, or unset the variable."
        )


def _list_selected_domains() -> list[str]:
    """Return the sorted domains that the run selects. Commas or white space separate them."""
    return sorted({*_read_setting(SELECTED_DOMAINS).replace(",", " ").split()})


def find_run_protocol(meta: ModelMeta) -> Protocol | None:
    """Return the run's protocol for a model, or None if the run has no protocol.

    Raises:
        PosirError: The paper's authors did not run the model, or other settings contradict the
            protocol.
    """
    paper = _read_setting(PROTOCOL)
    if not paper or (_ignores_settings.get() and meta.name == BM25_BASELINE):
        return None
    protocol = find_protocol(paper, str(meta.name))
    for name in (QUERY_PROMPT, DOCUMENT_PROMPT, FIRST_STAGE, WINDOW):
        variable = SETTING_VARIABLES[name]
        if os.environ.get(variable):
            raise PosirError(
                f"{SETTING_VARIABLES[PROTOCOL]} and {variable}: a protocol sets prompts, window "
                "and first stage. Unset one."
            )
    return protocol


def find_first_stage(model: ModelMeta, task: str) -> str:
    """Return the full name or reference of a reranker's first-stage model.

    A protocol may determine the first stage of a task.
    """
    protocol = find_run_protocol(model)
    stage = protocol.find_first_stage(task) if protocol else None
    return stage or _find_run_first_stage()


def _find_run_first_stage() -> str:
    reference = _read_setting(FIRST_STAGE) or BM25_BASELINE
    registry = MODEL_REGISTRY.resolve()
    return get_portable_reference(registry[reference]) if reference in registry else reference


def _find_endpoint_settings(meta: ModelMeta) -> RunSettings:
    settings: RunSettings = {}
    is_endpoint = find_origin(str(meta.name)) == ENDPOINT
    tokenizer = _read_setting(TOKENIZER)
    # Only the window of an endpoint needs a tokenizer.
    if tokenizer and is_endpoint and _read_setting(WINDOW):
        settings[TOKENIZER] = tokenizer
    skip_failed = _read_setting(SKIP_FAILED)
    variable = SETTING_VARIABLES[SKIP_FAILED]
    if skip_failed not in ("", "0", "1"):
        raise PosirError(
            f"{variable}={skip_failed}: must be 1 or 0. Write 1 to skip texts, or unset it."
        )
    if skip_failed == "1":
        if not is_endpoint or CROSS_ENCODER in meta.model_type:
            raise PosirError(
                f"{variable}: {meta.name} is not an encoder behind an endpoint. Unset it."
            )
        settings[SKIP_FAILED] = 1
    for name in REQUEST_FIELDS:
        fields = _read_setting(name)
        if not fields:
            continue
        variable = SETTING_VARIABLES[name]
        if not is_endpoint:
            raise PosirError(f"{variable}: {meta.name} is not behind an endpoint. Unset it.")
        collect_secrets()
        if redact_collected(fields) != fields:
            raise PosirError(
                f"{variable}: contains a key or a password. Fields are stored in results; set the "
                "key as OPENAI_API_KEY."
            )
        settings[name] = fields
    return settings


def _find_backend_setting(meta: ModelMeta) -> RunSettings:
    backend = _read_setting(BACKEND)
    if not backend:
        return {}
    variable = SETTING_VARIABLES[BACKEND]
    name = backend.partition(":")[0]
    if name not in BACKENDS:
        raise PosirError(
            f"{variable}={backend}: not a backend. Write {' or '.join(BACKENDS)}, optionally "
            "with a model file, such as onnx:model_qint8_avx512.onnx, or unset it."
        )
    loader: Any = meta.loader
    loader_name = getattr(loader, "__name__", "")
    if loader_name not in BACKEND_CLASSES:
        raise PosirError(
            f"{variable}: {meta.name} is loaded by {loader_name or 'an unknown class'}, which has "
            "no backends. Unset it."
        )
    return {BACKEND: backend}


def _add_backend(meta: ModelMeta, backend: str) -> ModelMeta:
    name, _, file = backend.partition(":")
    try:
        import_module(BACKENDS[name])
    except Exception as error:  # incompatible versions raise various errors
        raise PosirError(
            f"{SETTING_VARIABLES[BACKEND]}={backend}: {BACKENDS[name]} cannot be imported "
            f"({summarize_error(error)}). Install it: pip install 'sentence-transformers[{name}]'"
            f"{BACKEND_LIMITS.get(name, '')}"
        ) from error
    options = {**meta.loader_kwargs, BACKEND: name}
    if file:
        options["model_kwargs"] = {**options.get("model_kwargs", {}), "file_name": file}
    return meta.model_copy(update={"loader_kwargs": options})


def find_run_settings(meta: ModelMeta) -> RunSettings:
    """Return the run's settings for a model as mteb's `experiment_kwargs`.

    Raises:
        PosirError: A setting is invalid.
    """
    settings: RunSettings = {}
    domains = _list_selected_domains()
    # First-stage models have no separate results.
    if domains and not _ignores_settings.get():
        settings[SELECTED_DOMAINS] = ",".join(domains)
    protocol = find_run_protocol(meta)
    if protocol:
        return {**settings, PROTOCOL: protocol.paper}
    if _ignores_settings.get() or meta.name == BM25_BASELINE:
        return settings
    if CROSS_ENCODER in meta.model_type and _find_run_first_stage() != BM25_BASELINE:
        settings[FIRST_STAGE] = _find_run_first_stage()
    window = _read_setting(WINDOW)
    if window:
        if not window.isdecimal() or int(window) < 1:
            raise PosirError(
                f"{SETTING_VARIABLES[WINDOW]}={window}: not a number of tokens. Write a whole "
                "number such as 512, or unset it."
            )
        settings[WINDOW] = int(window)
    settings |= _find_backend_setting(meta)
    settings |= _find_endpoint_settings(meta)
    for name in (QUERY_PROMPT, DOCUMENT_PROMPT):
        prompt = os.environ.get(SETTING_VARIABLES[name])
        if prompt is not None:
            settings[name] = prompt.replace("\\n", "\n")
    return settings


def add_digest(settings: RunSettings) -> RunSettings:
    """Add a digest if mteb could give other settings the same experiment name."""
    texts = [str(value) for value in settings.values()]
    is_unchanged = all(SAFE_TEXT.fullmatch(text) and "__" not in text for text in texts)
    if is_unchanged and sum(map(len, texts)) <= MAX_EXPERIMENT:
        return settings
    return {**settings, SETTINGS_DIGEST: digest(json.dumps(settings, sort_keys=True), size=4).hex()}


def add_run_settings(meta: ModelMeta) -> ModelMeta:
    """Add the run's settings to metadata, so that results are stored as an experiment."""
    settings = add_digest(find_run_settings(meta))
    if not settings:
        return meta
    experiment = {**(meta.experiment_kwargs or {}), **settings}
    return meta.model_copy(update={"experiment_kwargs": experiment})


def prepare_for_loading(meta: ModelMeta) -> ModelMeta:
    """Return metadata for loading a model, with its protocol or backend. The run's settings are
    removed, since mteb would pass them to the loader.
    """
    experiment = meta.experiment_kwargs or {}
    protocol = find_run_protocol(meta)
    settings = (*SETTING_VARIABLES, SETTINGS_DIGEST)
    options = {name: value for name, value in experiment.items() if name not in settings}
    if options != experiment:
        meta = meta.model_copy(update={"experiment_kwargs": options or None})
    if protocol is None:
        backend = find_run_settings(meta).get(BACKEND)
        return _add_backend(meta, str(backend)) if backend else meta
    from posir_tasks.models.apply_protocol import add_loader_settings

    return add_loader_settings(meta, protocol)


def apply_run_settings(model: MTEBModels) -> MTEBModels:
    """Apply the run's settings to a loaded model and record them.

    Raises:
        PosirError: The model does not support a setting.
    """
    meta: Any = model.mteb_model_meta
    settings: Mapping[str, Any] = find_run_settings(meta)
    if not settings:
        return model
    protocol = find_run_protocol(meta)
    if protocol:
        from posir_tasks.models.apply_protocol import apply_protocol

        apply_protocol(model, protocol)
    if WINDOW in settings:
        from posir_tasks.models.window import set_window

        set_window(model, settings[WINDOW])
    if TOKENIZER in settings and hasattr(model, "use_tokenizer"):
        model.use_tokenizer(settings[TOKENIZER])
    if SKIP_FAILED in settings and hasattr(model, "skips_failed"):
        model.skips_failed = True
    prompts = [name for name in (QUERY_PROMPT, DOCUMENT_PROMPT) if name in settings]
    if prompts:
        # A top-level import would be circular.
        from posir_tasks.models.prompts import replace_prompts

        if not replace_prompts(model, settings.get(QUERY_PROMPT), settings.get(DOCUMENT_PROMPT)):
            raise PosirError(
                f"{SETTING_VARIABLES[prompts[0]]}: {meta.name} is of the class "
                f"{type(model).__name__}, which chooses its own prompts. Unset the variable."
            )
    vars(model)["mteb_model_meta"] = add_run_settings(meta)
    return model
