"""The shared answerer: which prompt a question gets, the coin of category 5, temperatures, and the token budget."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.answer import AnswerOptions, answer, fit, prompt, render
from eval.categories import Category
from eval.locomo import Gold
from memfly.errors import ParseError
from memfly.llm.client import LLM
from memfly.tasks.answer import ANSWER, NOT_MENTIONED
from memfly.text import count_tokens
from memfly.types import Evidence, Passage, Question
from tests.support.scripted import Scripted

QUESTION = Question("ada-ben#0", "ada-ben", "What did Ben adopt?")
EVIDENCE = Evidence((Passage("Ada: a cat", ("D1:1",), "3 March", datetime(2024, 3, 3)), Passage("a portrait", ())))


def gold(category: int, trap: str | None = None) -> Gold:
    return Gold("ada-ben#0", Category(category), "x", trap, ("D1:1",))


STYLES = {
    "amem": {1: "phrase", 2: "date", 3: "phrase", 4: "phrase", 5: "choice"},
    "locomo": {1: "official", 2: "official_date", 3: "official", 4: "official", 5: "official_choice"},
    "open": dict.fromkeys(range(1, 6), "open"),
}


@pytest.mark.parametrize("prompt_set", STYLES)
@pytest.mark.parametrize("category", range(1, 6))
def test_the_prompt_set_and_category_choose_style_options_and_temperature(prompt_set: Any, category: int) -> None:
    options = AnswerOptions(prompt_set=prompt_set, temperature=0.7, temperature_adversarial=0.5)
    made = prompt(QUESTION, gold(category, "a grey cat" if category == 5 else None), EVIDENCE, options, seed=0)
    assert made.value.style == STYLES[prompt_set][category]
    knows = category == 5 and prompt_set != "open"
    assert set(made.value.options) == ({NOT_MENTIONED, "a grey cat"} if knows else set())
    assert made.temperature == (0.5 if knows else 0.7)
    assert made.value.evidence == ("3 March | Ada: a cat", "a portrait")
    assert made.evidence_tokens == sum(count_tokens(line) for line in made.value.evidence)
    text = ANSWER.render(made.value)
    assert "Question: What did Ben adopt?" in text
    assert ("(a)" in text) == knows


def test_the_open_prompt_is_the_same_for_every_category() -> None:
    options = AnswerOptions(prompt_set="open")
    asked = {prompt(QUESTION, gold(c, "trap" if c == 5 else None), EVIDENCE, options, 0).value for c in range(1, 6)}
    assert len(asked) == 1
    assert NOT_MENTIONED in ANSWER.render(asked.pop())


def test_category_5_without_a_trap_is_asked_as_a_phrase() -> None:
    made = prompt(QUESTION, gold(5), EVIDENCE, AnswerOptions(), seed=0)
    assert (made.value.style, made.value.options) == ("phrase", ())


def test_the_coin_is_fair_keyed_by_seed_and_question_and_repeatable() -> None:
    first = Counter[str]()
    orders: dict[int, list[str]] = {0: [], 1: []}
    for seed in orders:
        for i in range(400):
            question = Question(f"ada-ben#{i}", "ada-ben", "q")
            made = prompt(question, gold(5, "trap"), EVIDENCE, AnswerOptions(), seed).value.options
            assert made == prompt(question, gold(5, "trap"), EVIDENCE, AnswerOptions(), seed).value.options
            orders[seed].append(made[0])
            first[made[0]] += 1
    assert 340 <= first["trap"] <= 460, "800 fair draws leave this range once in 20,000 times"
    assert orders[0] != orders[1]


async def test_one_call_with_the_style_s_temperature_and_limit() -> None:
    backend = Scripted(answer=lambda value: {"answer": " a cat \n"})
    made = prompt(QUESTION, gold(5, "trap"), EVIDENCE, AnswerOptions(), seed=0)
    assert await answer(LLM(backend), made, AnswerOptions(max_tokens=77)) == "a cat"
    (call,) = backend.calls
    assert (call.temperature, call.max_tokens) == (0.5, 77)


async def test_no_usable_reply_is_an_error_not_an_empty_answer() -> None:
    made = prompt(QUESTION, gold(1), EVIDENCE, AnswerOptions(), seed=0)
    with pytest.raises(ParseError):
        await answer(LLM(Scripted(answer=lambda value: "")), made, AnswerOptions())


PASSAGES = st.lists(
    st.builds(
        Passage,
        st.text("abc defg", min_size=1, max_size=60),
        st.lists(st.sampled_from([f"D1:{i}" for i in range(8)]), max_size=3, unique=True).map(tuple),
        st.sampled_from(["", "3 March"]),
    ),
    max_size=8,
)


@given(PASSAGES, st.permutations(range(8)), st.integers(1, 60))
def test_the_budget_holds_and_nothing_is_made_up(passages: list[Passage], order: list[int], budget: int) -> None:
    evidence = Evidence(tuple(passages), ranking=tuple(i for i in order if i < len(passages)))
    kept = fit(evidence, budget)
    assert sum(count_tokens(render(passage)) for passage in kept) <= budget + 2, "a cut may split a token at the seam"
    whole = [p for p in kept if p in passages]
    assert len(kept) - len(whole) <= 1, "only the last one in is cut"
    texts = [passage.text for passage in passages]
    for passage in kept:
        assert any(text.startswith(passage.text) for text in texts)
    if sum(count_tokens(render(p)) for p in passages) <= budget:
        assert set(kept) == set(passages)
        assert len(kept) == len(set(passages)), "a text shown more than once is charged once"


def test_the_budget_keeps_the_best_ranked_in_the_order_shown() -> None:
    passages = tuple(Passage(f"word{i} " * 10, (f"D1:{i}",)) for i in range(4))
    size = count_tokens(passages[0].text)
    kept = fit(Evidence(passages, ranking=(3, 1, 0, 2)), 2 * size)
    assert [p.turns for p in kept] == [("D1:1",), ("D1:3",)]
    kept = fit(Evidence(passages, ranking=(3,)), 2 * size)
    assert [p.turns for p in kept] == [("D1:0",), ("D1:3",)], "without a rank: last, in their order"


def test_a_cut_passage_is_credited_only_with_what_is_left_of_it() -> None:
    passage = Passage("one two three four five six seven eight", ("D1:1", "D1:2"))
    half = fit(Evidence((passage,)), 4)
    assert half[0].text == "one two three four"
    assert half[0].turns == ("D1:1",)
    assert fit(Evidence((passage,)), 1)[0].turns == ()
    made = prompt(QUESTION, gold(1), Evidence((passage,)), AnswerOptions(token_budget=4), 0)
    assert made.evidence_tokens == 4
    assert made.shown == half
