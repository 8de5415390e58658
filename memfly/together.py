"""Work side by side of which nothing is left when a part of it fails, so that no call is made after a failed build."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Results in the order of the work. The first failure (or being cancelled) cancels what still runs and is raised, as
    itself, once it has ended; `asyncio.gather` alone would let it run on."""
    tasks = [asyncio.ensure_future(part) for part in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel(tasks)


async def cancel(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel what still runs and take every outcome, so that none is reported as never retrieved."""
    held = list(tasks)
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
