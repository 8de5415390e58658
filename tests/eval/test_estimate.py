"""Estimates: what a run will take, against what the same run then took."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval.estimate import Estimate, RoleEstimate, estimate, keep, table
from eval.runner import execute
from eval.summary import ESTIMATE
from memfly.errors import ConfigError
from tests.support.fake_openai import FakeOpenAI, from_schema
from tests.support.runs import config, run

METHODS = ["memfly", "amem", "mem0", "memgpt", "memorybank", "readagent", "rag_bm25", "full_context", "agentic_rag"]


@pytest.mark.parametrize("method", METHODS)
def test_from_all_conversations_it_is_the_ledger_of_the_run_without_a_model(method: str, tmp_path: Path) -> None:
    chosen = config(tmp_path, f"method={method}")
    found = estimate(chosen, conversations=9)
    assert found.based_on == ["ada-ben", "cleo-dev"]
    summary = execute(chosen).summary
    assert {role: predicted.calls for role, predicted in found.roles.items()} == summary["calls"]
    assert {
        role: {"prompt": predicted.prompt_tokens, "completion": predicted.completion_tokens}
        for role, predicted in found.roles.items()
    } == summary["tokens"]


def test_one_conversation_of_the_sample_tells_both_within_ten_percent(tmp_path: Path) -> None:
    chosen = config(tmp_path, "data=sample", "data.path=null", "data.name=sample")
    found = estimate(chosen, conversations=1)
    assert len(found.based_on) == 1
    summary = execute(chosen).summary
    assert found.calls == pytest.approx(sum(summary["calls"].values()), rel=0.1)
    prompts = sum(predicted.prompt_tokens for predicted in found.roles.values())
    assert prompts == pytest.approx(sum(tokens["prompt"] for tokens in summary["tokens"].values()), rel=0.1)


def test_dollars_come_from_the_price_table_or_the_configuration(tmp_path: Path) -> None:
    plain = estimate(config(tmp_path, "llm=gpt-4o-mini"))
    prompt = sum(role.prompt_tokens for role in plain.roles.values())
    completion = sum(role.completion_tokens for role in plain.roles.values())
    assert plain.usd == pytest.approx((0.15 * prompt + 0.60 * completion) / 1e6)
    priced = config(tmp_path, "llm=openai", "llm.model=m", "llm.price={prompt: 3, cached: 1, completion: 5}")
    assert estimate(priced).usd == pytest.approx((3 * prompt + 5 * completion) / 1e6)
    assert estimate(config(tmp_path, "llm=openai", "llm.model=unheard-of")).usd is None
    own = estimate(config(tmp_path, "llm=qwen3-8b"))
    assert own.usd == 0
    assert "a server of your own" in table(own, config(tmp_path, "llm=qwen3-8b"), latency_s=1)


def test_reasoning_is_told_and_slots_are_the_backbone_s(tmp_path: Path) -> None:
    chosen = config(tmp_path, "llm=qwen3-8b", "llm.thinking=on", "llm.max_concurrency=2", "concurrency=9")
    found = estimate(chosen)
    text = table(found, chosen, latency_s=1)
    assert f"up to {found.reasoning_tokens:,} completion tokens a call" in text
    assert found.reasoning_tokens > 0
    assert "2 in flight" in text
    off = estimate(config(tmp_path, "llm=qwen3-8b"))
    assert (off.reasoning_tokens, off.roles) == (0, found.roles)


def test_a_mistake_in_the_backbone_shows_before_the_dry_run(tmp_path: Path) -> None:
    chosen = config(tmp_path).model_copy(update={"llm": {"kind": "extractive", "attempts": 0}})
    with pytest.raises(ConfigError, match=r"llm\.attempts"):
        estimate(chosen)
    assert not (tmp_path / "runs" / "estimates").exists()


def test_time_is_the_work_or_the_longest_chain() -> None:
    found = Estimate({"a": RoleEstimate(100, 0, 0), "b": RoleEstimate(60, 0, 0)}, None, 30, [], 1, 1)
    assert found.seconds(0.5, concurrency=1) == 80
    assert found.seconds(0.5, concurrency=4) == 20
    assert found.seconds(0.5, concurrency=64) == 15


def test_the_run_s_table_shows_predicted_against_real(tmp_path: Path) -> None:
    with FakeOpenAI(answer=from_schema) as server:
        overrides = ("llm=openai", "llm.model=fake-model", f"llm.base_url={server.url}")
        chosen = config(tmp_path, *overrides)
        found = estimate(chosen)
        asked_before_the_run = len(server.requests)
        kept = keep(found, chosen)
        result = run(tmp_path, *overrides)
    assert asked_before_the_run == 0
    assert kept == result.folder / ESTIMATE
    assert json.loads(kept.read_text(encoding="utf-8"))["n_questions"] == 10
    text = (result.folder / "table.md").read_text(encoding="utf-8")
    real = sum(result.summary["calls"].values())
    assert f"\n| **all** | {found.calls:,.0f} | {real:,} | " in text


def test_nothing_is_kept_for_a_backbone_without_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    chosen = config(tmp_path, "llm=gpt-4o-mini")
    assert keep(estimate(chosen), chosen) is None
