"""Stored memories: found by fingerprint, checked by checksum, never half there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval.memories import BuildInfo, MemoryStore, merged_stats


class System:
    """Saves two files, remembers what it loaded."""

    def __init__(self, text: str = "state") -> None:
        self.text = text
        self.loaded = ""

    def save(self, folder: Path) -> None:
        (folder / "memory.json").write_text(self.text)
        (folder / "vectors.npz").write_bytes(b"\0\1")

    def load(self, folder: Path) -> None:
        self.loaded = (folder / "memory.json").read_text()


def info(fingerprint: str = "f1") -> BuildInfo:
    return BuildInfo(
        fingerprint=fingerprint, system="S", conversation="c", built_by="run", calls={"gate": {"calls": 2}},
        stats={"notes": 3}, build_s=0.5,
    )  # fmt: skip


def stored(root: Path, text: str = "state") -> MemoryStore:
    store = MemoryStore(root)
    store.save(System(text), info())  # type: ignore[arg-type]
    return store


def load(store: MemoryStore) -> tuple[BuildInfo | None, str]:
    system = System()
    return store.load("f1", system), system.loaded  # type: ignore[arg-type]


def test_what_was_saved_is_found_by_its_fingerprint_only(tmp_path: Path) -> None:
    store = stored(tmp_path)
    found, text = load(store)
    assert found is not None
    assert text == "state"
    assert set(found.files) == {"memory.json", "vectors.npz"}
    assert (found.calls, found.stats) == (info().calls, info().stats)
    assert store.info("f2") is None
    assert [path.name for path in tmp_path.iterdir()] == ["f1"], "nothing staged is left"


def _older(text: str) -> str:
    assert '"format": 1' in text
    return text.replace('"format": 1', '"format": 0')


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "memory.json").write_text("stat"),
        lambda folder: (folder / "memory.json").unlink(),
        lambda folder: (folder / "info.json").unlink(),
        lambda folder: (folder / "info.json").write_text("{"),
        lambda folder: (folder / "info.json").write_text("{}"),
        lambda folder: (folder / "info.json").write_bytes(b"\xff\x00\xca"),
        lambda folder: (folder / "info.json").write_text(_older((folder / "info.json").read_text())),
    ],
    ids=["changed", "missing", "no info", "torn info", "empty info", "binary info", "older format"],
)  # fmt: skip
def test_a_damaged_memory_is_not_used_and_is_replaced(damage: Any, tmp_path: Path) -> None:
    store = stored(tmp_path)
    damage(tmp_path / "f1")
    assert load(store) == (None, "")
    store.save(System("rebuilt"), info())  # type: ignore[arg-type]
    assert load(store)[1] == "rebuilt"


def test_of_two_processes_the_first_stored_stays(tmp_path: Path) -> None:
    store = stored(tmp_path, "first")
    store.save(System("second"), info())  # type: ignore[arg-type]
    assert load(store)[1] == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["f1"]


def test_a_failed_save_leaves_nothing_that_could_be_loaded(tmp_path: Path) -> None:
    class Full(System):
        def save(self, folder: Path) -> None:
            super().save(folder)
            raise OSError(28, "No space left on device")

    store = MemoryStore(tmp_path)
    with pytest.raises(OSError, match="No space"):
        store.save(Full(), info())  # type: ignore[arg-type]
    assert store.info("f1") is None
    store.save(System("later"), info())  # type: ignore[arg-type]
    assert load(store)[1] == "later"


def test_stats_add_up() -> None:
    one, two = info(), info("f2").model_copy(update={"stats": {"merges": 1, "notes": 4}})
    assert merged_stats([one, two]) == {"notes": 7, "merges": 1}
    assert merged_stats([]) == {}
