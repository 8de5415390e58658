"""A-MEM's tasks without a model: labels, links and keywords are real, bounded and repeatable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baselines.extractive.amem import analyse, evolve, link, parts, query, tags
from baselines.tasks.amem import AnalyseInput, EvolveInput, KeywordsInput, Neighbour
from memfly.embed import Embedder, Hashing
from memfly.llm.extractive.base import Tools

TOOLS = Tools(Embedder(Hashing(256)))
CAT = "Ada: I adopted a grey cat called Miso from the shelter."


def neighbour(position: int, content: str, keywords: tuple[str, ...] = (), tags: tuple[str, ...] = ()) -> Neighbour:
    return Neighbour(position, "1 May, 2024", content, content, keywords, tags)


def test_a_rendered_turn_is_taken_apart() -> None:
    assert parts("Ada: Look! [shares a photo of: a cat]") == ("Ada", "Look!", "a cat")
    assert parts("no speaker here") == ("", "no speaker here", "")


async def test_analysis() -> None:
    found = await analyse(AnalyseInput(CAT), TOOLS)
    assert "Miso" in found.keywords
    assert len(found.keywords) >= 3
    assert found.context == "Ada adopted a grey cat called Miso from the shelter."
    assert "experience" in found.tags
    assert tags("Ada: Which lake will you paint?")[:2] == ["question", "plan"]
    assert tags("Ben: Thanks, Ada!") == ["small talk"]
    assert "image" in tags("Ada: Look! [shares a photo of: a grey cat]")


async def test_notes_on_one_matter_are_linked_and_others_not() -> None:
    near = neighbour(7, "Ada: My grey cat Miso from the shelter sleeps all day.", ("Miso", "grey cat"), ("cat",))
    far = neighbour(3, "Ben: The half marathon in Bergen is in June.", ("half marathon",), ("plan",))
    value = EvolveInput(CAT, CAT, ("Miso", "grey cat", "shelter"), (far, near))
    full = await evolve(value, TOOLS)
    assert full.should_evolve
    assert full.suggested_connections == [7]
    assert full.new_tags_neighborhood == [["plan"], ["cat", "miso"]]
    assert full.new_context_neighborhood == [far.context, near.context]
    assert (await link(value, TOOLS)).suggested_connections == [7]
    alone = await evolve(EvolveInput(CAT, CAT, ("Miso",), (far,)), TOOLS)
    assert not alone.should_evolve
    assert not (await evolve(EvolveInput(CAT, CAT, (), ()), TOOLS)).should_evolve


async def test_question_keywords() -> None:
    assert "Miso" in (await query(KeywordsInput("When did Ada adopt Miso?"), TOOLS)).keywords
    assert (await query(KeywordsInput(""), TOOLS)).keywords == ""


@pytest.mark.parametrize("text", ["", "   ", ": ", "x" * 50_000, "?!?!", "a: b [shares a photo of: ]", "\u3042" * 500])
async def test_odd_texts_stay_within_bounds(text: str) -> None:
    found = await analyse(AnalyseInput(text), TOOLS)
    assert found == await analyse(AnalyseInput(text), TOOLS)


@given(st.text(max_size=200))
def test_tags_are_short_and_distinct(text: str) -> None:
    found = tags(text)
    assert len(found) == len(set(found)) <= 8
    assert all(len(tag) <= 200 for tag in found)
