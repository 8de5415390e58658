from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.evidence import GoldEvidence, Repair, official_recall, parse_gold, recall_at, score_evidence, summarise
from memfly.errors import DataError

TURNS = {f"D{s}:{t}" for s in range(1, 31) for t in range(1, 30)}


@pytest.mark.parametrize(
    ("raw", "turns", "dropped"),
    [
        ("D8:6; D9:17", ("D8:6", "D9:17"), ()),
        ("D9:1 D4:4 D4:6", ("D9:1", "D4:4", "D4:6"), ()),
        ("D1:1,D1:2", ("D1:1", "D1:2"), ()),
        ("D:11:26", ("D11:26",), ()),
        ("D30:05", ("D30:5",), ()),
        ("D", (), ("D",)),
        ("D10:99", (), ("D10:99",)),
        ("D1:1 D", ("D1:1",), ("D",)),
        ("", (), ()),
        ("D1:1:1", (), ("D1:1:1",)),
    ],
)
def test_ids_that_name_no_turn_are_repaired_and_listed(
    raw: str, turns: tuple[str, ...], dropped: tuple[str, ...]
) -> None:
    assert parse_gold([raw], TURNS) == GoldEvidence(turns, (Repair(raw, turns, dropped),))


def test_good_ids_pass_unlisted_and_repeats_count_once() -> None:
    gold = parse_gold(["D2:3", "D1:1", "D2:3", "D2:03"], TURNS)
    assert gold.turns == ("D2:3", "D1:1")
    assert [repair.raw for repair in gold.repairs] == ["D2:03"]
    assert not parse_gold([], TURNS).usable


@given(st.lists(st.text("D:;, 0123456789", max_size=12), max_size=5))
def test_only_turns_that_exist_come_out(raw: list[str]) -> None:
    gold = parse_gold(raw, TURNS)
    assert set(gold.turns) <= TURNS
    assert len(set(gold.turns)) == len(gold.turns)


def test_measures_of_one_question() -> None:
    scores = score_evidence(["a", "b"], ["x", "b", "b", "y"], ranked=["b", "y", "x", "a"], ks=(1, 3, 4))
    assert scores == {
        "turns_shown": 3.0,
        "evidence_recall": 0.5,
        "evidence_hit": 1.0,
        "evidence_precision": pytest.approx(1 / 3),
        "recall@1": 0.5,
        "recall@3": 0.5,
        "recall@4": 1.0,
    }


def test_the_order_shown_ranks_when_no_other_is_given() -> None:
    scores = score_evidence(["a"], ["x", "x", "a"], ks=(1, 2))
    assert (scores["recall@1"], scores["recall@2"]) == (0.0, 1.0)


def test_nothing_shown_scores_zero_and_no_gold_scores_none() -> None:
    nothing = score_evidence(["a"], [])
    assert (nothing["evidence_recall"], nothing["evidence_hit"], nothing["evidence_precision"]) == (0.0, 0.0, 0.0)
    ungraded = score_evidence([], ["x"])
    assert ungraded.keys() == nothing.keys()
    assert {value for name, value in ungraded.items() if name != "turns_shown"} == {None}


def test_summary_leaves_ungraded_questions_out_and_counts_them() -> None:
    summary = summarise([score_evidence(["a"], ["a"]), score_evidence(["a"], ["x", "y"]), score_evidence([], ["x"])])
    assert (summary.n, summary.n_left_out) == (2, 1)
    assert summary.mean["evidence_recall"] == 0.5
    assert summary.mean["turns_shown"] == 1.5
    assert summarise([]).mean == {}


@given(st.sets(st.sampled_from("abcdef"), min_size=1), st.permutations("abcdefgh"))
def test_the_recall_curve_never_falls_and_reaches_one(gold: set[str], ranked: list[str]) -> None:
    curve = [recall_at(gold, ranked, k) for k in range(1, 9)]
    assert curve == sorted(curve)
    assert curve[-1] == 1.0


def test_k_below_one_is_refused() -> None:
    with pytest.raises(DataError, match="k >= 1"):
        recall_at({"a"}, ["a"], 0)


@pytest.mark.parametrize(
    ("evidence", "context", "expected"),
    [
        (["D1:3", "D2:4"], ["D1:3", "D5:1"], 0.5),
        (["D1:3", "D2:4"], ["S1", "S7"], 0.5),
        (["D1:3", "D1:3", "D2:4"], ["D1:3"], 2 / 3),
        (["D8:6; D9:17"], ["D8:6", "D9:17"], 0.0),
        (["D8:6; D9:17"], ["S8", "S9"], 1.0),
        ([], [], 1.0),
        (["D1:3"], [], 0.0),
    ],
)
def test_official_recall(evidence: list[str], context: list[str], expected: float) -> None:
    assert official_recall(evidence, context) == pytest.approx(expected)


def test_the_benchmarks_odd_ids(locomo10: list[dict[str, Any]]) -> None:
    repairs: dict[str, int] = {}
    usable = 0
    unusable_categories = []
    for conversation in locomo10:
        sessions = conversation["conversation"].values()
        turns = {turn["dia_id"] for session in sessions if isinstance(session, list) for turn in session}
        for question in conversation["qa"]:
            gold = parse_gold(question["evidence"], turns)
            repairs |= {repair.raw: len(repair.turns) for repair in gold.repairs}
            usable += gold.usable
            if not gold.usable:
                unusable_categories.append(question["category"])
    assert usable == 1982
    assert unusable_categories == [3, 3, 3, 3]
    assert repairs == {
        "D8:6; D9:17": 2,
        "D10:19": 0,
        "D": 0,
        "D:11:26": 1,
        "D4:36": 0,
        "D9:1 D4:4 D4:6": 3,
        "D22:1 D22:2 D9:10 D9:11": 4,
        "D21:18 D21:22 D11:15 D11:19": 4,
        "D30:05": 1,
    }
