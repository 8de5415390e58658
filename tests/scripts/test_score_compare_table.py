"""The commands over finished runs, as a user types them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memfly.embed import Hashing
from scripts.cli import main
from tests.support import latex
from tests.support.fake_openai import FakeOpenAI
from tests.support.fake_runs import perfect, questions, share, write_run

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def memfly(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command; gives exit code, standard output and standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def _refused(result: tuple[int, str, str], said: str) -> None:
    code, _, error = result
    assert code == 2
    assert said in error
    assert error.count("\n") == 1, "one line"
    assert "Traceback" not in error


def test_score_again_by_another_protocol(tmp_path: Path, memfly: Command) -> None:
    folder = write_run(tmp_path, predict=lambda r: None if r.id == "conv-0#0" else perfect(r))
    code, out, _ = memfly("score", folder, "--protocol", "locomo", "--mode", "as_is")
    assert code == 0
    assert "| multi_hop | 20 | 1 | 95.00 |" in out
    assert "| multi_hop, errors left out | 19 | 0 | 100.00 |" in out
    assert "| average | 80 | 1 | 98.75 |" in out
    assert "| adversarial | 0 | 0 | - | 100.00 |" in out
    assert "- n counts the questions of F1; on average refused, refused_tolerant are over 100" in out
    assert "- the original scorer crashes on 20 questions, which have no score" in out
    lines = (folder / "scores-locomo-as_is.jsonl").read_text().splitlines()
    assert len(lines) == 100
    assert {json.loads(line)["error"] for line in lines} == {None, "ParseError"}
    assert sum(json.loads(line).get("unscorable") == "KeyError" for line in lines) == 20


def test_score_pairs(tmp_path: Path, memfly: Command) -> None:
    pairs, out = tmp_path / "p.jsonl", tmp_path / "new" / "o.jsonl"
    pairs.write_text('{"prediction": "x", "reference": "x", "category": 1, "k": 7}\n')
    assert memfly("score", "--pairs", pairs, "--protocol", "locomo", "--mode", "as_is", "--out", out)[0] == 0
    row = json.loads(out.read_text())
    assert (row["k"], row["scores"]["f1"]) == (7, 1.0)
    pairs.write_text('{"prediction": "x"}\n')
    out.unlink()
    _refused(memfly("score", "--pairs", pairs, "--protocol", "amem", "--out", out), f"{pairs}:1: no 'reference'")
    assert not out.exists(), "nothing is written when a line is bad"
    _refused(memfly("score", "--pairs", pairs), "which protocol")
    _refused(memfly("score"), "name a run folder or --pairs")
    _refused(memfly("score", tmp_path), "no summary.json")


def test_options_that_would_do_nothing_are_refused(tmp_path: Path, memfly: Command) -> None:
    pairs = tmp_path / "p.jsonl"
    pairs.write_text('{"prediction": "x", "reference": "x", "category": 1}\n')
    _refused(memfly("score", write_run(tmp_path), "--out", tmp_path / "o.jsonl"), "--out: only --pairs takes one")
    for option in (["--sbert"], ["--slices", tmp_path / "s.parquet"], ["--audit", "none"]):
        result = memfly("score", "--pairs", pairs, "--protocol", "amem", *option)
        _refused(result, "need a run, not pairs")


def test_judge_over_a_server(tmp_path: Path, memfly: Command) -> None:
    def grade(body: dict[str, Any]) -> str:
        asked = body["messages"][1]["content"]
        gold, answer = (asked.split(f"{name}: ")[1].split("\n")[0] for name in ("Gold answer", "Answer to grade"))
        return json.dumps({"reason": "compared", "label": "CORRECT" if gold == answer else "WRONG"})

    folder = write_run(tmp_path, predict=share(50))
    with FakeOpenAI(answer=grade) as server:
        judge = ["--judge", "llm=openai", "llm.model=fake-model", f"llm.base_url={server.url}", "llm.probe=false"]
        code, out, error = memfly("score", folder, "--judge-control", 3, *judge)
        assert code == 0, error
        asked = len(server.requests)
        assert memfly("score", folder, "--judge-control", 3, *judge)[0] == 0
        assert len(server.requests) == asked, "verdicts are kept"
    assert asked == 83
    assert "Judge fake-model" in out
    assert "leniency: 0.0 % of 3 wrong answers" in out
    summary = json.loads((folder / "judge.json").read_text())
    assert summary["categories"]["average4"]["n"] == 80
    assert len((folder / "judge.jsonl").read_text().splitlines()) == asked


def test_judge_needs_a_model(tmp_path: Path, memfly: Command) -> None:
    folder = write_run(tmp_path)
    _refused(memfly("score", folder, "--judge", "llm=extractive"), "a judge needs a language model")
    _refused(memfly("score", folder, "--judge", "method=amem"), "takes llm=NAME")
    _refused(memfly("score", folder, "--judge", "llm=no_such"), "no_such")
    _refused(memfly("score", folder, "--judge", "llm=openai"), "llm.model")


def test_compare_prints_and_writes(tmp_path: Path, memfly: Command) -> None:
    a, b = write_run(tmp_path, predict=share(30)), write_run(tmp_path, "amem", share(70))
    code, out, _ = memfly("compare", a, b, "--json", tmp_path / "c.json")
    assert code == 0
    assert "Family: overall (1 test)" in out
    plain = json.loads((tmp_path / "c.json").read_text())
    assert plain["reference"].startswith("memfly-")
    _, out, _ = memfly("compare", a, b, "--csv", "-", "--metric", "evidence_hit")
    assert {row["metric"] for row in csv.DictReader(io.StringIO(out))} == {"evidence_hit"}
    _refused(memfly("compare", a), "two runs or more")
    _refused(memfly("compare", a, tmp_path), "no summary.json")
    other = write_run(tmp_path, "mem0", scoring=("locomo", "fixed"))
    _refused(memfly("compare", a, other), "--protocol")


def test_table_from_discovery_and_to_a_file(tmp_path: Path, memfly: Command) -> None:
    write_run(tmp_path, predict=share(50))
    write_run(tmp_path, "memfly_wo_link", share(40))
    write_run(tmp_path, "amem", share(40))
    code, out, _ = memfly(
        "table", "ablation", "--root", tmp_path, "--format", "latex", "--out", tmp_path / "x" / "t.tex"
    )
    assert (code, out.strip()) == (0, str(tmp_path / "x" / "t.tex"))
    text = (tmp_path / "x" / "t.tex").read_text()
    assert latex.check(text) > 10
    assert "w/o Link" in text
    assert "A-MEM" not in text.split(r"\begin{tabular}")[1]
    code, out, _ = memfly("table", "main", "--root", tmp_path, "--runs", "memfly-*", "--no-controls")
    assert code == 0
    assert "| MemFly |" in out
    assert "| A-MEM |" not in out, "its run was not chosen: only the reported row, with its mark"
    assert "*A-MEM †*" in out


def test_conditions_given_one_by_one_all_hold(tmp_path: Path, memfly: Command) -> None:
    write_run(tmp_path, options={"tau_m": 0.7})
    write_run(tmp_path, options={"tau_m": 0.9})
    write_run(tmp_path, "amem")
    where = ("--where", "method_name=memfly", "--where", "method.tau_m=0.9")
    code, out, _ = memfly("table", "sensitivity", "--axes", "tau_m", "--root", tmp_path, *where)
    assert code == 0
    assert "tau\\_m = 0.9" in out
    assert "tau\\_m = 0.7" not in out


def test_table_refusals_are_one_line(tmp_path: Path, memfly: Command) -> None:
    _refused(memfly("table", "main", "--root", tmp_path), "no finished run matches")
    write_run(tmp_path)
    write_run(tmp_path, "amem", data={"captions": "none"})
    _refused(memfly("table", "main", "--root", tmp_path), "data differs")
    assert memfly("table", "main", "--root", tmp_path, "--allow-mixed")[0] == 0
    assert memfly("table", "main", "--root", tmp_path, "--where", "method_name=amem")[0] == 0
    _refused(memfly("table", "main", "--root", tmp_path, "--where", "method_name=x"), "none of 2 runs")
    _refused(memfly("table", "main", "--root", tmp_path, "--figure", "f"), "sensitivity")
    _refused(memfly("table", "main", "--root", tmp_path, "--audit", tmp_path / "none.json"), "--audit")


def test_sensitivity_figure_and_efficiency(tmp_path: Path, memfly: Command) -> None:
    for tau in (0.5, 0.7):
        write_run(tmp_path, predict=share(int(tau * 100)), options={"tau_m": tau})
    code, out, error = memfly("table", "sensitivity", "--root", tmp_path, "--figure", tmp_path / "f.png")
    assert code == 0
    assert "tau\\_m = 0.7" in out
    assert error.splitlines() == [str(tmp_path / "f.png"), str(tmp_path / "f.pdf")]
    code, out, _ = memfly("table", "efficiency", "--root", tmp_path)
    assert code == 0
    assert "calls per question" in out
    for axes in (["tau_m"], ["tau_m", "tau_l"]):
        result = memfly("table", "sensitivity", "--root", tmp_path, "--axes", *axes, "--metric", "nosuch")
        _refused(result, "no metric 'nosuch'")


def test_sensitivity_over_names_lists_and_nothing(tmp_path: Path, memfly: Command) -> None:
    for order, pathways in (("bm25", ["topic"]), (None, ["topic", "keyword"])):
        write_run(tmp_path, options={"order": order, "pathways": pathways})
    for axis, shown in (("order", "null"), ("pathways", "topic+keyword")):
        code, out, _ = memfly("table", "sensitivity", "--root", tmp_path, "--axes", axis, "--figure", tmp_path / axis)
        assert code == 0
        assert f"{axis} = {shown}" in out


def test_one_run_in_two_folders_is_refused_with_both_names(tmp_path: Path, memfly: Command) -> None:
    first, second = write_run(tmp_path / "a"), write_run(tmp_path / "b")
    for command in (
        ["table", "main", first, second],
        ["compare", first, second],
        ["table", "efficiency", first, second],
    ):
        _refused(memfly(*command), f"{first} and {second} are the same run twice")


def test_scoring_without_category_5_counts_the_questions_of_the_mean(tmp_path: Path, memfly: Command) -> None:
    _, out, _ = memfly("score", write_run(tmp_path), "--protocol", "mem0")
    assert "| average | 80 | 0 |" in out
    assert "refused, refused_tolerant are over 100" in out


def test_controls_of_the_bundled_sample(memfly: Command) -> None:
    code, out, _ = memfly("table", "controls")
    assert code == 0
    assert out.count("**Control answers:") == 2


def test_sentence_similarity_is_unavailable_until_asked_for(
    tmp_path: Path, memfly: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path)
    _, out, _ = memfly("score", folder)
    assert "sbert_similarity: unavailable (give --sbert)" in out
    monkeypatch.setattr("memfly.embed.MiniLM", lambda: Hashing(64))  # the real model is the embedder's own test
    assert memfly("score", folder, "--sbert")[0] == 0
    scores = [json.loads(line)["scores"] for line in (folder / "scores-amem-fixed.jsonl").read_text().splitlines()]
    assert scores[0]["sbert_similarity"] == pytest.approx(1.0)
    _refused(memfly("score", folder, "--sbert", "--protocol", "locomo"), "only the protocol amem")


def test_a_configured_audit_gives_the_scores_twice(tmp_path: Path, memfly: Command) -> None:
    issue = {"question_id": "locomo_0_qa0", "question": questions()[0].question, "error_type": "AMBIGUOUS"}
    (tmp_path / "audit.json").write_text(json.dumps([issue]))
    folder = write_run(tmp_path, audit=str(tmp_path / "audit.json"))
    _, out, _ = memfly("score", folder)
    assert "| multi_hop | 20 |" in out
    assert "| multi_hop | 19 |" in out.split("Without wrong golds")[1]
    _, out, _ = memfly("score", folder, "--audit", "none")
    assert "Without wrong golds" not in out
