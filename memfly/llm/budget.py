"""The purse: a hard limit in dollars and tokens, shared by all jobs of a process and told what earlier processes spent.

It reserves, waits and refuses; the layer that asks it for every call is `memfly.llm.limits`.
"""

from __future__ import annotations

import asyncio

from memfly.errors import BudgetExceeded
from memfly.llm.config import BudgetConfig


class Budget:
    """A hard limit. A call reserves the most it can cost; it waits while calls under way hold the rest, and
    BudgetExceeded is raised once nothing under way could free enough. So the limit itself is never passed, as far as
    the prompt estimate holds. Knows no prices, so that calls to differently priced models can share it."""

    def __init__(self, config: BudgetConfig) -> None:
        self.config = config
        self.usd = 0.0
        self.tokens = 0
        self._reserved_usd = 0.0
        self._reserved_tokens = 0
        self._waiting: list[asyncio.Future[None]] = []  # futures of the current loop: the jobs of a sweep have one each
        self._runs: set[str] = set()

    def spent_before(self, run: str, usd: float, tokens: int) -> None:
        """Count what a run spent in earlier processes. A run is counted once per process: what it spends from now on
        is seen here anyway."""
        if run not in self._runs:
            self._runs.add(run)
            self.usd += usd
            self.tokens += tokens

    async def reserve(self, usd: float, tokens: int) -> None:
        while not self._fits(self.usd + self._reserved_usd + usd, self.tokens + self._reserved_tokens + tokens):
            if not self._fits(self.usd + usd, self.tokens + tokens):
                raise BudgetExceeded(self._message())
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            finally:
                if turn in self._waiting:
                    self._waiting.remove(turn)
        self._reserved_usd += usd
        self._reserved_tokens += tokens

    def _fits(self, usd: float, tokens: int) -> bool:
        limit = self.config
        return (limit.usd is None or usd <= limit.usd + 1e-12) and (limit.tokens is None or tokens <= limit.tokens)

    def settle(self, usd: float, tokens: int, used_usd: float, used_tokens: int) -> None:
        """Replace a reservation by what was used."""
        self._reserved_usd -= usd
        self._reserved_tokens -= tokens
        self.usd += used_usd
        self.tokens += used_tokens
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)

    def _message(self) -> str:
        parts = []
        if self.config.usd is not None:
            parts.append(f"${self.usd:.4f} of llm.budget.usd={self.config.usd:g}")
        if self.config.tokens is not None:
            parts.append(f"{self.tokens} of llm.budget.tokens={self.config.tokens} tokens")
        return (
            f"budget reached ({', '.join(parts)}); raise it and start the same run again, it continues where it stopped"
        )


_budgets: dict[BudgetConfig, Budget] = {}


def shared_budget(limits: BudgetConfig) -> Budget | None:
    """The one purse of this process for these limits, None without any. All jobs of a multirun in one process pay from
    it, because what was meant is what the command may cost. `forget_budgets` starts anew."""
    if limits.usd is None and limits.tokens is None:
        return None
    return _budgets.setdefault(limits, Budget(limits))


def forget_budgets() -> None:
    """Forget what this process has spent, as a new process would."""
    _budgets.clear()
