"""Options that do not exist are named as the configuration names them; failed work leaves nothing running."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from baselines.checks import check_choices, check_least
from memfly.errors import ConfigError
from memfly.together import together

Order = Literal["time", "score"]


def test_choices_and_bounds() -> None:
    check_choices(order=("time", Order))
    check_least(k=(1, 1), smooth=(0.5, 0))
    with pytest.raises(ConfigError, match=r"^method\.order: 'size' is none of time, score$"):
        check_choices(order=("size", Order))
    for bad in (0, float("nan")):
        with pytest.raises(ConfigError, match=rf"^method\.k: {bad} is below 1$"):
            check_least(s=(3, 1), k=(bad, 1))


async def test_results_keep_their_order() -> None:
    async def wait(turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return turns

    assert await together(wait(turns) for turns in (5, 0, 2)) == [5, 0, 2]
    assert await together([]) == []


@pytest.mark.parametrize("ending", ["failure", "cancellation"])
async def test_nothing_runs_on(ending: str) -> None:
    steps: list[str] = []

    async def works() -> None:
        try:
            for _ in range(100):
                steps.append("step")
                await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
            steps.append("ended")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ConfigError("no")

    async def waits() -> None:
        await asyncio.sleep(60)

    parts: list[Any] = [works(), fails() if ending == "failure" else waits()]
    whole = asyncio.create_task(together(parts))
    if ending == "cancellation":
        for _ in range(5):
            await asyncio.sleep(0)
        whole.cancel()
    with pytest.raises((ConfigError, asyncio.CancelledError)):
        await whole
    assert steps[-1] == "ended"
    assert len(steps) < 20
