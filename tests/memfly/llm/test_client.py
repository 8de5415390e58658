"""LLM.run: seeds, feedback, budgets of repeated attempts, and what the ledger holds afterwards."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from memfly.errors import BackendError, ParseError
from memfly.llm.base import Reply
from memfly.llm.budget import Budget
from memfly.llm.client import LLM
from memfly.llm.config import BudgetConfig
from memfly.llm.ledger import Tally, scope
from memfly.llm.prices import Price
from memfly.types import Usage
from tests.support.calls import GOOD, TOY, Inner, ToyInput, transient

BAD = Reply("no JSON here", usage=Usage(100, 20))
CUT = Reply('{"words": ["a', "length", usage=Usage(100, 50))
LOST = Reply("", "unclosed_think", "hm", usage=Usage(100, 50))


async def test_an_unusable_reply_is_shown_to_the_model_with_the_reason() -> None:
    inner = Inner([BAD, GOOD])
    with scope("c", "q") as tally:
        assert (await LLM(inner).run(TOY, ToyInput("x"))).words == ["ok"]
    first, second = inner.calls
    assert second.messages[:2] == first.messages
    assert second.messages[2] == ("assistant", "no JSON here")
    assert "not a JSON object" in second.messages[3][1]
    assert (first.attempt, second.attempt, first.seed) == (0, 1, second.seed)
    count = tally.role("parse")
    assert (count.calls, count.parse_failures, count.prompt_tokens) == (2, 1, 200)


@pytest.mark.parametrize("reply", [CUT, LOST], ids=["cut", "unclosed"])
async def test_a_cut_reply_is_asked_again_with_twice_the_room(reply: Reply) -> None:
    inner = Inner([reply, reply, GOOD])
    with scope() as tally:
        await LLM(inner).run(TOY, ToyInput("x"))
    assert [call.max_tokens for call in inner.calls] == [50, 100, 200]
    assert len({call.messages for call in inner.calls}) == 1
    assert tally.role("parse").truncated == 2


async def test_twice_the_room_counts_the_room_for_reasoning() -> None:
    inner = Inner([LOST, LOST, GOOD])
    await LLM(inner, reasoning_tokens=4096).run(TOY, ToyInput("x"))
    sent = [call.max_tokens + 4096 for call in inner.calls]
    assert sent == [4146, 8292, 16584]


async def test_at_the_cap_a_cut_reply_is_truncated_for_good() -> None:
    """The same request again would give, and cost, the same."""
    inner = Inner([CUT])
    with pytest.raises(ParseError, match=r"toy: no usable reply in 2 attempts: truncated at llm\.max_tokens"):
        await LLM(inner, most_tokens=70).run(TOY, ToyInput("x"))
    assert [call.max_tokens for call in inner.calls] == [50, 70]
    inner = Inner([CUT])
    with pytest.raises(ParseError, match="truncated"):
        await LLM(inner, most_tokens=20).run(TOY, ToyInput("x"))
    assert [call.max_tokens for call in inner.calls] == [20]


@pytest.mark.parametrize("finish", ["refusal", "content_filter"])
async def test_a_refusal_is_its_own_reason_and_not_asked_again(finish: str) -> None:
    inner = Inner([Reply("I will not", finish, usage=Usage(100, 5))])
    with scope() as tally, pytest.raises(ParseError, match=f"toy: no usable reply in 1 attempts: {finish}: ") as caught:
        await LLM(inner).run(TOY, ToyInput("x"))
    assert caught.value.reply == "I will not"
    assert len(inner.calls) == 1
    assert (tally.role("parse").refused, tally.role("parse").truncated) == (1, 0)


async def test_what_a_run_paid_before_counts_against_the_budget() -> None:
    paid = Tally()
    paid.record("gate", replace(GOOD, usage=Usage(1000, 100)))
    paid.record("gate", replace(GOOD, usage=Usage(9000, 900), from_cache=True))
    budget = Budget(BudgetConfig(usd=1.0))
    llm = LLM(Inner(), budget=budget, price=Price(100.0, 50.0, 200.0))
    for _ in range(2):
        llm.spent_before("run-1", paid)
    assert (budget.usd, budget.tokens) == (pytest.approx(0.12), 1100)
    LLM(Inner()).spent_before("run-1", paid)  # no budget, nothing to count in


async def test_it_ends_in_a_parse_error_that_keeps_the_reply() -> None:
    with pytest.raises(ParseError, match="toy: no usable reply in 2 attempts") as caught:
        await LLM(Inner([BAD]), attempts=2).run(TOY, ToyInput("x"))
    assert caught.value.reply == "no JSON here"


async def test_a_semantic_check_counts_as_unusable() -> None:
    def check(_value: ToyInput, output: object) -> None:
        raise ValueError("the words are wrong")

    with pytest.raises(ParseError, match="the words are wrong"):
        await LLM(Inner(), attempts=1).run(replace(TOY, check=check), ToyInput("x"))


async def test_seeds_depend_on_the_work_and_not_on_its_order() -> None:
    async def seeds(order: list[str]) -> dict[str, int]:
        inner = Inner()
        llm = LLM(inner, seed=7)
        for item in order:
            with scope("c", item):
                await llm.run(TOY, ToyInput("x"), purpose="p")
        return dict(zip(order, [call.seed for call in inner.calls], strict=True))

    there, back = await seeds(["q1", "q2", "q3"]), await seeds(["q3", "q2", "q1"])
    assert there == back
    assert len(set(there.values())) == 3


async def test_failed_calls_and_their_retries_are_counted() -> None:
    error = transient()
    error.tries = 5
    with scope() as tally, pytest.raises(BackendError):
        await LLM(Inner([error])).run(TOY, ToyInput("x"))
    count = tally.role("parse")
    assert (count.calls, count.failed_calls, count.retries) == (0, 1, 4)


async def test_scopes_do_not_mix_when_work_runs_side_by_side() -> None:
    llm = LLM(Inner())

    async def work(name: str, calls: int) -> Tally:
        with scope("c", name) as tally:
            for _ in range(calls):
                await llm.run(TOY, ToyInput(name))
        return tally

    tallies = await asyncio.gather(*(work(f"q{i}", i) for i in range(1, 6)))
    assert [tally.role("parse").calls for tally in tallies] == [1, 2, 3, 4, 5]


async def test_cached_replies_are_counted_but_not_billed() -> None:
    with scope() as tally:
        await LLM(Inner([replace(GOOD, from_cache=True)])).run(TOY, ToyInput("x"))
    count = tally.role("parse")
    assert (count.calls, count.prompt_tokens, count.billed_calls, count.billed_prompt_tokens) == (1, 100, 0, 0)


def test_tallies_survive_json() -> None:
    tally = Tally()
    tally.record("gate", GOOD)
    tally.record("answer", replace(GOOD, from_cache=True, finish="length"))
    assert Tally.from_dict(tally.to_dict()) == tally
