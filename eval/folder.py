"""A run's folder as a place: can it be written to, is anybody else working in it, does it hold a finished run."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eval.records import read_lines
from memfly.errors import ConfigError


def check_writable(folder: Path, setting: str) -> None:
    """Fail before any call when results could not be kept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".write-test-{os.getpid()}"
        probe.write_bytes(b"x" * 4096)
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"{setting}: cannot write to {folder}: {error.strerror}; free space or choose another"
        ) from None


def finished_summary(folder: Path) -> dict[str, Any] | None:
    """The summary of a run that is complete, without errors that another try could mend, and whole on disk.

    Questions on which the original scorer crashes are no such errors (`n_unscorable`): they have their answers. None
    otherwise: the run is then gone through again, which makes derived files anew from the event log.
    """
    manifest, summary = _object(folder / "manifest.json"), _object(folder / "summary.json")
    if not manifest or summary.get("status") != "finished" or summary.get("n_error") or summary.get("n_unscored"):
        return None
    per_question = all(
        sum(1 for item in read_lines(folder / name) if "id" in item) == summary.get("n_questions")
        for name in ("answers.jsonl", "scores.jsonl")
    )
    return summary if per_question and (folder / "table.md").is_file() else None


def _object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty when there is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process per run folder; the lock goes away with the process, however it ends."""
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(
                f"{folder}: another process is working on this run; wait for it, or change the config"
            ) from None
        yield
