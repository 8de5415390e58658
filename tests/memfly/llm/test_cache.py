"""The reply cache: what is one call, what is kept, and that nothing is lost, shared wrongly or paid twice."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfly.errors import BackendError, ConfigError
from memfly.llm.base import Reply
from memfly.llm.cache import FILE_NAME, Cache, Store, export, prune, restore, stats
from memfly.llm.client import LLM
from memfly.llm.ledger import Tally, scope
from memfly.tasks.base import TaskOutput
from memfly.types import Usage
from tests.support.calls import GOOD, TOY, Inner, ToyInput, toy_call, transient

ROOT = Path(__file__).resolve().parents[3]


async def test_second_call_is_served_from_the_cache_in_full(tmp_path: Path) -> None:
    reply = Reply("text", "length", "thought", Usage(7, 5, 3, True), "m-1", 1.5, tries=4)
    inner = Inner([reply])
    first = await Cache(inner, tmp_path).complete(toy_call())
    second = await Cache(inner, tmp_path).complete(toy_call())
    assert first == reply
    assert second == replace(reply, from_cache=True, tries=1)
    assert len(inner.calls) == 1


class Other(TaskOutput):
    words: list[str]


@pytest.mark.parametrize(
    "change",
    [
        {"messages": (("system", "x"), ("user", "hello"))},
        {"messages": (("user", "hello"), ("system", TOY.system))},
        {"temperature": 0.1},
        {"max_tokens": 51},
        {"seed": 2},
        {"attempt": 1},
        {"task": replace(TOY, version=2)},
        {"task": replace(TOY, name="other")},
        {"task": replace(TOY, output=Other)},
        {"task": replace(TOY, max_items=lambda value: {"items": 1})},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_every_field_of_the_call_is_part_of_the_key(tmp_path: Path, change: dict[str, Any]) -> None:
    inner = Inner()
    cache = Cache(inner, tmp_path)
    await cache.complete(toy_call())
    await cache.complete(toy_call(**change))
    assert len(inner.calls) == 2


@pytest.mark.parametrize(
    "identity", [{"kind": "toy", "model": "b"}, {"kind": "toy"}, {"kind": "toy", "model": "a", "x": 1}]
)
async def test_every_field_of_the_identity_is_part_of_the_key(tmp_path: Path, identity: Mapping[str, Any]) -> None:
    inner = Inner()
    await Cache(inner, tmp_path).complete(toy_call())
    inner.identity = identity
    assert not (await Cache(inner, tmp_path).complete(toy_call())).from_cache


async def test_read_only_reads_but_never_writes(tmp_path: Path) -> None:
    await Cache(Inner(), tmp_path).complete(toy_call("known"))
    inner = Inner()
    cache = Cache(inner, tmp_path, "read_only")
    assert (await cache.complete(toy_call("known"))).from_cache
    for _ in range(2):
        assert not (await cache.complete(toy_call("new"))).from_cache
    assert len(inner.calls) == 2
    assert not (tmp_path / "none").exists()
    assert not (await Cache(inner, tmp_path / "none", "read_only").complete(toy_call())).from_cache
    assert not (tmp_path / "none").exists()


async def test_refresh_calls_once_and_overwrites(tmp_path: Path) -> None:
    await Cache(Inner(), tmp_path).complete(toy_call())
    new = replace(GOOD, text="new")
    inner = Inner([new])
    cache = Cache(inner, tmp_path, "refresh")
    assert await cache.complete(toy_call()) == new
    assert (await cache.complete(toy_call())).from_cache
    assert len(inner.calls) == 1
    assert (await Cache(Inner(), tmp_path).complete(toy_call())).text == "new"


async def test_identical_calls_under_way_are_made_once(tmp_path: Path) -> None:
    inner = Inner(delay=lambda: asyncio.sleep(0.01))
    cache = Cache(inner, tmp_path)
    replies = await asyncio.gather(*(cache.complete(toy_call()) for _ in range(8)))
    assert len(inner.calls) == 1
    assert [reply.from_cache for reply in replies] == [False] + [True] * 7


async def test_a_cancelled_caller_does_not_take_the_others_down(tmp_path: Path) -> None:
    inner = Inner(delay=lambda: asyncio.sleep(0.02))
    cache = Cache(inner, tmp_path)
    first, second = (asyncio.create_task(cache.complete(toy_call())) for _ in range(2))
    await asyncio.sleep(0.005)
    first.cancel()
    assert (await second).text == GOOD.text
    assert first.cancelled() or first.cancelling()


async def test_a_call_that_is_being_given_up_is_not_joined(tmp_path: Path) -> None:
    """Its connection takes a moment to close; who asks for the same meanwhile was not cancelled."""

    async def unwilling() -> None:
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            raise

    inner = Inner(delay=unwilling)
    cache = Cache(inner, tmp_path)
    first = asyncio.create_task(cache.complete(toy_call()))
    await asyncio.sleep(0.005)
    first.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second = asyncio.create_task(cache.complete(toy_call()))
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1] == GOOD


async def tallies(cache: Cache, callers: int, cancel: int | None = None) -> list[Tally]:
    """What each of several callers of the same call has in its ledger."""
    llm, found = LLM(cache), [Tally() for _ in range(callers)]

    async def one(number: int) -> None:
        with scope("c", "q") as found[number], suppress(BackendError):
            await llm.run(TOY, ToyInput("x"))

    tasks = [asyncio.create_task(one(i)) for i in range(callers)]
    await asyncio.sleep(0.005)
    if cancel is not None:
        tasks[cancel].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found


async def test_a_call_whose_owner_left_is_billed_to_one_who_stayed(tmp_path: Path) -> None:
    inner = Inner(delay=lambda: asyncio.sleep(0.02))
    found = await tallies(Cache(inner, tmp_path), 3, cancel=0)
    assert len(inner.calls) == 1
    assert [tally.role("parse").calls for tally in found] == [0, 1, 1]
    assert sum(tally.role("parse").billed_calls for tally in found) == 1


async def test_a_shared_failure_is_one_failure(tmp_path: Path) -> None:
    error = transient()
    error.tries = 5
    found = await tallies(Cache(Inner([error], delay=lambda: asyncio.sleep(0.02)), tmp_path), 4)
    assert sum(tally.role("parse").failed_calls for tally in found) == 1
    assert sum(tally.role("parse").retries for tally in found) == 4


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        (Reply(""), False),
        (Reply(" \n"), False),
        (Reply("", "some_word"), False),
        (Reply("", "unclosed_think", "a thought"), True),
        (Reply("", "length"), True),
        (Reply("I will not", "refusal"), True),
        (Reply("no JSON"), True),
    ],
)
async def test_only_an_empty_reply_is_not_kept(tmp_path: Path, reply: Reply, kept: bool) -> None:
    await Cache(Inner([reply]), tmp_path).complete(toy_call())
    assert (await Cache(Inner(), tmp_path).complete(toy_call())).from_cache == kept


async def test_the_schema_as_it_is_sent_is_part_of_the_key(tmp_path: Path) -> None:
    await Cache(Inner(), tmp_path, form=lambda call: {"a": 1}).complete(toy_call())
    assert (await Cache(Inner(), tmp_path, form=lambda call: {"a": 1}).complete(toy_call())).from_cache
    assert not (await Cache(Inner(), tmp_path, form=lambda call: {"a": 2}).complete(toy_call())).from_cache


async def test_prune_beside_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memfly.llm.cache.BUSY_S", 0.1)
    cache = Cache(Inner(), tmp_path)
    await cache.complete(toy_call())
    await cache.aclose()
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ConfigError, match="another process has been writing to it") as caught:
        prune(tmp_path, task="toy")
    assert "\n" not in str(caught.value)
    other.execute("ROLLBACK")
    other.execute("BEGIN")
    other.execute("SELECT COUNT(*) FROM replies").fetchone()
    assert prune(tmp_path, task="toy") == 1  # a reader does not matter
    other.close()


async def test_a_call_nobody_waits_for_is_given_up(tmp_path: Path) -> None:
    inner = Inner(delay=lambda: asyncio.sleep(30))
    cache = Cache(inner, tmp_path)
    task = asyncio.create_task(cache.complete(toy_call()))
    await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert inner.now == 0


async def test_errors_are_not_kept_and_reach_all_who_wait(tmp_path: Path) -> None:
    inner = Inner([transient(), GOOD], delay=lambda: asyncio.sleep(0.005))
    cache = Cache(inner, tmp_path)
    results = await asyncio.gather(*(cache.complete(toy_call()) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(result, BackendError) for result in results)
    assert (await cache.complete(toy_call())) == GOOD


async def test_text_that_is_no_unicode_can_be_kept(tmp_path: Path) -> None:
    inner = Inner([replace(GOOD, text='{"words": ["\ud83d"]}')])
    await Cache(inner, tmp_path).complete(toy_call("\udc00"))
    assert (await Cache(inner, tmp_path).complete(toy_call("\udc00"))).text == '{"words": ["?"]}'


WRITER = """
import asyncio, sys, os, signal
from pathlib import Path
from memfly.llm.cache import Cache
from tests.support.calls import Inner, numbered
async def main(folder, prefix, count, kill):
    cache = Cache(Inner(), Path(folder))
    for call, _ in zip(numbered(prefix), range(count)):
        await cache.complete(call)
    if kill:
        print("used", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "kill"))
"""


def writer(folder: Path, prefix: str, count: int, end: str = "end") -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder), prefix, str(count), end], cwd=ROOT)


def test_processes_share_one_file(tmp_path: Path) -> None:
    processes = [writer(tmp_path, prefix, 100) for prefix in ("a", "b", "shared", "shared")]
    assert [process.wait(60) for process in processes] == [0, 0, 0, 0]
    assert sum(row["replies"] for row in stats(tmp_path)) == 300


def test_a_reply_that_was_used_survives_a_kill(tmp_path: Path) -> None:
    assert writer(tmp_path, "k", 20, "kill").wait(60) == -signal.SIGKILL
    assert sum(row["replies"] for row in stats(tmp_path)) == 20


async def test_threads_share_one_store(tmp_path: Path) -> None:
    store = Store(tmp_path / FILE_NAME)
    await asyncio.gather(*(asyncio.to_thread(store.put, f"k{i}", "b", "t", GOOD) for i in range(50)))
    got = await asyncio.gather(*(asyncio.to_thread(store.get, f"k{i}") for i in range(50)))
    assert all(reply is not None and reply.text == GOOD.text for reply in got)


def test_a_file_that_is_no_cache_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"this is not a database" * 100)
    with pytest.raises(ConfigError, match=r"reply cache .*llm\.cache=read_only") as caught:
        Cache(Inner(), tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="reply cache"):
        Cache(Inner(), tmp_path / "file" / "cache")


async def test_a_full_disk_is_reported_not_swallowed(tmp_path: Path) -> None:
    cache = Cache(Inner([replace(GOOD, text="x" * 100_000)]), tmp_path)
    cache.store._db.execute("PRAGMA max_page_count = 8")
    with pytest.raises(ConfigError, match="full"):
        await cache.complete(toy_call())


async def test_stats_export_restore_prune(tmp_path: Path) -> None:
    cache = Cache(Inner(), tmp_path)
    for text in ("a", "b", "c"):
        await cache.complete(toy_call(text))
    await cache.complete(toy_call("d", task=replace(TOY, name="other")))
    rows = {row["task"]: row for row in stats(tmp_path)}
    assert (rows["toy"]["replies"], rows["toy"]["prompt_tokens"], rows["other"]["replies"]) == (3, 300, 1)
    assert json.loads(rows["toy"]["backend"]) == {"kind": "toy", "model": "a"}

    assert export(tmp_path, tmp_path / "out.jsonl") == 4
    assert restore(tmp_path / "copy", tmp_path / "out.jsonl") == 4
    assert restore(tmp_path / "copy", tmp_path / "out.jsonl") == 0
    for line in ("null", "[1]", "{}", "7", "{", '{"key": 1}'):
        (tmp_path / "bad.jsonl").write_text((tmp_path / "out.jsonl").read_text() + line)
        with pytest.raises(ConfigError, match=r"bad\.jsonl: not an exported reply cache"):
            restore(tmp_path / "other", tmp_path / "bad.jsonl")
    assert stats(tmp_path / "other") == [], "all or nothing"
    inner = Inner()
    assert (await Cache(inner, tmp_path / "copy").complete(toy_call("b"))).from_cache

    assert prune(tmp_path, task="other") == 1
    assert prune(tmp_path, task="toy", model="none") == 0
    assert prune(tmp_path, older_than_s=3600) == 0
    assert prune(tmp_path, older_than_s=-10) == 3
    with pytest.raises(ConfigError, match="say what to delete"):
        prune(tmp_path)


async def test_no_request_text_and_no_secret_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "planted-secret-0123456789")
    cache = Cache(Inner(), tmp_path)
    await cache.complete(toy_call("the private question"))
    await cache.aclose()
    data = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"private question" not in data
    assert b"planted-secret" not in data


READER = """
import asyncio, os, sys
from pathlib import Path
from memfly.errors import ConfigError
from memfly.llm.cache import Cache
from tests.support.calls import Inner, toy_call
if os.geteuid() == 0:
    os.setuid(65534)  # root writes anywhere
async def main(folder):
    cache = Cache(Inner(), folder, "read_only")
    print((await cache.complete(toy_call())).from_cache, (await cache.complete(toy_call("new"))).from_cache)
    try:
        Cache(Inner(), folder)
    except ConfigError as error:
        print(error)
asyncio.run(main(Path(sys.argv[1])))
"""


async def test_read_only_works_in_a_folder_that_cannot_be_written() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cache = Cache(Inner(), folder)
        await cache.complete(toy_call())
        await cache.aclose()
        for path in (folder / FILE_NAME, folder):
            path.chmod(0o444 if path.is_file() else 0o555)
        result = subprocess.run(
            [sys.executable, "-c", READER, name], cwd=ROOT, capture_output=True, text=True, check=True
        )
        folder.chmod(0o700)
    first, second = result.stdout.splitlines()
    assert first == "True False"
    assert "llm.cache=read_only" in second


def test_commits_are_visible_to_other_connections_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path / FILE_NAME)
    store.put("k", "b", "t", GOOD)
    other = sqlite3.connect(tmp_path / FILE_NAME)
    assert other.execute("SELECT COUNT(*) FROM replies").fetchone() == (1,)
    other.close()


@given(text=st.text(max_size=60), reasoning=st.text(max_size=20), tokens=st.integers(0, 2**40), estimated=st.booleans())
def test_any_reply_comes_back_as_it_was(text: str, reasoning: str, tokens: int, estimated: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / FILE_NAME)
        reply = Reply(text, "stop", reasoning, Usage(tokens, 1, 2, estimated), "m", 0.25)
        store.put("k", "b", "t", reply)
        assert store.get("k") == replace(reply, from_cache=True)
        store.close()
