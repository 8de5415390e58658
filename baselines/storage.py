"""How the baselines keep a memory on disk: one JSON file and, where there are vectors, one npz file. Never pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from memfly.embed import Vectors
from memfly.errors import DataError
from memfly.types import Passage

STATE = "memory.json"
VECTORS = "vectors.npz"


def save_state(folder: Path, state: Mapping[str, Any], vectors: Vectors | None = None) -> None:
    """Write a JSON-able state and, optionally, float32 rows. ASCII only, so that lone surrogates survive."""
    (folder / STATE).write_text(json.dumps(state, sort_keys=True), encoding="ascii")
    if vectors is not None:
        np.savez(folder / VECTORS, vectors=vectors)


def load_state(folder: Path) -> dict[str, Any]:
    """What `save_state` wrote. Raises DataError when the file is missing or no JSON object."""
    path = folder / STATE
    try:
        state = json.loads(path.read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a saved memory ({error}); delete the folder and build the memory again") from None
    if not isinstance(state, dict):
        raise DataError(f"{path}: not a saved memory; delete the folder and build the memory again")
    return state


def load_vectors(folder: Path) -> Vectors:
    """The rows `save_state` wrote, float32, shape (n, dim). Raises DataError when the file is missing or damaged."""
    path = folder / VECTORS
    try:
        with np.load(path, allow_pickle=False) as archive:
            return np.asarray(archive["vectors"], dtype=np.float32)
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise DataError(f"{path}: no vectors ({error}); delete the folder and build the memory again") from None


def stack(rows: Sequence[Any], dim: int) -> Vectors:
    """Rows as one float32 array, shape (len(rows), dim), also when there are none."""
    return np.stack(rows).astype(np.float32) if rows else np.zeros((0, dim), dtype=np.float32)


def passage_to_json(passage: Passage) -> dict[str, Any]:
    time = passage.time.isoformat() if passage.time else None
    return {"text": passage.text, "turns": list(passage.turns), "date": passage.date, "time": time}


def passage_from_json(data: Mapping[str, Any]) -> Passage:
    time = datetime.fromisoformat(data["time"]) if data["time"] else None
    return Passage(data["text"], tuple(data["turns"]), data["date"], time)
