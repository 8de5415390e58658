"""Agentic RAG: a model that searches the turns step by step, then the shared answerer.

No call at ingest. There is no canonical LoCoMo original; the rules of the loop are ours (docs/systems/agentic_rag.md).
The Self-RAG style of MemoryAgentBench is not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from baselines.checks import check_least
from baselines.storage import load_state, load_vectors, passage_from_json, passage_to_json, save_state
from baselines.tasks.agentic_rag import RAG_LAST_STEP, RAG_STEP, Search, StepInput
from memfly.embed import Vectors
from memfly.errors import ParseError
from memfly.index import VectorIndex
from memfly.system import MemorySystem, Services
from memfly.types import Evidence, Passage, Question, Turn

REPEATED = "this query was sent before; nothing was searched"
NOTHING_NEW = "no turn is left that was not shown"


@dataclass
class _Loop:
    """What one question's search has done so far. Positions are those of the turns in the conversation."""

    searches: list[Search] = field(default_factory=list)
    hits: list[int] = field(default_factory=list)
    shown: dict[int, None] = field(default_factory=dict)
    steps: int = 0
    stop: str = ""
    draft: str = ""

    def asked(self, query: str) -> bool:
        folded = " ".join(query.casefold().split())
        return any(" ".join(search.query.casefold().split()) == folded for search in self.searches)


class AgenticRag(MemorySystem):
    """Turns in a vector index, searched in a loop of at most `steps` steps, the last of which may only answer."""

    recall_options: ClassVar[frozenset[str]] = frozenset({"steps", "k", "context_turns"})
    recall_tasks = (RAG_STEP, RAG_LAST_STEP)

    def __init__(
        self, services: Services, *, steps: int = 5, k: int = 5, context_turns: int = 0, embed_date: bool = True
    ) -> None:
        check_least(steps=(steps, 1), k=(k, 1), context_turns=(context_turns, 0))
        self.services = services
        self.steps, self.k, self.context_turns, self.embed_date = steps, k, context_turns, embed_date
        self.passages: list[Passage] = []
        self.sessions: list[int] = []
        self._vectors: Vectors | None = None
        self._index = VectorIndex(services.embedder.dim)

    async def observe(self, turn: Turn) -> None:
        self.passages.append(Passage(turn.render(), (turn.id,), turn.date, turn.time))
        self.sessions.append(turn.session)

    async def finish(self) -> None:
        """All embeddings at once: nothing before the first question needs them."""
        texts = [f"{p.date} | {p.text}" if self.embed_date else p.text for p in self.passages]
        self._set_vectors(await self.services.embedder.embed(texts))

    def _set_vectors(self, vectors: Vectors) -> None:
        self._vectors = vectors
        for position, vector in enumerate(vectors):
            self._index.set(position, vector)

    async def recall(self, question: Question) -> Evidence:
        loop = _Loop()
        while not loop.stop:
            loop.steps += 1
            await self._step(question, loop)
        order = dict.fromkeys([*loop.hits, *loop.shown])
        shown = sorted(loop.shown)  # positions are in time order, also inside a session
        passages = tuple(self.passages[position] for position in shown)
        ranking = tuple(shown.index(position) for position in order)
        trace: dict[str, object] = {
            "steps": loop.steps,
            "queries": [search.query for search in loop.searches],
            "stop": loop.stop,
            "draft_answer": loop.draft,
        }
        return Evidence(passages, tuple(self.passages[i].turns[0] for i in order), ranking, trace=trace)

    async def _step(self, question: Question, loop: _Loop) -> None:
        """One call; sets `loop.stop` when the search is over. An unusable reply forces the answer."""
        value = StepInput(question.text, tuple(loop.searches), self.steps - loop.steps + 1)
        llm, purpose = self.services.llm, f"step {loop.steps}"
        try:
            if loop.steps == self.steps:
                loop.draft = (await llm.run(RAG_LAST_STEP, value, purpose=purpose)).answer
                loop.stop = "last step"
                return
            reply = await llm.run(RAG_STEP, value, purpose=purpose)
        except ParseError:
            loop.stop = "unusable reply"
            self.services.log("step_fallback", question=question.id, step=loop.steps)
            return
        if reply.action == "answer":
            loop.draft, loop.stop = reply.answer, "answer"
        elif loop.asked(reply.query):
            loop.searches.append(Search(reply.query, (), REPEATED))
        else:
            loop.searches.append(await self._search(reply.query, loop))

    async def _search(self, query: str, loop: _Loop) -> Search:
        """The `k` nearest turns that were not shown yet, each with its context turns, best hit first."""
        vector = (await self.services.embedder.embed([query]))[0]
        ranked = self._index.search(vector, self.k + len(loop.shown))
        hits = [position for position, _ in ranked if position not in loop.shown][: self.k]
        loop.hits += hits
        lines: list[str] = []
        for hit in hits:
            for position in self._window(hit):
                if position not in loop.shown:
                    loop.shown[position] = None
                    passage = self.passages[position]
                    lines.append(f"[{passage.turns[0]}] {passage.date} | {passage.text}")
        return Search(query, tuple(lines), "" if lines else NOTHING_NEW)

    def _window(self, hit: int) -> range:
        """The hit and its neighbours of the same session."""
        low = high = hit
        for _ in range(self.context_turns):
            low -= low > 0 and self.sessions[low - 1] == self.sessions[hit]
            high += high + 1 < len(self.sessions) and self.sessions[high + 1] == self.sessions[hit]
        return range(low, high + 1)

    def stats(self) -> Mapping[str, int]:
        return {"turns": len(self.passages)}

    def save(self, folder: Path) -> None:
        state: dict[str, Any] = {"passages": [passage_to_json(p) for p in self.passages], "sessions": self.sessions}
        save_state(folder, state, self._vectors)

    def load(self, folder: Path) -> None:
        state = load_state(folder)
        self.passages = [passage_from_json(p) for p in state["passages"]]
        self.sessions = state["sessions"]
        self._set_vectors(load_vectors(folder))
