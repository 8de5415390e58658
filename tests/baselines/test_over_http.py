"""All systems with tasks of their own over HTTP: every mode of structured replies, and MemGPT's functions both ways.

The server makes its replies up from the schema, so nothing sensible is said; what counts is that requests are accepted,
replies are read, and what cannot be used is counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from eval.config import build_system, system_class
from memfly.embed import Embedder, Hashing
from memfly.llm.config import llm_config
from memfly.llm.ledger import scope
from memfly.llm.stack import build_llm
from memfly.system import Services
from memfly.types import Question, Turn
from tests.support.fake_openai import FakeOpenAI

SMALL_PAGES = {"word_limit": 30, "start_threshold": 12, "tail_words": 10}
METHODS = Path(__file__).resolve().parents[2] / "conf" / "method"


@pytest.mark.parametrize("structured", ["json_schema", "guided"])
@pytest.mark.parametrize("tool_calls", ["native", "json"])
@pytest.mark.parametrize(
    "method",
    "amem amem_wo_me mem0 agentic_rag memgpt rag_observations rag_summaries readagent readagent_s memorybank".split(),
)
async def test_a_run_over_http(
    tmp_path: Path, turns: tuple[Turn, ...], method: str, structured: str, tool_calls: str
) -> None:
    options: dict[str, Any] = yaml.safe_load((METHODS / f"{method}.yaml").read_text(encoding="utf-8"))
    options |= SMALL_PAGES if method.startswith("readagent") else {}
    with FakeOpenAI() as server:
        data = {"kind": "openai", "model": "fake-model", "base_url": server.url, "structured": structured}
        embedder = Embedder(Hashing(64))
        llm = build_llm(llm_config(data | {"tool_calls": tool_calls}), embedder=embedder, cache_dir=tmp_path, seed=1)
        try:
            made = Services(llm, embedder, "ada-ben", ("Ada", "Ben"))
            system = build_system(system_class(options.pop("_target_")), options, made)
            with scope("ada-ben") as tally:
                for turn in turns[:6]:
                    system.prefetch(turn)
                for turn in turns[:6]:
                    await system.observe(turn)
                await system.finish()
            with scope("ada-ben", "q") as asked:
                evidence = await system.recall(Question("q", "ada-ben", "What is the cat called?"))
        finally:
            await llm.aclose()
        offered = [body for body in server.requests if "tools" in body]
    assert sum(role.parse_failures for role in [*tally.roles.values(), *asked.roles.values()]) == 0
    assert set(evidence.turn_ids) <= {turn.id for turn in turns[:6]}
    assert bool(offered) == (method == "memgpt" and tool_calls == "native")
    fallbacks = {name for name, count in system.stats().items() if name.endswith("_fallback") and count}
    assert fallbacks <= {"break_fallback"}  # the server's number is no label of ReadAgent's
