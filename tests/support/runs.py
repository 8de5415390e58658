"""Runs on the small conversations: configurations composed by Hydra from conf/, the runner in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval.config import RunConfig, validate
from eval.runner import RunResult, execute
from memfly.llm.base import Call, Reply
from memfly.llm.extractive import Extractive
from scripts.run import compose
from tests.support import talks

Hook = Callable[[Call], object]


def composed(*overrides: str) -> dict[str, Any]:
    """What `memfly run OVERRIDES` hands to `eval.config.validate`."""
    return compose(list(overrides))


def arguments(root: Path, *overrides: str) -> list[str]:
    """Command line of a quick run on the small conversations, everything kept under `root`."""
    root.mkdir(parents=True, exist_ok=True)
    data = root / "talks.json"
    if not data.exists():
        talks.write(root)
    return [
        f"run_root={root}/runs", "embedder=hashing", "data=locomo10", "data.name=talks", f"data.path={data}",
        "data.sha256=null", *overrides,
    ]  # fmt: skip


def config(root: Path, *overrides: str) -> RunConfig:
    return validate(composed(*arguments(root, *overrides)))


def run(root: Path, *overrides: str) -> RunResult:
    return execute(config(root, *overrides))


def answers(result: RunResult | Path) -> list[dict[str, Any]]:
    folder = result if isinstance(result, Path) else result.folder
    return [json.loads(line) for line in (folder / "answers.jsonl").read_text(encoding="utf-8").splitlines()]


def on_call(monkeypatch: pytest.MonkeyPatch, hook: Hook) -> None:
    """`hook` before every call; what it raises, the backbone raises."""
    real = Extractive.complete

    async def complete(self: Extractive, call: Call) -> Reply:
        hook(call)
        await asyncio.sleep(0)
        return await real(self, call)

    monkeypatch.setattr(Extractive, "complete", complete)


def events(folder: Path, kind: str = "") -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    return [event for event in found if not kind or event["kind"] == kind]


def lasting(summary: dict[str, Any]) -> dict[str, Any]:
    """The part of a summary that no interruption, cache or machine may change."""
    memory = {k: v for k, v in summary["memory"].items() if k != "build_s"}
    return {k: v for k, v in summary.items() if k not in ("wall_s", "process")} | {"memory": memory}
