"""An mteb encoder that gets its embeddings from an endpoint."""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from mteb.models.abs_encoder import AbsEncoder, get_prompt
from numpy.typing import NDArray

from posir_tasks.display.progress import progress
from posir_tasks.models.endpoint import Endpoint
from posir_tasks.read_part import estimate_tokens

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import BatchedInput, PromptType
    from torch.utils.data import DataLoader

logger = logging.getLogger(__name__)

#: Most requests that the server has to answer at the same time.
MAX_IN_FLIGHT = 8
#: Shorter texts are not checked for truncation.
MIN_CHECKED_TOKENS = 128
#: Cosine similarity from which the embeddings of a text and of its beginning are the same, up to rounding in half precision.
SAME = 1 - 1e-4


class EndpointEncoder(AbsEncoder):
    """Encodes texts by requests to a server, several at a time."""

    def __init__(self, endpoint: Endpoint, model_prompts: dict[str, str] | None = None) -> None:
        from posir_tasks.models.endpoint_client import EndpointClient

        self.reference = str(endpoint)
        self.model_prompts = model_prompts or {}
        self._client = EndpointClient(endpoint)
        self._longest_checked: float = 0

    @contextmanager
    def measure(self, retries: int | None = None) -> Iterator[None]:
        """Do not check for truncation while the context is open, in which it is measured more exactly.

        Args:
            retries: How often a failed request is repeated at most, since a server may fail for a text that is too long; None
                for the usual number.
        """
        checked, self._longest_checked = self._longest_checked, math.inf
        try:
            with nullcontext() if retries is None else self._client.limit_retries(retries):
                yield
        finally:
            self._longest_checked = checked

    def encode(
        self,
        inputs: DataLoader[BatchedInput],
        *,
        task_metadata: TaskMetadata,
        hf_split: str,  # noqa: ARG002
        hf_subset: str,  # noqa: ARG002
        prompt_type: PromptType | None = None,
        **kwargs: Any,
    ) -> NDArray[np.float32]:
        """Return the embeddings of the texts, shape (n, dimensions).

        Raises:
            PosirError: The server cannot be reached, refuses a request, or returns something else than embeddings.
        """
        prompt = get_prompt(self.model_prompts, task_metadata, prompt_type) or ""
        texts = [prompt + text for batch in inputs for text in batch["text"]]
        size = kwargs.get("batch_size", 32)
        with ThreadPoolExecutor(MAX_IN_FLIGHT) as pool:
            futures = [pool.submit(self._client.embed, texts[start : start + size]) for start in range(0, len(texts), size)]
            try:
                shown = progress(futures, self.reference) if kwargs.get("show_progress_bar", True) else futures
                embeddings = np.concatenate([future.result() for future in shown])
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        self._warn_if_truncated(max(texts, key=len))
        return embeddings

    def _warn_if_truncated(self, text: str) -> None:
        """Warn if the server ignores the end of a text, which it may do without saying so."""
        if len(text) <= self._longest_checked or estimate_tokens(text) < MIN_CHECKED_TOKENS:
            return
        self._longest_checked = len(text)
        (complete,) = self._client.embed([text])

        def is_complete(characters: int) -> bool:
            (beginning,) = self._client.embed([text[:characters]])
            return bool(complete @ beginning >= SAME * np.linalg.norm(complete) * np.linalg.norm(beginning))

        read = find_read_length(len(text), is_complete)
        if read < len(text):
            logger.warning(
                f"{self.reference}: the server reads only about the first {read:,} of the {len(text):,} characters of a text "
                f"({estimate_tokens(text[:read]):,} tokens, estimated) and does not report it. Scores of longer texts show "
                "truncation as well as position bias."
            )


def find_read_length(length: int, is_complete: Callable[[int], bool]) -> int:
    """Return how many characters of a text a model reads, to 2 % of the length; all of them if it reads beyond 90 %.

    Args:
        length: Characters of the text.
        is_complete: Whether a beginning of that many characters has the same embedding as the text.
    """
    step = max(1, length // 50)
    tried = range(step, round(0.9 * length) + step, step)
    return tried[bisect_left(tried, True, key=is_complete)] if is_complete(tried[-1]) else length
