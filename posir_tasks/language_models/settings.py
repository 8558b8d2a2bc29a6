"""Settings of a language model behind OpenAI-compatible servers, and what its calls cost."""

from __future__ import annotations

import os
from typing import Annotated, Literal, Self

from pydantic import Field, HttpUrl, field_validator, model_validator

from posir_tasks.base.settings_file import Section

#: Environment variable with the address of a server, as in OpenAI's client, and the address without
#: it.
ADDRESS_VARIABLE = "OPENAI_BASE_URL"
OPENAI = "https://api.openai.com/v1"

Count = Annotated[int, Field(ge=1)]


class Prices(Section):
    """Prices for a million tokens; all language models of a build have prices in one currency."""

    input: Annotated[float, Field(ge=0)] = 0.0
    output: Annotated[float, Field(ge=0)] = 0.0
    currency: Annotated[str, Field(pattern=r"^\S{1,8}$")] = "USD"
    """Currency of the prices and the budget, in which costs are printed."""

    @property
    def given(self) -> bool:
        """Whether there are any prices."""
        return bool(self.input or self.output)


class LanguageModelSettings(Section):
    """A language model behind one or several OpenAI-compatible endpoints."""

    model: Annotated[str, Field(min_length=1)]
    """Name of the model on the servers."""
    endpoints: tuple[HttpUrl, ...] = Field(
        default_factory=lambda: (HttpUrl(os.environ.get(ADDRESS_VARIABLE) or OPENAI),)
    )
    """Servers of the same model; each request goes to the one with the fewest in flight. Without
    any, the server in `OPENAI_BASE_URL`, or else OpenAI's.
    """
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable with the key."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.0
    """null to leave it to the server; some models accept no other value than their default."""
    max_tokens: Count = 4096
    """Maximum number of tokens of an answer."""
    structured_output: Literal["json_schema", "json_object", "none"] = "json_schema"
    """The way in which a server is asked for JSON."""
    in_flight: Annotated[int, Field(ge=1, le=1024)] = 32
    """Maximum number of requests at the same time, over all endpoints."""
    retries: Annotated[int, Field(ge=0, le=20)] = 8
    """Repetitions of a request after a transient failure."""
    timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds to wait for an answer."""
    attempts: Annotated[int, Field(ge=1, le=5)] = 3
    """Times that the model is asked until its answer can be read."""
    prices: Prices = Prices()
    budget: Annotated[float, Field(gt=0)] | None = None
    """Maximum cost of the calls of this build, at these prices; null for no limit."""

    @field_validator("endpoints")
    @classmethod
    def _not_empty(cls, value: tuple[HttpUrl, ...]) -> tuple[HttpUrl, ...]:
        if not value:
            raise ValueError("at least one address is needed")
        if any(url.username or url.password or url.query for url in value):
            raise ValueError(
                "an address must not contain a user, a password or a query; set the key in the "
                "environment"
            )
        return value

    @model_validator(mode="after")
    def _budget_needs_prices(self) -> Self:
        if self.budget is not None and not self.prices.given:
            raise ValueError("a budget needs prices")
        return self


def compute_cost(prices: Prices, input_tokens: float, output_tokens: float) -> float:
    """Compute the cost of tokens in the currency of the prices."""
    return (input_tokens * prices.input + output_tokens * prices.output) / 1e6


def format_cost(cost: float, currency: str) -> str:
    """Format an amount of money: `1.27 USD`; what is above 0 and rounds to 0 is `under 0.01
    USD`.
    """
    return f"under 0.01 {currency}" if 0 < cost < 0.005 else f"{cost:,.2f} {currency}"
