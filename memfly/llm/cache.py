"""Replies kept on disk by content: the same call to the same backend is paid once, in whatever run or process.

SQLite in WAL mode: several processes and threads may share one file; a reply is committed before it is used, so a kill
loses none (after a power cut the last ones may be missing, never wrong). Identical calls under way are made once.
Replies are kept as they came, unusable ones included: a rerun then goes the same way. Only an empty reply is not kept,
since that is what a server in trouble sends. No request text is stored.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memfly.errors import BackendError, ConfigError
from memfly.llm.base import Backend, Call, Reply, stable_hash
from memfly.llm.config import CacheMode
from memfly.types import Usage

FILE_NAME = "replies.sqlite"
BUSY_S = 60.0
"""How long a process waits for another one to finish writing."""

_TABLE = """
CREATE TABLE IF NOT EXISTS replies (
    key TEXT PRIMARY KEY, backend TEXT NOT NULL, task TEXT NOT NULL, created REAL NOT NULL,
    text TEXT NOT NULL, finish TEXT NOT NULL, reasoning TEXT NOT NULL, model TEXT NOT NULL, latency_s REAL NOT NULL,
    prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, cached_prompt_tokens INTEGER NOT NULL,
    estimated INTEGER NOT NULL
) WITHOUT ROWID
"""
_REPLY = "text, finish, reasoning, model, latency_s, prompt_tokens, completion_tokens, cached_prompt_tokens, estimated"
_COLUMNS = f"key, backend, task, created, {_REPLY}"
_INSERT = f"INSERT OR REPLACE INTO replies ({_COLUMNS}) VALUES ({', '.join('?' * 13)})"


class Store:
    """The table of replies in one file. Raises ConfigError, in one line, when the file cannot be used."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._lock = threading.Lock()
        with self._reported():
            self._db = _open_to_read(path) if read_only else _open(path)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(f"reply cache {self.path}: {error}; {_advice(error)}") from None

    def get(self, key: str) -> Reply | None:
        with self._reported(), self._lock:
            row = self._db.execute(f"SELECT {_REPLY} FROM replies WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        text, finish, reasoning, model, latency_s, prompt, completion, cached, estimated = row
        usage = Usage(prompt, completion, cached, bool(estimated))
        return Reply(text, finish, reasoning, usage, model, latency_s, from_cache=True)

    def put(self, key: str, backend: str, task: str, reply: Reply) -> None:
        """Store and commit one reply. Several processes may put the same key; the last one stays."""
        usage = reply.usage
        counts = (usage.prompt_tokens, usage.completion_tokens, usage.cached_prompt_tokens, int(usage.estimated))
        texts = tuple(_storable(text) for text in (reply.text, reply.finish, reply.reasoning, reply.model))
        row = (key, backend, task, time.time(), *texts, reply.latency_s, *counts)
        with self._reported(), self._lock, self._db:
            self._db.execute(_INSERT, row)

    def close(self) -> None:
        with self._lock:
            self._db.close()


def _advice(error: Exception) -> str:
    if "locked" in str(error) or "busy" in str(error):
        return f"another process has been writing to it for {BUSY_S:g} s; try again when that has ended"
    return "make it a file that can be written, or set llm.cache=read_only or off"


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path, timeout=BUSY_S, check_same_thread=False)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    with db:
        db.execute(_TABLE)
    return db


def _open_to_read(path: Path) -> sqlite3.Connection:
    """A connection that never writes; an absent file reads as an empty cache."""
    if not path.exists():
        db = sqlite3.connect(":memory:", check_same_thread=False)
        db.execute(_TABLE)
        return db
    uri = path.absolute().as_uri()
    db = sqlite3.connect(f"{uri}?mode=ro", uri=True, timeout=BUSY_S, check_same_thread=False)
    try:
        db.execute("SELECT 1 FROM replies LIMIT 1")
    except sqlite3.OperationalError:  # WAL needs to write beside the file; a read-only folder has no writer either
        db.close()
        db = sqlite3.connect(f"{uri}?immutable=1", uri=True, check_same_thread=False)
        db.execute("SELECT 1 FROM replies LIMIT 1")
    return db


def _storable(text: str) -> str:
    """SQLite text is UTF-8: a lone surrogate, which a model may emit as an escape, becomes a replacement character."""
    return text.encode("utf-8", "replace").decode("utf-8")


@dataclass
class _Flight:
    """A call under way and how many wait for it. The first of them to get its outcome `took` it: that one is billed, or
    counts the failure; for the others it is as if it had come from the cache."""

    task: asyncio.Task[Reply]
    waiting: int = 0
    took: bool = False


class Cache:
    """The layer. `cache_dir` holds one file shared by all backends and runs; `form` gives what is sent with a call to
    shape its reply (the schema as the server gets it), where that is not the call's own schema."""

    def __init__(
        self,
        inner: Backend,
        cache_dir: Path,
        mode: CacheMode = "on",
        *,
        form: Callable[[Call], Any] = lambda call: call.schema,
    ) -> None:
        self.inner = inner
        self.mode = mode
        self.form = form
        self.store = Store(cache_dir / FILE_NAME, read_only=mode == "read_only")
        self._backend = json.dumps(dict(inner.identity), sort_keys=True, ensure_ascii=False)
        self._flights: dict[str, _Flight] = {}
        self._refreshed: set[str] = set()

    @property
    def identity(self) -> Mapping[str, Any]:
        return self.inner.identity

    def key(self, call: Call) -> str:
        """Hash of all that can change the reply: the backend's identity, the call's content, and what is sent with it."""
        return stable_hash([self._backend, call.content, self.form(call)])

    async def complete(self, call: Call) -> Reply:
        key = self.key(call)
        if self.mode != "refresh" or key in self._refreshed:
            known = self.store.get(key)
            if known is not None:
                return known
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.ensure_future(self._fetch(key, call)))
        return await self._join(key, flight)

    async def _fetch(self, key: str, call: Call) -> Reply:
        reply = await self.inner.complete(call)
        if self.mode != "read_only" and (reply.text.strip() or reply.finish in ("length", "unclosed_think")):
            self.store.put(key, self._backend, call.task.name, reply)
            self._refreshed.add(key)
        return reply

    async def _join(self, key: str, flight: _Flight) -> Reply:
        """Wait for a call under way; it is given up only when nobody waits for it any more."""
        flight.waiting += 1
        try:
            reply = await asyncio.shield(flight.task)
        except BackendError as error:
            took, flight.took = flight.took, True
            raise (_shared(error) if took else error) from None
        finally:
            flight.waiting -= 1
            if not flight.waiting or flight.task.done():
                flight.task.cancel()
                if self._flights.get(key) is flight:  # who asks for the same now starts it anew
                    del self._flights[key]
        took, flight.took = flight.took, True
        return replace(reply, from_cache=True, tries=1) if took else reply

    async def aclose(self) -> None:
        self.store.close()
        await self.inner.aclose()


def _shared(error: BackendError) -> BackendError:
    """The failure of a call that somebody else made: none of its tries are the receiver's."""
    copy = BackendError(str(error), transient=error.transient, retry_after=error.retry_after, kind=error.kind)
    copy.tries = 0
    return copy


def stats(cache_dir: Path) -> list[dict[str, Any]]:
    """Per backend and task: replies, tokens, bytes of text, oldest and newest (Unix seconds)."""
    store = Store(cache_dir / FILE_NAME, read_only=True)
    try:
        cursor = store._db.execute(
            "SELECT backend, task, COUNT(*) AS replies, SUM(prompt_tokens) AS prompt_tokens, "
            "SUM(completion_tokens) AS completion_tokens, SUM(LENGTH(text) + LENGTH(reasoning)) AS characters, "
            "MIN(created) AS oldest, MAX(created) AS newest FROM replies GROUP BY backend, task ORDER BY backend, task"
        )
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]
    finally:
        store.close()


def export(cache_dir: Path, target: Path) -> int:
    """Write all replies as JSON lines, ordered by key; gives their number."""
    store = Store(cache_dir / FILE_NAME, read_only=True)
    count = 0
    try:
        names = [name.strip() for name in _COLUMNS.split(",")]
        with target.open("w", encoding="utf-8") as out:
            for row in store._db.execute(f"SELECT {_COLUMNS} FROM replies ORDER BY key"):
                out.write(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n")
                count += 1
    finally:
        store.close()
    return count


def restore(cache_dir: Path, source: Path) -> int:
    """Read what `export` wrote into a cache; replies already there stay. Gives the number added."""
    store = Store(cache_dir / FILE_NAME)
    names = [name.strip() for name in _COLUMNS.split(",")]
    try:
        with source.open(encoding="utf-8") as lines, store._db:
            before = store._db.total_changes
            rows = (tuple(json.loads(line)[name] for name in names) for line in lines if line.strip())
            store._db.executemany(_INSERT.replace("REPLACE", "IGNORE"), rows)
            return store._db.total_changes - before
    except (ValueError, KeyError, TypeError, sqlite3.Error, OSError) as error:
        raise ConfigError(f"{source}: not an exported reply cache ({error})") from None
    finally:
        store.close()


def prune(
    cache_dir: Path, *, older_than_s: float | None = None, task: str | None = None, model: str | None = None
) -> int:
    """Delete the replies that fit every given condition (at least one) and shrink the file; gives their number."""
    conditions: list[tuple[str, Any]] = []
    if older_than_s is not None:
        conditions.append(("created < ?", time.time() - older_than_s))
    if task is not None:
        conditions.append(("task = ?", task))
    if model is not None:
        conditions.append(("model = ?", model))
    if not conditions:
        raise ConfigError("cache prune: say what to delete (age, task or model); to drop everything remove the file")
    store = Store(cache_dir / FILE_NAME)
    try:
        with store._reported(), store._db:
            where = " AND ".join(text for text, _ in conditions)
            count = store._db.execute(f"DELETE FROM replies WHERE {where}", [value for _, value in conditions]).rowcount
        with suppress(sqlite3.OperationalError):  # somebody reads: the space is used again, or freed by the next prune
            store._db.execute("VACUUM")
        return count
    finally:
        store.close()
