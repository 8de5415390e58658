"""Full context: the whole conversation in the prompt, in LoCoMo's official rendering.

The official code (task_eval/gpt_utils.py) puts the newest session first, keeps the turns of a session in order, and, when
a window is too small, drops the newest sessions; all three are kept as defaults. Batches of questions are not: one
question per call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from baselines.checks import check_choices, check_least
from baselines.storage import load_state, passage_from_json, passage_to_json, save_state
from memfly.errors import ConfigError
from memfly.system import MemorySystem, Services
from memfly.text import count_tokens
from memfly.types import Evidence, Passage, Question, Turn

Order = Literal["newest_first", "chronological"]
HEADING = "CONVERSATION:"
"""Stands after a session's date, which the harness puts in front of each passage; a passage is a session."""


@dataclass(frozen=True)
class _Line:
    """One rendered turn; `tokens` counts its text and a line break."""

    passage: Passage
    session: int
    tokens: int


class FullContext(MemorySystem):
    """All turns as evidence, or as many as `window` tokens hold (None: no limit).

    The room for turns is the window less `answer_tokens`, `instruction_tokens`, the question and the opening sentence.
    """

    recall_options: ClassVar[frozenset[str]] = frozenset({"order", "window", "answer_tokens", "instruction_tokens"})

    def __init__(
        self,
        services: Services,
        *,
        order: Order = "newest_first",
        window: int | None = None,
        answer_tokens: int = 50,
        instruction_tokens: int = 100,
    ) -> None:
        check_choices(order=(order, Order))
        check_least(answer_tokens=(answer_tokens, 0), instruction_tokens=(instruction_tokens, 0))
        if window is not None and window <= answer_tokens + instruction_tokens:
            raise ConfigError(f"method.window: {window} leaves no room beside answer_tokens and instruction_tokens")
        self.services, self.order, self.window = services, order, window
        self.reserved = answer_tokens + instruction_tokens
        self.lines: list[_Line] = []
        one, two = services.speakers
        self.opening = (
            f"This is a conversation between {one} and {two} that goes on over several days. "
            "The date of each session stands at its start."
        )

    async def observe(self, turn: Turn) -> None:
        self._add(Passage(_said(turn), (turn.id,), turn.date, turn.time), turn.session)

    def _add(self, passage: Passage, session: int) -> None:
        self.lines.append(_Line(passage, session, count_tokens(passage.text) + 1))

    async def recall(self, question: Question) -> Evidence:
        sessions = self._fitting(question.text)
        if self.order == "newest_first":
            sessions.reverse()
        passages = [Passage(self.opening, ())] if self.lines else []
        for lines in sessions:
            text = "".join(f"\n{line.passage.text}\n" for line in lines)
            turns = tuple(turn for line in lines for turn in line.passage.turns)
            passages.append(Passage(f"{HEADING}{text}", turns, lines[0].passage.date, lines[0].passage.time))
        shown = sum(map(len, sessions))
        return Evidence(tuple(passages), trace={"turns_shown": shown, "turns_cut": len(self.lines) - shown})

    def _fitting(self, question: str) -> list[list[_Line]]:
        """Turns by session, oldest first; with a window, as the official code cuts: sessions from the first on, each
        from its last turn backwards, up to the first turn that does not fit."""
        sessions: dict[int, list[_Line]] = {}
        for line in self.lines:
            sessions.setdefault(line.session, []).append(line)
        if self.window is None:
            return list(sessions.values())
        room = self.window - self.reserved - count_tokens(question) - count_tokens(self.opening)
        kept: list[list[_Line]] = []
        for lines in sessions.values():
            room -= count_tokens(f"{lines[0].passage.date} | {HEADING}\n")
            fitting: list[_Line] = []
            for line in reversed(lines):
                if line.tokens > room:
                    break
                room -= line.tokens
                fitting.insert(0, line)
            if fitting:
                kept.append(fitting)
            if len(fitting) < len(lines):
                break
        return kept

    def stats(self) -> Mapping[str, int]:
        return {"turns": len(self.lines), "tokens": sum(line.tokens for line in self.lines)}

    def save(self, folder: Path) -> None:
        lines = [{"session": line.session, **passage_to_json(line.passage)} for line in self.lines]
        save_state(folder, {"lines": lines})

    def load(self, folder: Path) -> None:
        self.lines = []
        stored: list[dict[str, Any]] = load_state(folder)["lines"]
        for line in stored:
            self._add(passage_from_json(line), line["session"])


def _said(turn: Turn) -> str:
    """Name, the word said, the text in quotes; a shared caption on a line of its own."""
    shared = f"\nand shared {turn.caption}." if turn.caption else ""
    return f'{turn.speaker} said, "{turn.text}"{shared}'
