"""Every MemFly task over HTTP: what the server says is what the caller gets, in every mode and wrapping."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memfly.embed import Embedder, Hashing
from memfly.llm.config import llm_config
from memfly.llm.ledger import scope
from memfly.llm.stack import build_llm
from memfly.tasks.answer import ANSWER, AnswerInput
from memfly.tasks.base import Task
from memfly.tasks.gate import GATE, GATE_MERGE, GATE_ONE_STRENGTH, GateCandidate, GateInput
from memfly.tasks.ingest import INGEST, IngestInput
from memfly.tasks.merge import MERGE, MergeInput
from memfly.tasks.question import QUESTION, QuestionInput
from memfly.tasks.refine import SUBQUERY, SUFFICIENCY, SubqueryInput, SufficiencyInput
from tests.support.answers import ExtractiveAnswers
from tests.support.fake_openai import FakeOpenAI

STORED = (
    GateCandidate(3, "1 May, 2023", "Ann adopted a puppy called Rex in Boston.", ("puppy", "Rex", "Boston")),
    GateCandidate(8, "2 May, 2023", "Ben plays chess with his sister on Fridays.", ("chess", "sister")),
)
NEW = GateInput("9 May, 2023", "Ann took her puppy Rex to the vet in Boston.", ("puppy", "vet", "Rex"), STORED)
EVIDENCE = ("(1 May, 2023) Ann adopted a puppy called Rex in Boston.",)

WORK: list[tuple[Task[Any, Any], Any]] = [
    (INGEST, IngestInput("1 May, 2023", "Ann", "I adopted a puppy in Boston, his name is Rex!")),
    (GATE, NEW),
    (GATE_MERGE, NEW),
    (GATE_ONE_STRENGTH, NEW),
    (MERGE, MergeInput("1 May, 2023", "Ann has a puppy.", "2 May, 2023", "Ann's puppy is called Rex.")),
    (QUESTION, QuestionInput("Where did Ann adopt her puppy?")),
    (SUFFICIENCY, SufficiencyInput("Where did Ann adopt her puppy?", EVIDENCE)),
    (SUBQUERY, SubqueryInput("Where did Ann adopt her puppy?", EVIDENCE, (), "the city")),
    (ANSWER, AnswerInput("Where did Ann adopt her puppy?", EVIDENCE, "open")),
]


async def outputs(folder: Path, **data: Any) -> list[Any]:
    llm = build_llm(llm_config(data), embedder=Embedder(Hashing()), cache_dir=folder, seed=1)
    try:
        with scope("c", "q"):
            return [await llm.run(task, value) for task, value in WORK]
    finally:
        await llm.aclose()


@pytest.mark.parametrize("structured", ["json_schema", "guided", "json_object", "plain"])
@pytest.mark.parametrize("kind", ["json", "fenced", "think", "wrong_field", "mixed"])
async def test_tasks_mean_the_same_over_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, structured: str, kind: str
) -> None:
    mix = ["fenced", "429", "think", "truncated", "drop", "empty", "reasoning_field", "500", "prose"]
    script = [kind] * 99 if kind != "mixed" else mix
    expected = await outputs(tmp_path / "plain", kind="extractive")
    with FakeOpenAI(answer=ExtractiveAnswers(monkeypatch), script=script) as server:
        settings = {"kind": "openai", "model": "fake-model", "base_url": server.url, "retry": {"base_s": 0.001}}
        got = await outputs(tmp_path / "http", **settings, structured=structured)
        assert len(server.requests) >= len(WORK)
    if kind == "mixed":  # a repeated request carries feedback, which only the schema can answer
        assert [type(output) for output in got] == [type(output) for output in expected]
    else:
        assert got == expected
