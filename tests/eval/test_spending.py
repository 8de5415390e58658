"""What was paid: every call that reached the server, whoever made it, whatever became of the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval.spending import bill, paid
from memfly.errors import BackendError, BudgetExceeded
from memfly.llm.base import Call
from memfly.llm.budget import forget_budgets
from memfly.llm.ledger import RoleCount, Tally
from memfly.llm.prices import Price
from tests.support.fake_openai import FakeOpenAI, from_schema, schema_of
from tests.support.runs import config, on_call, run


def billed(folder: Path) -> int:
    return sum(count.billed_calls for count in paid(folder / "events.jsonl").roles.values())


def test_every_request_of_every_process_is_on_the_bill(tmp_path: Path) -> None:
    """A run that stops at its limit several times, and is taken up again, has one bill over all of it."""
    with FakeOpenAI(answer=from_schema) as server:
        overrides = ("llm=openai", "llm.model=fake-model", f"llm.base_url={server.url}", "concurrency=2")
        stops = 0
        for limit in (3_000, 6_000, 9_000, 1_000_000):
            try:
                result = run(tmp_path, *overrides, f"llm.budget.tokens={limit}")
            except BudgetExceeded:
                stops += 1
        asked = sum(schema_of(body)[0] != "probe" for body in server.requests)
    assert stops >= 1
    spent = result.summary["process"]["paid"]
    assert billed(result.folder) == spent["billed_calls"] == asked
    assert spent["usd"] == 0
    assert spent["latency_p95_s"] >= spent["latency_p50_s"] > 0


def test_a_limit_holds_for_a_run_over_all_its_processes(tmp_path: Path) -> None:
    with FakeOpenAI(answer=from_schema) as server:
        overrides = ("llm=openai", "llm.model=fake-model", f"llm.base_url={server.url}", "llm.budget.tokens=4000")
        with pytest.raises(BudgetExceeded, match=r"of llm\.budget\.tokens=4000 tokens\); raise it"):
            run(tmp_path, *overrides)
        before = sum(schema_of(body)[0] != "probe" for body in server.requests)
        forget_budgets()  # as another process would
        with pytest.raises(BudgetExceeded):
            run(tmp_path, *overrides)
        after = sum(schema_of(body)[0] != "probe" for body in server.requests)
    (folder,) = (tmp_path / "runs").glob("memfly-*")
    total = paid(folder / "events.jsonl").roles.values()
    assert sum(c.billed_prompt_tokens + c.billed_completion_tokens for c in total) <= 4000
    assert after - before <= 3, "what little was left"


def test_the_calls_of_a_build_that_failed_are_on_the_bill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def fail(call: Call) -> None:
        if call.task.name == "gate" and len(made) > 12:
            raise BackendError("500", transient=False)
        made.append(call.task.name)

    on_call(monkeypatch, fail)
    result = run(tmp_path, "data.conversations=[ada-ben]")
    assert result.summary["n_error"] == 6
    roles = result.summary["process"]["role_totals"]
    assert sum(count["billed_calls"] for count in roles.values()) == len(made)
    assert roles["gate"]["failed_calls"] == 1


def test_a_bill_in_dollars_and_seconds() -> None:
    tally = Tally()
    tally.role("gate").add(
        RoleCount(10, 900, 80, billed_calls=8, billed_prompt_tokens=800, billed_completion_tokens=60,
                  server_cached_prompt_tokens=300, retries=2, failed_calls=1, latency_bins={"80": 6, "96": 2})
    )  # fmt: skip
    tally.role("answer").add(RoleCount(1, 50, 5, billed_calls=1, billed_prompt_tokens=50, billed_completion_tokens=5))
    found = bill(tally, Price(prompt=2.0, cached=1.0, completion=10.0))
    assert found["usd"] == pytest.approx((550 * 2 + 300 * 1 + 65 * 10) / 1e6)
    assert (found["billed_calls"], found["from_cache"], found["retries"], found["failed_calls"]) == (9, 2, 2, 1)
    assert found["latency_p50_s"] == pytest.approx(1.024)
    assert found["latency_p95_s"] == pytest.approx(4.096)
    assert bill(tally, None)["usd"] is None
    assert bill(Tally(), None)["latency_p50_s"] is None


def test_a_price_of_one_s_own_shows_in_the_table(tmp_path: Path) -> None:
    with FakeOpenAI(answer=from_schema) as server:
        overrides = ("llm=openai", "llm.model=fake-model", f"llm.base_url={server.url}")
        result = run(tmp_path, *overrides, "llm.price={prompt: 100, cached: 50, completion: 200}")
    spent = result.summary["process"]["paid"]
    assert spent["usd"] > 0
    text = (result.folder / "table.md").read_text(encoding="utf-8")
    assert f"- paid for: {spent['billed_calls']:,} calls, " in text
    assert f"${spent['usd']:,.4f}, ${10 * spent['usd']:,.4f} per 100 questions" in text
    assert config(tmp_path).llm["kind"] == "extractive"
    assert "paid for" not in (run(tmp_path / "free").folder / "table.md").read_text(encoding="utf-8")
