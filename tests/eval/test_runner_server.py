"""The runner against a real server on loopback whose replies are good and bad in every way: nothing lost, all counted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eval.runner import RunResult
from memfly.errors import ConfigError
from tests.support import talks
from tests.support.fake_openai import FakeOpenAI, schema_of
from tests.support.runs import answers, config, events, lasting, run

FAULTS = ["json", "fenced", "think", "truncated", "prose", "empty", "unknown_ids", "out_of_range"]


def served(root: Path, server: FakeOpenAI, *overrides: str) -> RunResult:
    return run(
        root, "llm=openai", f"llm.base_url={server.url}", "llm.model=fake-model", "++llm.retry.base_s=0.01", *overrides
    )


def by_task(server: FakeOpenAI) -> Counter[str]:
    return Counter(schema_of(body)[0] for body in server.requests)


def test_every_kind_of_reply_in_turn_loses_no_question(tmp_path: Path) -> None:
    with FakeOpenAI(script=lambda number, body: FAULTS[number % len(FAULTS)]) as server:
        result = served(tmp_path, server)
        assert set(FAULTS) <= set(server.kinds)
        asked = by_task(server)
        requests = len(server.requests)
        again = served(tmp_path, server)
        assert len(server.requests) == requests
    summary = result.summary
    assert (summary["n_questions"], summary["n_unscored"]) == (10, 0)
    assert len(answers(result)) == 10
    states = Counter(a["state"] for a in answers(result))
    assert states["answered"] + states["error"] == 10
    assert summary["n_error"] == states["error"] == sum(summary["errors"].values())
    assert set(summary["errors"]) <= {"answer: ParseError"}
    assert sum(summary["parse_failures"].values()) > 0
    assert summary["memory"]["turns"] == talks.N_TURNS
    assert summary["calls"]["ingest"] == asked["ingest"], "every reply is counted, unusable ones too"
    assert lasting(again.summary) == lasting(summary), "bad replies are in the cache as well: the same again"


ROLE_OF = {
    "ingest": "ingest",
    "gate": "gate",
    "merge": "merge",
    "question": "parse",
    "sufficiency": "reflect",
    "answer": "answer",
}


PLACES = [(task, kind) for task in ROLE_OF for kind in ("truncated", "prose", "empty")]
PLACES += [(task, kind) for task in ("gate", "answer") for kind in ("unclosed", "garbage", "wrong_schema", "null")]


@pytest.mark.parametrize(("task", "kind"), PLACES)
def test_a_fault_is_counted_where_it_belongs(task: str, kind: str, tmp_path: Path) -> None:
    with FakeOpenAI(script=lambda number, body: kind if schema_of(body)[0] == task else "json") as server:
        result = served(tmp_path, server, "data.conversations=[cleo-dev]")
    summary, role = result.summary, ROLE_OF[task]
    failures = {name: n for name, n in summary["parse_failures"].items() if n}
    assert set(failures) == {role}
    assert failures[role] % 3 == 0, "asked three times each"
    cut = {name: n for name, n in summary["truncated"].items() if n}
    assert cut == ({role: failures[role]} if kind in ("truncated", "unclosed") else {})
    memory = summary["memory"]
    fallbacks = {k: memory[k] for k in ("ingest_fallback", "gate_fallback", "merge_fallback") if memory[k]}
    assert len(answers(result)) == 4
    if task == "ingest":
        assert fallbacks == {"ingest_fallback": 7}
        assert len(events(result.folder, "ingest_fallback")) == 7
    elif task == "gate":
        assert fallbacks == {"gate_fallback": failures["gate"] // 3}
        assert (memory["links"], memory["merges"], memory["notes"]) == (0, 0, 7)
    else:
        assert fallbacks == ({"merge_fallback": failures["merge"] // 3} if task == "merge" else {})
    if task == "question":
        assert all(a["trace"]["rounds"][0]["parse_fallback"] for a in answers(result))
    if task == "sufficiency":
        assert {a["trace"]["stop"] for a in answers(result)} == {"unusable reply"}
    if task == "answer":
        assert summary["errors"] == {"answer: ParseError": 4}
        assert all(a["prediction"] is None for a in answers(result))
    else:
        assert summary["n_error"] == 0


@pytest.mark.parametrize("kind", ["unknown_ids", "out_of_range"])
def test_bad_verdicts_are_dropped_and_counted_without_a_retry(kind: str, tmp_path: Path) -> None:
    with FakeOpenAI(script=lambda number, body: kind if schema_of(body)[0] == "gate" else "json") as server:
        result = served(tmp_path, server, "data.conversations=[cleo-dev]")
        verdicts = sum(
            body["messages"][1]["content"].count("\nid ") for body in server.requests if schema_of(body)[0] == "gate"
        )
        asked = by_task(server)
    memory = result.summary["memory"]
    assert asked["gate"] == result.summary["calls"]["gate"] == 6
    assert memory["gate_dropped_verdicts"] == verdicts > 0
    assert (memory["links"], memory["merges"], memory["gate_fallback"]) == (0, 0, 0)
    assert result.summary["parse_failures"]["gate"] == 0


def test_a_good_form_in_disguise_changes_nothing(tmp_path: Path) -> None:
    made = {}
    for kind in ("json", "fenced", "think"):
        with FakeOpenAI(script=lambda number, body, kind=kind: kind) as server:
            result = served(tmp_path / kind, server, f"run_root={tmp_path / kind}/runs")
        made[kind] = [(a["id"], a["prediction"], a["shown_turns"]) for a in answers(result)]
        assert sum(result.summary["parse_failures"].values()) == 0
    assert made["fenced"] == made["think"] == made["json"]


def test_rate_limits_and_server_errors_change_no_answer(tmp_path: Path) -> None:
    with FakeOpenAI() as server:
        clean = served(tmp_path / "clean", server)
    with FakeOpenAI(rates={"429": 0.2, "500": 0.1, "drop": 0.05}, seed=3) as server:
        rough = served(tmp_path / "rough", server)
        assert server.kinds["429"] > 0
        assert server.kinds["500"] > 0
    assert (rough.summary["n_error"], rough.summary["n_unscored"]) == (0, 0)
    assert (rough.folder / "answers.jsonl").read_bytes() == (clean.folder / "answers.jsonl").read_bytes()
    assert sum(role["retries"] for role in rough.summary["process"]["role_totals"].values()) > 0


def test_the_reply_cache_makes_a_sweep_over_thresholds_cheap(tmp_path: Path) -> None:
    """A rerun in another run folder, with nothing kept but the cache, asks nothing and finds the same."""
    with FakeOpenAI() as server:
        first = served(tmp_path, server)
        n = len(server.requests)
        second = served(tmp_path, server, f"run_root={tmp_path}/other", f"cache.dir={tmp_path}/runs/cache")
        assert len(server.requests) == n
        served(tmp_path, server, "method.tau_m=0.99")
        sweep = by_task(server)
    assert (second.folder / "answers.jsonl").read_bytes() == (first.folder / "answers.jsonl").read_bytes()
    assert lasting(second.summary) == lasting(first.summary)
    assert second.summary["process"]["role_totals"]["ingest"]["billed_calls"] == 0
    assert sweep["ingest"] == talks.N_TURNS, "no ingestion call is made twice"


def test_no_secret_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "sk-test-3141592653589793238462643383"
    monkeypatch.setenv("BENCH_TEST_KEY", secret)
    with FakeOpenAI(needs_key=secret) as server:
        result = served(tmp_path, server, "llm.api_key_env=BENCH_TEST_KEY", "data.conversations=[cleo-dev]")
        assert result.summary["n_error"] == 0
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
    manifest = json.loads((result.folder / "manifest.json").read_text())
    assert manifest["config"]["llm"]["api_key_env"] == "BENCH_TEST_KEY"
    assert manifest["probe"]["model"] == "fake-model"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["llm.base_url=http://127.0.0.1:9/v1"], "llm.base_url"),
        (["llm.base_url=ftp://x"], "is not an http:// or https:// address"),
        (["llm.api_key_env=BENCH_NO_SUCH_KEY"], "BENCH_NO_SUCH_KEY"),
        (["llm.model=other-model"], "does not have other-model; it has fake-model"),
    ],
)
def test_a_backbone_that_cannot_work_is_one_line_before_any_question(
    overrides: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memfly.llm.probe.NOBODY_TRIES", 1)
    with FakeOpenAI() as server:
        base: list[Any] = ["llm=openai", f"llm.base_url={server.url}", "llm.model=fake-model"]
        with pytest.raises(ConfigError) as caught:
            run(tmp_path, *base, *overrides)
        assert not server.requests
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    folders = [p for p in (tmp_path / "runs").iterdir() if (p / "answers.jsonl").exists()]
    assert not any(answers(folder) for folder in folders)


def test_the_run_is_named_by_model_not_by_address(tmp_path: Path) -> None:
    from eval.progress import Silent
    from eval.runner import Runner

    def name(*overrides: str) -> str:
        made = config(tmp_path, "llm=openai", "llm.base_url=http://127.0.0.1:1/v1", "llm.model=a", *overrides)
        return Runner(made, Silent()).folder.name

    assert name() == name("llm.base_url=http://127.0.0.1:2/v1") == name("llm.max_concurrency=3")
    assert name() != name("llm.model=b")
    assert name() != name("seed=1")
