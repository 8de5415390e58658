"""Built memories kept on disk under their fingerprint, so that runs that differ only in retrieval share one.

No pickle: a system writes JSON and npz itself; `memory.json`-style files are checksummed in `info.json`, which is written
last, and the folder appears at once by a rename. A damaged memory is reported and built again, never used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from eval.records import read_lines, write_atomic
from memfly.system import MemorySystem

FORMAT = 1


class BuildInfo(BaseModel):
    """What is known of a built memory besides its content."""

    format: int = FORMAT
    fingerprint: str
    system: str
    conversation: str
    built_by: str = Field(description="run folder that built it")
    calls: dict[str, dict[str, int]] = Field(description="logical calls and tokens of the build, by role")
    stats: dict[str, int]
    build_s: float
    files: dict[str, str] = Field(default_factory=dict, description="file name -> SHA-256")


class MemoryStore:
    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, fingerprint: str) -> Path:
        return self.root / fingerprint

    def info(self, fingerprint: str) -> BuildInfo | None:
        """What is stored under this fingerprint and passes its checksums; None when nothing does."""
        folder = self.folder(fingerprint)
        try:
            info = BuildInfo.model_validate_json((folder / "info.json").read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ValidationError):
            return None
        sound = info.format == FORMAT and all(_sha256(folder / name) == digest for name, digest in info.files.items())
        return info if sound else None

    def load(self, fingerprint: str, system: MemorySystem) -> BuildInfo | None:
        info = self.info(fingerprint)
        if info is not None:
            system.load(self.folder(fingerprint))
        return info

    def save(self, system: MemorySystem, info: BuildInfo) -> BuildInfo:
        """Store it. When another process has stored the same memory meanwhile, that one is kept: they are equal."""
        final = self.folder(info.fingerprint)
        staged = self.root / f".{info.fingerprint}.{os.getpid()}"
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        system.save(staged)
        files = {path.name: _sha256(path) for path in sorted(staged.iterdir())}
        info = info.model_copy(update={"files": files})
        write_atomic(staged / "info.json", info.model_dump_json(indent=1))
        if final.exists() and self.info(info.fingerprint) is None:
            shutil.rmtree(final)  # damaged or half-written by an older version
        try:
            staged.rename(final)
        except OSError:
            shutil.rmtree(staged, ignore_errors=True)
            if self.info(info.fingerprint) is None:
                raise
        return info


def built(events: Path) -> dict[str, BuildInfo]:
    """What a run's event log says of the memories it built or found, by conversation."""
    found = {}
    for event in read_lines(events):
        if event.get("kind") in ("build_end", "memory_reused"):
            try:
                info = BuildInfo.model_validate(event.get("info"))
            except ValidationError:
                continue  # damaged, or of an older version
            found[info.conversation] = info
    return found


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def merged_stats(infos: list[BuildInfo]) -> dict[str, Any]:
    """Sums over conversations, keys in the order first seen."""
    total: dict[str, int] = {}
    for info in infos:
        for name, value in info.stats.items():
            total[name] = total.get(name, 0) + value
    return total
