"""Eq. 6 by a worked table: strict thresholds, ties, conflicts, the switches, both forms, and what gets dropped."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfly.gate import Decision, Scored, decide, validate
from memfly.tasks.gate import GATE, GATE_MERGE, GATE_ONE_STRENGTH, GateMergeOutput, GateOutput, StrengthOutput

S, C, R, N = "SUPPORTS", "CONFLICTS", "RELATED", "NONE"
TAU_M, TAU_L = 0.7, 0.5
OVER_M, OVER_L = math.nextafter(TAU_M, 1), math.nextafter(TAU_L, 1)


def append(*links: tuple[int, str, float]) -> Decision:
    return Decision(None, links)


TABLE = [
    ("no candidates", [], append()),
    ("nothing over a threshold", [(3, R, 0.2, 0.4)], append()),
    ("s_red equal to tau_m does not merge", [(3, S, 0.7, 0.0)], append()),
    ("s_red just over tau_m merges", [(3, S, OVER_M, 0.0)], Decision(3)),
    ("s_comp equal to tau_l does not link", [(3, R, 0.0, 0.5)], append()),
    ("s_comp just over tau_l links", [(3, R, 0.0, OVER_L)], append((3, R, OVER_L))),
    ("s_red equal to tau_m is left to tau_l", [(3, S, 0.7, 0.9)], append((3, S, 0.9))),
    ("a merge makes no links", [(3, S, 0.9, 0.9), (4, R, 0.0, 0.9)], Decision(3)),
    ("one merge, the most redundant", [(3, S, 0.8, 0.9), (5, S, 0.9, 0.1)], Decision(5)),
    ("tie on s_red: higher s_comp", [(3, S, 0.9, 0.1), (5, S, 0.9, 0.2)], Decision(5)),
    ("tie on both: lower id", [(5, S, 0.9, 0.2), (3, S, 0.9, 0.2)], Decision(3)),
    ("scores decide, not the relation", [(3, N, 0.9, 0.0)], Decision(3)),
    ("a link without a relation is RELATED", [(3, N, 0.0, 0.9)], append((3, R, 0.9))),
    ("all links over tau_l, by id", [(7, R, 0, 0.6), (2, S, 0, 0.8), (4, R, 0, 0.5)], append((2, S, 0.8), (7, R, 0.6))),
    ("a conflict never merges, it links", [(3, C, 0.95, 0.1)], append((3, C, 0.95))),
    ("a conflict over tau_l links by s_comp", [(3, C, 0.1, 0.6)], append((3, C, 0.6))),
    ("a conflict over both takes the higher", [(3, C, 0.8, 0.9)], append((3, C, 0.9))),
    ("a conflict under both is nothing", [(3, C, 0.7, 0.5)], append()),
    ("a conflict does not stop another merge", [(3, C, 0.95, 0.9), (4, S, 0.8, 0.0)], Decision(4)),
]  # fmt: skip


@pytest.mark.parametrize(("verdicts", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_equation_6(verdicts: list[tuple[int, str, float, float]], expected: Decision) -> None:
    assert decide([Scored(*v) for v in verdicts], TAU_M, TAU_L) == expected


def test_without_merge_a_redundant_candidate_is_left_to_tau_l() -> None:
    both = [Scored(3, S, 0.95, 0.6), Scored(4, S, 0.95, 0.4)]
    assert decide(both, TAU_M, TAU_L, merge=False) == append((3, S, 0.6))


def test_without_link_a_candidate_merges_or_nothing() -> None:
    assert decide([Scored(3, R, 0.1, 0.9), Scored(4, C, 0.9, 0.9)], TAU_M, TAU_L, link=False) == append()
    assert decide([Scored(3, S, 0.9, 0.9)], TAU_M, TAU_L, link=False) == Decision(3)


@given(
    st.lists(
        st.builds(Scored, st.integers(0, 9), st.sampled_from([S, C, R, N]), st.floats(0, 1), st.floats(0, 1)),
        unique_by=lambda v: v.id,
    ),
    st.floats(0, 1),
    st.floats(0, 1),
    st.booleans(),
    st.booleans(),
    st.randoms(),
)
def test_a_decision_is_lawful_and_independent_of_order(verdicts, tau_m, tau_l, merge, link, random) -> None:  # type: ignore[no-untyped-def]
    decision = decide(verdicts, tau_m, tau_l, merge=merge, link=link)
    by_id = {v.id: v for v in verdicts}
    if decision.merge is not None:
        chosen = by_id[decision.merge]
        assert merge
        assert not decision.links
        assert chosen.s_red > tau_m
        assert chosen.relation != C
        assert all(v.s_red <= chosen.s_red for v in verdicts if v.relation != C)
    else:
        assert not (merge and any(v.s_red > tau_m and v.relation != C for v in verdicts))
        over = {v.id for v in verdicts if v.s_comp > tau_l or (v.relation == C and v.s_red > tau_m)}
        assert {i for i, _, _ in decision.links} == (over if link else set())
        assert all(relation in (S, C, R) for _, relation, _ in decision.links)
    shuffled = verdicts[:]
    random.shuffle(shuffled)
    assert decide(shuffled, tau_m, tau_l, merge=merge, link=link) == decision


def two(*entries: tuple[int, str, float, float]) -> GateOutput:
    keys = ("id", "relation", "s_red", "s_comp")
    return GateOutput.model_validate({"verdicts": [dict(zip(keys, e, strict=True)) for e in entries]})


@pytest.mark.parametrize(
    "entry",
    [
        (9, S, 0.5, 0.5),
        (-1, S, 0.5, 0.5),
        (1, "SAME", 0.5, 0.5),
        (1, "", 0.5, 0.5),
        (1, S, 1.0001, 0.5),
        (1, S, 0.5, -0.1),
        (1, S, 7, 0.5),
        (1, S, math.nan, 0.5),
        (1, S, 0.5, math.nan),
        (1, S, math.inf, 0.5),
        (1, S, 0.5, -math.inf),
    ],
)
def test_unusable_entries_are_dropped_one_by_one_and_counted(entry: tuple[int, str, float, float]) -> None:
    kept, dropped = validate(two((2, R, 0.1, 0.9), entry), {1, 2})
    assert (kept, dropped) == ([Scored(2, R, 0.1, 0.9)], 1)


def test_of_repeated_ids_the_first_sound_one_counts() -> None:
    kept, dropped = validate(two((1, S, 9, 0.1), (1, R, 0.2, 0.3), (1, S, 0.9, 0.9)), {1, 2})
    assert (kept, dropped) == ([Scored(1, R, 0.2, 0.3)], 2)


def test_bounds_and_spelling_are_accepted() -> None:
    kept, dropped = validate(two((1, " supports ", 0, 1), (2, "Conflicts", 1, 0)), {1, 2})
    assert (kept, dropped) == ([Scored(1, S, 0.0, 1.0), Scored(2, C, 1.0, 0.0)], 0)


@pytest.mark.parametrize(
    "entry",
    [
        {"id": 2, "relation": "RELATED", "s_red": None, "s_comp": 0.9},
        {"id": 2, "relation": "RELATED", "s_red": "high", "s_comp": 0.9},
        {"id": 2, "relation": "RELATED", "s_red": True, "s_comp": 0.9},
        {"id": 2, "relation": "RELATED", "s_comp": 0.9},
        {"id": "note 2", "relation": "RELATED", "s_red": 0.1, "s_comp": 0.9},
        {"id": 1e400, "relation": "RELATED", "s_red": 0.1, "s_comp": 0.9},
        {"id": 2, "relation": "RELATED, and in the same week", "s_red": 0.1, "s_comp": 0.9},
        {"id": 2, "relation": ["RELATED"], "s_red": 0.1, "s_comp": 0.9},
        {},
        None,
        "RELATED",
    ],
)
def test_one_odd_entry_does_not_cost_the_whole_reply(entry: Any) -> None:
    sound = {"id": 1, "relation": "SUPPORTS", "s_red": "0.8", "s_comp": 0.2}
    output = GateOutput.model_validate({"verdicts": [sound, entry]})
    assert validate(output, {1, 2}) == ([Scored(1, "SUPPORTS", 0.8, 0.2)], 1)


def test_nan_in_a_reply_reaches_validation() -> None:
    said = json.loads('{"verdicts": [{"id": 1, "relation": "SUPPORTS", "s_red": NaN, "s_comp": 0.9}]}')
    assert validate(GateOutput.model_validate(said), {1}) == ([], 1)


def test_one_strength_counts_as_redundancy_only_for_supports() -> None:
    said = [(1, S, 0.9), (2, R, 0.8), (3, C, 0.7), (4, N, 0.1), (5, S, 1.2), (6, S, math.nan), (7, R, 0.5)]
    output = StrengthOutput.model_validate({"verdicts": [{"id": i, "relation": r, "strength": s} for i, r, s in said]})
    kept, dropped = validate(output, {1, 2, 3, 4, 5, 6})
    assert kept == [Scored(1, S, 0.9, 0.0), Scored(2, R, 0.0, 0.8), Scored(3, C, 0.0, 0.7), Scored(4, N, 0.0, 0.1)]
    assert dropped == 3
    assert decide(kept, TAU_M, TAU_L) == Decision(1)
    assert decide(kept[1:], TAU_M, TAU_L) == append((2, R, 0.8), (3, C, 0.7))


@pytest.mark.parametrize("task", [GATE, GATE_MERGE, GATE_ONE_STRENGTH], ids=lambda task: task.name)
def test_no_threshold_is_named_in_a_prompt(task) -> None:  # type: ignore[no-untyped-def]
    lowered = task.system.lower()
    assert not any(word in lowered for word in ("0.7", "0.5", "0.8", "threshold", "tau", "above", "at least"))
    if task is GATE_MERGE:
        assert issubclass(GateMergeOutput, GateOutput)
