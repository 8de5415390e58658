"""What the baselines write is read back as it was, and damage is told in one line."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baselines.storage import load_state, load_vectors, passage_from_json, passage_to_json, save_state, stack
from memfly.errors import DataError
from memfly.types import Passage


def test_state_and_vectors_come_back(tmp_path: Path) -> None:
    vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
    state = {"b": [1, "caf\u00e9 \U0001f600 \ud800"], "a": None}
    save_state(tmp_path, state, vectors)
    assert load_state(tmp_path) == state
    assert (load_vectors(tmp_path) == vectors).all()
    assert load_vectors(tmp_path).dtype == np.float32
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".npz"}


def test_no_rows_keep_their_width() -> None:
    assert stack([], 5).shape == (0, 5)
    assert stack([np.ones(5)], 5).dtype == np.float32


@pytest.mark.parametrize("content", [None, "", "[1]", "{broken"])
def test_damage_is_a_data_error(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "memory.json").write_text(content)
        (tmp_path / "vectors.npz").write_text(content)
    with pytest.raises(DataError, match="build the memory again"):
        load_state(tmp_path)
    with pytest.raises(DataError, match="build the memory again"):
        load_vectors(tmp_path)


@given(st.text(), st.lists(st.text(), max_size=3), st.text(), st.none() | st.datetimes())
def test_passages_come_back(text: str, turns: list[str], date: str, time: datetime | None) -> None:
    passage = Passage(text, tuple(turns), date, time)
    assert passage_from_json(passage_to_json(passage)) == passage
