"""W&B as a sink, with the real package in offline mode: one run per job, its own exit code, no secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval.config import LoggerConfig, shown
from eval.loggers import NoLogger, flatten, logger_for
from memfly.errors import ConfigError
from tests.support.runs import config, run

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def test_flatten() -> None:
    assert flatten({"a": 1, "b": {"c": 2.5, "d": {"e": "x"}}, "f": [1]}) == [
        ("a", 1),
        ("b.c", 2.5),
        ("b.d.e", "x"),
        ("f", [1]),
    ]


def test_none_is_none(tmp_path: Path) -> None:
    assert isinstance(logger_for(LoggerConfig(), config(tmp_path), tmp_path), NoLogger)


def test_online_without_a_key_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"logger\.mode=online needs WANDB_API_KEY"):
        run(tmp_path, "logger=wandb", "logger.mode=online")


def runs(root: Path) -> list[Path]:
    return sorted(root.rglob("run-*.wandb"))


def test_offline_writes_one_run_per_job_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "sk-test-2718281828459045235360287471"
    for name in ("OPENAI_API_KEY", "BENCH_SECRET_TOKEN"):
        monkeypatch.setenv(name, secret)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setattr("sys.argv", ["memfly run", "llm.base_url=http://ann:hidden-pass@host/v1"])
    logged: list[dict[str, Any]] = []
    import wandb

    real = wandb.sdk.wandb_run.Run.log
    monkeypatch.setattr(wandb.sdk.wandb_run.Run, "log", lambda self, data: (logged.append(data), real(self, data))[1])
    first = run(tmp_path, "logger=wandb", "data.conversations=[cleo-dev]")
    second = run(tmp_path, "logger=wandb", "data.conversations=[cleo-dev]", "method.tau_m=0.9")
    again = run(tmp_path, "logger=wandb", "data.conversations=[cleo-dev]")
    assert again.reused
    files = runs(tmp_path)
    assert all(b"hidden-pass" not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert [path.stem.removeprefix("run-") for path in files] == sorted([first.folder.name, second.folder.name])
    assert first.folder in next(p for p in files if first.folder.name in p.name).parents
    assert logged[0]["average.f1"] == first.summary["average"]["f1"]
    assert logged[0]["n_questions"] == 4
    assert not any(isinstance(value, (str, list, dict)) for value in logged[0].values())
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
    assert b"run_root" not in files[0].read_bytes()


def test_a_broken_run_tells_wandb_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[tuple[Any, int]] = []

    class Sink:
        def finish(self, summary: Any, exit_code: int) -> None:
            ended.append((summary["status"], exit_code))

    monkeypatch.setattr("eval.runner.logger_for", lambda *_: Sink())
    run(tmp_path)
    monkeypatch.setattr("eval.runner.answer", lambda *_: (_ for _ in ()).throw(RuntimeError("bug")))
    with pytest.raises(RuntimeError):
        run(tmp_path, "seed=1")
    assert ended == [("finished", 0), ("failed", 1)]
    assert json.loads(next((tmp_path / "runs").glob("*/summary.json")).read_text())


def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATA", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name))


def test_a_run_finished_without_wandb_is_sent_once_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline(tmp_path, monkeypatch)
    first = run(tmp_path, "data.conversations=[cleo-dev]")
    assert runs(tmp_path) == []
    for _ in range(2):
        assert run(tmp_path, "logger=wandb", "data.conversations=[cleo-dev]").reused
        assert [path.stem for path in runs(tmp_path)] == [f"run-{first.folder.name}"]


def test_wandb_s_own_failure_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    def unreachable(**_: Any) -> None:
        raise wandb.errors.CommError("no such host:\n api.wandb.ai")

    monkeypatch.setattr(wandb, "init", unreachable)
    with pytest.raises(
        ConfigError, match=r"^logger=wandb: no such host: api\.wandb\.ai; logger\.mode=offline keeps it"
    ):
        run(tmp_path, "logger=wandb")


def test_a_login_in_an_address_is_neither_sent_nor_written(tmp_path: Path) -> None:
    address = "http://ann:hidden-pass@127.0.0.1:1/v1"
    chosen = config(tmp_path, "llm=openai", "llm.model=m", f"llm.base_urls=[{address}]")
    assert address in chosen.llm["base_urls"]
    assert "hidden-pass" not in json.dumps(shown(chosen))
    assert shown(chosen)["llm"]["base_urls"] == ["http://***@127.0.0.1:1/v1"]
    assert shown(chosen)["method"] == chosen.model_dump(mode="json")["method"]
