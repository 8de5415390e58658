from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval.runs import differences, discover, flatten, grouped, load_run, score_group, where
from eval.scoring import protocol
from memfly.errors import DataError
from tests.support.fake_runs import Predict, perfect, questions, share, write_run


def test_flatten_keeps_lists_and_dots_the_keys() -> None:
    assert flatten({"a": {"b": 1, "c": [1, 2]}, "d": None}) == {"a.b": 1, "a.c": [1, 2], "d": None}


def test_runs_that_differ_in_the_seed_alone_are_one_group(tmp_path: Path) -> None:
    folders = [write_run(tmp_path, seed=seed) for seed in (2, 0, 1)] + [write_run(tmp_path, options={"tau_m": 0.9})]
    groups = grouped(load_run(folder) for folder in [*folders, folders[0]])
    assert [[run.seed for run in group.runs] for group in groups] == [[0, 1, 2], [0]]
    assert differences([groups[0], groups[1]]) == {
        groups[0].name: {"method.tau_m": "0.7"},
        groups[1].name: {"method.tau_m": "0.9"},
    }


def test_seeds_are_averaged_within_a_question(tmp_path: Path) -> None:
    folders = [write_run(tmp_path, predict=predict, seed=i) for i, predict in enumerate((perfect, lambda r: "banana"))]
    (group,) = grouped(map(load_run, folders))
    scored = score_group(group, protocol("amem"))
    values = scored.values("f1")
    assert values["conv-0#0"] == 0.5
    assert len(values) == 100
    assert set(scored.values("refused_tolerant")) == {r.id for r in questions() if r.category == 5}
    assert scored.values("evidence_recall")["conv-3#4"] == 0.5


def test_an_error_is_a_zero_with_a_count_and_can_be_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path, predict=lambda r: None if r.id == "conv-0#0" else perfect(r))
    (group,) = grouped([load_run(folder)])
    scored = score_group(group, protocol("amem"))
    assert scored.failed() == {"conv-0#0"}
    assert scored.values("f1")["conv-0#0"] == 0.0
    assert "conv-0#0" not in scored.values("f1", errors=False)
    assert "conv-0#0" not in scored.tokens


def test_errors_are_counted_in_questions_as_n_is_however_many_seeds(tmp_path: Path) -> None:
    def lost(*ids: str) -> Predict:
        return lambda r: None if r.id in ids else perfect(r)

    folders = [write_run(tmp_path, predict=lost("conv-0#0", f"conv-{seed}#1"), seed=seed) for seed in (1, 2)]
    (group,) = grouped(map(load_run, folders))
    scored = score_group(group, protocol("amem"))
    assert scored.failed() == {"conv-0#0", "conv-1#1", "conv-2#1"}
    assert scored.failed(frozenset({"conv-1#1"})) == {"conv-0#0", "conv-2#1"}


def test_presets_of_other_names_are_other_rows_even_with_equal_settings(tmp_path: Path) -> None:
    folders = [write_run(tmp_path), write_run(tmp_path, preset="memfly_wo_ier"), write_run(tmp_path, seed=1)]
    groups = grouped(map(load_run, folders))
    assert [(group.method, len(group.runs)) for group in groups] == [("memfly", 2), ("memfly_wo_ier", 1)]


def test_the_same_run_in_two_folders_is_never_two_seeds(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / "a"), write_run(tmp_path / "b")]
    with pytest.raises(DataError, match="the same run twice") as caught:
        grouped(map(load_run, folders))
    assert all(str(folder) in str(caught.value) for folder in folders)


def test_a_failed_question_gives_no_recall_to_a_system_whose_evidence_cannot_be_traced(tmp_path: Path) -> None:
    lost: Predict = lambda r: None if r.id == "conv-0#0" else perfect(r)  # noqa: E731
    untraced = [r.model_copy(update={"traceable": r.id == "conv-0#0"}) for r in questions()]
    for records, expected in ((untraced, {}), (questions(), {"conv-0#0": 0.0, "conv-0#1": 0.5})):
        (group,) = grouped(
            [load_run(write_run(tmp_path, "summaries" if not expected else "rag", lost, records=records))]
        )
        values = score_group(group, protocol("amem")).values("evidence_recall")
        assert {id: values[id] for id in expected} == expected
        assert len(values) == (100 if expected else 0)


def test_a_run_in_which_all_failed_has_no_evidence_measure(tmp_path: Path) -> None:
    (group,) = grouped([load_run(write_run(tmp_path, predict=lambda r: None))])
    assert score_group(group, protocol("amem")).values("evidence_recall") == {}


def test_discovery_takes_finished_runs_only_and_where_filters_them(tmp_path: Path) -> None:
    done = write_run(tmp_path, options={"tau_m": 0.9})
    write_run(tmp_path, "amem", status="stopped")
    (tmp_path / "cache").mkdir()
    found = discover(tmp_path)
    assert [run.folder for run in found] == [done]
    assert where(found, ["method.tau_m=0.9", "method_name=memfly"]) == found
    assert where(found, ["data.audit=null", "method.tau_m=0.7"]) == []
    with pytest.raises(DataError, match="key=value"):
        where(found, ["tau_m"])


def test_a_folder_that_is_no_finished_run_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no summary\.json"):
        load_run(tmp_path)
    stopped = write_run(tmp_path, status="stopped")
    with pytest.raises(DataError, match="not finished"):
        load_run(stopped)
    assert load_run(stopped, finished=False).method == "memfly"
    (stopped / "summary.json").write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        load_run(stopped)


def test_numbers_come_from_the_answers_not_from_stored_scores(tmp_path: Path) -> None:
    folder = write_run(tmp_path, predict=share(50))
    summary = json.loads((folder / "summary.json").read_text())
    summary["average"]["f1"] = 0.99
    (folder / "summary.json").write_text(json.dumps(summary))
    (group,) = grouped([load_run(folder)])
    values = score_group(group, protocol("amem")).values("f1")
    assert sum(values.values()) / len(values) < 0.8


def test_damaged_files_are_one_line_and_never_fewer_questions(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    answers = folder / "answers.jsonl"
    whole = answers.read_text()
    for damage, said in (
        (whole[:-30], "99 records"),
        (whole + whole.splitlines()[0] + "\n", "101 records of 100 questions"),
        ('{"id": "x"}\n', "not answer records"),
    ):
        answers.write_text(damage)
        with pytest.raises(DataError, match=said):
            _ = load_run(folder).records
    (folder / "manifest.json").write_text("[]")
    with pytest.raises(DataError, match="not written by"):
        load_run(folder)
