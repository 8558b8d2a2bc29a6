"""Settings of a language model behind OpenAI-compatible endpoints, and the cost of its calls."""

from __future__ import annotations

import os
from typing import Annotated, Literal, Self

from pydantic import Field, HttpUrl, field_validator, model_validator

from posir_tasks.base.settings_file import Section

#: Environment variable with the endpoint, as in OpenAI's client, and the default endpoint.
ADDRESS_VARIABLE = "OPENAI_BASE_URL"
OPENAI = "https://api.openai.com/v1"

Count = Annotated[int, Field(ge=1)]


class Prices(Section):
    """Prices per million tokens. All language models of a build need the same currency."""

    input: Annotated[float, Field(ge=0)] = 0.0
    output: Annotated[float, Field(ge=0)] = 0.0
    currency: Annotated[str, Field(pattern=r"^\S{1,8}$")] = "USD"
    """Currency of prices, budget and costs."""

    @property
    def is_set(self) -> bool:
        """True if at least one price is not 0."""
        return bool(self.input or self.output)


class LanguageModelSettings(Section):
    """A language model behind one or several OpenAI-compatible endpoints."""

    model: Annotated[str, Field(min_length=1)]
    """Model name on the endpoints."""
    endpoints: tuple[HttpUrl, ...] = Field(
        default_factory=lambda: (HttpUrl(os.environ.get(ADDRESS_VARIABLE) or OPENAI),)
    )
    """Endpoints of the same model. Each request goes to the endpoint with the fewest requests in
    flight. Defaults to `OPENAI_BASE_URL` or, if it is not set, to OpenAI.
    """
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable with the API key."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.0
    """Sampling temperature; null for the server's default, which some models require."""
    max_tokens: Count = 4096
    """Maximum number of tokens per answer."""
    structured_output: Literal["json_schema", "json_object", "none"] = "json_schema"
    """Response format to request for JSON answers."""
    in_flight: Annotated[int, Field(ge=1, le=1024)] = 32
    """Maximum number of concurrent requests to all endpoints."""
    retries: Annotated[int, Field(ge=0, le=20)] = 8
    """Retries after a temporary failure."""
    timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds to wait for a response."""
    attempts: Annotated[int, Field(ge=1, le=5)] = 3
    """Maximum number of requests for a usable answer."""
    prices: Prices = Prices()
    budget: Annotated[float, Field(gt=0)] | None = None
    """Maximum total cost at these prices, in `prices.currency`; null for no limit."""

    @field_validator("endpoints")
    @classmethod
    def _check_endpoints(cls, value: tuple[HttpUrl, ...]) -> tuple[HttpUrl, ...]:
        if not value:
            raise ValueError("at least one endpoint is required")
        if any(url.username or url.password or url.query for url in value):
            raise ValueError(
                "an endpoint must not contain a user name, password or query; set the key in the "
                "environment"
            )
        return value

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        if self.budget is not None and not self.prices.is_set:
            raise ValueError("a budget requires prices")
        return self


def compute_cost(prices: Prices, input_tokens: float, output_tokens: float) -> float:
    """Compute the cost of tokens in the currency of the prices."""
    return (input_tokens * prices.input + output_tokens * prices.output) / 1e6


def format_cost(cost: float, currency: str) -> str:
    """Format a cost: `1.27 USD`, or `under 0.01 USD` if a positive cost rounds to 0."""
    return f"under 0.01 {currency}" if 0 < cost < 0.005 else f"{cost:,.2f} {currency}"
