"""How far a run is: bars with rates and time left on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import io
import sys
import time
from types import TracebackType
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress


class Progress(Protocol):
    """Counts of named kinds of work ("turns", "questions")."""

    def __enter__(self) -> Progress: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def start(self, kind: str, total: int, done: int = 0) -> None: ...

    def advance(self, kind: str, by: int = 1) -> None: ...

    def note(self, text: str) -> None:
        """A line for the user."""
        ...


class Bars:
    """rich progress bars on standard error."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        columns = (
            TextColumn("{task.description:>10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = RichProgress(*columns, console=self._console, transient=True)
        self._tasks: dict[str, tuple[TaskID, float, int]] = {}

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def start(self, kind: str, total: int, done: int = 0) -> None:
        task = self._progress.add_task(kind, total=total, completed=done, rate="")
        self._tasks[kind] = (task, 0.0, done)  # the clock starts with the first one done

    def advance(self, kind: str, by: int = 1) -> None:
        task, started, before = self._tasks[kind]
        if not started:
            started = time.monotonic()
            self._tasks[kind] = (task, started, before)
        self._progress.advance(task, by)
        done = self._progress.tasks[self._progress.task_ids.index(task)].completed - before
        self._progress.update(task, rate=f"{done / max(time.monotonic() - started, 1e-9):.1f}/s")

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)


class Lines:
    """Plain lines on standard error, at most one per kind every `every` seconds."""

    def __init__(self, every: float = 10.0, stream: TextIO | None = None) -> None:
        self.every = every
        self._stream = stream or sys.stderr
        self._state: dict[str, list[float]] = {}

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.flush()

    def start(self, kind: str, total: int, done: int = 0) -> None:
        self._state[kind] = [total, done, done, 0.0, 0.0]

    def advance(self, kind: str, by: int = 1) -> None:
        state = self._state[kind]
        if not state[3]:  # the clock starts with the first one done, or waiting for the other kind would count
            state[2] += by
            state[3] = state[4] = time.monotonic()
        state[1] += by
        total, done, before, started, last = state
        now = time.monotonic()
        if now - last >= self.every or done >= total:
            rate = (done - before) / max(now - started, 1e-9)
            left = (total - done) / rate if rate > 0 else float("inf")
            self.note(f"{kind} {done:.0f}/{total:.0f}, {rate:.1f}/s, {left:.0f} s left")
            state[4] = now

    def note(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


class Silent(Lines):
    """Says nothing; for tests and for use as a library."""

    def note(self, text: str) -> None:
        return


def progress_for(stream: TextIO | None = None) -> Progress:
    """Bars when standard error is a terminal, lines otherwise, nothing when it is closed."""
    shown: TextIO | None = stream or sys.stderr
    if shown is None:
        return Silent(stream=io.StringIO())
    return Bars() if shown.isatty() else Lines()
