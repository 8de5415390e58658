"""Preparation at the first call: done once, lasting faults remembered, passing ones tried again by later calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from memfly.errors import BackendError, BudgetExceeded, ConfigError, MemflyError
from memfly.llm.base import Backend
from memfly.llm.startup import Startup
from tests.support.calls import Inner, toy_call, transient


class Prepare:
    """Outcomes of preparations in order: an error to raise, or None for a backend."""

    def __init__(self, outcomes: Sequence[MemflyError | None]) -> None:
        self.outcomes = list(outcomes)
        self.tried = 0

    async def __call__(self) -> tuple[Backend, Mapping[str, Any]]:
        outcome = self.outcomes[self.tried]
        self.tried += 1
        await asyncio.sleep(0)
        if outcome is not None:
            raise outcome
        return Inner(), {"probe": "done"}


def startup(*outcomes: MemflyError | None) -> tuple[Startup, Prepare]:
    async def release() -> None:
        pass

    prepare = Prepare(outcomes)
    return Startup({}, prepare, release), prepare


async def test_it_prepares_once() -> None:
    backend, prepare = startup(None)
    await asyncio.gather(*(backend.complete(toy_call(str(i))) for i in range(5)))
    assert prepare.tried == 1
    assert backend.found == {"probe": "done"}


@pytest.mark.parametrize(
    ("error", "shown_as"),
    [
        (ConfigError("no such model"), ConfigError),
        (BudgetExceeded("no credit"), BudgetExceeded),
        (BackendError("no such thing", transient=False), ConfigError),
    ],
)
async def test_what_waiting_cannot_mend_is_remembered(error: MemflyError, shown_as: type[MemflyError]) -> None:
    backend, prepare = startup(error, None)
    for _ in range(3):
        with pytest.raises(shown_as, match=str(error)):
            await backend.complete(toy_call())
    assert prepare.tried == 1


async def test_passing_trouble_fails_those_who_waited_and_is_tried_again_later() -> None:
    backend, prepare = startup(transient("rate_limit"), None)
    outcomes = await asyncio.gather(*(backend.complete(toy_call(str(i))) for i in range(5)), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["rate_limit trouble"] * 5
    assert all(isinstance(outcome, ConfigError) for outcome in outcomes)  # it ends a run; it is no fault of an item
    assert prepare.tried == 1
    assert (await backend.complete(toy_call())).text
    assert prepare.tried == 2
