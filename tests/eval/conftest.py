"""Where the benchmark's files are, for tests that compare with the original scorers; they are skipped without them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest


def shared_file(name: str) -> Path:
    """`name` in the data folder of $LOCOMO_SHARED (default: `shared` beside the repository); skips the test if absent."""
    root = Path(os.environ.get("LOCOMO_SHARED", Path(__file__).resolve().parents[3] / "shared"))
    path = root / "data" / name
    if not path.exists():
        pytest.skip(f"{name} is not in {root / 'data'} (set LOCOMO_SHARED; LoCoMo data are never committed)")
    return path


@pytest.fixture(scope="session")
def golden_rows() -> list[dict[str, Any]]:
    """2,383 predictions with the scores the two original scorers gave them."""
    return [json.loads(line) for line in shared_file("golden_scores.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="session")
def locomo10() -> list[dict[str, Any]]:
    """The benchmark's ten conversations as in the file."""
    conversations: list[dict[str, Any]] = json.loads(shared_file("locomo10.json").read_text("utf-8"))
    return conversations
