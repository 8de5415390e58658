"""Faults on purpose: the right share, the right kind, the same for the same call, whatever the order."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from memfly.errors import BackendError, ConfigError, ParseError
from memfly.llm.base import Reply
from memfly.llm.config import FaultsConfig, RetryConfig, llm_config
from memfly.llm.faults import Faults
from memfly.llm.parse import parse_reply
from memfly.llm.retry import Retry
from tests.support.calls import GOOD, TOY, Clock, Inner, ToyInput, toy_call

ALL = {
    "rate_429": 0.1, "rate_500": 0.1, "rate_timeout": 0.1, "rate_drop": 0.1, "rate_truncated": 0.1,
    "rate_garbage": 0.1, "rate_empty": 0.1, "rate_schema": 0.1, "rate_slow": 0.1,
}  # fmt: skip


async def outcomes(config: FaultsConfig, texts: list[str]) -> dict[str, str]:
    clock = Clock()
    layer = Faults(Inner(), config, sleep=clock.sleep)

    async def one(text: str) -> tuple[str, str]:
        try:
            reply = await layer.complete(toy_call(text))
        except BackendError as error:
            return text, f"{error.kind}"
        return text, f"{reply.finish}:{reply.text}"

    return dict(await asyncio.gather(*(one(text) for text in texts)))


async def test_outcome_depends_on_the_call_alone() -> None:
    texts = [f"call {i}" for i in range(200)]
    config = FaultsConfig(**ALL)
    forward = await outcomes(config, texts)
    assert forward == await outcomes(config, texts[::-1])
    assert forward != await outcomes(config.model_copy(update={"seed": 1}), texts)


async def test_shares_are_as_asked() -> None:
    layer = Faults(Inner(), FaultsConfig(**ALL))
    draws = Counter(layer.draw(str(i), 0) for i in range(20_000))
    assert set(draws) == {"429", "500", "timeout", "drop", "truncated", "garbage", "empty", "schema", "slow", None}
    for count in draws.values():
        assert 0.09 < count / 20_000 < 0.11


@pytest.mark.parametrize(
    ("name", "kind"), [("429", "rate_limit"), ("500", "server"), ("timeout", "timeout"), ("drop", "connection")]
)
async def test_transport_faults_are_transient_errors(name: str, kind: str) -> None:
    layer = Faults(Inner(), FaultsConfig.model_validate({f"rate_{name}": 1.0, "retry_after_s": 0.5}))
    with pytest.raises(BackendError) as caught:
        await layer.complete(toy_call())
    assert (caught.value.kind, caught.value.transient) == (kind, True)
    assert caught.value.retry_after == (0.5 if name == "429" else None)


@pytest.mark.parametrize("name", ["truncated", "garbage", "empty", "schema"])
async def test_damaged_replies_never_parse(name: str) -> None:
    layer = Faults(Inner(), FaultsConfig.model_validate({f"rate_{name}": 1.0}))
    for i in range(50):
        call = toy_call(f"call {i}")
        with pytest.raises(ParseError):
            parse_reply(TOY, ToyInput("x"), await layer.complete(call))


async def test_slow_replies_come_late_and_whole() -> None:
    clock = Clock()
    layer = Faults(Inner(), FaultsConfig(rate_slow=1.0, slow_s=3.0), sleep=clock.sleep)
    assert await layer.complete(toy_call()) == GOOD
    assert clock.sleeps == [3.0]


async def test_a_retry_is_another_draw_and_gets_through() -> None:
    config = FaultsConfig(rate_429=0.2, rate_500=0.2, rate_timeout=0.1, rate_drop=0.1)
    clock = Clock()
    retry = Retry(Faults(Inner(), config), RetryConfig(tries=30), sleep=clock.sleep, clock=clock)
    replies: list[Reply] = [await retry.complete(toy_call(f"call {i}")) for i in range(200)]
    assert {reply.text for reply in replies} == {GOOD.text}
    assert 1.5 < sum(reply.tries for reply in replies) / 200 < 4  # 1 / 0.4 = 2.5 expected


def test_only_damage_changes_the_identity() -> None:
    inner = Inner()
    assert Faults(inner, FaultsConfig(rate_429=0.5, rate_slow=0.5)).identity == inner.identity
    damaged = Faults(inner, FaultsConfig(rate_empty=0.1)).identity
    assert damaged != inner.identity
    assert damaged != Faults(inner, FaultsConfig(rate_empty=0.1, seed=2)).identity


def test_bad_rates_are_one_clear_line() -> None:
    for faults, text in [
        ({"rate_429": 1.5}, "rate_429"),
        ({"rate_429": 0.6, "rate_500": 0.6}, "more than 1"),
        ({"rate_x": 0.1}, "no such"),
    ]:
        with pytest.raises(ConfigError, match=text) as caught:
            llm_config({"kind": "extractive", "faults": faults})
        assert "\n" not in str(caught.value)
