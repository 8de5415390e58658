"""MemGPT's agent without a model: a fixed policy that reads the prompt's messages and nothing else.

A session: nothing is done, it is in view. An alert of memory pressure: the sessions
in view that were not stored yet go to archival memory, one per step, as restated sentences. A question: archival memory
is searched, then recall memory for its rarest words, then the best sentence in view is sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baselines.tasks.memgpt import PRESSURE, StepInput, StepMessage, SummariseInput, SummariseOutput
from memfly.llm.extractive.analysis import analyse, split_sentences
from memfly.llm.extractive.answer import answer
from memfly.llm.extractive.base import Function, Tools
from memfly.llm.extractive.keywords import is_small_talk, question_keywords
from memfly.llm.extractive.restate import restate
from memfly.tasks.answer import AnswerInput
from memfly.tasks.base import ToolCall, ToolOutput
from memfly.text import STOPWORDS, words

RECALL_SEARCHES = 3
STORED_CHARS = 7000
SUMMARY_WORDS = 100
_RESULT = re.compile(r"[^|\n]{0,40}\b\d{4} \| ")
"""How a result begins: with its date, which ends with the year."""


@dataclass(frozen=True)
class _Event:
    """A message read back: role, its JSON fields, and its type."""

    role: str
    data: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.data.get("type", ""))

    @property
    def text(self) -> str:
        return str(self.data.get("message", ""))

    @property
    def time(self) -> str:
        return str(self.data.get("time", ""))


def _read(messages: tuple[StepMessage, ...]) -> list[_Event]:
    found = []
    for message in messages:
        data = json.loads(message.text)
        found.append(_Event(message.role, data if isinstance(data, dict) else {}))
    return found


async def step(value: StepInput, tools: Tools) -> ToolOutput:
    events = _read(value.messages)
    cause = next((i for i in range(len(events) - 1, -1, -1) if _is_cause(events[i])), -1)
    if cause < 0 or events[cause].kind == "session":
        return ToolOutput()
    if events[cause].kind == "question":
        return await _reply(value, events, cause, tools)
    question = next((i for i in range(cause, -1, -1) if events[i].kind in ("question", "session")), -1)
    if question >= 0 and events[question].kind == "question":
        return await _reply(value, events, question, tools)
    return _save(events)


def _is_cause(event: _Event) -> bool:
    """A message the agent has something to do about, apart from results and heartbeats."""
    alert = event.kind == "system_alert" and event.text.startswith(PRESSURE)
    return event.role == "user" and (event.kind in ("session", "question") or alert)


def _save(events: list[_Event]) -> ToolOutput:
    """Store the oldest session in view that was not stored, and go on while there is another one."""
    stored = {
        call.get("arguments", {}).get("content", "")
        for event in events
        if event.role == "assistant"
        for call in event.data.get("calls", [])
        if call.get("name") == "archival_memory_insert" and isinstance(call.get("arguments"), dict)
    }
    waiting = [text for event in events if event.kind == "session" and (text := _facts(event)) and text not in stored]
    if not waiting:
        return ToolOutput()
    arguments = {"content": waiting[0], "request_heartbeat": len(waiting) > 1}
    call = ToolCall(name="archival_memory_insert", arguments=arguments)
    return ToolOutput(content="Storing what the oldest session told.", calls=[call])


def _facts(event: _Event) -> str:
    """The session's sentences, restated, under its date; empty when it is all small talk."""
    lines = []
    for line in event.text.splitlines():
        speaker, _, text = line.partition(": ")
        kept = [s for s in split_sentences(text) if not is_small_talk(s) and len(analyse(s).roots) > 1]
        if kept:
            lines.append(restate(speaker, " ".join(kept), None))
    return f"[{event.time}] {' '.join(lines)}"[:STORED_CHARS] if lines else ""


async def _reply(value: StepInput, events: list[_Event], at: int, tools: Tools) -> ToolOutput:
    """The next of: archival search, recall searches, answer."""
    question = events[at].text.splitlines()[0] if events[at].text else ""
    calls = [call for event in events[at:] if event.role == "assistant" for call in event.data.get("calls", [])]
    done = {(c.get("name"), c["arguments"].get("query")) for c in calls if isinstance(c.get("arguments"), dict)}
    plan: list[tuple[str, str]] = []
    if value.archival_count:
        plan.append(("archival_memory_search", question))
    if value.recall_count:
        if value.recall_search == "bm25":
            plan.append(("conversation_search", question))
        else:
            plan += [("conversation_search", word) for word in search_words(question)]
    for name, text in plan:
        if text and (name, text[:1000]) not in done:
            call = ToolCall(name=name, arguments={"query": text[:1000], "page": 0, "request_heartbeat": True})
            return ToolOutput(content="Looking for it.", calls=[call])
    found = await answer(AnswerInput(question, tuple(_evidence(events)), "open"), tools)
    return ToolOutput(content="Answering.", calls=[ToolCall(name="send_message", arguments={"message": found.answer})])


def search_words(question: str) -> list[str]:
    """Single words that a substring search may hit: from the keywords, long ones first, names of persons last."""
    found: dict[str, bool] = {}
    for keyword in question_keywords(question):
        for word in keyword.split():
            plain = (words(word) or [""])[0]
            if len(plain) > 3 and plain not in STOPWORDS:
                found.setdefault(plain, word[:1].isupper())
    ranked = sorted(found, key=lambda word: (found[word], -len(word)))
    return ranked[:RECALL_SEARCHES]


def _evidence(events: list[_Event]) -> list[str]:
    """Lines "date | text" of all sessions and search results in view."""
    lines: list[str] = []
    for event in events:
        if event.kind == "session":
            lines += [f"{event.time} | {line}" for line in event.text.splitlines() if line.strip()]
        elif event.role == "function" and str(event.data.get("function", "")).endswith(("search", "search_date")):
            lines += _dated(event.text.splitlines()[1:])
    return list(dict.fromkeys(lines))


def _dated(lines: list[str]) -> list[str]:
    """The lines of search results, each under the date its result starts with: a result may hold several turns."""
    found, date = [], ""
    for line in lines:
        start = _RESULT.match(line)
        if start:
            date = start[0]
            line = line[start.end() :]
        if line.strip():
            found.append(f"{date}{line}")
    return found


async def summarise(value: SummariseInput, tools: Tools) -> SummariseOutput:
    """The sentences that say most, in order, within 100 words; a summary among the messages is one of the sources."""
    sentences: list[str] = []
    for event in _read(value.messages):
        if event.kind == "session":
            sentences += split_sentences(_facts(event))
        elif event.kind == "system_alert" and not event.text.startswith(PRESSURE):
            sentences += split_sentences(event.text.partition("Your summary: ")[2])
    by_weight = sorted(range(len(sentences)), key=lambda i: (-len(analyse(sentences[i]).roots), i))
    kept, left = [], SUMMARY_WORDS
    for i in by_weight:
        size = len(sentences[i].split())
        if size <= left:
            kept.append(i)
            left -= size
    return SummariseOutput(summary=" ".join(sentences[i] for i in sorted(kept))[:2000] or "(nothing of note)")


FUNCTIONS: Mapping[str, Function] = {"memgpt_step": step, "memgpt_summarise": summarise}
