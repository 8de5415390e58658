"""Full context and no context: the official rendering, its order, its truncation."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from baselines.full_context import HEADING, FullContext
from baselines.no_context import NoContext
from eval.answer import render
from eval.locomo import Dataset
from memfly.errors import ConfigError
from memfly.llm.extractive.evidence import read_item
from memfly.text import count_tokens
from memfly.types import Evidence, Question, Turn
from tests.support.scripted import Scripted, services

QUESTION = Question("ada-ben#0", "ada-ben", "What is the cat called?")


def three_sessions() -> list[Turn]:
    """Three sessions of two turns with the same number of tokens."""
    texts = [["one two", "red blue"], ["cat dog", "sun moon"], ["tea milk", "hat coat"]]
    out = []
    for number, pair in enumerate(texts, 1):
        date = f"1:00 pm on {number} May, 2024"
        for i, text in enumerate(pair, 1):
            turn = Turn(f"D{number}:{i}", ("Ada", "Ben")[i - 1], text, number, datetime(2024, 5, number, 13), date)
            out.append(turn)
    return out


async def shown(turns: list[Turn] | tuple[Turn, ...], **options: Any) -> Evidence:
    backend = Scripted()
    system = FullContext(services(backend), **options)
    for turn in turns:
        await system.observe(turn)
    await system.finish()
    evidence = await system.recall(QUESTION)
    assert not backend.calls
    return evidence


async def test_rendering(turns: tuple[Turn, ...]) -> None:
    """An opening with both names, then the newest session first, each with its date, its turns in order."""
    evidence = await shown(turns)
    opening, newest, middle, oldest = evidence.passages
    assert "Ada" in opening.text
    assert "Ben" in opening.text
    assert opening.turns == ()
    assert render(newest) == (
        "9:00 pm on 2 July, 2024 | CONVERSATION:\n"
        'Ada said, "Miso caught a mouse yesterday."\n\n'
        'Ben said, "I rode 40 kilometres on Rosa\'s road bike."\n\n'
        'Ada said, "Now I want to keep bees."\n\n'
        'Ben said, "Bye!"\n'
    )
    assert 'Ada said, "Miso already sleeps on my piano."\nand shared a grey cat asleep on an upright piano.\n' in (
        oldest.text
    )
    assert middle.turns == tuple(f"D2:{i}" for i in range(1, 7))
    assert set(evidence.turn_ids) == {turn.id for turn in turns}


async def test_chronological_order() -> None:
    newest_first = await shown(three_sessions())
    chronological = await shown(three_sessions(), order="chronological")
    assert [p.date[11:12] for p in newest_first.passages[1:]] == ["3", "2", "1"]
    assert chronological.passages[1:] == newest_first.passages[:0:-1]


async def test_a_small_window_keeps_the_oldest_and_the_end_of_the_cut_session() -> None:
    """As the original did on the same input: session 1 whole plus turn 2 of session 2."""
    full = await shown(three_sessions())
    reserved = 150 + count_tokens(QUESTION.text) + count_tokens(full.passages[0].text)
    turn = count_tokens('Ada said, "one two"') + 1
    head = count_tokens(f"{full.passages[1].date} | {HEADING}\n")
    evidence = await shown(three_sessions(), window=reserved + 2 * head + 3 * turn)
    assert [p.turns for p in evidence.passages[1:]] == [("D2:2",), ("D1:1", "D1:2")]
    assert evidence.trace == {"turns_shown": 3, "turns_cut": 3}
    one_less = await shown(three_sessions(), window=reserved + 2 * head + 3 * turn - 1)
    assert [p.turns for p in one_less.passages[1:]] == [("D1:1", "D1:2")]
    everything = await shown(three_sessions(), window=reserved + 3 * head + 6 * turn)
    assert everything.passages == full.passages


async def test_the_window_is_kept(turns: tuple[Turn, ...]) -> None:
    for window in range(160, 700, 30):
        evidence = await shown(turns, window=window)
        used = count_tokens("\n".join(render(p) for p in evidence.passages)) if len(evidence.passages) > 1 else 0
        assert used + count_tokens(QUESTION.text) + 150 <= window


async def test_the_backbone_without_a_model_reads_the_rendering(turns: tuple[Turn, ...]) -> None:
    lines = [line for p in (await shown(turns)).passages[1:] for line in read_item(render(p)) if line.speaker]
    assert [line.speaker for line in lines].count("ada") == [turn.speaker for turn in turns].count("Ada")
    assert len(lines) == len(turns)
    assert lines[0].sentences[0].text == "Miso caught a mouse yesterday."


@pytest.mark.parametrize("options", [{"order": "random"}, {"window": 150}, {"answer_tokens": -1}])
def test_wrong_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"method.{next(iter(options))}"):
        FullContext(services(Scripted()), **options)


async def test_tokens_of_the_benchmark_s_first_conversation(locomo10_data: Dataset) -> None:
    """The official rendering of conv-26 of LoCoMo's code has 16,874 o200k tokens; dates stand elsewhere here."""
    evidence = await shown(locomo10_data.conversations[0].turns)
    tokens = count_tokens("\n".join(render(p) for p in evidence.passages))
    assert abs(tokens - 16_874) < 0.01 * 16_874


async def test_no_context_shows_nothing(turns: tuple[Turn, ...]) -> None:
    system = NoContext(services(Scripted()))
    for turn in turns:
        await system.observe(turn)
    assert await system.recall(QUESTION) == Evidence(())
    assert system.stats() == {"turns": 14}
