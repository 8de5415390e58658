from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from scipy import stats

from eval.categories import Category
from eval.compare import OVERALL, OVERALL4, PER_CATEGORY, Report, compare_groups, rows, to_csv, to_json, to_markdown
from eval.judge import PROMPT_HASH, JudgeRecord
from eval.records import AnswerRecord
from eval.runs import grouped, load_run
from eval.scoring import protocol
from memfly.errors import DataError
from tests.support.fake_runs import perfect, questions, share, write_run


def _report(folders: list[Path], **more: object) -> Report:
    return compare_groups(grouped(map(load_run, folders)), protocol("amem"), **more)  # type: ignore[arg-type]


def test_differences_are_run_minus_reference_and_agree_with_a_t_test_on_conversations(tmp_path: Path) -> None:
    """With equal conversations, the clustered test is the textbook t test on the ten means of differences."""
    report = _report([write_run(tmp_path, predict=share(40)), write_run(tmp_path, "amem", share(80, "x"))])
    (overall,) = [t.comparison for t in report.tests if t.family == OVERALL]
    scorer, sums = protocol("amem"), [0.0] * 10
    for record in questions():
        scores = [
            scorer.score(predict(record), record.answer, record.trap, Category(record.category))["f1"] or 0.0
            for predict in (share(40), share(80, "x"))
        ]
        sums[int(record.conversation[5:])] += (scores[1] - scores[0]) / 10
    expected = stats.ttest_1samp(sums, 0.0)
    assert overall.difference.mean == pytest.approx(sum(sums) / 10)
    interval = expected.confidence_interval(0.95)
    assert overall.difference.low == pytest.approx(interval.low)
    assert overall.difference.high == pytest.approx(interval.high)


def test_a_clear_difference_is_better_or_worse_and_none_is_not(tmp_path: Path) -> None:
    bad, good, same = (
        write_run(tmp_path, name, predict)
        for name, predict in (("memfly", share(20)), ("amem", share(90)), ("rag", share(20)))
    )
    report = _report([bad, good, same])
    verdicts = {t.run.split("-")[0]: t.comparison.verdict for t in report.tests if t.family == OVERALL4}
    assert verdicts == {"amem": "better", "rag": "not distinguishable"}
    back = _report([good, bad])
    assert {t.comparison.verdict for t in back.tests if t.family == OVERALL4} == {"worse"}


def test_families_hold_what_they_say_and_holm_is_over_each(tmp_path: Path) -> None:
    folders = [write_run(tmp_path, n, share(p)) for n, p in (("memfly", 30), ("amem", 60), ("rag", 90))]
    report = _report(folders)
    sizes = {family: sum(t.family == family for t in report.tests) for family in (OVERALL, OVERALL4, PER_CATEGORY)}
    assert sizes == {OVERALL: 2, OVERALL4: 2, PER_CATEGORY: 10}
    overall = [t.comparison for t in report.tests if t.family == OVERALL4]
    first, second = sorted(overall, key=lambda c: c.test.p)
    assert first.p_holm == pytest.approx(2 * first.test.p)
    assert second.p_holm == pytest.approx(max(2 * first.test.p, second.test.p))
    fewer = _report(folders, chosen=["temporal"])
    assert {t.comparison.cell for t in fewer.tests if t.family == PER_CATEGORY} == {"temporal"}


def test_binary_metrics_get_mcnemar_and_equal_the_binomial(tmp_path: Path) -> None:
    def refuse(record: object) -> str:
        return "Not mentioned in the conversation"

    report = _report([write_run(tmp_path, predict=refuse), write_run(tmp_path, "amem", share(50))], metric="refused")
    (test,) = report.tests
    refused = sum(r.category == 5 and share(50)(r) != "banana" for r in questions())
    assert test.comparison.difference.n == 20
    assert test.comparison.p_mcnemar == pytest.approx(stats.binomtest(0, 20 - refused, 0.5).pvalue)
    assert "p McNemar" in to_markdown(report)


def test_being_fooled_more_is_worse(tmp_path: Path) -> None:
    fooled = write_run(tmp_path, "amem", lambda r: r.trap or "banana")
    report = _report([write_run(tmp_path), fooled], metric="fooled")
    assert {t.comparison.verdict for t in report.tests} == {"worse"}


def test_under_amem_nothing_is_better_or_worse_in_category_5(tmp_path: Path) -> None:
    refuses, fooled = write_run(tmp_path), write_run(tmp_path, "amem", lambda r: r.trap or perfect(r))
    there, back = _report([refuses, fooled]), _report([fooled, refuses])
    for report, said in ((there, "more like the trap"), (back, "less like the trap")):
        (five,) = [t.comparison for t in report.tests if t.comparison.cell == "adversarial"]
        assert five.verdict == said
        assert abs(five.difference.mean) == pytest.approx(1.0)
        assert five.p_holm is not None
        assert sum("the reference of category 5 is the trap" in note for note in report.notes) == 1
        assert said in to_markdown(report)
    assert {t.comparison.verdict for t in there.tests if t.family == OVERALL} == {"better"}, "as the protocol has it"


def test_other_protocols_and_readings_have_verdicts_in_category_5(tmp_path: Path) -> None:
    groups = grouped(map(load_run, [write_run(tmp_path), write_run(tmp_path, "amem", lambda r: r.trap or perfect(r))]))
    for name, metric in (("locomo", "f1"), ("amem", "refused")):
        report = compare_groups(groups, protocol(name), metric=metric)
        assert {t.comparison.verdict for t in report.tests if t.comparison.difference.mean} == {"worse"}
        assert not any("trap" in note for note in report.notes)


def test_seeds_are_averaged_and_their_variance_is_shown(tmp_path: Path) -> None:
    folders = [write_run(tmp_path, predict=share(50, str(seed)), seed=seed) for seed in (0, 1, 2)]
    report = _report([*folders, write_run(tmp_path, "amem", perfect)])
    (parts,) = [v for name, v in report.variance.items() if name.startswith("memfly")]
    assert parts.seeds == 3
    assert parts.seed is not None
    assert parts.seed > 0.05
    assert "3 seeds" in to_markdown(report)


def test_one_run_or_only_seeds_of_one_is_refused(tmp_path: Path) -> None:
    folders = [write_run(tmp_path, seed=seed) for seed in (0, 1)]
    with pytest.raises(DataError, match="two runs or more"):
        _report(folders)


def test_an_unknown_metric_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"bleu1.*evidence_hit"):
        _report([write_run(tmp_path), write_run(tmp_path, "amem")], metric="foo")


def test_mixed_runs_are_compared_on_what_they_share_and_say_so(tmp_path: Path) -> None:
    part = write_run(tmp_path, "amem", share(50), records=questions(6))
    whole = write_run(tmp_path, predict=share(50, "y"))
    with pytest.raises(DataError, match="data differs"):
        _report([whole, part])
    report = _report([whole, part], allow_mixed=True)
    assert {t.comparison.difference.n for t in report.tests if t.family == OVERALL} == {60}
    assert any(note.startswith("MIXED") for note in report.notes)
    assert any("40 questions" in note for note in report.notes)


def test_questions_can_be_left_out(tmp_path: Path) -> None:
    report = _report([write_run(tmp_path), write_run(tmp_path, "amem")], without=frozenset({"conv-0#0", "conv-1#1"}))
    assert {t.comparison.difference.n for t in report.tests if t.family == OVERALL} == {98}


def test_questions_left_out_are_left_out_everywhere(tmp_path: Path) -> None:
    wrong = frozenset(r.id for r in questions() if r.conversation < "conv-4")

    def lost(record: AnswerRecord) -> str | None:
        return None if record.id in {"conv-0#0", "conv-9#0"} else share(50)(record)

    folders = [write_run(tmp_path, predict=lost), write_run(tmp_path, "amem")]
    kept = [r for r in questions() if r.id not in wrong]
    alone = [write_run(tmp_path / "kept", n, p, records=kept) for n, p in (("memfly", lost), ("amem", perfect))]
    report, expected = _report(folders, without=wrong), _report(alone)
    assert list(report.variance.values()) == list(expected.variance.values())
    assert list(report.errors.values()) == list(expected.errors.values()) == [1, 0]
    assert list(_report(folders).errors.values()) == [2, 0]


def test_what_the_original_cannot_score_is_noted_and_in_no_mean(tmp_path: Path) -> None:
    groups = grouped(map(load_run, [write_run(tmp_path), write_run(tmp_path, "amem")]))
    report = compare_groups(groups, protocol("locomo", "as_is"))
    (overall,) = [t.comparison for t in report.tests if t.family == OVERALL]
    assert (overall.difference.n, overall.a) == (80, 1.0)
    assert set(report.errors.values()) == {0}
    assert any("the original scorer crashes on 20 questions" in note for note in report.notes)
    assert not compare_groups(groups, protocol("locomo", "as_is"), metric="refused").notes


def test_json_and_csv_say_the_same(tmp_path: Path) -> None:
    report = _report([write_run(tmp_path, predict=share(30)), write_run(tmp_path, "amem", share(60))])
    plain = json.loads(json.dumps(to_json(report)))
    table = list(csv.DictReader(io.StringIO(to_csv(report))))
    assert len(table) == len(plain["comparisons"]) == len(rows(report)) == 7
    for line, item in zip(table, plain["comparisons"], strict=True):
        assert float(line["difference"]) == item["difference"]
        assert line["verdict"] == item["verdict"]


def _judged(folder: Path, model: str, right: int) -> None:
    lines = []
    for i, record in enumerate(r for r in questions() if r.category != 5):
        verdict = None if i == 0 else "CORRECT" if i % 10 < right else "WRONG"
        one = JudgeRecord(
            id=record.id, kind="answer", repeat=0, judged="x", gold="y", judge="j", model=model,
            prompt_hash=PROMPT_HASH, verdict=verdict,
        )  # fmt: skip
        lines.append(one.model_dump_json())
    (folder / "judge.jsonl").write_text("\n".join(lines) + "\n")


def test_a_judges_verdicts_can_be_compared_if_it_is_one_judge(tmp_path: Path) -> None:
    a, b = write_run(tmp_path), write_run(tmp_path, "amem")
    with pytest.raises(DataError, match="was not judged"):
        _report([a, b], metric="judge")
    _judged(a, "m", 2)
    _judged(b, "m", 8)
    report = _report([a, b], metric="judge")
    (overall,) = [t.comparison for t in report.tests if t.family == OVERALL]
    assert overall.difference.n == 79, "unscored questions are left out, category 5 has no verdict"
    assert overall.verdict == "better"
    _judged(b, "other", 8)
    with pytest.raises(DataError, match="one judge"):
        _report([a, b], metric="judge")
