"""The gate's decision: merge, link or append (MemFly 3.2, Eq. 6). Pure functions, no calls.

Thresholds are applied here and appear in no prompt. Ours: at most one merge, into the candidate with the highest s_red
(ties: higher s_comp, then lower id). A CONFLICTS candidate never merges; over either threshold it is linked as CONFLICTS.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from memfly.options import Options
from memfly.tasks.gate import GateOutput, StrengthOutput

RELATIONS = frozenset({"SUPPORTS", "CONFLICTS", "RELATED", "NONE"})


class GateOptions(Options):
    form: Literal["two_scores", "one_strength"] = "two_scores"
    """`two_scores`: main text, Eq. 6. `one_strength`: the paper's appendix, without its written-in thresholds."""


class CandidateOptions(Options):
    k_dense: int = Field(default=10, ge=0)
    k_sparse: int = Field(default=10, ge=0)
    n: int = Field(default=8, ge=1, le=32)
    """Candidates shown to the gate after fusing both lists by RRF (paper: sizes unknown)."""


@dataclass(frozen=True)
class Scored:
    """A validated verdict on one candidate."""

    id: int
    relation: str
    s_red: float
    s_comp: float


@dataclass(frozen=True)
class Decision:
    """`merge` names the note to merge into; otherwise the note is stored with `links` (id, relation, strength)."""

    merge: int | None = None
    links: tuple[tuple[int, str, float], ...] = ()


def validate(output: GateOutput | StrengthOutput, candidates: Collection[int]) -> tuple[list[Scored], int]:
    """Usable verdicts and the number dropped: unknown or repeated ids, unknown relations, no score inside [0, 1].

    In the one-strength form the strength counts as s_red when the relation is SUPPORTS, else as s_comp.
    """
    kept: dict[int, Scored] = {}
    dropped = 0
    for entry in output.verdicts:
        relation = entry.relation.strip().upper()
        if hasattr(entry, "strength"):
            red, comp = (entry.strength, 0.0) if relation == "SUPPORTS" else (0.0, entry.strength)
        else:
            red, comp = entry.s_red, entry.s_comp
        sound = all(math.isfinite(s) and 0.0 <= s <= 1.0 for s in (red, comp))
        if entry.id not in candidates or entry.id in kept or relation not in RELATIONS or not sound:
            dropped += 1
        else:
            kept[entry.id] = Scored(entry.id, relation, red, comp)
    return list(kept.values()), dropped


def decide(
    verdicts: Sequence[Scored], tau_m: float, tau_l: float, *, merge: bool = True, link: bool = True
) -> Decision:
    """Eq. 6 with strict inequalities. `merge=False` leaves a candidate over tau_m to the tau_l rule; `link=False` stores
    the note without links."""
    if merge:
        redundant = [v for v in verdicts if v.s_red > tau_m and v.relation != "CONFLICTS"]
        if redundant:
            return Decision(merge=min(redundant, key=lambda v: (-v.s_red, -v.s_comp, v.id)).id)
    if not link:
        return Decision()
    links = [
        (v.id, "RELATED" if v.relation == "NONE" else v.relation, max(v.s_comp, v.s_red) if conflict else v.s_comp)
        for v in verdicts
        for conflict in [v.relation == "CONFLICTS" and v.s_red > tau_m]
        if v.s_comp > tau_l or conflict
    ]
    return Decision(links=tuple(sorted(links)))
