"""Work side by side of which nothing is left when a part of it fails, so that no call is made after a failed build."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Results in the order of the work. The first failure (or being cancelled) cancels what still runs and is raised
    once it has ended; `asyncio.gather` alone would let it run on."""
    tasks = [asyncio.ensure_future(part) for part in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
