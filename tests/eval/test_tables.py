from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from eval.audit import apply
from eval.control_table import make as make_controls
from eval.published import ABLATION, PUBLISHED, Published, load_published
from eval.report import FORMATS, Row, Table
from eval.runs import Run, load_run
from eval.scoring import protocol
from eval.tables import LAYOUTS, Choices, fitting, make
from memfly.errors import DataError
from tests.support import latex
from tests.support.fake_runs import Predict, perfect, questions, share, write_run

PRINTED = load_published()


def _runs(root: Path, *methods: tuple[str, Predict], backbone: str = "qwen3-8b") -> list[Run]:
    return [load_run(write_run(root, name, predict, backbone=backbone)) for name, predict in methods]


def _make(kind: str, runs: Sequence[Run], name: str = "amem", **choices: object) -> list[Table]:
    given = {"published": PRINTED, **choices}
    return make(LAYOUTS[kind], fitting(runs, LAYOUTS[kind]), protocol(name), Choices(**given))  # type: ignore[arg-type]


def _row(table: Table, label: str) -> Row:
    (found,) = [row for row in table.rows if row.label == label]
    return found


def test_published_numbers_are_complete_and_in_range() -> None:
    numbers = [number for row in PRINTED.rows.values() for number in row.values()]
    assert len(numbers) == 923
    assert all(0 <= n.value <= 100 and n.source.startswith("arXiv") and n.provenance for n in numbers)
    assert PRINTED.row(("memfly_main",), "GPT-4o-mini", "MemFly")["average", "f1"].value == 43.76
    assert list(ABLATION.values()) == PRINTED.methods(("memfly_ablation",), "Qwen3-8B")


def test_a_bad_published_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("\n".join(PUBLISHED.read_text().splitlines()[:3]).replace("19.75", "many"))
    with pytest.raises(DataError, match=r"p\.csv:3"):
        load_published(path)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"table,backbone\n", b'"\n'])
def test_a_file_without_published_numbers_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_bytes(content)
    with pytest.raises(DataError, match=r"p\.csv: .*; give --published FILE$"):
        load_published(tmp_path / "p.csv")


def test_main_table_puts_the_printed_number_and_the_gap_under_each_cell(tmp_path: Path) -> None:
    (table,) = _make("main", _runs(tmp_path, ("memfly", share(60)), ("amem", share(30)), ("rag_bm25", share(20))))
    ours = _row(table, "MemFly")
    cell = ours.cells["average.f1"]
    assert (ours.kind, ours.section, cell.published, cell.n) == ("ran", "Qwen3-8B", 0.3862, 100)
    assert cell.se is not None
    assert cell.source == "arXiv 2602.07885v1 Tables 1-2"
    assert _row(table, "rag_bm25").cells["average.f1"].published is None
    assert [c.key for c in table.columns[-3:]] == ["n", "n_error", "tokens"]
    assert "protocol amem (fixed), prompt set amem" in table.title


def test_methods_that_did_not_run_are_reported_rows_and_never_ranked(tmp_path: Path) -> None:
    (table,) = _make("main", _runs(tmp_path, ("memfly", share(60)), ("amem", share(30))))
    reported = [row for row in table.rows if row.kind == "reported"]
    assert [row.label for row in reported] == ["LoCoMo", "ReadAgent", "MemoryBank", "MemGPT", "Mem-0"]
    assert all(cell.mark == "" and cell.source for row in reported for cell in row.cells.values())
    (bare,) = _make("main", _runs(tmp_path / "x", ("memfly", perfect)), reported="none")
    assert not [row for row in bare.rows if row.kind == "reported"]


def test_another_backbones_numbers_say_whose_they_are(tmp_path: Path) -> None:
    runs = _runs(tmp_path, ("memfly", share(60)), backbone="extractive")
    (alone,) = _make("main", runs)
    assert not [row for row in alone.rows if row.kind == "reported"], "no paper ran the extractive backbone"
    (quoted,) = _make("main", runs, against="GPT-4o")
    assert _row(quoted, "MemFly").published_label == "reported (GPT-4o)"
    assert next(row.label for row in quoted.rows if row.kind == "reported") == "LoCoMo (GPT-4o)"
    with pytest.raises(DataError, match="did you mean GPT-4o"):
        _make("main", runs, against="GPT4o")
    (everything,) = _make("main", runs, reported="all")
    sections = {row.section for row in everything.rows if row.kind == "reported"}
    assert {"GPT-4o (no run here)", "Qwen3-14B (no run here)", "Llama3.2-1b (no run here)"} <= sections


def test_best_second_and_what_a_paired_test_cannot_tell_from_the_best(tmp_path: Path) -> None:
    close: Predict = lambda r: "banana" if r.id == "conv-3#0" else share(90)(r)  # noqa: E731
    (table,) = _make("main", _runs(tmp_path, ("memfly", share(90)), ("amem", close), ("mem0", share(10))))
    marks = {row.label: (c.mark, c.tied) for row in table.rows if row.kind == "ran" for c in [row.cells["average4.f1"]]}
    assert marks == {"MemFly": ("best", False), "A-MEM": ("second", True), "Mem-0": ("", False)}


def test_being_fooled_is_best_nowhere(tmp_path: Path) -> None:
    fooled: Predict = lambda r: r.trap or "banana"  # noqa: E731
    runs = _runs(tmp_path, ("memfly", perfect), ("amem", fooled))
    (amem,), (locomo,) = _make("main", runs), _make("main", runs, "locomo")
    marks = [[row.cells["adversarial.f1"].mark for row in t.rows if row.kind == "ran"] for t in (amem, locomo)]
    assert marks[0] == ["", ""]
    assert set(marks[1]) == {"best", "second"}
    assert {row.cells["adversarial.bleu1"].mark for row in amem.rows if row.kind == "ran"} == {""}
    assert _row(locomo, "MemFly").cells["adversarial.f1"].mark == "best"
    assert "no row is best there" in " ".join(amem.notes)


UNLIKE: list[tuple[dict[str, Any], str]] = [
    ({"data": {"sha256": "ab" * 32}}, "data other than LoCoMo-10"),
    ({"records": questions(9)}, "only part of LoCoMo-10"),
    ({"data": {"limit_questions": 20}}, "only part of LoCoMo-10"),
    ({"prompt_set": "open"}, "prompt set open"),
    ({"answer": {"token_budget": 1000}}, "a token budget"),
]


@pytest.mark.parametrize(("more", "reason"), UNLIKE)
@pytest.mark.parametrize("kind", ["main", "ablation"])
def test_papers_are_not_quoted_beside_runs_of_another_task(
    tmp_path: Path, kind: str, more: dict[str, Any], reason: str
) -> None:
    runs = [load_run(write_run(tmp_path, **more))]
    (table,) = _make(kind, runs, against="Qwen3-8B", reported="all")
    assert not [row for row in table.rows if row.kind == "reported"]
    assert all(cell.published is None for row in table.rows for cell in row.cells.values())
    assert [note for note in table.notes if note.endswith(f"none is quoted beside runs with {reason}")]
    assert "gap" not in FORMATS["markdown"]([table]).splitlines()[4]


def test_only_the_runs_of_the_papers_task_are_quoted_in_a_mixed_table(tmp_path: Path) -> None:
    runs = [load_run(write_run(tmp_path, answer={"token_budget": budget})) for budget in (None, 1000)]
    (table,) = _make("main", runs, allow_mixed=True)
    quoted = {row.label.partition("]")[2]: row.cells["average.f1"].published for row in table.rows if row.kind == "ran"}
    assert quoted == {"": 0.3862, ", 1000 tokens": None}
    assert any(note.endswith("beside runs with a token budget") for note in table.notes)


def test_a_preset_with_another_s_settings_keeps_its_row(tmp_path: Path) -> None:
    runs = [
        load_run(write_run(tmp_path, options={"rounds": rounds}, preset=preset))
        for rounds, preset in ((3, "memfly"), (1, "memfly"), (1, "memfly_wo_ier"))
    ]
    (table,) = _make("ablation", runs, controls=False)
    labels = [row.label for row in table.rows if row.kind == "ran"]
    assert len(labels) == 3
    assert "w/o IER" in labels
    assert not any("seeds" in label for label in labels)


def test_runs_and_controls_leave_out_alike_what_the_original_cannot_score(tmp_path: Path) -> None:
    runs = _runs(tmp_path, ("memfly", perfect))
    (table,) = make(LAYOUTS["main"], runs, protocol("locomo", "as_is"), Choices(published=PRINTED))
    ours, gold = _row(table, "MemFly").cells, _row(table, "gold").cells
    assert (
        (ours["average.f1"].value, ours["average.f1"].n) == (gold["average.f1"].value, gold["average.f1"].n) == (1, 80)
    )
    assert (ours["n"].value, ours["n_error"].value) == (100, 0)
    assert ours["adversarial.refused_tolerant"].value == gold["adversarial.refused_tolerant"].value == 1.0
    assert any("the original scorer crashes on 20 questions" in note for note in table.notes)


def test_counts_of_several_seeds_are_of_questions(tmp_path: Path) -> None:
    lost: Predict = lambda r: None if r.id == "conv-0#0" else perfect(r)  # noqa: E731
    (table,) = _make("main", [load_run(write_run(tmp_path, predict=lost, seed=seed)) for seed in (0, 1, 2)])
    cells = _row(table, "MemFly (3 seeds)").cells
    assert (cells["n"].value, cells["n_error"].value, cells["average.f1"].n_error) == (100, 1, 1)


def test_with_few_conversations_nothing_is_tied_and_a_note_says_why(tmp_path: Path) -> None:
    runs = [load_run(write_run(tmp_path, m, share(p), records=questions(3))) for m, p in (("memfly", 90), ("amem", 10))]
    (table,) = _make("main", runs)
    assert not any(cell.tied for row in table.rows for cell in row.cells.values())
    assert any("3 conversations" in note for note in table.notes)


def test_two_runs_of_one_row_get_their_hash_and_a_note(tmp_path: Path) -> None:
    folders = [write_run(tmp_path, predict=share(50), options={"tau_m": tau}) for tau in (0.7, 0.9)]
    (table,) = _make("main", [load_run(folder) for folder in folders])
    labels = [row.label for row in table.rows if row.kind == "ran"]
    assert sorted(labels) == sorted(f"MemFly [{folder.name.rpartition('-')[2]}]" for folder in folders)
    assert any("method.tau_m=0.9" in note for note in table.notes)


def test_seeds_are_one_row(tmp_path: Path) -> None:
    runs = [load_run(write_run(tmp_path, predict=share(50, str(s)), seed=s)) for s in range(3)]
    (table,) = _make("main", runs)
    assert [row.label for row in table.rows if row.kind == "ran"] == ["MemFly (3 seeds)"]


def test_both_readings_stand_where_questions_failed(tmp_path: Path) -> None:
    half: Predict = lambda r: None if r.category == 4 and r.conversation < "conv-5" else perfect(r)  # noqa: E731
    (table,) = _make("main", _runs(tmp_path, ("memfly", half)))
    cell = _row(table, "MemFly").cells["single_hop.f1"]
    assert (cell.value, cell.without_errors, cell.n_error) == (0.5, 1.0, 10)
    assert _row(table, "MemFly").cells["temporal.f1"].without_errors is None
    assert _row(table, "MemFly").cells["n_error"].value == 10
    assert "errors left out" in FORMATS["markdown"]([table])


def test_control_rows_know_what_they_cover(tmp_path: Path) -> None:
    (table,) = _make("main", _runs(tmp_path, ("memfly", share(60))), name="locomo")
    assert _row(table, "gold").cells["adversarial.f1"].value == 1.0
    assert _row(table, "trap").cells["adversarial.f1"].value == 0.0
    assert "average.f1" not in _row(table, "trap").cells, "an average over category 5 alone is none"
    assert _row(table, "coin").cells["adversarial.f1"].value == 0.5
    assert all(c.published is None for row in table.rows for c in row.cells.values()), "other protocol, no quotes"


def test_an_ablation_quotes_the_papers_backbone_and_says_so(tmp_path: Path) -> None:
    methods = [(name, share(50)) for name in (*list(ABLATION)[:3], "amem")]
    (table,) = _make("ablation", _runs(tmp_path, *methods, backbone="extractive"))
    full = _row(table, "full")
    assert [row.label for row in table.rows if row.kind == "ran"] == ["full", "w/o Update", "w/o Denoise"]
    assert full.section == "extractive (no language model)"
    assert full.published_label == "reported (Qwen3-8B)"
    assert full.cells["average.evidence_recall"].published == 0.6222
    assert full.cells["average.evidence_recall"].value == 0.5
    assert full.cells["temporal.f1"].provenance.startswith("digitised")


def test_an_audit_gives_every_table_twice_and_a_ceiling(tmp_path: Path) -> None:
    asked = {r.id: r.question for r in questions()}
    issues = [
        {"question_id": f"locomo_{c}_qa0", "question": asked[f"conv-{c}#0"], "error_type": "HALLUCINATION",
         "correct_answer": "quince"} for c in range(10)
    ]  # fmt: skip
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(issues))
    audit = apply(path, asked)
    whole, rest = _make("main", _runs(tmp_path, ("memfly", perfect)), audit=audit)
    assert (whole.subset, rest.subset) == ("all", "without_wrong_golds")
    assert _row(whole, "ceiling").cells["multi_hop.f1"].value == pytest.approx(0.5)
    assert _row(rest, "MemFly").cells["multi_hop.f1"].n == 10
    assert _row(rest, "MemFly").cells["n"].value == 90
    assert any("10 of its 10 issues" in note for note in rest.notes)


def test_mixed_runs_are_refused_and_marked_when_allowed(tmp_path: Path) -> None:
    runs = [load_run(write_run(tmp_path)), load_run(write_run(tmp_path, "amem", prompt_set="open"))]
    with pytest.raises(DataError, match="prompt set differs"):
        _make("main", runs)
    (table,) = _make("main", runs, allow_mixed=True)
    assert any(note.startswith("MIXED: prompt set") for note in table.notes)


def test_a_table_without_fitting_runs_names_its_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="memfly_wo_update"):
        _make("ablation", _runs(tmp_path, ("amem", perfect)))


@pytest.mark.parametrize("name", ["amem", "locomo", "mem0"])
@pytest.mark.parametrize("kind", list(LAYOUTS))
def test_every_layout_renders_in_every_format_and_protocol(tmp_path: Path, kind: str, name: str) -> None:
    methods = [(method, share(10 * i + 20)) for i, method in enumerate(list(LAYOUTS[kind].labels)[:3])]
    tables = _make(kind, _runs(tmp_path, *methods), name)
    for render in FORMATS.values():
        assert render(tables)
    assert latex.check(FORMATS["latex"](tables)) > 10
    (table,) = _make(kind, _runs(tmp_path / "y", *methods), name, published=Published(), controls=False)
    assert {row.kind for row in table.rows} == {"ran"}


def test_control_table_of_a_file_reproduces_the_known_values(locomo10_file: Path) -> None:
    amem, locomo = make_controls(locomo10_file, [protocol("amem"), protocol("locomo")])
    value = lambda table, row: _row(table, row).cells["adversarial.f1"].value  # noqa: E731
    assert value(amem, "refuse") == pytest.approx(0.0297, abs=5e-5)
    assert value(amem, "trap") == 1.0
    assert value(amem, "coin") == pytest.approx(0.51, abs=0.005)
    gold = _row(locomo, "gold").cells
    assert [round(gold[f"{c}.f1"].value or 0, 4) for c in ("multi_hop", "temporal", "open_domain", "single_hop")] == [
        1, 1, 0.9274, 1,
    ]  # fmt: skip
