"""Fixtures for all tests: small conversations written here, the bundled sample, and LoCoMo where it is present."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from eval.locomo import Dataset, load
from memfly.types import Turn
from tests.support import talks

settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")


@pytest.fixture
def talk_file(tmp_path: Path) -> Path:
    """The two conversations of `tests.support.talks` as a LoCoMo file."""
    return talks.write(tmp_path)


@pytest.fixture
def turns(tmp_path: Path) -> tuple[Turn, ...]:
    """The 14 turns of the conversation `ada-ben`."""
    return talks.turns(tmp_path)


@pytest.fixture(scope="session")
def locomo10_file() -> Path:
    """The real benchmark file, in the `data` folder of $LOCOMO_SHARED or of ../shared; the test is skipped without."""
    root = Path(os.environ.get("LOCOMO_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    path = root / "data" / "locomo10.json"
    if not path.exists():
        pytest.skip(f"no {path} (set LOCOMO_SHARED; LoCoMo data are never committed)")
    return path


@pytest.fixture(scope="session")
def locomo10_data(locomo10_file: Path) -> Dataset:
    return load(locomo10_file, name="locomo10")
