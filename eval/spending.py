"""What a run has paid for, by everyone who ever worked on it: calls that reached the server, their tokens, time and dollars.

Kept apart from what a run's work takes (`calls` in summary.json, the same in every rerun): this depends on what the caches
held, on failures and on resumes. It goes into the event log as it happens, so that a killed process's bill is not lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eval.records import EventWriter, read_lines
from memfly.llm.ledger import Tally
from memfly.llm.prices import PRICES_AS_OF, Price

EVENT = "calls"


class Meter:
    """Writes what a tally has gained since it was last read, one event each time."""

    def __init__(self, events: EventWriter, conversation: str) -> None:
        self._events, self._conversation = events, conversation
        self._written: dict[str, dict[str, Any]] = {}

    def read(self, tally: Tally) -> None:
        now = tally.to_dict()
        gained = {role: _gained(count, self._written.get(role, {})) for role, count in now.items()}
        gained = {role: count for role, count in gained.items() if count}
        if gained:
            self._events.write(EVENT, {"conversation": self._conversation, "roles": gained})
        self._written = now


def _gained(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Differences that are not zero, key by key."""
    found: dict[str, Any] = {}
    for name, value in now.items():
        if isinstance(value, dict):
            change: Any = _gained(value, before.get(name, {}))
        else:
            change = value - before.get(name, 0)
        if change:
            found[name] = change
    return found


def wall_s(events: Path) -> float:
    """Seconds that all processes of a run worked on it; a killed one has left none."""
    ends = (event.get("wall_s") for event in read_lines(events) if event.get("kind") == "process_end")
    return sum(float(seconds) for seconds in ends if isinstance(seconds, int | float))


def paid(events: Path) -> Tally:
    """All that a run's event log says was asked of its backbone."""
    total = Tally()
    for event in read_lines(events):
        if event.get("kind") == EVENT:
            try:
                total.add(Tally.from_dict(event["roles"]))
            except (KeyError, TypeError, AttributeError):
                continue  # a damaged line is one call's bill, not the run's end
    return total


def bill(tally: Tally, price: Price | None) -> dict[str, Any]:
    """Totals over all roles for summary.json. `usd` is None when the model's price is not known."""
    every = Tally()
    for count in tally.roles.values():
        every.role("all").add(count)
    total = every.role("all")
    shown = {
        name: value
        for name, value in asdict(total).items()
        if name.startswith("billed_") or name in ("server_cached_prompt_tokens", "retries", "failed_calls")
    }
    return {
        **shown,
        "from_cache": total.calls - total.billed_calls,
        "latency_p50_s": total.latency_quantile(0.5),
        "latency_p95_s": total.latency_quantile(0.95),
        "usd": None if price is None else sum(price.cost_of(count) for count in tally.roles.values()),
        "prices_as_of": PRICES_AS_OF,
    }


def bill_line(spent: Mapping[str, Any], n_questions: int) -> str:
    """The bill as one line of a run's table."""
    if not spent["billed_calls"] and not spent["failed_calls"]:
        return f"- paid for: nothing; {spent['from_cache']:,} replies came from the cache"
    usd = spent["usd"]
    money = "price not known (llm.price sets one)" if usd is None else f"${usd:,.4f}"
    if usd:
        money += f", ${100 * usd / max(n_questions, 1):,.4f} per 100 questions (prices of {spent['prices_as_of']})"
    return (
        f"- paid for: {spent['billed_calls']:,} calls, {spent['billed_prompt_tokens']:,} prompt tokens "
        f"({spent['server_cached_prompt_tokens']:,} from the server's prefix cache), "
        f"{spent['billed_completion_tokens']:,} completion tokens, {money}; {spent['retries']:,} retries, "
        f"{spent['failed_calls']:,} failed; half of the calls within {_seconds(spent['latency_p50_s'])}, 95 % within "
        f"{_seconds(spent['latency_p95_s'])}; {spent['from_cache']:,} replies came from the cache"
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
