"""What counts as a finished run, and what scoring it again keeps."""

from __future__ import annotations

from pathlib import Path

from tests.support.runs import answers, lasting, run

AS_IS = ("scoring=locomo", "scoring.mode=as_is")


def test_a_run_is_finished_though_the_original_scorer_crashes_on_some_questions(tmp_path: Path) -> None:
    first = run(tmp_path)
    adversarial = sum(a["category"] == 5 for a in answers(first))
    scored = run(tmp_path, *AS_IS)
    assert (scored.summary["n_error"], scored.summary["n_unscorable"]) == (0, adversarial)
    assert scored.summary["adversarial"] == first.summary["adversarial"]
    again = run(tmp_path, *AS_IS)
    assert (again.reused, again.summary) == (True, scored.summary)
    back = run(tmp_path)
    assert lasting(back.summary) == lasting(first.summary)
    for result in (scored, again, back):
        assert (result.summary["process"], result.summary["wall_s"]) == (
            first.summary["process"],
            first.summary["wall_s"],
        )


def test_a_process_that_called_nothing_leaves_what_was_spent(tmp_path: Path) -> None:
    first = run(tmp_path)
    assert first.summary["process"]["role_totals"]
    (first.folder / "scores.jsonl").unlink()
    again = run(tmp_path)
    assert not again.reused
    assert again.summary["process"] == first.summary["process"]
    assert again.summary["wall_s"] > first.summary["wall_s"], "all processes that worked on it"
