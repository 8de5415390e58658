"""Known wrong gold answers, from a public audit's file: which questions to leave out, and what the file's golds allow.

The file (format of dial481/locomo-audit) names questions as `locomo_<conversation index>_qa<question index>` and repeats
their text. Conversations are matched by that text, so a file of other data cannot pass, and no data file is needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.categories import Category
from eval.controls import Item
from eval.runs import Run, items
from eval.scoring.adversarial import REFUSAL
from eval.scoring.aggregate import Cell, ScoredRow, aggregate, score_answer
from eval.scoring.protocol import Protocol
from memfly.errors import DataError

HARMLESS = "WRONG_CITATION"
"""The one kind of issue that does not change what the right answer is."""

_ID = re.compile(r"locomo_(\d+)_qa(\d+)")


@dataclass(frozen=True)
class Entry:
    """One issue as the file has it."""

    conversation: int
    question: int
    text: str
    kind: str
    correct_answer: str


@dataclass(frozen=True)
class Audit:
    """An audit file applied to a run's questions."""

    path: Path
    entries: int
    """Issues in the file, of all kinds."""
    matched: int
    """Of those, issues with questions of this run."""
    conversations: Mapping[int, str]
    """The file's conversation index -> the run's conversation id."""
    corrected: Mapping[str, str]
    """Id of each question whose gold is wrong -> the answer the audit holds to be right."""

    @property
    def corrupting(self) -> frozenset[str]:
        return frozenset(self.corrected)

    def describe(self) -> str:
        return (
            f"audit {self.path.name}: {self.matched} of its {self.entries} issues concern these questions, "
            f"{len(self.corrected)} of them make the gold answer wrong"
        )


def read_audit(path: Path) -> list[Entry]:
    """The file's issues. Raises DataError in one line that says which entry is odd."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(
            f"audit {path}: cannot read it ({error.strerror}); give another file, or none (--audit none, data.audit=null)"
        ) from None
    except ValueError as error:
        raise DataError(f"audit {path}: not JSON ({error})") from None
    if not isinstance(raw, list):
        raise DataError(f"audit {path}: expected a list of issues, found a {type(raw).__name__}")
    return [_entry(item, f"audit {path}: entry {number}") for number, item in enumerate(raw)]


def _entry(item: Any, where: str) -> Entry:
    needed = ("question_id", "question", "error_type")
    if not isinstance(item, dict) or any(not isinstance(item.get(key), str) for key in needed):
        raise DataError(f"{where}: needs the texts {', '.join(needed)}")
    match = _ID.fullmatch(item["question_id"])
    if match is None:
        raise DataError(f"{where}: {item['question_id']!r} is no id like locomo_0_qa12")
    correct = item.get("correct_answer")
    return Entry(
        int(match[1]), int(match[2]), item["question"], item["error_type"], "" if correct is None else str(correct)
    )


def apply(path: Path, questions: Mapping[str, str]) -> Audit:
    """The audit on these questions (id `<conversation>#<index>` -> text).

    A conversation of the file is the run's conversation in which its questions have the same texts; one it does not have
    is left out. Raises DataError when some texts fit and others do not, or when nothing fits.
    """
    entries = read_audit(path)
    names = list(dict.fromkeys(id.rpartition("#")[0] for id in questions))
    conversations: dict[int, str] = {}
    for index in sorted({entry.conversation for entry in entries}):
        issues = [entry for entry in entries if entry.conversation == index]
        hits = {name: sum(_same(questions.get(f"{name}#{e.question}"), e.text) for e in issues) for name in names}
        best = max(hits, key=lambda name: hits[name], default="")
        if best and hits[best]:
            conversations[index] = best
    corrected, matched = {}, 0
    for entry in entries:
        name = conversations.get(entry.conversation)
        id = f"{name}#{entry.question}"
        if name is None or id not in questions:
            continue
        if not _same(questions[id], entry.text):
            raise DataError(
                f"audit {path}: locomo_{entry.conversation}_qa{entry.question} is not the question {id} of this data: "
                f"{entry.text[:60]!r} against {questions[id][:60]!r}"
            )
        matched += 1
        if entry.kind != HARMLESS:
            corrected[id] = entry.correct_answer
    if not matched:
        raise DataError(
            f"audit {path}: none of its {len(entries)} questions is in this data; it is an audit of other data"
        )
    return Audit(path, len(entries), matched, conversations, corrected)


def _same(ours: str | None, theirs: str) -> bool:
    return ours is not None and ours.split() == theirs.split()


def audit_for(runs: Sequence[Run], given: str | None) -> Audit | None:
    """The audit to use with these runs: `given` ("none" = none), else the `data.audit` they were configured with."""
    configured = next((run.config.get("data.audit") for run in runs if run.config.get("data.audit")), None)
    chosen = given if given is not None else configured
    if chosen is None or chosen == "none":
        return None
    return apply(Path(str(chosen)).expanduser(), {r.id: r.question for run in runs for r in run.records})


def ceiling(run: Run, audit: Audit, scorer: Protocol) -> dict[str, Cell]:
    """What a memory that answers every question rightly would score against the golds as they are: the corrected answer
    where the gold is wrong, the gold elsewhere, a refusal in category 5."""
    asked = items(run)
    rows = [_right(item, audit, scorer) for item in asked]
    return aggregate({item.id: item.category for item in asked}, rows, scorer.zeros)


def _right(item: Item, audit: Audit, scorer: Protocol) -> ScoredRow:
    right = REFUSAL if item.category is Category.ADVERSARIAL else item.answer
    said = audit.corrected.get(item.id, right)
    return score_answer(scorer, item.id, said, item.answer, item.trap, item.category)
