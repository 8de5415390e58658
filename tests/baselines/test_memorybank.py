"""MemoryBank: exchanges, the two curves at their worked values, seeded forgetting, widening and order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baselines.extractive.memorybank import all_portraits, day_portraits
from baselines.memorybank import MemoryBank, retention
from baselines.tasks.memorybank import (
    BANK_ALL_PORTRAITS,
    AllPortraitsInput,
    DayInput,
    DayPortraits,
)
from eval.locomo import Dataset
from memfly.embed import Embedder, Hashing
from memfly.errors import ConfigError
from memfly.llm.extractive.base import Tools
from memfly.types import Question, Turn
from tests.support.scripted import Log, Scripted, services

QUESTION = Question("ada-ben#0", "ada-ben", "What is the cat called?")


def backbone(**more: Any) -> Scripted:
    return Scripted(
        {
            "bank_day_events": lambda v: {"summary": f"events of {v.date}"},
            "bank_day_portraits": lambda v: {"first": f"kind on {v.date}", "second": ""},
            "bank_all_events": lambda v: {"summary": f"{len(v.days)} days"},
            "bank_all_portraits": lambda v: {"first": "kind", "second": "sporty"},
            **more,
        }
    )


async def build(turns: Sequence[Turn], llm: Scripted | None = None, *, seed: int = 0, **options: Any) -> MemoryBank:
    given = services(llm or backbone(), log=options.pop("log", None), seed=seed)
    system = MemoryBank(given, **options)
    for turn in turns:
        await system.observe(turn)
    await system.finish()
    return system


def days(*sizes: int, gap: int = 1, words: str = "word") -> list[Turn]:
    """Sessions of so many turns, `gap` days apart."""
    out = []
    for number, size in enumerate(sizes, 1):
        time = datetime(2024, 1, 1, 9) + timedelta(days=gap * (number - 1))
        date = f"9:00 am on {time.day} {time:%B}, {time.year}"
        for i in range(1, size + 1):
            out.append(Turn(f"D{number}:{i}", ("Ada", "Ben")[i % 2], f"{words} {number} {i}", number, time, date))
    return out


# -- what is stored --------------------------------------------------------------------------------------------------


async def test_exchanges_and_summaries(turns: tuple[Turn, ...]) -> None:
    """Two turns an exchange, one summary a day after them, an unpaired last turn kept."""
    system = await build(turns[:-1])  # the last session has three turns then
    shown = [memory.passage.turns for memory in system.memories]
    assert shown == [
        ("D1:1", "D1:2"), ("D1:3", "D1:4"), (),
        ("D2:1", "D2:2"), ("D2:3", "D2:4"), ("D2:5", "D2:6"), (),
        ("D3:1", "D3:2"), ("D3:3",), (),
    ]  # fmt: skip
    first, summary = system.memories[0], system.memories[2]
    assert first.day == "2024-03-03"
    assert first.passage.text == f"{turns[0].render()}\n{turns[1].render()}"
    assert first.indexed.startswith("7:05 pm on 3 March, 2024: Ada: Hi Ben!")
    assert summary.summary
    assert summary.passage.text == "events of 7:05 pm on 3 March, 2024"
    assert [m.strength for m in system.memories] == [1] * 10


async def test_calls(turns: tuple[Turn, ...]) -> None:
    """Two a day and two over all days; none for a question."""
    llm = backbone()
    system = await build(turns, llm)
    assert llm.count == {
        "bank_day_events": 3, "bank_day_portraits": 3, "bank_all_events": 1, "bank_all_portraits": 1
    }  # fmt: skip
    await system.recall(QUESTION)
    assert len(llm.calls) == 8
    seen = llm.inputs("bank_all_portraits")[0]
    assert seen.days[0] == DayPortraits(turns[0].date, f"kind on {turns[0].date}", "")
    assert "Ada: kind on" in BANK_ALL_PORTRAITS.render(seen)
    assert "Ben:" not in BANK_ALL_PORTRAITS.render(seen)


async def test_unusable_replies_are_counted(turns: tuple[Turn, ...]) -> None:
    log = Log()
    names = ("bank_day_events", "bank_day_portraits", "bank_all_events", "bank_all_portraits")
    system = await build(turns, Scripted({name: lambda v: "no" for name in names}), log=log)
    stats = system.stats()
    assert [stats[f"{name}_fallback"] for name in names] == [3, 3, 1, 1]
    assert len(log) == 8
    assert system.memories[2].passage.text.startswith("Ada: Hi Ben! I adopted a grey cat")
    assert system.portraits == ("", "")
    assert all(p.turns or p.text.startswith(("Ada", "Ben")) for p in (await system.recall(QUESTION)).passages)


# -- what is shown ---------------------------------------------------------------------------------------------------


async def test_recalled_texts_by_day_then_portraits(turns: tuple[Turn, ...]) -> None:
    system = await build(turns, k=4)
    evidence = await system.recall(QUESTION)
    recalled = [p for p in evidence.passages if p.time is not None]
    assert [p.time for p in recalled] == sorted({p.time for p in recalled})  # type: ignore[type-var]
    assert [p.text for p in evidence.passages[len(recalled) :]] == ["About Ada: kind", "About Ben: sporty"]
    plain = await (await build(turns, k=4, show_portraits=False)).recall(QUESTION)
    assert plain.passages == tuple(recalled)
    told = await (await build(turns, k=4, show_global_summary=True)).recall(QUESTION)
    assert told.passages[-1].text == "All in all: 3 days"


async def test_ranked_turns_are_best_first(turns: tuple[Turn, ...]) -> None:
    system = await build(turns, k=14, widen_chars=0)
    vector = (await system.services.embedder.embed([QUESTION.text]))[0]
    rows = await system.services.embedder.embed([memory.indexed for memory in system.memories])
    order = np.argsort(-(rows @ vector), kind="stable")
    expected = [turn for i in order for turn in system.memories[i].passage.turns]
    assert list((await system.recall(QUESTION)).ranked_turns) == expected


async def test_widening_joins_neighbours_of_the_day_up_to_the_limit() -> None:
    """Texts of 51 characters each: 200 hold three of them. With forgetting, nothing is joined."""
    system = await build(days(8, 8), k=1, show_portraits=False)
    sizes = {len(memory.indexed) for memory in system.memories if not memory.summary}
    assert len(sizes) == 1
    size = sizes.pop()
    for limit, joined in ((size, [1]), (2 * size, [1, 2]), (3 * size, [1, 2, 0]), (3 * size - 1, [1, 2])):
        system.widen_chars = limit
        assert system._widened(1) == joined
    system.widen_chars = 10_000
    assert sorted(system._widened(1)) == [0, 1, 2, 3, 4]  # four exchanges and the summary, nothing of the next day
    system.forgetting = "code"
    assert system._widened(1) == [1]


# -- forgetting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("days_", "strength", "code", "paper"),
    [(1, 1, 0.819, 0.368), (5, 1, 0.368, 0.0067), (5, 2, 0.135, 0.082), (10, 5, 0.00005, 0.135)],
)
def test_worked_curve_values(days_: int, strength: int, code: float, paper: float) -> None:
    """Worked from exp(-t / S) and exp(-t / 5 * S). In the code's reading more strength means faster forgetting."""
    assert retention(days_, strength, "code") == pytest.approx(code, rel=0.1 if code < 1e-3 else 0.005)
    assert retention(days_, strength, "paper") == pytest.approx(paper, rel=0.01)
    assert retention(days_, strength, "none") == 1.0


@given(st.integers(0, 400), st.integers(1, 20))
def test_curves_are_probabilities_and_move_the_right_way(days_: int, strength: int) -> None:
    for curve in ("paper", "code"):
        assert 0 <= retention(days_, strength, curve) <= 1
        assert retention(days_ + 1, strength, curve) <= retention(days_, strength, curve)
    assert retention(days_, strength + 1, "paper") >= retention(days_, strength, "paper")
    assert retention(days_, strength + 1, "code") <= retention(days_, strength, "code")


async def test_forgetting_follows_the_curve() -> None:
    """400 exchanges a day on days 0, 1, 2, 3 before now: shares near e^-t, every summary's day still there."""
    system = await build(days(800, 800, 800, 800), forgetting="paper")
    for back, day in enumerate(["2024-01-04", "2024-01-03", "2024-01-02", "2024-01-01"]):
        left = sum(memory.day == day and not memory.summary for memory in system.memories)
        assert left / 400 == pytest.approx(math.exp(-back), abs=0.07)
    assert system.stats()["forgotten"] == 1604 - len(system.memories)


async def test_the_draws_are_seeded() -> None:
    turns = days(60, 60, 60, gap=2)
    kept = [[m.id for m in (await build(turns, forgetting="code", seed=seed)).memories] for seed in (1, 1, 2)]
    assert kept[0] == kept[1] != kept[2]


async def test_a_day_s_summary_goes_with_its_last_exchange() -> None:
    system = await build(days(10, 10, gap=300), forgetting="paper")
    assert {memory.day for memory in system.memories} == {"2024-10-27"}
    assert len(system.memories) == 6
    assert system.global_summary == "2 days"  # written before anything is forgotten


async def test_recall_while_the_conversation_goes_on() -> None:
    """`chat`: what later days come back to gains strength and restarts its clock; the rest does not."""
    one, two = days(2, 2, gap=5, words="x")[:2], days(2, 2, gap=5, words="x")[2:]
    one = [replace(one[0], text="Miso the grey cat"), replace(one[1], text="grey cats sleep")]
    two = [replace(two[0], text="Miso the grey cat again"), replace(two[1], text="yes")]
    frozen = await build([*one, *two])
    chat = await build([*one, *two], recall_updates="chat", forgetting="code", chat_k=1)
    assert [(m.strength, m.last_recall) for m in frozen.memories if not m.summary] == [(1, ""), (1, "")]
    assert [(m.strength, m.last_recall) for m in chat.memories if not m.summary] == [(2, "2024-01-06"), (1, "")]
    assert chat.memories[0].passage == frozen.memories[0].passage


async def test_survival_on_locomo(locomo10_data: Dataset) -> None:
    """Expected share of exchanges that survive at the last session: 3.5 % (paper's curve), 7.0 % (code's)."""
    for curve, share in (("paper", 0.035), ("code", 0.070)):
        kept = size = 0.0
        for talk in locomo10_data.conversations:
            now = talk.sessions[-1].time.date()
            for session in talk.sessions:
                kept += len(session.turns) * retention((now - session.time.date()).days, 1, curve)  # type: ignore[arg-type]
                size += len(session.turns)
        assert kept / size == pytest.approx(share, abs=0.003)


@pytest.mark.parametrize("options", [{"forgetting": "all"}, {"recall_updates": "on"}, {"k": 0}])
def test_wrong_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"method.{next(iter(options))}"):
        MemoryBank(services(Scripted()), **options)


def test_strengths_that_nothing_would_read_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"method\.recall_updates: chat .* method\.forgetting=none"):
        MemoryBank(services(Scripted()), recall_updates="chat")


async def test_k_is_read_by_questions_only(turns: tuple[Turn, ...], tmp_path: Path) -> None:
    """So that runs with another k share one memory, also where the conversation recalls."""
    assert "k" in MemoryBank.recall_options
    kept = []
    for k in (1, 5):
        system = await build(turns, recall_updates="chat", forgetting="code", k=k)
        (tmp_path / str(k)).mkdir()
        system.save(tmp_path / str(k))
        kept.append((tmp_path / str(k) / "memory.json").read_text())
    assert kept[0] == kept[1]


# -- without a model -------------------------------------------------------------------------------------------------

TOOLS = Tools(Embedder(Hashing(64)))


async def test_portraits_without_a_model() -> None:
    lines = (
        "Ada: Hi! I love painting seascapes. Do you like it?",
        "Ben: I took the bus. I'm really nervous about my exam.",
        "Ada: My favourite colour is green. The shop was closed.",
    )
    day = await day_portraits(DayInput("1 May, 2024", ("Ada", "Ben"), lines), TOOLS)
    assert day.first == "Ada loves painting seascapes. Ada's favourite colour is green."
    assert day.second == "Ben is really nervous about Ben's exam."
    value = AllPortraitsInput(
        ("Ada", "Ben"), (DayPortraits("1 May", day.first, ""), DayPortraits("2 May", day.first, ""))
    )
    both = await all_portraits(value, TOOLS)
    assert both.first == day.first  # nothing twice
    assert both.second == ""
