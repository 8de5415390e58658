"""Transport retries: what is tried again, how long is waited, and when it ends."""

from __future__ import annotations

import pytest

from memfly.errors import BackendError, BudgetExceeded, ConfigError
from memfly.llm.config import RetryConfig
from memfly.llm.retry import Retry
from tests.support.calls import GOOD, Clock, Inner, toy_call, transient


def layer(inner: Inner, clock: Clock, seed: int = 0, **config: float) -> Retry:
    return Retry(inner, RetryConfig(**config), seed=seed, sleep=clock.sleep, clock=clock)  # type: ignore[arg-type]


async def test_transient_errors_are_tried_again_and_counted() -> None:
    clock = Clock()
    reply = await layer(Inner([transient(), transient("timeout"), GOOD]), clock).complete(toy_call())
    assert reply.tries == 3
    assert len(clock.sleeps) == 2


async def test_a_permanent_error_fails_at_once() -> None:
    inner = Inner([BackendError("no", transient=False)])
    with pytest.raises(BackendError, match="no") as caught:
        await layer(inner, Clock()).complete(toy_call())
    assert (len(inner.calls), caught.value.tries) == (1, 1)


@pytest.mark.parametrize("error", [BudgetExceeded("spent"), ConfigError("bad key")])
async def test_other_errors_pass_through(error: Exception) -> None:
    inner = Inner([error])
    with pytest.raises(type(error)):
        await layer(inner, Clock()).complete(toy_call())
    assert len(inner.calls) == 1


async def test_gives_up_after_the_last_try_and_says_so() -> None:
    inner = Inner([transient("server")])
    with pytest.raises(BackendError, match="gave up after 3 tries") as caught:
        await layer(inner, Clock(), tries=3).complete(toy_call())
    assert len(inner.calls) == 3
    assert (caught.value.tries, caught.value.kind, caught.value.transient) == (3, "server", True)


@pytest.mark.parametrize("retry_after", [None, 3.0])
async def test_being_told_to_slow_down_ends_with_the_deadline_only(retry_after: float | None) -> None:
    clock = Clock()
    inner = Inner([*[transient("rate_limit", retry_after)] * 8, transient("server"), GOOD])
    assert (await layer(inner, clock, tries=2).complete(toy_call())).tries == 10
    assert clock.time - 1000.0 < 900.0
    clock = Clock()
    with pytest.raises(BackendError, match="gave up after"):
        await layer(Inner([transient("rate_limit", retry_after)]), clock, tries=2).complete(toy_call())
    assert 800.0 < clock.time - 1000.0 <= 900.0


async def test_the_defaults_outlast_an_outage_of_a_minute() -> None:
    lasted = []
    for i in range(100):
        clock = Clock()
        with pytest.raises(BackendError):
            await layer(Inner([transient("connection")]), clock).complete(toy_call(str(i)))
        lasted.append(clock.time - 1000.0)
    assert min(lasted) > 60.0


async def test_waits_at_least_what_the_server_asks() -> None:
    clock = Clock()
    await layer(Inner([transient("rate_limit", 7.0), GOOD]), clock, base_s=1.0).complete(toy_call())
    assert 7.0 <= clock.sleeps[0] <= 8.0


async def test_jitter_is_full_bounded_and_reproducible() -> None:
    def waits(seed: int, text: str) -> list[float]:
        retry = layer(Inner(), Clock(), seed, base_s=1.0, max_s=5.0)
        return [retry._wait(toy_call(text), tries, None) for tries in range(1, 8)]

    for tries in range(1, 8):
        spread = [waits(0, f"call {i}")[tries - 1] for i in range(200)]
        ceiling = min(5.0, 2.0 ** (tries - 1))
        assert min(spread) < 0.1 * ceiling
        assert 0.9 * ceiling < max(spread) <= ceiling
    assert waits(0, "x") == waits(0, "x")
    assert waits(0, "x") != waits(1, "x")


async def test_the_deadline_ends_it_before_a_wait_that_would_pass_it() -> None:
    clock = Clock()
    inner = Inner([transient("rate_limit", 40.0)])
    with pytest.raises(BackendError, match="gave up after 3 tries"):
        await layer(inner, clock, tries=100, base_s=0.0, deadline_s=100.0).complete(toy_call())
    assert clock.time - 1000.0 <= 100.0


async def test_identity_and_closing_pass_through() -> None:
    inner = Inner()
    retry = layer(inner, Clock())
    assert retry.identity == inner.identity
    await retry.aclose()
    assert inner.closed
