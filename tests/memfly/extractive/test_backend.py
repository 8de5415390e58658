"""The extractive backend: what it answers, what it refuses, and that every task's output fits its bounds for any input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from memfly.embed import Embedder, Hashing
from memfly.errors import ConfigError
from memfly.llm.base import Call
from memfly.llm.client import LLM
from memfly.llm.extractive import FUNCTIONS, Extractive, Tools
from memfly.tasks.answer import ANSWER, NOT_MENTIONED, AnswerInput
from memfly.tasks.base import Task, TaskOutput
from memfly.tasks.gate import GATE, GATE_MERGE, GATE_ONE_STRENGTH, GateCandidate, GateInput
from memfly.tasks.ingest import INGEST, IngestInput
from memfly.tasks.merge import MERGE, MergeInput
from memfly.tasks.question import QUESTION, QuestionInput
from memfly.tasks.refine import SUBQUERY, SUFFICIENCY, SubqueryInput, SufficiencyInput
from memfly.text import count_tokens

LABEL = "1:56 pm on 8 May, 2023"


class Shout(TaskOutput):
    text: str


SHOUT: Task[str, Shout] = Task("shout", 1, "reflect", str, Shout, "shout", lambda value: value, 10)


async def shout(value: str, tools: Tools) -> Shout:
    return Shout(text=value.upper())


def call(task: Task[Any, Any], value: Any) -> Call:
    return Call(task, value, (("system", task.system), ("user", task.render(value))), 0.0, 100, 0)


def backend(extra: Mapping[str, Any] | None = None) -> Extractive:
    return Extractive(Embedder(Hashing()), extra)


async def test_a_reply_is_the_output_as_json_with_counted_tokens() -> None:
    asked = call(MERGE, MergeInput("a", "Ann has a cat.", "b", "Ann has a dog."))
    reply = await backend().complete(asked)
    assert json.loads(reply.text) == {"context": "Ann has a cat. Ann has a dog."}
    assert (reply.finish, reply.model, reply.usage.estimated) == ("stop", "extractive", True)
    assert reply.usage.prompt_tokens == sum(count_tokens(text) for _, text in asked.messages)
    assert reply.usage.completion_tokens == count_tokens(reply.text)


async def test_a_task_without_a_function_is_one_clear_line() -> None:
    with pytest.raises(ConfigError, match=r"'shout'.*llm=extractive") as caught:
        await backend().complete(call(SHOUT, "hi"))
    assert "\n" not in str(caught.value)


async def test_extra_functions_add_tasks_and_leave_the_table_alone() -> None:
    reply = await backend({"shout": shout}).complete(call(SHOUT, "hi"))
    assert json.loads(reply.text) == {"text": "HI"}
    assert "shout" not in FUNCTIONS


def test_identity_names_kind_version_and_embedder() -> None:
    identity = backend().identity
    assert identity["kind"] == "extractive"
    assert isinstance(identity["version"], int)
    assert identity["embedder"]["encoder"] == "hashing"


TEXT = st.one_of(
    st.text(max_size=300),
    st.lists(
        st.sampled_from(
            "I my we you it Anna Bob's the a an not never yesterday last Friday 2 three years ago in June , . ! ? \" | : [ ] "
            "when where who how many went bought painting Paris — café \n [shares a photo of: or 31 February 2023 9999".split(
                " "
            )
        ),
        max_size=60,
    ).map(" ".join),
)
ITEM = st.one_of(TEXT, TEXT.map(lambda text: f"{LABEL} | Anna: {text}"), TEXT.map(lambda text: f"{LABEL} | {text}"))
ITEMS = st.lists(ITEM, max_size=5).map(tuple)
WORDS = st.lists(TEXT.map(lambda t: t[:40]), max_size=4).map(tuple)
GATE_INPUT = st.builds(
    GateInput,
    TEXT,
    TEXT,
    WORDS,
    st.lists(st.builds(GateCandidate, st.integers(0, 99), TEXT, TEXT, WORDS), max_size=4).map(tuple),
)
OPTIONS = st.one_of(st.just(()), TEXT.map(lambda t: (t, NOT_MENTIONED)), TEXT.map(lambda t: (NOT_MENTIONED, t)))
STYLES = st.sampled_from(["phrase", "date", "open", "official", "official_date", "choice", "official_choice"])
CASES: list[tuple[Task[Any, Any], st.SearchStrategy[Any]]] = [
    (INGEST, st.builds(IngestInput, TEXT, TEXT, TEXT, st.none() | TEXT, ITEMS)),
    (QUESTION, st.builds(QuestionInput, TEXT)),
    (GATE, GATE_INPUT),
    (GATE_MERGE, GATE_INPUT),
    (GATE_ONE_STRENGTH, GATE_INPUT),
    (MERGE, st.builds(MergeInput, TEXT, TEXT, TEXT, TEXT)),
    (SUFFICIENCY, st.builds(SufficiencyInput, TEXT, ITEMS, TEXT)),
    (SUBQUERY, st.builds(SubqueryInput, TEXT, ITEMS, ITEMS, TEXT)),
    (ANSWER, st.builds(AnswerInput, TEXT, ITEMS, STYLES, OPTIONS)),
]


@pytest.mark.parametrize(("task", "inputs"), CASES, ids=[task.name for task, _ in CASES])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
async def test_every_task_takes_any_input_and_repeats_itself(
    task: Task[Any, Any], inputs: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    value = data.draw(inputs)
    output = await LLM(backend(), attempts=1).run(task, value)
    assert isinstance(output, BaseModel)
    assert await LLM(backend(), attempts=1).run(task, value) == output


HUGE = "Anna went to Paris, bought 3 cats last Friday and didn't sleep! " * 2000


@pytest.mark.parametrize(
    ("task", "value"),
    [
        (INGEST, IngestInput(LABEL, "Anna", HUGE, HUGE, (f"Bob: {HUGE}",))),
        (QUESTION, QuestionInput(HUGE)),
        (GATE_MERGE, GateInput(LABEL, HUGE, (HUGE,), (GateCandidate(1, LABEL, HUGE, (HUGE,)),))),
        (MERGE, MergeInput(LABEL, HUGE, LABEL, HUGE.replace("Anna", "Bob"))),
        (SUFFICIENCY, SufficiencyInput(HUGE, (HUGE,))),
        (SUBQUERY, SubqueryInput(HUGE, (HUGE,), (HUGE,), HUGE)),
        (ANSWER, AnswerInput(HUGE, (f"{LABEL} | Anna: {HUGE}",), "phrase")),
        (ANSWER, AnswerInput("When?", ("x" * 300_000,), "date")),
    ],
    ids=["ingest", "question", "gate", "merge", "sufficiency", "subquery", "answer", "one word"],
)
async def test_huge_inputs_end_in_bounded_outputs(task: Task[Any, Any], value: Any) -> None:
    assert await LLM(backend(), attempts=1).run(task, value)
