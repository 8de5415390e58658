from __future__ import annotations

from typing import Any

import pytest

from eval.categories import Category
from eval.controls import CONTROLS, Item, predictions, score_controls
from eval.scoring import protocol
from eval.scoring.adversarial import REFUSAL

ITEMS = [
    Item("a", "When did she run?", "7 May 2023", None, Category.TEMPORAL),
    Item("b", "When did he paint?", 2022, None, Category.TEMPORAL),
    Item("c", "Does she like tea?", "Likely yes; she drinks it daily", None, Category.OPEN_DOMAIN),
    Item("d", "What did he learn from the race?", None, "self-care is important", Category.ADVERSARIAL),
    Item("e", "What is his scarf made of?", None, "red wool", Category.ADVERSARIAL),
]

Table = list[dict[str, str | int | float | None]]


def _row(table: Table, **wanted: str) -> dict[str, str | int | float | None]:
    (found,) = [row for row in table if all(row[key] == value for key, value in wanted.items())]
    return found


def test_what_each_control_answers() -> None:
    answers = predictions(ITEMS)
    assert list(answers) == list(CONTROLS)
    assert answers["gold"]["b"] == [(1.0, 2022)]
    assert answers["gold"]["d"] == answers["refuse"]["a"] == [(1.0, REFUSAL)]
    assert answers["empty"]["a"] == [(1.0, "")]
    assert answers["echo"]["e"] == [(1.0, "What is his scarf made of?")]
    assert answers["trap"] == {"d": [(1.0, "self-care is important")], "e": [(1.0, "red wool")]}
    assert answers["coin"]["e"] == [(0.5, REFUSAL), (0.5, "red wool")]


def test_the_other_gold_is_anothers_from_the_category_and_depends_on_seed_and_questions_alone() -> None:
    answers = predictions(ITEMS)["other_gold"]
    assert answers["a"] == [(1.0, 2022)]
    assert answers["d"] == [(1.0, "red wool")]
    assert "c" not in answers, "no other question in its category"
    many = [Item(str(i), "?", f"answer {i}", None, Category.TEMPORAL) for i in range(50)]
    drawn = predictions(many)["other_gold"]
    assert drawn == predictions(many)["other_gold"]
    assert drawn != predictions(many, seed=1)["other_gold"]
    assert all(mixture != [(1.0, f"answer {id}")] for id, mixture in drawn.items())


def test_table() -> None:
    table = score_controls(ITEMS, [protocol("amem"), protocol("locomo")])
    coin = _row(table, protocol="amem", control="coin", category="adversarial")
    assert (coin["n"], coin["f1"], coin["fooled"], coin["refused"]) == (2, 0.5, 0.5, 0.5)
    assert _row(table, protocol="locomo", control="refuse", category="adversarial")["f1"] == 1.0
    assert _row(table, protocol="locomo", control="trap", category="adversarial")["f1"] == 0.0
    assert _row(table, protocol="locomo", control="gold", category="temporal")["f1"] == 1.0
    assert _row(table, protocol="amem", control="empty", category="average")["f1"] == 0.0
    assert not [row for row in table if row["control"] == "trap" and row["category"] == "temporal"]


def test_crashes_of_the_original_are_counted_not_scored() -> None:
    table = score_controls(ITEMS, [protocol("locomo", "as_is")])
    refuse = _row(table, control="refuse", category="adversarial")
    assert (refuse["n"], refuse["n_error"], refuse.get("f1")) == (2, 2, None)
    gold = _row(table, control="gold", category="temporal")
    assert (gold["n"], gold["n_error"], gold["f1"]) == (2, 1, 1.0)


@pytest.fixture(scope="module")
def benchmark_table(locomo10: list[dict[str, Any]]) -> Table:
    items = [
        Item(
            f"{conversation['sample_id']}#{i}",
            question["question"],
            question.get("answer"),
            question.get("adversarial_answer"),
            Category(question["category"]),
        )
        for conversation in locomo10
        for i, question in enumerate(conversation["qa"])
    ]
    return score_controls(items, [protocol("amem"), protocol("locomo"), protocol("mem0")])


@pytest.mark.parametrize(
    ("control", "f1", "bleu1"), [("refuse", 0.0297, 0.0217), ("trap", 1.0, 1.0), ("coin", 0.5149, None)]
)
def test_amem_category_5_on_the_benchmark(benchmark_table: Table, control: str, f1: float, bleu1: float | None) -> None:
    row = _row(benchmark_table, protocol="amem", control=control, category="adversarial")
    assert row["n"] == 446
    assert row["f1"] == pytest.approx(f1, abs=5e-5)
    if bleu1 is not None:
        assert row["bleu1"] == pytest.approx(bleu1, abs=5e-5)


@pytest.mark.parametrize(
    ("category", "f1"),
    [("multi_hop", 1), ("temporal", 1), ("open_domain", 0.9274), ("single_hop", 1), ("adversarial", 1)],
)
def test_locomo_gold_against_itself_on_the_benchmark(benchmark_table: Table, category: str, f1: float) -> None:
    row = _row(benchmark_table, protocol="locomo", control="gold", category=category)
    assert row["f1"] == pytest.approx(f1, abs=5e-5)


@pytest.mark.parametrize(
    ("metric", "values"),
    [
        ("f1", (1, 1, 1, 1)),
        ("bleu1", (1, 1, 1, 1)),
        ("bleu2", (0.872, 0.906, 0.808, 0.900)),
        ("bleu4", (0.742, 0.702, 0.613, 0.713)),
        ("rouge2_f", (0.805, 0.866, 0.698, 0.850)),
    ],
)
def test_amem_gold_against_itself_on_the_benchmark(
    benchmark_table: Table, metric: str, values: tuple[float, float, float, float]
) -> None:
    for category, value in zip(Category, values, strict=False):
        row = _row(benchmark_table, protocol="amem", control="gold", category=category.label)
        assert row[metric] == pytest.approx(value, abs=6e-4)  # the original's values in three digits, rounded twice


def test_mem0_average_leaves_category_5_out_on_the_benchmark(benchmark_table: Table) -> None:
    row = _row(benchmark_table, protocol="mem0", control="refuse", category="average")
    four = _row(benchmark_table, protocol="mem0", control="refuse", category="average4")
    assert (row["f1"], four["n"]) == (four["f1"], 1540)
