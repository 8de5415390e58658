"""Costs, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from memfly.llm.config import ExtractiveConfig, LocalConfig, OpenAIConfig, PriceConfig
from memfly.llm.ledger import Tally
from memfly.llm.prices import FREE, PRICES, PRICES_AS_OF, Price, cost, price_of
from memfly.types import Usage
from tests.support.calls import GOOD


def test_cost_of_a_call() -> None:
    price = PRICES["gpt-4o-mini-2024-07-18"]
    assert price.cost(Usage(1_000_000, 0)) == pytest.approx(0.15)
    assert price.cost(Usage(1_000_000, 0, 1_000_000)) == pytest.approx(0.075)
    assert price.cost(Usage(0, 1_000_000)) == pytest.approx(0.60)
    assert PRICES["gpt-4o-2024-08-06"].cost(Usage(2000, 100, 500)) == pytest.approx(
        (1500 * 2.5 + 500 * 1.25 + 100 * 10) / 1e6
    )


def test_cost_of_a_tally_is_what_was_billed() -> None:
    tally = Tally()
    tally.record("gate", replace(GOOD, usage=Usage(1000, 100, 400)))
    tally.record("gate", replace(GOOD, from_cache=True))
    tally.record("answer", replace(GOOD, usage=Usage(10, 1)))
    assert cost(tally, Price(1.0, 0.5, 2.0)) == {
        "answer": pytest.approx(12 / 1e6),
        "gate": pytest.approx((600 + 200 + 200) / 1e6),
    }
    assert sum(cost(tally, FREE).values()) == 0


@pytest.mark.parametrize(
    ("url", "price"),
    [
        ("http://localhost:8000/v1", FREE),
        ("http://[::1]:8000/v1", FREE),
        ("http://192.168.1.7:8000/v1", FREE),
        ("http://10.0.0.3/v1", FREE),
        ("http://100.64.1.2/v1", FREE),
        ("http://gpu1:8000/v1", FREE),
        ("http://gpu1.lab.internal:8000/v1", FREE),
        ("https://eu.api.openai.com/v1", PRICES["gpt-4o"]),
        ("https://us.api.openai.com/v1", PRICES["gpt-4o"]),
        ("https://openrouter.ai/api/v1", None),
        ("https://api.openai.com.example.org/v1", None),
        ("http://8.8.8.8/v1", None),
    ],
)
def test_a_public_server_is_never_taken_for_free(url: str, price: Price | None) -> None:
    assert price_of(OpenAIConfig(model="gpt-4o", base_url=url)) == price
    assert price_of(OpenAIConfig(model="gpt-4o", base_url=url, price=PriceConfig(prompt=1, cached=2, completion=3)))


def test_one_public_server_among_private_ones_has_no_known_price() -> None:
    assert price_of(OpenAIConfig(model="m", base_urls=("http://gpu1/v1", "https://llm.example.org/v1"))) is None


def test_which_price_a_backbone_has() -> None:
    own = {"model": "gpt-4o-2024-08-06", "base_url": "http://127.0.0.1:1/v1"}
    assert price_of(ExtractiveConfig()) == price_of(LocalConfig()) == FREE
    assert price_of(OpenAIConfig(**own)) == FREE  # type: ignore[arg-type]
    assert price_of(OpenAIConfig(model="Qwen/Qwen3-8B", serve="auto")) == FREE
    assert price_of(OpenAIConfig(model="gpt-4o-2024-08-06")) == PRICES["gpt-4o"]
    assert price_of(OpenAIConfig(model="Qwen/Qwen3-8B")) == FREE  # runs on nothing but a server of one's own
    assert price_of(OpenAIConfig(model="gpt-99")) is None
    assert price_of(OpenAIConfig(model="gpt-99", price=PriceConfig(prompt=1, cached=2, completion=3))) == Price(1, 2, 3)
    date.fromisoformat(PRICES_AS_OF)
