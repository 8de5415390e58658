"""Runs that may not stand side by side are refused with a way out that works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from eval.comparable import check_comparable
from eval.runs import load_run, where
from memfly.errors import DataError
from tests.support.fake_runs import write_run


@pytest.mark.parametrize(
    ("more", "said", "hint"),
    [
        ({"data": {"captions": "none"}}, "data differs in captions", "data.captions=all"),
        ({"data": {"sha256": "cd" * 32}, "name": "other"}, "data differs in sha256", "data.name=fake"),
        ({"data": {"sha256": "cd" * 32}}, "data differs in sha256", None),
        ({"data": {"limit_questions": 5}}, "data differs in limit_questions", "data.limit_questions=null"),
        ({"prompt_set": "open"}, "prompt set differs", "answer.prompt_set=amem"),
        (
            {"answer": {"token_budget": 1000}},
            "in token_budget: null in memfly-.* and 1000 in",
            "answer.token_budget=null",
        ),
        ({"answer": {"temperature": 0.0}}, "answering differs in temperature", "answer.temperature=0.7"),
        (
            {"answer": {"temperature_adversarial": 0}},
            "in temperature_adversarial",
            "answer.temperature_adversarial=0.5",
        ),
        ({"answer": {"max_tokens": 50}}, "answering differs in max_tokens", "answer.max_tokens=1000"),
        ({"embedder": "minilm"}, "embedder differs in kind: hashing in", "embedder.kind=hashing"),
    ],
)
def test_what_changes_the_numbers_is_refused_with_a_hint_that_separates(
    tmp_path: Path, more: dict[str, Any], said: str, hint: str | None
) -> None:
    runs = [load_run(write_run(tmp_path)), load_run(write_run(tmp_path, "amem", **more))]
    with pytest.raises(DataError, match=said) as caught:
        check_comparable(runs)
    told = re.search(r"--where (\S+)\)", str(caught.value))
    if hint is None:
        assert told is None
        assert "name the run folders" in str(caught.value)
    else:
        assert told is not None
        assert shlex.split(told[1]) == [hint]
        assert where(runs, [hint]) == runs[:1]
    (line,) = check_comparable(runs, allow_mixed=True)
    assert re.search(said, line)
    assert runs[1].name in line


def test_native_answers_are_held_against_runs_of_the_same_system(tmp_path: Path) -> None:
    off = {"answer": {"native": False}}
    bench = load_run(write_run(tmp_path, "rag"))
    ours, theirs = load_run(write_run(tmp_path, "memgpt", **off)), load_run(write_run(tmp_path, "memgpt"))  # type: ignore[arg-type]
    assert check_comparable([bench, ours]) == []
    with pytest.raises(DataError, match="native of memgpt"):
        check_comparable([bench, ours, theirs])
    cut = [{"token_budget": 1000, "native": native} for native in (True, False)]
    assert check_comparable([load_run(write_run(tmp_path, "memgpt", answer=answer)) for answer in cut]) == []


def test_a_note_view_is_compared_where_there_is_one_and_may_be_swept(tmp_path: Path) -> None:
    views = [load_run(write_run(tmp_path, options={"note_view": view})) for view in ("both", "raw")]
    other = load_run(write_run(tmp_path, "rag"))
    assert check_comparable([other, views[0]]) == []
    with pytest.raises(DataError, match=r"tables: --where method\.note_view=both"):
        check_comparable([other, *views])
    assert check_comparable(views, swept=["method.note_view"]) == []
