"""How much of the gold evidence reached the answerer. Needs no model and no answer.

Gold evidence is a list of turn ids per question. Nine ids of locomo10 name no turn as written; they are repaired where the
meaning is plain, dropped where it is not, and every repair is listed. A question without usable evidence has no recall: it
is left out of the averages and counted, never scored 0 or 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from memfly.errors import DataError

KS = (1, 3, 5, 10, 20, 50)
"""Default cut-offs of the recall@k curve."""

_TURN_ID = re.compile(r"D:?0*(\d+):0*(\d+)")
_SEPARATORS = re.compile(r"[;,\s]+")


@dataclass(frozen=True, slots=True)
class Repair:
    """One id of the data file that named no turn as written, and the turns read from it (none: unusable)."""

    raw: str
    turns: tuple[str, ...]
    dropped: tuple[str, ...]
    """Pieces of `raw` that are no turn id, or name a turn that does not exist."""


@dataclass(frozen=True, slots=True)
class GoldEvidence:
    """The evidence turns of a question, each once, in the file's order; unusable when there are none."""

    turns: tuple[str, ...]
    repairs: tuple[Repair, ...] = ()

    @property
    def usable(self) -> bool:
        return bool(self.turns)


def parse_gold(raw: Sequence[str], turns: Collection[str]) -> GoldEvidence:
    """Evidence ids as the file has them, reduced to ids in `turns` (all turn ids of the conversation).

    An id that is no turn is split at ';', ',' and blanks; each piece loses leading zeros ("D30:05") and a stray colon
    ("D:11:26") and counts if such a turn exists (ours: docs/protocols.md).
    """
    found: dict[str, None] = {}
    repairs = []
    for text in raw:
        if text in turns:
            found[text] = None
            continue
        read, dropped = [], []
        for piece in filter(None, _SEPARATORS.split(text)):
            match = _TURN_ID.fullmatch(piece)
            turn = f"D{match[1]}:{match[2]}" if match else ""
            if turn in turns:
                read.append(turn)
            else:
                dropped.append(piece)
        repairs.append(Repair(text, tuple(read), tuple(dropped)))
        found.update(dict.fromkeys(read))
    return GoldEvidence(tuple(found), tuple(repairs))


def score_evidence(
    gold: Sequence[str], shown: Sequence[str], ranked: Sequence[str] | None = None, ks: Iterable[int] = KS
) -> dict[str, float | None]:
    """Retrieval measures of one question, each in [0, 1] but `turns_shown`; all None but that when `gold` is empty.

    `shown` are the turns whose content was in the answerer's prompt, `ranked` the same best first (default: as shown);
    repeats count once. `evidence_recall`: share of gold turns shown. `evidence_hit`: 1 if at least one is.
    `evidence_precision`: share of shown turns that are gold, 0 when nothing was shown. `recall@k`: recall in the first k
    ranked turns. Raises DataError for k < 1.
    """
    wanted, distinct = set(gold), list(dict.fromkeys(shown))
    best_first = distinct if ranked is None else list(dict.fromkeys(ranked))
    curve = {f"recall@{k}": recall_at(wanted, best_first, k) for k in ks}
    hits = len(wanted.intersection(distinct))
    scores: dict[str, float | None] = {"turns_shown": float(len(distinct))}
    if not wanted:
        return scores | dict.fromkeys(["evidence_recall", "evidence_hit", "evidence_precision", *curve])
    return scores | {
        "evidence_recall": hits / len(wanted),
        "evidence_hit": float(hits > 0),
        "evidence_precision": hits / len(distinct) if distinct else 0.0,
        **curve,
    }


def recall_at(gold: Collection[str], ranked: Sequence[str], k: int) -> float:
    """Share of the distinct `gold` turns among the first `k` of `ranked`; 0 without gold. Raises DataError for k < 1."""
    if k < 1:
        raise DataError(f"recall@{k} is not defined; use k >= 1")
    wanted = set(gold)
    return len(wanted.intersection(ranked[:k])) / len(wanted) if wanted else 0.0


@dataclass(frozen=True, slots=True)
class EvidenceSummary:
    """Means over the `n` questions with usable evidence; `n_left_out` have none."""

    n: int
    n_left_out: int
    mean: dict[str, float]


def summarise(scores: Iterable[Mapping[str, float | None]]) -> EvidenceSummary:
    """Averages `score_evidence` results over questions (micro); questions without usable evidence are left out."""
    rows = list(scores)
    usable = [row for row in rows if row["evidence_recall"] is not None]
    names = usable[0].keys() if usable else ()
    held = {name: [value for row in usable if (value := row[name]) is not None] for name in names}
    mean = {name: math.fsum(values) / len(values) for name, values in held.items() if values}
    return EvidenceSummary(len(usable), len(rows) - len(usable), mean)


def official_recall(evidence: Sequence[str], context: Sequence[str]) -> float:
    """LoCoMo's own evidence recall, kept for comparison with its published numbers (task_eval/evaluation.py).

    Ids as in the file, unrepaired, repeats counted; session numbers are compared when the first context id is a session
    ("S7"); 1 for a question without evidence. An empty context gives 0, where the original raises IndexError.
    """
    if not evidence:
        return 1.0
    if not context:
        return 0.0
    if context[0].startswith("S"):
        sessions = {id[1:] for id in context}
        return sum(id.split(":")[0][1:] in sessions for id in evidence) / len(evidence)
    return sum(id in context for id in evidence) / len(evidence)
