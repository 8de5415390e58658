"""MemGPT (arXiv 2310.08560) on LoCoMo: an agent that pages its own memory, after the code of version 0.2.9.

`ingest: chat` sends each session as one event to the agent loop; `insert` puts the sessions straight into archival memory
without a call. A question runs on a fresh copy of the state and is answered by `send_message`. The mapping of
LoCoMo onto events is ours (docs/systems/memgpt.md). State the window with every number: it decides everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from baselines.checks import check_choices, check_least
from baselines.memgpt_agent import Agent, Limits, State
from baselines.memgpt_memory import Archival, Core, Recall, pack
from baselines.memgpt_queue import Message, event
from baselines.storage import load_state, load_vectors, passage_from_json, passage_to_json, save_state, stack
from baselines.tasks.memgpt import MEMGPT_STEP, MEMGPT_SUMMARISE, RecallSearch
from memfly.system import MemorySystem, Services
from memfly.tasks.answer import NOT_MENTIONED
from memfly.text import count_tokens, cut_tokens
from memfly.types import Evidence, Passage, Question, Turn, shown_in_time_order

Ingest = Literal["chat", "insert"]
EVENT_SHARE = 0.25
"""Largest part of the window one session event may take; a longer session comes in several events (ours)."""
MIN_WINDOW = 4096
PERSONA = (
    "I observe two people over many conversations. I remember what they tell each other, and I answer from memory."
)
INSTRUCTION = (
    "Answer with a short phrase, in the words of the conversation where possible. For a question about time give a date, "
    "worked out from the date of the conversation. If your memory does not hold the answer, send exactly: "
    f"{NOT_MENTIONED}"
)
COUNTS = (
    "steps functions failed_functions pressure_alerts evictions step_cap over_window step_fallback summary_fallback"
).split()


class MemGPT(MemorySystem):
    """One agent per conversation. Options and their sources are in conf/method/memgpt.yaml."""

    version = 2
    recall_options: ClassVar[frozenset[str]] = frozenset()
    tasks = (MEMGPT_STEP, MEMGPT_SUMMARISE)

    def __init__(
        self,
        services: Services,
        *,
        ingest: Ingest = "chat",
        window: int = 8192,
        max_steps: int = 10,
        recall_search: RecallSearch = "substring",
        core_limit: int = 2000,
        page_size: int = 5,
        return_limit: int = 2000,
    ) -> None:
        check_choices(ingest=(ingest, Ingest), recall_search=(recall_search, RecallSearch))
        check_least(window=(window, MIN_WINDOW), max_steps=(max_steps, 1), core_limit=(core_limit, 200))
        check_least(page_size=(page_size, 1), return_limit=(return_limit, 200))
        self.services, self.ingest = services, ingest
        self.limits = Limits(window, max_steps, page_size, return_limit, recall_search)
        human = f"The people I observe are {' and '.join(services.speakers)}."[:core_limit]
        core = Core(core_limit, {"persona": PERSONA, "human": human})
        self.state = State(core, Recall(), Archival(services.embedder))
        self.counts: Counter[str] = Counter()
        self._open: list[Passage] = []
        self._session: int | None = None
        self._now = Passage("", ())
        self._to_insert: list[Passage] = []

    # -- building ------------------------------------------------------------------------------------------------

    async def observe(self, turn: Turn) -> None:
        if self._session not in (None, turn.session):
            await self._end_session()
        self._session = turn.session
        self._open.append(Passage(turn.render(), (turn.id,), turn.date, turn.time))

    async def finish(self) -> None:
        if self._open:
            await self._end_session()
        await self.state.archival.insert(pack(self._to_insert))
        self._to_insert = []

    async def _end_session(self) -> None:
        """Hand the finished session to the agent, in as many events as the window asks for, or keep it for archival."""
        turns, self._open = self._open, []
        self._now = Passage("", (), turns[0].date, turns[0].time)
        if self.ingest == "insert":
            self._to_insert += turns
            return
        for turn in turns:
            self.state.recall.add(turn)
        for part, shown in enumerate(_parts(turns, int(EVENT_SHARE * self.limits.window)), 1):
            text = "\n".join(turn.text for turn in shown)
            agent = self._agent(self.state, self.counts)
            await agent.run(event("session", text, self._now.date, shown), f"session {self._session} part {part}")

    def _agent(self, state: State, counts: Counter[str], *, question: bool = False) -> Agent:
        services = self.services
        return Agent(state, services.llm, self.limits, self._now, services.log, counts, question=question)

    # -- reading -------------------------------------------------------------------------------------------------

    async def recall(self, question: Question) -> Evidence:
        """The agent's own answer, and what it had before it: core memory, retrieved texts, turns and results in its window.

        Raises ParseError when an unusable reply ended the search for an answer before there was one.
        """
        counts: Counter[str] = Counter()
        agent = self._agent(self.state.fork(), counts, question=True)
        await agent.run(event("question", f"{question.text}\n{INSTRUCTION}", self._now.date), "question")
        if agent.unusable is not None and not agent.sent:
            raise agent.unusable
        state = agent.state
        in_window = [passage for message in reversed(state.queue) for passage in message.passages]
        seen = list(dict.fromkeys([*agent.retrieved, *in_window]))
        ranked = dict.fromkeys(turn for passage in seen for turn in passage.turns)
        answer = agent.sent[-1].strip() if agent.sent else ""
        trace: dict[str, object] = {"retrieved": len(agent.retrieved), "unanswered": int(not answer)}
        shown, ranking = shown_in_time_order(seen)
        untimed = _untimed(state)
        found = len(dict.fromkeys(agent.retrieved))
        places = [len(untimed) + place for place in ranking]
        best_first = (*places[:found], *range(len(untimed)), *places[found:])
        counted = {name: counts[name] for name in COUNTS}
        return Evidence((*untimed, *shown), tuple(ranked), best_first, answer, trace | counted)

    def stats(self) -> Mapping[str, int]:
        state = self.state
        sizes = {
            "recall": len(state.recall.entries),
            "archival": len(state.archival.entries),
            "queue": len(state.queue),
        }
        return sizes | {"hidden": state.hidden} | {name: self.counts[name] for name in COUNTS}

    # -- keeping -------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        state = self.state
        saved: dict[str, Any] = {
            "core": list(state.core.blocks.items()),
            "recall": [passage_to_json(p) for p in state.recall.entries],
            "archival": [passage_to_json(p) for p in state.archival.entries],
            "queue": [message.to_json() for message in state.queue],
            "hidden": state.hidden,
            "warned": state.warned,
            "now": passage_to_json(self._now),
            "counts": dict(self.counts),
        }
        save_state(folder, saved, stack(state.archival.vectors, self.services.embedder.dim))

    def load(self, folder: Path) -> None:
        saved = load_state(folder)
        archival = [passage_from_json(p) for p in saved["archival"]]
        self.state = State(
            Core(self.state.core.limit, dict(saved["core"])),
            Recall([passage_from_json(p) for p in saved["recall"]]),
            Archival(self.services.embedder, archival, list(load_vectors(folder))),
            [Message.from_json(message) for message in saved["queue"]],
            saved["hidden"],
            saved["warned"],
        )
        self._now = passage_from_json(saved["now"])
        self.counts = Counter(saved["counts"])


def _parts(turns: list[Passage], cap: int) -> Iterator[list[Passage]]:
    """The turns in order, in groups of at most `cap` tokens; a longer turn is cut to it."""
    group: list[Passage] = []
    used = 0
    for turn in turns:
        text = cut_tokens(turn.text[: cap * 8], cap)
        shown = turn if text == turn.text else Passage(text, turn.turns, turn.date, turn.time)
        size = count_tokens(text) + 1
        if group and used + size > cap:
            yield group
            group, used = [], 0
        group.append(shown)
        used += size
    yield group


LABELS = {"persona": "[core memory about myself]", "human": "[core memory about the people]"}


def _untimed(state: State) -> list[Passage]:
    """Core memory but for an unchanged persona, and the summary of what left the window: texts that show no turn as it
    was."""
    blocks = {name: text for name, text in state.core.blocks.items() if text.strip() and text != PERSONA}
    return [Passage(f"{LABELS[name]} {text}", ()) for name, text in blocks.items()] + [
        Passage(f"[summary of hidden messages] {message.text}", ()) for message in state.queue if message.is_summary
    ]
