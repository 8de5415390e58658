"""What tokens cost. A table with a date, not a lookup: prices change, and a published cost must say which it used."""

from __future__ import annotations

from dataclasses import dataclass

from memfly.llm.config import LLMConfig, OpenAIConfig, is_openai, is_private
from memfly.llm.ledger import RoleCount, Tally
from memfly.types import Usage


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens. `cached` is for prompt tokens the server had in its own prefix cache."""

    prompt: float
    cached: float
    completion: float

    def cost(self, usage: Usage) -> float:
        """US dollars of one call."""
        return self._cost(usage.prompt_tokens, usage.cached_prompt_tokens, usage.completion_tokens)

    def cost_of(self, count: RoleCount) -> float:
        """US dollars of what was billed; replies from the reply cache cost nothing."""
        return self._cost(count.billed_prompt_tokens, count.server_cached_prompt_tokens, count.billed_completion_tokens)

    def _cost(self, prompt: int, cached: int, completion: int) -> float:
        return ((prompt - cached) * self.prompt + cached * self.cached + completion * self.completion) / 1e6


FREE = Price(0.0, 0.0, 0.0)
"""Self-hosted and model-free backbones: no price per token."""

PRICES_AS_OF = "2026-06-20"
PRICES_SOURCE = "OpenAI's list prices for standard processing (not batch), checked against public price trackers"

_GPT_4O = Price(2.50, 1.25, 10.00)
_GPT_4O_MINI = Price(0.15, 0.075, 0.60)

PRICES: dict[str, Price] = {
    "gpt-4o": _GPT_4O,
    "gpt-4o-2024-08-06": _GPT_4O,
    "gpt-4o-2024-11-20": _GPT_4O,
    "gpt-4o-mini": _GPT_4O_MINI,
    "gpt-4o-mini-2024-07-18": _GPT_4O_MINI,
}


def price_of(config: LLMConfig) -> Price | None:
    """Price of a backbone: `llm.price` where given, the table for OpenAI's own server, and free for no model, for a
    server started here and for one on this machine or in a private network. None when it is not known: any other public
    server bills, and only its operator knows what."""
    if not isinstance(config, OpenAIConfig):
        return FREE
    if config.price is not None:
        return Price(config.price.prompt, config.price.cached, config.price.completion)
    if config.serve == "auto" or (config.urls and all(is_private(url) for url in config.urls)):
        return FREE
    if not config.urls and "/" in config.model:  # a repository's name: there is no run without a server of your own
        return FREE
    return PRICES.get(config.model) if all(is_openai(url) for url in config.urls) else None


def cost(tally: Tally, price: Price) -> dict[str, float]:
    """US dollars by role; the sum is the cost of the tally."""
    return {role: price.cost_of(tally.roles[role]) for role in sorted(tally.roles)}
