"""What every system must hold, whatever its method: one suite over all presets in conf/method.

A new preset joins by being there. The backbone is the extractive one with the hashing embedder; replies are damaged or
delayed on purpose where a test says so.
"""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from baselines.extractive import FUNCTIONS
from eval.config import build_system, system_class
from eval.locomo import SAMPLE, load
from memfly.embed import Embedder, Hashing
from memfly.errors import BackendError, ParseError
from memfly.llm.base import Backend, Call, Reply
from memfly.llm.client import LLM
from memfly.llm.extractive import Extractive
from memfly.llm.ledger import scope
from memfly.system import MemorySystem, Services
from memfly.types import Evidence, Question, Turn
from tests.support import talks
from tests.support.scripted import Log

ROOT = Path(__file__).resolve().parents[2]


METHODS = ROOT / "conf" / "method"


def resolved(name: str) -> dict[str, Any]:
    """A preset with the presets of its group that its defaults list names merged in, as Hydra does."""
    own: dict[str, Any] = yaml.safe_load((METHODS / f"{name}.yaml").read_text(encoding="utf-8"))
    merged: dict[str, Any] = {}
    for base in own.pop("defaults", []):
        merged = over(merged, own if base == "_self_" else resolved(base))
    return merged or own


def over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    both = {k: over(base[k], v) for k, v in top.items() if isinstance(v, dict) and isinstance(base.get(k), dict)}
    return {**base, **top, **both}


def presets() -> dict[str, dict[str, Any]]:
    """Name -> options of every preset that names a class."""
    found = {path.stem: resolved(path.stem) for path in sorted(METHODS.glob("*.yaml"))}
    return {name: options for name, options in found.items() if options["_target_"] != "???"}


PRESETS = presets()
FIRST_OF_CLASS = list({options["_target_"]: name for name, options in reversed(PRESETS.items())}.values())
every_preset = pytest.mark.parametrize("preset", PRESETS)
every_class = pytest.mark.parametrize("preset", FIRST_OF_CLASS)

QUESTIONS = [
    Question(f"ada-ben#{i}", "ada-ben", text)
    for i, text in enumerate(
        [
            "What is the name of Ada's cat?",
            "When did Ada adopt Miso?",
            "Which presents did Rosa give and get?",
            "How many kilometres did Ben ride?",
            "Zxqv?",
            "",
        ]
    )
]


SPEAKERS = {"ada-ben": ("Ada", "Ben"), "cleo-dev": ("Cleo", "Dev"), "sample-1": ("Ines", "Callum")}


@pytest.fixture(scope="module")
def longer() -> tuple[Turn, ...]:
    """The bundled conversation `sample-1`, 95 turns: long enough for every step of every system."""
    return load(SAMPLE).conversations[0].turns


LONGER_QUESTIONS = [
    Question(f"sample-1#{i}", "sample-1", text)
    for i, text in enumerate(["How many cats does Ines have?", "When did Callum hurt his knee?", "Who is Odile?"])
]


class Bent:
    """The extractive backbone with replies changed or delayed; `reply(call)` may give a text, an error, or None."""

    def __init__(
        self,
        embedder: Embedder,
        reply: Callable[[Call], str | Exception | None] = lambda call: None,
        delay: Callable[[Call], int] = lambda call: 0,
    ) -> None:
        self.inner = Extractive(embedder, FUNCTIONS)
        self.reply, self.delay, self.calls = reply, delay, 0

    @property
    def identity(self) -> Mapping[str, Any]:
        return self.inner.identity

    async def complete(self, call: Call) -> Reply:
        self.calls += 1
        for _ in range(self.delay(call)):
            await asyncio.sleep(0)
        said = self.reply(call)
        if isinstance(said, Exception):
            raise said
        return Reply(said) if said is not None else await self.inner.complete(call)

    async def aclose(self) -> None:
        return


def shuffling(call: Call) -> int:
    """A delay that puts replies in another order than their calls, the same one each time."""
    return int(hashlib.sha256(repr(call.input).encode()).hexdigest(), 16) % 17


def new(preset: str, backend: Backend | None = None, *, talk: str = "ada-ben", log: Any = None) -> MemorySystem:
    """An empty system."""
    embedder = Embedder(Hashing(64))
    llm = LLM(backend or Extractive(embedder, FUNCTIONS))
    extra = {} if log is None else {"log": log}
    speakers = SPEAKERS[talk]
    options = {k: v for k, v in PRESETS[preset].items() if k != "_target_" and not str(v).startswith("${")}
    services = Services(llm, embedder, talk, speakers, seed=3, **extra)
    return build_system(system_class(PRESETS[preset]["_target_"]), options, services)


async def feed(system: MemorySystem, turns: Sequence[Turn], *, ahead: int = 0) -> MemorySystem:
    """Observe all turns, prefetching up to `ahead` of them."""
    talk = system.services.conversation  # type: ignore[attr-defined]
    with scope(talk):
        started = 0
        for position, turn in enumerate(turns):
            started = max(started, position)
            while started < min(position + ahead, len(turns)):
                system.prefetch(turns[started])
                started += 1
            await system.observe(turn)
        await system.finish()
    return system


async def ask(system: MemorySystem, questions: Sequence[Question] = QUESTIONS) -> dict[str, Evidence]:
    found = {}
    for question in questions:
        with scope(question.conversation, question.id):
            found[question.id] = await system.recall(question)
    return found


async def ask_at_once(system: MemorySystem, questions: Sequence[Question] = QUESTIONS) -> dict[str, Evidence]:
    async def one(question: Question) -> Evidence:
        with scope(question.conversation, question.id):
            return await system.recall(question)

    return dict(zip((q.id for q in questions), await asyncio.gather(*map(one, questions)), strict=True))


def stored(system: MemorySystem, folder: Path) -> dict[str, Any]:
    """What `save` writes, by file: text of JSON files, arrays of npz files. Any other kind of file fails."""
    folder.mkdir()
    system.save(folder)
    content: dict[str, Any] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".json":
            content[path.name] = path.read_text(encoding="utf-8")
        else:
            assert path.suffix == ".npz"
            with np.load(path, allow_pickle=False) as archive:
                content[path.name] = {key: archive[key].tobytes() for key in archive.files}
    return content


def check(evidence: Evidence, turns: Sequence[Turn]) -> None:
    """Evidence points at real turns, shows text, and never a time the conversation does not have."""
    known = {turn.id for turn in turns}
    assert set(evidence.turn_ids) <= known
    assert set(evidence.ranked_turns) <= set(evidence.turn_ids)
    assert len(evidence.ranked_turns) == len(set(evidence.ranked_turns))
    assert {p.time for p in evidence.passages} <= {None, *(turn.time for turn in turns)}
    assert all(isinstance(passage.text, str) for passage in evidence.passages)
    assert len(evidence.ranking) == len(set(evidence.ranking))
    assert set(evidence.ranking) <= set(range(len(evidence.passages)))


def cleo(tmp_path: Path) -> tuple[Turn, ...]:
    return talks.dataset(tmp_path).conversations[1].turns


@every_preset
async def test_evidence_is_of_real_turns(preset: str, turns: tuple[Turn, ...]) -> None:
    system = await feed(new(preset), turns)
    for evidence in (await ask(system)).values():
        check(evidence, turns)
    assert all(type(count) is int for count in system.stats().values())


@every_preset
async def test_another_conversation_changes_nothing(preset: str, turns: tuple[Turn, ...], tmp_path: Path) -> None:
    """A decoy built and asked side by side, over the same backbone and embedder, leaves no trace."""
    alone = await ask(await feed(new(preset), turns))
    system, decoy = new(preset), new(preset, talk="cleo-dev")
    shared = system.services  # type: ignore[attr-defined]
    decoy.services = dataclasses.replace(  # type: ignore[attr-defined]
        decoy.services,
        llm=shared.llm,
        embedder=shared.embedder,  # type: ignore[attr-defined]
    )
    await asyncio.gather(feed(system, turns), feed(decoy, cleo(tmp_path)))
    elsewhere = [Question("cleo-dev#0", "cleo-dev", "Where does Cleo work?")]
    beside, _ = await asyncio.gather(ask(system), ask(decoy, elsewhere))
    assert beside == alone
    shown = " ".join(p.text for evidence in beside.values() for p in evidence.passages)
    assert not any(word in shown for word in ("Porto", "lighthouse", "Cleo"))


@every_preset
async def test_the_order_of_questions_does_not_matter(preset: str, turns: tuple[Turn, ...], tmp_path: Path) -> None:
    """Forwards, backwards, all at once and again: the same evidence, and the stored state stays as it was."""
    system = await feed(new(preset), turns)
    before = stored(system, tmp_path / "before")
    first = await ask(system)
    assert await ask(system, QUESTIONS[::-1]) == first
    assert await ask_at_once(system) == first
    assert await ask(system) == first
    assert stored(system, tmp_path / "after") == before


@every_preset
async def test_concurrency_does_not_change_the_memory(preset: str, longer: tuple[Turn, ...], tmp_path: Path) -> None:
    """Replies in shuffled order and work started ahead give the state and the evidence of the serial run."""
    serial = await feed(new(preset, talk="sample-1"), longer)
    embedder = Embedder(Hashing(64))
    backend = Bent(embedder, delay=shuffling)
    shuffled = await feed(new(preset, backend, talk="sample-1"), longer, ahead=5)
    assert stored(shuffled, tmp_path / "a") == stored(serial, tmp_path / "b")
    assert await ask_at_once(shuffled, LONGER_QUESTIONS) == await ask(serial, LONGER_QUESTIONS)


@every_preset
@pytest.mark.parametrize("talk", ["ada-ben", "long"])
async def test_save_and_load(preset: str, talk: str, turns: tuple[Turn, ...], tmp_path: Path) -> None:
    """`long` is long enough for evictions, summaries and rebuilds to be among what is saved."""
    said = turns if talk == "ada-ben" else long_talk(LONG)
    system = await feed(new(preset), said)
    if talk == "long":
        step = LONG_STEPS.get(preset)
        assert step is None or system.stats()[step] > 0
    first = stored(system, tmp_path / "one")
    loaded = new(preset)
    loaded.load(tmp_path / "one")
    assert await ask_at_once(loaded) == await ask(system)
    assert loaded.stats() == system.stats()
    assert stored(loaded, tmp_path / "two") == first


@every_preset
@pytest.mark.parametrize("count", [0, 1])
async def test_almost_nothing_said(preset: str, count: int, turns: tuple[Turn, ...], tmp_path: Path) -> None:
    """An empty conversation and one of a single turn."""
    system = await feed(new(preset), turns[:count])
    found = await ask(system)
    for evidence in found.values():
        check(evidence, turns[:count])
    stored(system, tmp_path / "kept")
    loaded = new(preset)
    loaded.load(tmp_path / "kept")
    assert await ask(loaded) == found


STRANGE = [  # no lone surrogates: the loader lets none through
    "",
    " \n\t ",
    "مرحبا بالعالم، كيف حالك؟ 你好，世界！ Zażółć gęślą jaźń 👩‍👩‍👧‍👦🏳️‍🌈",
    "e\u0301" * 50 + " \u202eright to left\u202c \x00 nul \ufeff",
    'a character \ufffd lost and \\u0000 and <57> [1, 3] {"answer": "x"} ```json',
    "word " * 4000,
    "x" * 20_000,
    "One. " * 1500,
    "Line one.\nAda: not a turn of hers\n1 May 2024 | not a passage\n(3 May, 2024) Ben: hm",
]


@every_preset
async def test_strange_and_very_long_turns(preset: str, turns: tuple[Turn, ...], tmp_path: Path) -> None:
    odd = [dataclasses.replace(turn, text=text) for turn, text in zip(turns, STRANGE, strict=False)]
    odd[1] = dataclasses.replace(odd[1], caption="ein Foto [von] \U0001f431: \n")
    everything = [*odd, *turns[len(odd) :]]
    system = await feed(new(preset), everything)
    questions = [*QUESTIONS, *(Question(f"ada-ben#odd{i}", "ada-ben", text[:300]) for i, text in enumerate(STRANGE))]
    found = await ask(system, questions)
    for evidence in found.values():
        check(evidence, everything)
    stored(system, tmp_path / "kept")
    loaded = new(preset)
    loaded.load(tmp_path / "kept")
    assert await ask(loaded, questions) == found


GARBAGE = ["", "I'd rather not.", "{}", "[]", "null", '{"colour": 7}', '{"summary": ', "<think>hm", "{" * 50, "[7]"]


@every_preset
@pytest.mark.parametrize("said", GARBAGE)
async def test_unusable_replies_are_survived_and_counted(preset: str, said: str, turns: tuple[Turn, ...]) -> None:
    """A backbone that only talks rubbish: evidence is still sound, or the question an error, and what fell back says
    so, at a question as in the build."""
    log = Log()
    backend = Bent(Embedder(Hashing(64)), reply=lambda call: said)
    system = await feed(new(preset, backend, log=log), turns)
    counted = sum(count for name, count in system.stats().items() if "fallback" in name or "failed" in name)
    assert not backend.calls or counted or any("fallback" in event["kind"] for event in log)
    for question in QUESTIONS:
        before = backend.calls
        log.clear()
        found = await asked_or_refused(system, question)
        told = any("fallback" in event["kind"] for event in log)
        if isinstance(found, Evidence):
            check(found, turns)
            told = told or tells_of_fallback(found.trace)
        assert told or backend.calls == before


def tells_of_fallback(trace: Any) -> bool:
    """Some entry of a record's trace, at any depth, counts a fallback."""
    if isinstance(trace, dict):
        return any(("fallback" in name and bool(part)) or tells_of_fallback(part) for name, part in trace.items())
    return isinstance(trace, list) and any(map(tells_of_fallback, trace))


@every_preset
async def test_some_unusable_replies(preset: str, longer: tuple[Turn, ...]) -> None:
    """Half of the calls get a damaged reply at every attempt, chosen by their input: sound evidence, twice the same."""

    def damaged(call: Call) -> str | None:
        draw = int(hashlib.sha256(repr((call.task.name, call.input)).encode()).hexdigest(), 16)
        return GARBAGE[draw // 2 % len(GARBAGE)] if draw % 2 == 0 else None

    runs = []
    for _ in range(2):
        backend = Bent(Embedder(Hashing(64)), reply=damaged)
        system = await feed(new(preset, backend, talk="sample-1"), longer)
        runs.append([await asked_or_refused(system, question) for question in LONGER_QUESTIONS])
    assert runs[0] == runs[1]
    for evidence in runs[0]:
        if isinstance(evidence, Evidence):
            check(evidence, longer)


async def asked_or_refused(system: MemorySystem, question: Question) -> Evidence | str:
    """The evidence, or the message of the error that an unusable reply to an agent is."""
    try:
        return (await ask(system, [question]))[question.id]
    except ParseError as error:
        return str(error)


@every_preset
async def test_a_failed_call_is_an_error(preset: str, longer: tuple[Turn, ...]) -> None:
    """A transport error of whatever task never turns into a memory or an answer; and every task used is a declared one,
    since runs and memories are named by them."""
    cls = system_class(PRESETS[preset]["_target_"])
    building = {task.name for task in cls.tasks}
    reading = {task.name for task in cls.recall_tasks}

    async def run(failing: str | None) -> set[str]:
        seen: set[str] = set()

        def reply(call: Call) -> Exception | None:
            seen.add(call.task.name)
            return BackendError("no route", transient=False) if call.task.name == failing else None

        system = new(preset, Bent(Embedder(Hashing(64)), reply), talk="sample-1")
        await feed(system, longer)
        assert seen <= building
        await ask(system, LONGER_QUESTIONS)
        return seen

    used = await run(None)
    assert used <= building | reading
    for name in sorted(used):
        with pytest.raises(BackendError, match="no route"):
            await run(name)


@every_preset
async def test_nothing_is_called_after_a_failed_build(preset: str, longer: tuple[Turn, ...]) -> None:
    """Whatever call fails, and whatever runs beside it: once what was started is cancelled, as the harness does, no call
    is made and none is under way."""
    backend = Bent(Embedder(Hashing(64)))
    await feed(new(preset, backend, talk="sample-1"), longer)
    for fatal in {1, 2, 3, backend.calls // 2, backend.calls} & set(range(1, backend.calls + 1)):
        await fails_at(fatal, preset, longer)


async def fails_at(fatal: int, preset: str, turns: Sequence[Turn]) -> None:
    made = 0

    def reply(call: Call) -> Exception | None:
        nonlocal made
        made += 1
        return BackendError("no route", transient=False) if made == fatal else None

    backend = Bent(Embedder(Hashing(64)), reply, shuffling)
    system = new(preset, backend, talk="sample-1")
    with pytest.raises(BackendError):
        await feed(system, turns, ahead=5)
    started = list(system.started())
    for task in started:
        task.cancel()
    await asyncio.gather(*started, return_exceptions=True)
    calls, running = backend.calls, [task for task in asyncio.all_tasks() if "_drain" not in repr(task)]
    for _ in range(100):
        await asyncio.sleep(0)
    assert backend.calls == calls
    assert running == [asyncio.current_task()]


LONG = 300
LONG_STEPS = {"memgpt": "evictions", "amem": "evolutions", "amem_legacy": "evolutions", "mem0": "updated"}
"""What a conversation of that many turns must have brought about, by preset, for the test to be worth its name."""


def long_talk(size: int) -> list[Turn]:
    """A conversation of `size` turns in sessions of 25, made from a few hundred words."""
    things = "garden boat violin bakery tunnel harvest lantern museum kite recipe parrot glacier novel bicycle".split()
    acts = "repaired painted bought lost found borrowed described photographed cleaned sold planted admired".split()
    out = []
    for i in range(size):
        session = i // 25 + 1
        time = datetime(2001, 1, 1, 9) + timedelta(days=session)
        text = f"I {acts[i % 12]} the {things[i % 14]} number {i // 7} near the {things[(i * 5 + 3) % 14]}."
        date = f"9:00 am on {time.day} {time:%B}, {time.year}"
        out.append(Turn(f"D{session}:{i % 25 + 1}", ("Ada", "Ben")[i % 2], text, session, time, date))
    return out


@every_class
@pytest.mark.slow
async def test_five_thousand_turns(preset: str) -> None:
    turns = long_talk(5000)
    system = await feed(new(preset), turns, ahead=8)
    for evidence in (await ask(system, QUESTIONS[:2])).values():
        check(evidence, turns)


# -- what the code may not contain -----------------------------------------------------------------------------------

SOURCES = [
    path for package in ("memfly", "baselines") for path in sorted((ROOT / package).rglob("*.py"))
    if "llm" not in path.parts or "extractive" in path.parts  # the layers round a server may read the clock
]  # fmt: skip
CLOCKS = {"now", "utcnow", "today", "time", "time_ns", "localtime", "gmtime", "ctime"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_clock_no_chance_no_pickle_no_category(path: Path) -> None:
    """Memory code reads no clock, draws nothing unseeded, pickles nothing, and knows of no question's category."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            owner, name = node.func.value.id, node.func.attr
            assert not (owner in ("datetime", "date", "time") and name in CLOCKS), f"line {node.lineno}: {owner}.{name}"
            assert not (owner == "random" and name != "Random"), f"line {node.lineno}: unseeded {owner}.{name}"
        if isinstance(node, ast.Attribute):
            numpy_random = isinstance(node.value, ast.Name) and node.value.id == "np" and node.attr == "random"
            assert not numpy_random, f"line {node.lineno}: np.random"
            assert node.attr != "category", f"line {node.lineno}: .category"
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in ("eval", "scripts", "pickle", "time"), f"line {node.lineno}"
        if isinstance(node, ast.Import):
            assert not {alias.name for alias in node.names} & {"pickle", "time", "uuid", "secrets"}, (
                f"line {node.lineno}"
            )
        if isinstance(node, ast.arg):
            assert node.arg != "category", f"line {node.lineno}: argument category"


def test_a_question_has_no_category() -> None:
    assert {field.name for field in dataclasses.fields(Question)} == {"id", "conversation", "text"}


@every_preset
def test_a_preset_states_every_option(preset: str) -> None:
    """Each option is in the preset, so that a table row can be read without the code, and `recall_options` exist."""

    cls = system_class(PRESETS[preset]["_target_"])
    options = set(inspect.signature(cls).parameters) - {"services"}
    assert cls.recall_options <= options
    assert set(PRESETS[preset]) - {"_target_"} == options
