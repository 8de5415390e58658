"""Builds a backbone from its configuration, and is the one place that states the order of the layers and why.

    LLM.run           renders, parses, asks again with feedback; counts every reply, cached or not (`ledger`)
      Cache           outermost: a hit takes no slot, no quota and no wait, and shows none of what is below
        Retry         outside the limits: each try queues and pays again, and a waiting call holds no slot
          Limits      sees every 429 and the true latency of each try, so that it can adapt; a budget that is spent
                      stops here, after the calls under way have passed up to the cache and the ledger
            Faults    just before the backend, so that faults made on purpose meet everything real ones do
              Startup   the server is started and probed at the first call that needs it
                backend   openai | local | extractive

Nothing else in the project puts layers together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from memfly.embed import Embedder
from memfly.errors import ConfigError
from memfly.llm.base import Backend, Call
from memfly.llm.budget import shared_budget
from memfly.llm.cache import Cache
from memfly.llm.client import LLM
from memfly.llm.config import ExtractiveConfig, LLMConfig, LocalConfig, OpenAIConfig
from memfly.llm.extractive.base import Function
from memfly.llm.faults import Faults
from memfly.llm.limits import Limits
from memfly.llm.prices import FREE, Price, price_of
from memfly.llm.retry import Retry
from memfly.llm.startup import Startup
from memfly.llm.wire import bounded_schema, form


def build_llm(
    config: LLMConfig,
    *,
    embedder: Embedder,
    cache_dir: Path,
    seed: int = 0,
    extra_functions: Mapping[str, Function] | None = None,
) -> LLM:
    """The backbone `config` describes (see `config.llm_config` for plain data).

    `cache_dir` holds the reply cache and the logs of servers started here. `extra_functions` are extractive functions,
    by task name, for tasks that live outside memfly. Raises ConfigError for a missing key, package or model file; a
    server is reached only at the first call, or by `LLM.start`.
    """
    budget, price = shared_budget(config.budget), _price(config)
    most_tokens = None if isinstance(config, ExtractiveConfig) else config.max_tokens
    reasoning = config.reasoning_room if isinstance(config, OpenAIConfig) else 0
    backend, startup = _backend(config, embedder, cache_dir, extra_functions or {})
    if any(config.faults.rates.values()):
        backend = Faults(backend, config.faults)
    backend = Limits(
        backend,
        max_concurrency=config.max_concurrency,
        rpm=config.rpm,
        tpm=config.tpm,
        budget=budget,
        price=price,
        adaptive=isinstance(config, OpenAIConfig),
        reasoning_tokens=reasoning,
    )
    backend = Retry(backend, config.retry, seed=seed)
    if config.cache != "off":
        backend = Cache(backend, cache_dir, config.cache, form=_form(config))
    return LLM(
        backend,
        seed=seed,
        attempts=config.attempts,
        startup=startup,
        most_tokens=most_tokens,
        reasoning_tokens=reasoning,
        budget=budget,
        price=price,
    )


def _backend(
    config: LLMConfig, embedder: Embedder, cache_dir: Path, extra: Mapping[str, Function]
) -> tuple[Backend, Startup | None]:
    if isinstance(config, ExtractiveConfig):
        from memfly.llm.extractive import Extractive

        return Extractive(embedder, extra), None
    if isinstance(config, LocalConfig):
        from memfly.llm.local import Local

        return Local(config), None
    from memfly.llm.serving import openai_startup

    startup = openai_startup(config, cache_dir)
    return startup, startup


def _form(config: LLMConfig) -> Callable[[Call], Any]:
    """What is sent with a call to shape its reply, for the cache key."""
    if isinstance(config, OpenAIConfig):
        return lambda call: form(call, config)
    if isinstance(config, LocalConfig):
        return lambda call: bounded_schema(call.schema)
    return lambda call: call.schema


def _price(config: LLMConfig) -> Price:
    price = price_of(config)
    if price is None and config.budget.usd is not None:
        raise ConfigError(
            f"llm.budget: no price known for {getattr(config, 'model', '')}; "
            "give llm.price={prompt: , cached: , completion: } in dollars per million tokens"
        )
    if price == FREE and config.budget.usd is not None and isinstance(config, OpenAIConfig) and config.price is None:
        raise ConfigError(
            f"llm.budget.usd: {config.model} on a server of your own has no price, so dollars would never run out; give "
            "llm.price, or limit llm.budget.tokens"
        )
    return price or FREE
