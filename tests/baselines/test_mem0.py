"""Mem0: pairs and what the extraction sees, renumbered ids, what an update reply does, retrieval."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baselines.extractive.mem0 import dated, fact
from baselines.extractive.mem0 import update as update_without_model
from baselines.mem0 import Mem0
from baselines.mem0_store import Origin, Store
from baselines.tasks.mem0 import MEM0_EXTRACT, MEM0_UPDATE, UpdateEntry, UpdateInput
from memfly.embed import Embedder, Hashing
from memfly.errors import BackendError, ConfigError
from memfly.llm.base import Reply
from memfly.llm.extractive.base import Tools
from memfly.llm.parse import parse_reply
from memfly.types import Question, Turn
from tests.support.scripted import Log, Scripted, services

QUESTION = Question("ada-ben#0", "ada-ben", "What is the cat called?")
MAY, JUNE = Origin(("D1:1",), "1 May", datetime(2024, 5, 1)), Origin(("D2:2",), "2 June", datetime(2024, 6, 2))
EMBEDDER = Embedder(Hashing(64))


def own_words(value: Any) -> dict[str, Any]:
    return {"facts": [text for role, text in value.messages if role == "user"]}


def add_all(value: Any) -> dict[str, Any]:
    return {
        "memory": [{"id": str(n), "text": text, "event": "ADD", "old_memory": ""} for n, text in enumerate(value.facts)]
    }


def backend(**scripts: Any) -> Scripted:
    usual = {"mem0_extract": own_words, "mem0_update": add_all,
             "mem0_summary": lambda value: {"summary": f"{len(value.messages)} more after [{value.previous[:40]}]"}}  # fmt: skip
    return Scripted(usual | scripts)


async def build(system: Mem0, turns: tuple[Turn, ...]) -> Mem0:
    for turn in turns:
        await system.observe(turn)
    await system.finish()
    return system


def entry(event: str, text: str, id_: str | int = "0") -> UpdateEntry:
    return UpdateEntry(id=id_, text=text, event=event)


async def store_of(*texts: str) -> Store:
    store = Store("Ada", 64)
    await store.apply([entry("ADD", text) for text in texts], [], MAY, EMBEDDER)
    return store


def texts(store: Store) -> dict[int, str]:
    return {item: memory.text for item, memory in store.entries.items()}


# -- ingest --------------------------------------------------------------------------------------------------------


async def test_two_stores_two_calls_per_pair_each(turns: tuple[Turn, ...]) -> None:
    """14 turns in sessions of 4, 6 and 4 are 7 pairs: 14 add calls, one extraction and at most one update each."""
    llm = backend()
    system = await build(Mem0(services(llm), form="oss", s=5), turns)
    assert llm.count == {"mem0_extract": 14, "mem0_update": 14}
    assert [store.owner for store in system.stores] == ["Ada", "Ben"]
    assert system.stats()["adds"] == 14
    for store, speaker in zip(system.stores, ("Ada", "Ben"), strict=True):
        assert all(memory.text.startswith(f"{speaker}: ") for memory in store.entries.values())
        assert all(len(memory.turns) == 1 for memory in store.entries.values())


async def test_an_odd_last_turn_is_a_pair_of_its_own(turns: tuple[Turn, ...]) -> None:
    odd = (*turns[:3], *turns[4:])
    llm = backend()
    await build(Mem0(services(llm), form="oss"), odd)
    ada = [v for v in llm.inputs("mem0_extract") if v.owner == "Ada"]
    assert [len(value.messages) for value in ada] == [2, 1, 2, 2, 2, 2, 2]
    assert ada[1].messages == (("user", "Ada: Miso already sleeps on my piano."),)
    assert {value.date for value in ada[:2]} == {turns[0].date}
    last_alone = await build(Mem0(services(backend()), form="oss"), odd[:3])
    assert last_alone.stats()["adds"] == 4


async def test_roles_and_dates(turns: tuple[Turn, ...]) -> None:
    llm = backend()
    await build(Mem0(services(llm)), turns[:2])
    ada, ben = llm.inputs("mem0_extract")
    assert [role for role, _ in ada.messages] == ["user", "assistant"]
    assert [role for role, _ in ben.messages] == ["assistant", "user"]
    assert ada.date == "7:05 pm on 3 March, 2024"
    assert "7:05 pm on 3 March, 2024" in MEM0_EXTRACT.render(ada)


async def test_paper_form_sees_summary_and_the_last_m_messages(turns: tuple[Turn, ...]) -> None:
    llm = backend()
    await build(Mem0(services(llm), m=4, summary_every=4), turns)
    inputs = [value for value in llm.inputs("mem0_extract") if value.owner == "Ada"]
    assert [len(value.previous) for value in inputs] == [0, 2, 4, 4, 4, 4, 4]
    assert inputs[2].previous[-1] == "(7:05 pm on 3 March, 2024) Ben: Send my love to Miso."
    assert [value.summary[:6] for value in inputs] == ["", "", "4 more", "4 more", "4 more", "4 more", "4 more"]
    assert [len(value.messages) for value in llm.inputs("mem0_summary")] == [4, 4, 4]
    assert llm.inputs("mem0_summary")[1].previous == inputs[2].summary


async def test_open_source_form_sees_neither(turns: tuple[Turn, ...]) -> None:
    llm = backend()
    await build(Mem0(services(llm), form="oss"), turns)
    assert all(value.previous == () and value.summary == "" for value in llm.inputs("mem0_extract"))


async def test_captions_only_when_asked_for(turns: tuple[Turn, ...]) -> None:
    for captions in (False, True):
        llm = backend()
        await build(Mem0(services(llm), captions=captions), turns[2:4])
        assert ("upright piano" in str(llm.inputs("mem0_extract")[0].messages)) is captions


async def test_no_facts_no_update_call(turns: tuple[Turn, ...]) -> None:
    llm = backend(mem0_extract=lambda value: {"facts": []})
    system = await build(Mem0(services(llm)), turns)
    assert llm.count["mem0_update"] == 0
    assert system.stats()["memories"] == 0
    assert (await system.recall(QUESTION)).passages == ()


async def test_similar_memories_are_united_and_renumbered(turns: tuple[Turn, ...]) -> None:
    """Two facts bring s memories each; their union is shown as "0", "1", ... and an answer "1" means the second."""
    llm = backend(mem0_extract=lambda value: {"facts": [f"{value.owner} likes tea", f"{value.owner} owns a boat"]})
    system = Mem0(services(llm), s=2)
    await build(system, turns[:4])
    first, second = (value for value in llm.inputs("mem0_update") if "Ada" in value.facts[0])
    assert first.memories == ()
    assert sorted(second.memories) == ["Ada likes tea", "Ada owns a boat"]
    assert 'id "0": ' in MEM0_UPDATE.render(second)
    store = await store_of("a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7")
    await store.apply([entry("UPDATE", "new", "1"), entry("DELETE", "x", "0")], [7, 3], JUNE, EMBEDDER)
    assert texts(store) == {0: "a0", 1: "a1", 2: "a2", 3: "new", 4: "a4", 5: "a5", 6: "a6"}


async def test_update_keeps_created_and_overwrites_the_date() -> None:
    store = await store_of("Ada has a cat")
    before = store.vectors()[0]
    await store.apply([entry("UPDATE", "Ada has a grey cat called Miso")], [0], JUNE, EMBEDDER)
    memory = store.entries[0]
    assert (memory.created, memory.date, memory.time) == ("1 May", "2 June", datetime(2024, 6, 2))
    assert memory.turns == ["D1:1", "D2:2"]
    assert (store.vectors()[0] != before).any()
    assert store.search((await EMBEDDER.embed(["Ada has a grey cat called Miso"]))[0], 1)[0][0] == 0


async def test_what_is_skipped_is_counted() -> None:
    store = await store_of("a", "b")
    reply = [entry("DELETE", "", "0"), entry("ADD", "  "), entry("UPDATE", "x", 0), entry("UPDATE", "x", "7"),
             entry("DELETE", "x", "zero"), entry("FORGET", "x", "0"), entry("none", "a", "0"), entry("NOOP", "b", "1"),
             entry("delete", "a", "0"), entry("UPDATE", "gone", "0")]  # fmt: skip
    await store.apply(reply, [0, 1], JUNE, EMBEDDER)
    assert texts(store) == {1: "b"}
    assert store.counts == {"added": 2, "skipped_empty_text": 2, "skipped_integer_id": 1, "skipped_unknown_id": 3,
                            "skipped_unknown_event": 1, "unchanged": 2, "deleted": 1}  # fmt: skip


async def test_ids_are_never_used_twice() -> None:
    store = await store_of("a", "b")
    await store.apply([entry("DELETE", "b", "1"), entry("ADD", "c")], [0, 1], JUNE, EMBEDDER)
    assert texts(store) == {0: "a", 2: "c"}


def test_an_integer_id_is_read_but_not_asked_for() -> None:
    value = UpdateInput(("a",), ("b",), "1 May")
    text = '{"memory": [{"id": 0, "text": "b", "event": "UPDATE", "old_memory": "a"}]}'
    assert parse_reply(MEM0_UPDATE, value, Reply(text)).memory[0].id == 0
    schema = MEM0_UPDATE.schema()
    assert schema["$defs"]["UpdateEntry"]["properties"]["id"]["type"] == "string"


@pytest.mark.parametrize(
    ("sloppy", "counted"),
    [
        ('{"id": "1", "event": "DELETE"}', "skipped_empty_text"),
        ('{"id": "1", "text": null, "event": "NOOP"}', "skipped_empty_text"),
        ('{"id": "1", "text": "Ada left"}', "skipped_unknown_event"),
        ('{"id": "1", "text": "Ada left", "event": null}', "skipped_unknown_event"),
        ('{"id": null, "text": "Ada left", "event": "DELETE"}', "skipped_unknown_id"),
        ('{"id": null, "text": "Ada left", "event": "ADD", "old_memory": null}', "added"),
        ("{}", "skipped_empty_text"),
    ],
)
async def test_a_sloppy_entry_costs_itself_alone(sloppy: str, counted: str) -> None:
    text = '{"memory": [{"id": "0", "text": "Ada moved", "event": "ADD", "old_memory": ""}, ' + sloppy + "]}"
    reply = parse_reply(MEM0_UPDATE, UpdateInput(("a",), ("Ada moved",), "1 May"), Reply(text))
    store = Store("Ada", 64)
    await store.apply(reply.memory, [], MAY, EMBEDDER)
    assert store.entries[0].text == "Ada moved"
    assert store.counts == Counter(["added", counted])


async def test_unusable_replies_are_counted_and_logged(turns: tuple[Turn, ...]) -> None:
    log = Log()
    system = await build(Mem0(services(backend(mem0_extract=lambda value: "?"), log=log)), turns)
    assert system.stats()["extract_fallback"] == len(log.of("extract_fallback")) == 14
    log = Log()
    llm = backend(mem0_update=lambda value: "?", mem0_summary=lambda value: "?")
    system = await build(Mem0(services(llm, log=log), summary_every=4), turns)
    stats = system.stats()
    assert (stats["update_fallback"], stats["summary_fallback"], stats["memories"]) == (14, 3, 0)
    assert len(log.of("update_fallback")) == 14
    with pytest.raises(BackendError):
        await build(Mem0(services(backend(mem0_update=lambda value: BackendError("x", transient=False)))), turns)


async def test_prefetch_and_reply_order_change_nothing(turns: tuple[Turn, ...]) -> None:
    odd = (*turns[:3], *turns[4:])
    logs = Log(), Log()
    plain = await build(Mem0(services(backend(), log=logs[0]), summary_every=4), odd)
    llm = backend()
    llm.turns_to_wait = lambda call: len(call.messages[1][1]) % 7
    ahead = Mem0(services(llm, log=logs[1]), summary_every=4)
    for turn in odd:
        ahead.prefetch(turn)
    await build(ahead, odd)
    assert [store.to_json() for store in ahead.stores] == [store.to_json() for store in plain.stores]
    assert logs[0] == logs[1]


# -- reading and keeping -------------------------------------------------------------------------------------------


async def test_k_per_speaker_in_time_order_with_names(turns: tuple[Turn, ...]) -> None:
    system = await build(Mem0(services(backend()), k=3), turns)
    evidence = await system.recall(QUESTION)
    assert len(evidence.passages) == 6
    times = [passage.time for passage in evidence.passages]
    assert times == sorted(times)  # type: ignore[type-var]
    assert sum(passage.text.startswith("Ada: ") for passage in evidence.passages) == 3
    assert set(evidence.turn_ids) == set(evidence.ranked_turns)


async def test_save_and_load(turns: tuple[Turn, ...], tmp_path: Path) -> None:
    odd = replace(turns[0], text="caf\u00e9 \u4f60\u597d \U0001f600")
    system = await build(Mem0(services(backend())), (odd, *turns[1:]))
    system.save(tmp_path)
    again = Mem0(services(backend()))
    again.load(tmp_path)
    assert again.stats() == system.stats()
    assert await again.recall(QUESTION) == await system.recall(QUESTION)


def test_bad_options_are_refused() -> None:
    for options in ({"form": "cloud"}, {"m": -1}, {"s": 0}, {"k": 0}, {"summary_every": 1}):
        with pytest.raises(ConfigError, match=r"method\."):
            Mem0(services(backend()), **options)  # type: ignore[arg-type]


changes = st.builds(
    UpdateEntry,
    id=st.one_of(st.integers(-2, 9), st.sampled_from("0 1 2 3 9 x".split())),
    text=st.sampled_from(["", " ", "a", "b", "c"]),
    event=st.sampled_from("ADD UPDATE DELETE NOOP NONE what".split()),
)


@given(reply=st.lists(changes, max_size=12))
def test_any_reply_leaves_a_sound_store(reply: list[UpdateEntry]) -> None:
    async def run() -> None:
        store = await store_of("one", "two", "three")
        await store.apply(reply, [2, 0], JUNE, EMBEDDER)
        assert len(store.vectors()) == len(store.entries)
        assert all(memory.text.strip() and memory.turns for memory in store.entries.values())
        assert sum(store.counts.values()) == 3 + len(reply)
        found = store.search((await EMBEDDER.embed(["one"]))[0], 100)
        assert {item for item, _ in found} == set(store.entries)

    asyncio.run(run())


# -- without a model -----------------------------------------------------------------------------------------------


def test_facts_are_restated_and_dated() -> None:
    day = date(2023, 5, 8)
    assert fact("Ada", "I went to a support group yesterday.", day) == "Ada went to a support group on 7 May 2023."
    assert fact("Ada", "Thanks, Ben!", day) == ""
    assert fact("Ada", "What did you paint?", day) == ""
    assert dated("Ada rides often", day) == "Ada rides often"


async def test_overlap_decides_the_event() -> None:
    memories = ("Ada adopted a grey cat called Miso.", "Ada takes pottery classes at the Lind studio.")
    facts = ("Ada adopted a grey cat called Miso.", "Ada wants to keep bees in the garden.")
    reply = await update_without_model(UpdateInput(memories, facts, "1 May"), Tools(EMBEDDER))
    assert [(e.event, e.id) for e in reply.memory] == [("NOOP", "0"), ("ADD", "3")]
    richer = ("Ada takes pottery classes at the Lind studio every Monday.",)
    reply = await update_without_model(UpdateInput(memories, richer, "1 May"), Tools(EMBEDDER))
    assert [(e.event, e.id, e.text) for e in reply.memory] == [("UPDATE", "1", richer[0])]
    against = ("Ada doesn't take pottery classes at the Lind studio anymore.",)
    reply = await update_without_model(UpdateInput(memories, against, "1 May"), Tools(EMBEDDER))
    assert [(e.event, e.id) for e in reply.memory] == [("DELETE", "1"), ("ADD", "2")]
