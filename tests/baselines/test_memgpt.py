"""MemGPT: tiers, functions, queue arithmetic, the loop, and a question's fresh copy (docs/systems/memgpt.md)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baselines.extractive import FUNCTIONS
from baselines.extractive.memgpt import _dated, search_words
from baselines.memgpt import INSTRUCTION, MemGPT
from baselines.memgpt_functions import Functions
from baselines.memgpt_memory import Archival, Core, Recall, pack, sources, split_at_space
from baselines.memgpt_queue import Message, event, evictable, page_of, summary
from baselines.tasks.memgpt import MEMGPT_STEP, MEMGPT_SUMMARISE, PRESSURE, TOOLS
from memfly.embed import Embedder, Hashing
from memfly.errors import BackendError, ConfigError, ParseError
from memfly.llm.client import LLM
from memfly.llm.extractive import Extractive
from memfly.system import Services
from memfly.tasks.base import ToolCall
from memfly.text import count_tokens
from memfly.types import Passage, Question, Turn
from tests.support.scripted import Log, Scripted, services

QUESTION = Question("ada-ben#0", "ada-ben", "What is the cat called?")
NOW = Passage("", (), "1 May, 2024", datetime(2024, 5, 1, 9))
QUIET: dict[str, Any] = {"content": "", "calls": []}


def call(name: str, thought: str = "", /, **arguments: Any) -> dict[str, Any]:
    return {"content": thought, "calls": [{"name": name, "arguments": arguments}]}


def passage(text: str, turn: str = "D1:1", day: int = 1) -> Passage:
    return Passage(text, (turn,), f"{day} May, 2024", datetime(2024, 5, day))


def functions(**changes: Any) -> Functions:
    core = Core(2000, {"persona": "I watch.", "human": "Ada and Ben."})
    usual: dict[str, Any] = {"recall_search": "substring", "page_size": 5, "return_limit": 2000, "now": NOW}
    return Functions(core, Recall(), Archival(Embedder(Hashing(64))), **(usual | changes))


async def build(backend: Any, turns: tuple[Turn, ...], log: Any = None, **options: Any) -> MemGPT:
    system = MemGPT(services(backend, log=log), **options)
    for turn in turns:
        await system.observe(turn)
    await system.finish()
    return system


# -- functions -----------------------------------------------------------------------------------------------------


async def test_core_edits_and_their_failures() -> None:
    made = functions()

    async def run(name: str, /, **arguments: Any) -> tuple[bool, str]:
        outcome = await made.call(ToolCall(name=name, arguments=arguments))
        return outcome.ok, outcome.message

    assert await run("core_memory_append", name="human", content="Ada has a cat.") == (True, "None")
    assert made.core.blocks["human"] == "Ada and Ben.\nAda has a cat."
    assert (await run("core_memory_replace", name="human", old_content="a cat", new_content="two cats"))[0]
    assert (await run("core_memory_replace", name="human", old_content="\nAda has two cats.", new_content=""))[0]
    assert made.core.blocks["human"] == "Ada and Ben."
    ok, message = await run("core_memory_replace", name="human", old_content="", new_content="x")
    assert (ok, "empty" in message) == (False, True)
    assert not (await run("core_memory_replace", name="human", old_content="ADA", new_content="x"))[0]
    assert not (await run("core_memory_append", name="animal", content="x"))[0]
    ok, message = await run("core_memory_append", name="human", content="x" * 1988)
    assert (ok, "2001" in message, "2000" in message) == (False, True, True)
    assert (await run("core_memory_append", name="human", content="x" * 1987))[0]
    assert len(made.core.blocks["human"]) == 2000


async def test_bad_calls_become_messages() -> None:
    made = functions()
    for bad in (
        ToolCall(name="delete_everything", arguments={}),
        ToolCall(name="archival_memory_search", arguments="{broken"),
        ToolCall(name="archival_memory_search", arguments="[1]"),
        ToolCall(name="archival_memory_search", arguments={"page": 0}),
        ToolCall(name="conversation_search", arguments={"query": "a", "page": -1}),
        ToolCall(name="conversation_search", arguments={"query": " "}),
        ToolCall(name="conversation_search_date", arguments={"start_date": "May", "end_date": "June"}),
        ToolCall(name="archival_memory_insert", arguments={"content": " "}),
        ToolCall(name="pause_heartbeats", arguments={"minutes": 361}),
    ):
        outcome = await made.call(bad)
        assert not outcome.ok
        assert outcome.message
    good = ToolCall(name="send_message", arguments=json.dumps({"message": "hello"}))
    assert (await made.call(good)).ok
    assert made.sent == ["hello"]


async def test_recall_search_by_substring_or_words() -> None:
    entries = [
        passage("Ada: I adopted a CAT", "D1:1"),
        passage("Ben: a dog", "D1:2"),
        passage("Ada: the cat sleeps", "D2:1", 9),
    ]
    recall = Recall(list(entries))
    assert recall.search("cat", "substring") == [entries[0], entries[2]]
    assert recall.search("cat sleeping", "substring") == []
    assert recall.search("cat sleeping", "bm25")[0] == entries[2]
    recall.add(passage("Ada: cat sleeps all day", "D3:1"))
    assert len(recall.search("cats", "bm25")) == 3
    assert recall.between("2024-05-01", "2024-05-01")[0] == entries[0]
    assert recall.between("2024-05-09", "2024-05-10") == [entries[2]]


async def test_archival_is_searched_by_meaning_and_sees_later_inserts() -> None:
    made = functions(visible=(passage("Ada: I adopted a grey cat called Miso", "D1:1"),))
    for text in ("Ada adopted a grey cat called Miso.", "Ben repairs old radios."):
        await made.call(ToolCall(name="archival_memory_insert", arguments={"content": text}))
    search = ToolCall(name="archival_memory_search", arguments={"query": "grey cat", "request_heartbeat": True})
    first = await made.call(search)
    assert first.heartbeat
    assert first.message.startswith("2 results, page 0 of 0-0:\n1 May, 2024 | Ada adopted")
    assert [p.turns for p in first.passages] == [("D1:1",), ()]
    await made.call(ToolCall(name="archival_memory_insert", arguments={"content": "A grey cat."}))
    again = await made.call(search)
    assert again.passages[0].text == "A grey cat."
    assert again.message.startswith("3 results")


def test_pages_hold_five_and_are_cut_at_the_limit() -> None:
    found = [passage(f"text {n}", f"D1:{n}") for n in range(12)]
    text, shown = page_of(found, 2, 5, 2000)
    assert text.splitlines()[0] == "12 results, page 2 of 0-2:"
    assert [p.turns[0] for p in shown] == ["D1:10", "D1:11"]
    assert page_of(found, 9, 5, 2000)[1] == ()
    text, shown = page_of([passage("x" * 1500, "D1:1"), passage("y" * 1500, "D1:2"), passage("z", "D1:3")], 0, 5, 2000)
    assert len(text) == 2000
    assert [p.turns[0] for p in shown] == ["D1:1", "D1:2"]
    assert len(shown[1].text) < 500


def test_the_functions_offered() -> None:
    assert [tool.name for tool in TOOLS] == [
        "send_message", "core_memory_append", "core_memory_replace", "conversation_search", "conversation_search_date",
        "archival_memory_insert", "archival_memory_search", "pause_heartbeats",
    ]  # fmt: skip
    assert all(tool.name in MEMGPT_STEP.system for tool in TOOLS)
    assert MEMGPT_STEP.tools == TOOLS


# -- texts ---------------------------------------------------------------------------------------------------------


@given(st.text(max_size=3000))
def test_splitting_loses_nothing_but_space(text: str) -> None:
    pieces = list(split_at_space(text, 20))
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(count_tokens(piece) <= 22 for piece in pieces if " " in piece)


def test_chunks_of_300_tokens_keep_their_turns() -> None:
    turns = [passage("word " * 120, f"D1:{n}") for n in range(5)] + [passage("word " * 700, "D2:1", day=2)]
    chunks = pack(turns)
    assert [chunk.turns for chunk in chunks[:3]] == [("D1:0", "D1:1"), ("D1:2", "D1:3"), ("D1:4",)]
    assert all(chunk.turns == ("D2:1",) for chunk in chunks[3:])
    assert all(count_tokens(chunk.text) <= 302 for chunk in chunks)
    assert len(chunks[3:]) == 3


def test_sources_need_most_of_a_turn() -> None:
    turns = [passage("Ada: I adopted a grey cat called Miso", "D1:1"), passage("Ben: I repair old radios", "D1:2")]
    assert sources("Ada adopted a grey cat, Miso.", turns) == [turns[0]]
    assert sources("They talked about cats.", turns) == []


# -- queue ---------------------------------------------------------------------------------------------------------


def sized(role: Any, tokens: int) -> Message:
    message = Message(role, "x")
    object.__setattr__(message, "tokens", tokens)
    message.__dict__["tokens"] = tokens
    return message


def queue(*sizes: int, role: str = "assistant") -> list[Message]:
    return [sized(role, size) for size in sizes]


def test_eviction_arithmetic() -> None:
    """20 messages of 100 tokens: the sum passes 0.75 * 2000 = 1500 at the 16th, so the 15 before it are summarised."""
    messages = queue(*[100] * 20)
    assert evictable(messages) == 15
    messages[15] = sized("user", 100)  # the first one kept would be a user message
    assert evictable(messages) == 16


def test_the_last_three_are_never_evicted() -> None:
    """Ten of 100: the seven candidates reach 700 of 750, so all but the last of them go."""
    assert evictable(queue(*[100] * 10)) == 6
    assert evictable(queue(*[100] * 10, role="user")) == 7
    assert evictable(queue(10, 10, 10, 5000, 5000, 5000)) == 2
    assert evictable(queue(100, 100, 100)) == 0
    assert evictable([]) == 0


def test_one_big_message_cannot_be_summarised_away() -> None:
    assert evictable(queue(9000, 10, 10, 10, 10)) == 0
    assert evictable([sized("user", 9000), *queue(10, 10, 10, 10)]) == 1


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "function"]), st.integers(1, 500)), max_size=30))
def test_eviction_keeps_its_promises(shape: list[tuple[str, int]]) -> None:
    messages = [sized(role, size) for role, size in shape]
    count = evictable(messages)
    assert 0 <= count <= max(len(messages) - 3, 0)
    gone = sum(message.tokens for message in messages[:count])
    limit = 0.75 * sum(message.tokens for message in messages)
    assert gone - (messages[count - 1].tokens if count else 0) <= limit


def test_packaging() -> None:
    data = json.loads(event("session", "Ada: hi", "1 May, 2024").text)
    assert data == {"type": "session", "message": "Ada: hi", "time": "1 May, 2024"}
    alert = summary("I met Ada.", 7, "2 May")
    assert (alert.role, alert.is_summary) == ("user", True)
    assert "7 earlier messages" in alert.text
    assert Message.from_json(json.loads(json.dumps(event("a", "b", "c", [passage("t")]).to_json()))).passages == (
        passage("t"),
    )


# -- loop ----------------------------------------------------------------------------------------------------------


async def test_one_event_per_session_with_its_date(turns: tuple[Turn, ...]) -> None:
    llm = Scripted(memgpt_step=lambda value: QUIET)
    system = await build(llm, turns)
    assert llm.count == {"memgpt_step": 3}
    last = json.loads(llm.inputs("memgpt_step")[2].messages[-1].text)
    assert last["type"] == "session"
    assert last["time"] == "9:00 pm on 2 July, 2024"
    assert last["message"].splitlines()[0] == "Ada: Miso caught a mouse yesterday."
    assert llm.inputs("memgpt_step")[2].recall_count == 14
    assert [entry.turns for entry in system.state.recall.entries] == [(turn.id,) for turn in turns]


async def test_heartbeats_failures_and_the_cap(turns: tuple[Turn, ...]) -> None:
    said = iter([
        call("core_memory_append", "note it", name="human", content="Ada has a cat.", request_heartbeat=True),
        call("no_such_function"),
        call("archival_memory_insert", content="Miso is grey.", request_heartbeat=False),
    ])  # fmt: skip
    llm = Scripted(memgpt_step=lambda value: next(said))
    system = await build(llm, turns[:4])
    kinds = [(m.role, json.loads(m.text).get("type") or json.loads(m.text).get("status")) for m in system.state.queue]
    assert kinds == [("user", "session"), ("assistant", None), ("function", "OK"), ("user", "heartbeat"),
                     ("assistant", None), ("function", "Failed"), ("user", "heartbeat"),
                     ("assistant", None), ("function", "OK")]  # fmt: skip
    stats = system.stats()
    assert (stats["steps"], stats["functions"], stats["failed_functions"], stats["archival"]) == (3, 3, 1, 1)
    assert "Ada has a cat." in llm.inputs("memgpt_step")[1].blocks[1].text
    assert system.state.recall.entries[-1].text == "note it"
    forever = Scripted(memgpt_step=lambda value: call("conversation_search", query="a", request_heartbeat=True))
    capped = await build(forever, turns[:4])
    assert forever.count["memgpt_step"] == 10
    assert capped.stats()["step_cap"] == 1


async def test_calls_of_one_reply_stop_at_the_first_failure(turns: tuple[Turn, ...]) -> None:
    reply = {
        "content": "",
        "calls": [{"name": "nope", "arguments": {}}, {"name": "send_message", "arguments": {"message": "x"}}],
    }
    said = iter([reply, QUIET])
    system = await build(Scripted(memgpt_step=lambda value: next(said)), turns[:4])
    assert (system.stats()["functions"], system.stats()["steps"]) == (1, 2)


def long_turns(turns: tuple[Turn, ...], sessions: int, words: int = 250) -> tuple[Turn, ...]:
    out = []
    for session in range(1, sessions + 1):
        for n in range(1, 5):
            text = f"fact {session}-{n} " + "filler " * words
            time = datetime(2024, 1, session, 9)
            out.append(
                replace(
                    turns[0],
                    id=f"D{session}:{n}",
                    text=text,
                    session=session,
                    time=time,
                    date=f"{session} January, 2024",
                )
            )
    return tuple(out)


async def test_one_warning_at_three_quarters_then_a_summary(turns: tuple[Turn, ...]) -> None:
    warnings: list[int] = []

    def step(value: Any) -> dict[str, Any]:
        if PRESSURE in value.messages[-1].text:
            warnings.append(len(value.messages))
        return QUIET

    llm = Scripted(memgpt_step=step, memgpt_summarise=lambda value: {"summary": "I saw much."})
    system = MemGPT(services(llm), window=8192)
    for turn in long_turns(turns, 7):
        await system.observe(turn)
    await system.finish()
    for used in llm.calls:
        if used.task is MEMGPT_STEP:
            shown = count_tokens(used.messages[0][1]) + count_tokens(used.messages[1][1])
            assert shown + MEMGPT_STEP.max_tokens <= 8192
    stats = system.stats()
    assert stats["evictions"] >= 1
    assert stats["pressure_alerts"] >= 1
    assert len(warnings) == stats["pressure_alerts"] <= stats["evictions"] + 1
    assert stats["over_window"] == 0
    assert system.state.queue[0].is_summary
    assert system.state.hidden == sum(len(v.messages) - (i > 0) for i, v in enumerate(llm.inputs("memgpt_summarise")))
    assert stats["recall"] == 28


async def test_the_warning_comes_once_until_the_next_summary(turns: tuple[Turn, ...]) -> None:
    llm = Scripted(memgpt_step=lambda value: QUIET)
    system = MemGPT(services(llm), window=6000)
    totals = []
    for turn in long_turns(turns, 13, words=40):
        await system.observe(turn)
        totals.append(system._agent(system.state, system.counts).tokens())
    await system.finish()
    assert totals[-5] > 0.75 * 6000  # passed a session before the last one, and no more alerts came
    stats = system.stats()
    assert (stats["pressure_alerts"], stats["evictions"], stats["steps"]) == (1, 0, 14)


async def test_a_huge_session_comes_in_parts_and_a_huge_turn_is_cut(turns: tuple[Turn, ...]) -> None:
    llm = Scripted(memgpt_step=lambda value: QUIET, memgpt_summarise=lambda value: {"summary": "s"})
    many = tuple(replace(turns[0], id=f"D1:{n}", text="word " * 300) for n in range(40))
    system = await build(llm, many)
    events = [json.loads(m.text)["message"] for value in llm.inputs("memgpt_step") for m in value.messages[-1:]]
    assert all(count_tokens(text) <= 2048 + 20 for text in events)
    assert system.stats()["over_window"] == 0
    huge = (replace(turns[0], text="word " * 60_000),)
    system = await build(Scripted(memgpt_step=lambda value: QUIET), huge)
    assert system.stats()["over_window"] == 0
    assert system.state.recall.entries[0].text.count("word") == 60_000


async def test_summaries_of_more_than_the_window_start_with_the_head(turns: tuple[Turn, ...]) -> None:
    big = {"content": "", "calls": [{"name": "archival_memory_insert", "arguments": {"content": "deep " * 1500}}] * 5}
    said = iter([big, *[QUIET] * 20])
    llm = Scripted(memgpt_step=lambda value: next(said), memgpt_summarise=lambda value: {"summary": "short"})
    system = await build(llm, long_turns(turns, 3))
    assert system.stats()["evictions"] >= 1
    for value in llm.inputs("memgpt_summarise"):
        assert count_tokens(MEMGPT_SUMMARISE.render(value)) <= 0.75 * 8192 + 300


async def test_unusable_replies_are_counted(turns: tuple[Turn, ...]) -> None:
    log = Log()
    system = await build(Scripted(memgpt_step=lambda value: "hm"), turns, log=log)
    assert system.stats()["step_fallback"] == len(log.of("step_fallback")) == 3
    with pytest.raises(BackendError):
        await build(Scripted(memgpt_step=lambda value: BackendError("x", transient=True)), turns)
    llm = Scripted(memgpt_step=lambda value: QUIET, memgpt_summarise=lambda value: "no")
    system = await build(llm, long_turns(turns, 7))
    assert system.stats()["summary_fallback"] == system.stats()["evictions"] >= 1


# -- questions -----------------------------------------------------------------------------------------------------


def at_question(*replies: Any) -> Scripted:
    """Quiet at sessions; at a question one reply after the other."""

    def step(value: Any) -> Any:
        kinds = [json.loads(message.text).get("type") for message in value.messages]
        if "question" not in kinds:
            return QUIET
        since = value.messages[kinds.index("question") :]
        return replies[sum(message.role == "assistant" for message in since)]

    return Scripted(memgpt_step=step, memgpt_summarise=lambda value: {"summary": "I saw much."})


async def test_an_unusable_reply_to_a_question_is_an_error_and_no_answer(turns: tuple[Turn, ...]) -> None:
    log = Log()
    search = call("conversation_search", query="miso", request_heartbeat=True)
    for replies in (["hm"], [search, "hm"]):
        system = await build(at_question(*replies), turns, log=log)
        with pytest.raises(ParseError, match="memgpt_step: no usable reply"):
            await system.recall(QUESTION)
    assert len(log.of("step_fallback")) == 2
    sent = {"content": "", "calls": [*call("send_message", message="Miso")["calls"], *search["calls"]]}
    evidence = await (await build(at_question(sent, "hm"), turns)).recall(QUESTION)
    assert (evidence.answer, evidence.trace["step_fallback"], evidence.trace["unanswered"]) == ("Miso", 1, 0)


async def test_a_question_that_is_never_answered_is_counted(turns: tuple[Turn, ...]) -> None:
    """A reply in plain thought, and a search without end: the answer is empty, as the agent left it."""
    search = call("conversation_search", query="miso", request_heartbeat=True)
    for replies, capped in (([QUIET], 0), ([search] * 10, 1)):
        evidence = await (await build(at_question(*replies), turns)).recall(QUESTION)
        assert (evidence.answer, evidence.trace["unanswered"], evidence.trace["step_cap"]) == ("", 1, capped)


async def test_no_alert_follows_an_answer(turns: tuple[Turn, ...]) -> None:
    """The window passes three quarters with the question: an alert before the answer, but none after it."""
    sent, rest = call("send_message", message="Miso"), call("send_message", message="I saved what matters.")
    wordy = replace(QUESTION, text="very " * 300)
    system = await build(at_question(sent, rest), long_turns(turns, 3, words=310))
    before = system._agent(system.state, system.counts).tokens()
    assert before < 0.75 * 8192 < before + 300
    evidence = await system.recall(wordy)
    assert (evidence.answer, evidence.trace["pressure_alerts"]) == ("Miso", 0)
    search = call("conversation_search", query="x")
    evidence = await (await build(at_question(search, sent), long_turns(turns, 3, words=310))).recall(wordy)
    assert (evidence.answer, evidence.trace["pressure_alerts"]) == ("Miso", 1)


async def test_evidence_holds_all_core_memory_and_results_still_in_view(turns: tuple[Turn, ...]) -> None:
    """What the agent wrote about itself, and what it searched for while a session was on."""

    def step(value: Any) -> dict[str, Any]:
        last, sessions = json.loads(value.messages[-1].text), [m for m in value.messages if '"session"' in m.text]
        if last.get("type") == "question":
            return call("send_message", message="Miso")
        if last.get("type") == "session" and len(sessions) == 2:
            return call("core_memory_append", name="persona", content="Ada's cat is Miso.", request_heartbeat=True)
        if last.get("type") == "heartbeat":
            return call("archival_memory_search", query="noted")
        return QUIET

    backend = Scripted(memgpt_step=step)
    system = MemGPT(services(backend))
    await system.state.archival.insert([Passage("Ada noted a bell.", (), "1 May, 2023", datetime(2023, 5, 1))])
    for turn in turns:
        await system.observe(turn)
    await system.finish()
    shown = [passage.text for passage in (await system.recall(QUESTION)).passages]
    assert any(text.startswith("[core memory about myself]") and "Miso" in text for text in shown)
    assert "Ada noted a bell." in shown
    plain = await (await build(at_question(call("send_message", message="x")), turns)).recall(QUESTION)
    assert not any("about myself" in passage.text for passage in plain.passages)


async def test_retrieved_texts_rank_first_then_core_memory_then_the_window(turns: tuple[Turn, ...]) -> None:
    search = call("conversation_search", query="pottery", request_heartbeat=True)
    evidence = await (await build(at_question(search, call("send_message", message="Lind")), turns)).recall(QUESTION)
    ranked = [evidence.passages[place] for place in evidence.ranking]
    assert len(ranked) == len(evidence.passages) == len(set(evidence.ranking))
    assert ranked[0].turns == ("D2:4",)
    assert ranked[1].text.startswith("[core memory about the people]")
    assert ranked[2].turns == ("D3:1",)


async def test_a_question_runs_on_a_copy(turns: tuple[Turn, ...]) -> None:
    script = [
        call("core_memory_append", name="human", content="Asked about the cat.", request_heartbeat=True),
        call("archival_memory_insert", content="A question came.", request_heartbeat=True),
        call("conversation_search", "thinking", query="miso", request_heartbeat=True),
        call("send_message", message="first", request_heartbeat=True),
        QUIET,
    ]

    def step(value: Any) -> dict[str, Any]:
        done = sum(message.role == "assistant" for message in value.messages) - 1
        return script[done] if done >= 0 and any('"question"' in m.text for m in value.messages) else QUIET

    system = await build(Scripted(memgpt_step=step), turns[:4])
    state = system.state
    before = system.stats(), dict(state.core.blocks), list(state.queue), list(state.archival.entries)
    evidence = await system.recall(QUESTION)
    assert (evidence.answer, evidence.trace["steps"], evidence.trace["retrieved"]) == ("first", 4, 3)
    assert "Asked about the cat." in evidence.passages[0].text
    assert (system.stats(), state.core.blocks, state.queue, state.archival.entries) == before
    assert await system.recall(QUESTION) == evidence


async def test_answer_and_evidence(turns: tuple[Turn, ...]) -> None:
    asked: list[Any] = []

    def step(value: Any) -> dict[str, Any]:
        if not any('"question"' in message.text for message in value.messages):
            return QUIET
        asked.append(value)
        if len(asked) == 1:
            return call("conversation_search", query="MISO", request_heartbeat=True)
        return {
            "content": "",
            "calls": [call("send_message", message=m)["calls"][0] for m in ("Let me see.", " Miso ")],
        }

    system = await build(Scripted(memgpt_step=step), turns)
    evidence = await system.recall(QUESTION)
    assert evidence.answer == "Miso"
    assert INSTRUCTION in json.loads(asked[0].messages[-1].text)["message"]
    assert json.loads(asked[0].messages[-1].text)["time"] == "9:00 pm on 2 July, 2024"
    assert evidence.ranked_turns[:5] == ("D1:1", "D1:3", "D1:4", "D2:2", "D3:1")
    assert set(evidence.turn_ids) == {turn.id for turn in turns}
    assert evidence.passages[0].text.startswith("[core memory about the people] The people I observe are Ada and Ben")
    times = [p.time for p in evidence.passages[1:]]
    assert times == sorted(times)  # type: ignore[type-var]
    assert len(set(evidence.passages)) == len(evidence.passages)


async def test_insert_needs_no_call_and_finds_turns(turns: tuple[Turn, ...]) -> None:
    llm = Scripted(memgpt_step=lambda value: call("archival_memory_search", query="pottery studio", request_heartbeat=True)
                   if len(value.messages) == 1 else call("send_message", message="Lind"))  # fmt: skip
    system = await build(llm, turns, ingest="insert")
    assert not llm.calls
    assert (system.stats()["archival"], system.stats()["recall"], system.stats()["queue"]) == (3, 0, 0)
    evidence = await system.recall(QUESTION)
    assert llm.count["memgpt_step"] == 2
    assert evidence.answer == "Lind"
    assert "D2:4" in evidence.turn_ids
    assert evidence.ranked_turns[0] == "D2:1"


@pytest.mark.parametrize("ingest", ["chat", "insert"])
async def test_save_and_load(turns: tuple[Turn, ...], tmp_path: Path, ingest: Any) -> None:
    embedder = Embedder(Hashing(64))
    made = Services(LLM(Extractive(embedder, FUNCTIONS)), embedder, "ada-ben", ("Ada", "Ben"))
    system = MemGPT(made, ingest=ingest)
    for turn in (*long_turns(turns, 7), replace(turns[0], session=8, text="caf\u00e9 \u4f60\u597d \U0001f600")):
        await system.observe(turn)
    await system.finish()
    assert system.state.hidden or ingest == "insert"  # an eviction and its summary are part of what is saved
    system.save(tmp_path)
    again = MemGPT(made, ingest=ingest)
    again.load(tmp_path)
    assert again.stats() == system.stats()
    assert list(again.state.core.blocks) == ["persona", "human"]
    assert await again.recall(QUESTION) == await system.recall(QUESTION)


async def test_without_a_model_it_saves_under_pressure_and_searches(turns: tuple[Turn, ...]) -> None:
    embedder = Embedder(Hashing(64))
    made = Services(LLM(Extractive(embedder, FUNCTIONS)), embedder, "ada-ben", ("Ada", "Ben"))
    system = MemGPT(made)
    talk = list(long_turns(turns, 7))
    talk[0] = replace(talk[0], text="I adopted a grey cat called Miso. " + talk[0].text)
    for turn in talk:
        await system.observe(turn)
    await system.finish()
    stats = system.stats()
    assert stats["evictions"] >= 1
    assert stats["archival"] >= 1
    assert stats["step_cap"] == stats["over_window"] == stats["failed_functions"] == 0
    evidence = await system.recall(Question("q", "ada-ben", "What did Ada adopt?"))
    assert "D1:1" in evidence.turn_ids
    assert evidence.answer
    assert evidence == await system.recall(Question("q", "ada-ben", "What did Ada adopt?"))


async def test_without_a_model_all_turns_of_a_chunk_found_are_read(turns: tuple[Turn, ...]) -> None:
    """The answer is in the second turn of a chunk of two."""
    embedder = Embedder(Hashing(64))
    system = MemGPT(
        Services(LLM(Extractive(embedder, FUNCTIONS)), embedder, "ada-ben", ("Ada", "Ben")), ingest="insert"
    )
    first, second = turns[:2]
    await system.observe(replace(first, text="Nice to see you."))
    await system.observe(replace(second, text="I adopted a grey dog called Pongo."))
    await system.finish()
    assert [entry.turns for entry in system.state.archival.entries] == [("D1:1", "D1:2")]
    evidence = await system.recall(Question("q", "ada-ben", "What did Ben adopt?"))
    assert evidence.answer is not None
    assert "dog" in evidence.answer


def test_lines_of_results_go_under_their_dates() -> None:
    lines = ["9:00 am on 1 May, 2024 | Ada: one | two", "Ben: three", "1 May, 2024 | Ada: four", "", "Ben: in 2024"]
    assert _dated(lines) == [
        "9:00 am on 1 May, 2024 | Ada: one | two", "9:00 am on 1 May, 2024 | Ben: three", "1 May, 2024 | Ada: four",
        "1 May, 2024 | Ben: in 2024",
    ]  # fmt: skip


def test_search_words_prefer_long_words_to_names() -> None:
    assert search_words("When did Caroline join the adoption council?")[0] in ("adoption", "council")
    assert search_words("") == []


def test_bad_options_are_refused() -> None:
    for options in ({"ingest": "x"}, {"window": 1000}, {"max_steps": 0}, {"recall_search": "y"}, {"core_limit": 1}):
        with pytest.raises(ConfigError, match=r"method\."):
            MemGPT(services(Scripted()), **options)  # type: ignore[arg-type]
