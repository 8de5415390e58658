"""What a run keeps: an append-only event log, one final record per question, and files derived from them.

`events.jsonl` gets every memory step and every answer as it happens, answers flushed to disk one by one; a torn last line
is ignored. `answers.jsonl` is derived: final records in question order, without anything that depends on time, the network
or the order of work. Scoring is not done here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memfly.errors import DataError, MemflyError


class ItemError(BaseModel):
    """Why a question has no answer."""

    kind: str
    """Class of the error, e.g. "ParseError", "BackendError"."""
    stage: Literal["build", "recall", "answer"]
    message: str


class AnswerRecord(BaseModel):
    """The final record of one question, `answered` or `error`. Holds all that any protocol needs to score it."""

    model_config = ConfigDict(extra="forbid")

    id: str
    conversation: str
    category: int
    question: str
    answer: str | int | None = Field(description="gold answer")
    trap: str | None = None
    gold_evidence: list[str] = Field(default_factory=list, description="usable evidence turn ids")
    state: Literal["answered", "error"]
    prediction: str | None = None
    style: str = ""
    options: list[str] = Field(default_factory=list, description="category 5: the two options as shown")
    native: bool = Field(default=False, description="the system answered itself")
    shown_turns: list[str] = Field(default_factory=list, description="turn ids in the answerer's prompt, as shown")
    ranked_turns: list[str] = Field(default_factory=list, description="turn ids best first")
    traceable: bool = Field(default=True, description="False: evidence recall is undefined for what was shown")
    passages: int = 0
    evidence_tokens: int = Field(default=0, description="o200k tokens of the evidence shown")
    calls: dict[str, dict[str, int]] = Field(default_factory=dict, description="logical calls and tokens by role")
    trace: dict[str, Any] = Field(default_factory=dict)
    error: ItemError | None = None


def dumps(value: Any) -> str:
    """One line of JSON with sorted keys, so that equal records are equal bytes."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


class EventWriter:
    """Appends to `events.jsonl`. `write(..., durable=True)` returns only after the line is on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _end_torn_line(path)
        self._file = path.open("a", encoding="utf-8", buffering=1)  # by line: a killed process loses none it wrote

    def write(self, kind: str, fields: Mapping[str, Any], *, durable: bool = False) -> None:
        with _named(self.path):
            self._file.write(dumps({**fields, "kind": kind}) + "\n")
            if durable:
                self._to_disk()

    def close(self) -> None:
        with _named(self.path), self._file:
            self._to_disk()

    def _to_disk(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors of an open file, such as a full disk, do not say which file; they should."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _end_torn_line(path: Path) -> None:
    """A line cut by a crash gets its line end, so that the next event does not run into it."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb+") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """JSON objects of a JSONL file; lines torn by a crash are skipped. No file = nothing."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                yield value


def final_records(events: Path, *, keep_errors: bool) -> dict[str, AnswerRecord]:
    """The last record of each question. Without `keep_errors`, questions whose last record is an error are left out, so
    that a resumed run asks them again."""
    found: dict[str, AnswerRecord] = {}
    for event in read_lines(events):
        if event.get("kind") == "answer":
            try:
                record = AnswerRecord.model_validate(event.get("record"))
            except ValidationError:
                continue  # damaged: the question counts as open
            found[record.id] = record
    return {k: r for k, r in found.items() if keep_errors or r.state == "answered"}


def read_answers(run: Path) -> list[AnswerRecord]:
    """Records of a finished run, from its answers.jsonl. Raises DataError when the folder holds none."""
    path = run / "answers.jsonl"
    if not path.is_file():
        raise DataError(f"{run}: no answers.jsonl; name the folder of a finished run, as printed by `memfly run`")
    try:
        return [AnswerRecord.model_validate(item) for item in read_lines(path)]
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataError(f"{path}: not answer records ({where}: {first['msg']})") from None


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace a file at once: a crash or a full disk leaves the old or the new one, never half."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with _named(path):
            with temporary.open("wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_answers(path: Path, records: Iterable[AnswerRecord]) -> None:
    write_atomic(path, "".join(dumps(record.model_dump(mode="json")) + "\n" for record in records))


def item_error(stage: Literal["build", "recall", "answer"], error: Exception) -> ItemError:
    """The error as recorded. Only the project's own errors become records; anything else is a bug and ends the run."""
    if not isinstance(error, MemflyError):
        raise error
    return ItemError(kind=type(error).__name__, stage=stage, message=str(error)[:500])


def counts(calls: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    """Sum of logical counts by role."""
    total: dict[str, dict[str, int]] = {}
    for item in calls:
        for role, fields in item.items():
            into = total.setdefault(role, {})
            for name, value in fields.items():
                into[name] = into.get(name, 0) + value
    return {role: total[role] for role in sorted(total)}
