"""A run's folder as a place: can it be written to, and is anybody else working in it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
