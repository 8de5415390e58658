from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.judge import (
    FILE,
    NEAR,
    PROMPT_HASH,
    JudgeRecord,
    judge_run,
    mean_verdicts,
    plan,
    read_judged,
    summarise,
    to_markdown,
    wrong_answers,
)
from eval.runs import load_run
from eval.scoring.text import set_f1
from memfly.errors import BackendError, BudgetExceeded, DataError
from memfly.llm.client import LLM
from memfly.tasks.judge import JudgeInput, verdict
from tests.support.fake_runs import perfect, questions, share, write_run
from tests.support.scripted import Scripted


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("CORRECT", "CORRECT"),
        ("Correct.", "CORRECT"),
        ("wrong", "WRONG"),
        ("The dates agree, so it is not WRONG but: CORRECT", "CORRECT"),
        ("I first thought CORRECT. Final label: WRONG.", "WRONG"),
        ("INCORRECT", None),
        ("incorrect", None),
        ("IN-CORRECT", None),
        ("NOT CORRECT", None),
        ("CORRECT? No: INCORRECT", None),
        ("CORRECTLY", None),
        ("The answer is correct in spirit", None),
        ("", None),
        ("maybe", None),
    ],
)
def test_verdict(said: str, expected: str | None) -> None:
    assert verdict(said) == expected


@given(st.text(), st.sampled_from(["CORRECT", "WRONG"]))
def test_the_last_whole_word_wins(before: str, label: str) -> None:
    assert verdict(f"{before}\nSo the label is: {label}") == label


@given(st.text(alphabet="abcXYZ '-", min_size=1))
def test_a_text_without_a_verdict_has_none(text: str) -> None:
    assert verdict(text) is None


def test_wrong_answers_are_wrong_deterministic_and_on_topic() -> None:
    asked = [r for r in questions(3, 4) if r.category != 5]
    for record in asked:
        made = wrong_answers(record, asked)
        assert made == wrong_answers(record, asked)
        gold = str(record.answer)
        assert not set(gold.split()) & set(made["vague"].split())
        assert "fruit" in made["vague"]
        # all golds share a third of their words with each other here, so there is no clearly wrong other gold
        assert "other_gold" not in made or set_f1(made["other_gold"], gold) < NEAR


def test_the_plan_judges_what_has_a_gold_and_an_answer(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path, predict=lambda r: None if r.id == "conv-0#0" else perfect(r)))
    asks = plan(run.records, repeats=2, control=5)
    answers = [ask for ask in asks if ask.kind == "answer"]
    assert len(answers) == 2 * 79
    assert not [ask for ask in answers if ask.record.category == 5]
    assert len({ask.record.id for ask in asks if ask.kind != "answer"}) == 5
    assert asks == plan(run.records, repeats=2, control=5)


def _honest(value: JudgeInput) -> dict[str, str]:
    return {"reason": "compared", "label": "CORRECT" if value.answer == value.gold else "WRONG"}


def _lenient(value: JudgeInput) -> dict[str, str]:
    return {"reason": "generous", "label": "CORRECT"}


async def _judge(folder: Path, backend: Scripted, **more: Any) -> list[JudgeRecord]:
    run = load_run(folder)
    asks = plan(run.records, **{"repeats": 1, "control": 20, **more})
    return await judge_run(folder, asks, LLM(backend, attempts=2))


async def test_verdicts_are_kept_with_model_prompt_and_words_and_not_asked_again(tmp_path: Path) -> None:
    folder = write_run(tmp_path, predict=share(60))
    backend = Scripted(judge=_honest)
    judged = await _judge(folder, backend)
    assert len(backend.calls) == len(judged) == 100
    again = Scripted(judge=_honest)
    assert await _judge(folder, again) == judged
    assert again.calls == []
    assert read_judged(folder)[0].prompt_hash == PROMPT_HASH
    assert {one.model for one in judged} == {"scripted"}
    assert {one.raw for one in judged} == {"CORRECT", "WRONG"}
    summary = summarise(load_run(folder).records, judged)
    right = sum(share(60)(r) != "banana" for r in questions() if r.category != 5)
    assert summary.categories["average4"].mean == pytest.approx(right / 80)
    assert summary.leniency["vague"] == (0.0, 20)


async def test_a_lenient_judge_is_seen_to_be_one(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    summary = summarise(load_run(folder).records, await _judge(folder, Scripted(judge=_lenient)))
    assert summary.leniency["vague"] == (1.0, 20)
    assert "100.0 % of 20 wrong answers" in to_markdown(summary)


async def test_off_menu_is_unscored_and_prose_is_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    replies = {0: {"label": "INCORRECT"}, 1: "It says the same. CORRECT", 2: "Hard to say."}
    ids = [r.id for r in questions() if r.category != 5]

    def judge(value: JudgeInput) -> Any:
        number = next(i for i, r in enumerate(r for r in questions() if r.category != 5) if r.answer == value.gold)
        return replies.get(number, {"reason": "", "label": "WRONG"})

    judged = {one.id: one for one in await _judge(folder, Scripted(judge=judge), control=0)}
    assert [judged[ids[i]].verdict for i in range(4)] == [None, "CORRECT", None, "WRONG"]
    assert judged[ids[0]].raw == "INCORRECT"
    assert judged[ids[2]].raw == "Hard to say."
    summary = summarise(load_run(folder).records, list(judged.values()))
    assert summary.n_unscored == 2
    assert summary.categories["average4"].n == 78
    assert summary.categories["average4"].mean == pytest.approx(1 / 78)


async def test_a_failed_call_is_no_verdict_and_is_tried_again(tmp_path: Path) -> None:
    folder = write_run(tmp_path, predict=lambda r: None if r.id == "conv-0#0" else perfect(r))
    down = Scripted(judge=lambda value: BackendError("server gone", transient=False))
    judged = await _judge(folder, down, control=0)
    assert all(one.verdict is None and (one.error or "").startswith("BackendError") for one in judged)
    with pytest.raises(DataError, match="server gone"):
        summarise(load_run(folder).records, judged)
    summary = summarise(load_run(folder).records, await _judge(folder, Scripted(judge=_lenient), control=0))
    assert (summary.n_failed, summary.n_error) == (0, 1)
    assert summary.categories["average4"].mean == pytest.approx(79 / 80), "an error counts as wrong"


async def test_a_stop_is_itself_and_keeps_the_verdicts_made(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    made: list[object] = []

    def reply(value: Any) -> Any:
        made.append(value)
        return BudgetExceeded("llm.budget: spent") if len(made) > 2 else _honest(value)

    with pytest.raises(BudgetExceeded):
        await _judge(folder, Scripted(judge=reply), control=0)
    assert 1 <= len(read_judged(folder)) <= 2


async def test_repeats_are_separate_verdicts_with_their_own_seed(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    backend = Scripted(judge=_honest)
    judged = await _judge(folder, backend, repeats=3, control=0)
    assert len(judged) == 240
    assert len({call.seed for call in backend.calls}) == 240
    summary = summarise(load_run(folder).records, judged)
    assert (summary.repeats, summary.repeat_sd) == (3, 0.0)
    ((_, verdicts),) = mean_verdicts(folder).items()
    assert set(verdicts.values()) == {1.0}


async def test_another_judge_or_another_answer_is_asked_anew(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    await _judge(folder, Scripted(judge=_honest), control=0)
    other = Scripted(judge=_honest)
    other.identity = {"kind": "scripted", "model": "other"}
    assert len(await _judge(folder, other, control=0)) == len(other.calls) == 80
    assert len(mean_verdicts(folder)) == 2
    text = (folder / "answers.jsonl").read_text().replace("gold 0x0 apple", "something new", 2)
    (folder / "answers.jsonl").write_text(text)
    third = Scripted(judge=_honest)
    await _judge(folder, third, control=0)
    assert len(third.calls) == 1
    assert (folder / FILE).read_text().count("something new") >= 1
