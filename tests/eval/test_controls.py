from __future__ import annotations

from typing import Any

import pytest

from eval.categories import Category
from eval.controls import CONTROLS, Item, predictions, score_controls
from eval.scoring import protocol
from eval.scoring.adversarial import REFUSAL
from eval.scoring.aggregate import Cell

ITEMS = [
    Item("a", "When did she run?", "7 May 2023", None, Category.TEMPORAL),
    Item("b", "When did he paint?", 2022, None, Category.TEMPORAL),
    Item("c", "Does she like tea?", "Likely yes; she drinks it daily", None, Category.OPEN_DOMAIN),
    Item("d", "What did he learn from the race?", None, "self-care is important", Category.ADVERSARIAL),
    Item("e", "What is his scarf made of?", None, "red wool", Category.ADVERSARIAL),
]


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


def test_cells_of_each_control() -> None:
    amem, locomo = (score_controls(ITEMS, protocol(name)) for name in ("amem", "locomo"))
    coin = amem["coin"]["adversarial"]
    assert (coin.n, coin.mean["f1"], coin.mean["fooled"], coin.mean["refused"]) == (2, 0.5, 0.5, 0.5)
    assert locomo["refuse"]["adversarial"].mean["f1"] == 1.0
    assert locomo["trap"]["adversarial"].mean["f1"] == 0.0
    assert locomo["gold"]["temporal"].mean["f1"] == 1.0
    assert amem["empty"]["average"].mean["f1"] == 0.0
    assert "temporal" not in amem["trap"]


def test_crashes_of_the_original_are_counted_not_scored_and_hide_no_refusal() -> None:
    table = score_controls(ITEMS, protocol("locomo", "as_is"))
    refuse, gold = table["refuse"]["adversarial"], table["gold"]["temporal"]
    assert (refuse.n, refuse.n_unscorable, refuse.n_error, refuse.count["f1"]) == (2, 2, 0, 0)
    assert (refuse.mean["f1"], refuse.mean["refused_tolerant"]) == (None, 1.0)
    assert (gold.n, gold.n_unscorable, gold.count["f1"], gold.mean["f1"]) == (2, 1, 1, 1.0)


Table = dict[str, dict[str, dict[str, Cell]]]
"""Protocol -> control -> cell name -> cell."""


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
    return {name: score_controls(items, protocol(name)) for name in ("amem", "locomo", "mem0")}


@pytest.mark.parametrize(
    ("control", "f1", "bleu1"), [("refuse", 0.0297, 0.0217), ("trap", 1.0, 1.0), ("coin", 0.5149, None)]
)
def test_amem_category_5_on_the_benchmark(benchmark_table: Table, control: str, f1: float, bleu1: float | None) -> None:
    cell = benchmark_table["amem"][control]["adversarial"]
    assert cell.n == 446
    assert cell.mean["f1"] == pytest.approx(f1, abs=5e-5)
    if bleu1 is not None:
        assert cell.mean["bleu1"] == pytest.approx(bleu1, abs=5e-5)


@pytest.mark.parametrize(
    ("category", "f1"),
    [("multi_hop", 1), ("temporal", 1), ("open_domain", 0.9274), ("single_hop", 1), ("adversarial", 1)],
)
def test_locomo_gold_against_itself_on_the_benchmark(benchmark_table: Table, category: str, f1: float) -> None:
    assert benchmark_table["locomo"]["gold"][category].mean["f1"] == pytest.approx(f1, abs=5e-5)


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
        found = benchmark_table["amem"]["gold"][category.label].mean[metric]
        assert found == pytest.approx(value, abs=6e-4)  # the original's values in three digits, rounded twice


def test_mem0_average_leaves_category_5_out_on_the_benchmark(benchmark_table: Table) -> None:
    every, four = (benchmark_table["mem0"]["refuse"][name] for name in ("average", "average4"))
    assert (every.mean["f1"], every.count["f1"], every.n) == (four.mean["f1"], 1540, 1986)
    assert four.n == 1540
