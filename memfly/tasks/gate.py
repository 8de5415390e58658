"""The gate: one call per new note over all candidate notes (MemFly 3.2, Eq. 6).

Thresholds never appear in a prompt: they are applied in `memfly.gate`, so a sweep over them reuses the replies. The
`one_strength` form asks for a single number per candidate, as the paper's appendix does, but again without thresholds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pydantic import Field, model_validator

from memfly.tasks.base import Task, TaskOutput


@dataclass(frozen=True)
class GateCandidate:
    id: int
    date: str
    context: str
    keywords: tuple[str, ...]


@dataclass(frozen=True)
class GateInput:
    date: str
    context: str
    keywords: tuple[str, ...]
    candidates: tuple[GateCandidate, ...]


class _Entry(TaskOutput):
    """Deliberately loose: what is missing, of another type or out of range is read as a value that `memfly.gate` drops
    and counts, so that one odd entry does not cost the whole reply."""

    id: int
    relation: str = Field(max_length=20, description="SUPPORTS, CONFLICTS, RELATED or NONE")

    @model_validator(mode="before")
    @classmethod
    def _loose(cls, data: Any) -> Any:
        entry = data if isinstance(data, dict) else {}
        scores = [name for name in cls.model_fields if name not in ("id", "relation")]
        return {
            "id": int(_number(entry.get("id"), -1.0)),
            "relation": str(entry.get("relation", ""))[:20],
            **{name: _number(entry.get(name), math.nan) for name in scores},
        }


def _number(value: Any, otherwise: float) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        return otherwise
    return found if math.isfinite(found) and not isinstance(value, bool) else otherwise


class Verdict(_Entry):
    s_red: float = Field(description="share of informational content in common, 0 to 1 (1 = identical)")
    s_comp: float = Field(description="strength of the logical or topical connection of distinct contents, 0 to 1")


class GateOutput(TaskOutput):
    verdicts: list[Verdict] = Field(max_length=32)


class GateMergeOutput(GateOutput):
    merged_context: str = Field(
        max_length=4000, description="the new note and its most redundant candidate as one text; empty if none"
    )


class StrengthVerdict(_Entry):
    strength: float = Field(description="strength of the relation, 0 to 1")


class StrengthOutput(TaskOutput):
    verdicts: list[StrengthVerdict] = Field(max_length=32)


_INTRO = """You compare a new memory note with stored notes. For every stored note give one entry with its id and its \
relation to the new note:
SUPPORTS: it states the same thing, wholly or in large part.
CONFLICTS: both cannot be true, or the newer one corrects the older.
RELATED: different content about a connected matter (same event, plan, thing, person's situation, cause or result).
NONE: no useful connection.
"""

_TWO_SCORES = (
    _INTRO
    + """Give both scores, each from 0 to 1, in every entry:
s_red: how much of the informational content the two have in common (1 = the same content, 0 = nothing in common).
s_comp: how strongly their distinct contents belong together, by logic or by topic (1 = one is needed to understand \
the other, 0 = unrelated).
"""
)

SYSTEM_TWO_SCORES = (
    _TWO_SCORES
    + """Reply with one JSON object: {"verdicts": [{"id": int, "relation": string, "s_red": number, "s_comp": number}]}"""
)

SYSTEM_MERGE = (
    _TWO_SCORES
    + """Also give merged_context: the new note and the stored note with the highest s_red as one text that keeps every \
distinct fact, number, name and date of both and repeats nothing; an empty string when no note shares content.
Reply with one JSON object: {"verdicts": [{"id": int, "relation": string, "s_red": number, "s_comp": number}], \
"merged_context": string}"""
)

SYSTEM_ONE_STRENGTH = (
    _INTRO
    + """Give the strength of that relation from 0 to 1 (1 = as strong as it can be).
Reply with one JSON object: {"verdicts": [{"id": int, "relation": string, "strength": number}]}"""
)


def _note(date: str, context: str, keywords: tuple[str, ...]) -> str:
    return f"({date}) {context} [keywords: {', '.join(keywords) or 'none'}]"


def _render(value: GateInput) -> str:
    stored = "\n".join(f"id {c.id}: {_note(c.date, c.context, c.keywords)}" for c in value.candidates)
    return f"Stored notes:\n{stored}\n\nNew note:\n{_note(value.date, value.context, value.keywords)}"


def _sizes(value: GateInput) -> dict[str, int]:
    return {"verdicts": len(value.candidates)}


GATE = Task("gate", 1, "gate", GateInput, GateOutput, SYSTEM_TWO_SCORES, _render, max_tokens=700, max_items=_sizes)
GATE_MERGE = Task("gate_merge", 1, "gate", GateInput, GateMergeOutput, SYSTEM_MERGE, _render, 1200, max_items=_sizes)
GATE_ONE_STRENGTH = Task(
    "gate_one_strength", 1, "gate", GateInput, StrengthOutput, SYSTEM_ONE_STRENGTH, _render, 600, max_items=_sizes
)
