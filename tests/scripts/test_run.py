"""`memfly run` as a user meets it: one clear line for each mistake, grids, and a method of one's own."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra

from scripts.cli import main
from tests.support import talks
from tests.support.runs import answers, arguments

DOCS = Path(__file__).resolve().parents[2] / "docs"
Memfly = Callable[..., tuple[int, str, str]]


@pytest.fixture
def memfly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Memfly:
    """`memfly run ...` in this process, in a folder of its own: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("memfly.llm.probe.NOBODY_TRIES", 1)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", list(sys.argv))
            patch.setattr(sys, "path", list(sys.path))
            patch.setenv("HYDRA_FULL_ERROR", "1")
            code = main(["run", *arguments(tmp_path), *words])
            GlobalHydra.instance().clear()
        return code, *capsys.readouterr()

    return run


def no_category() -> list[Any]:
    data = talks.samples()
    del data[0]["qa"][2]["category"]
    return data


WRONG: list[tuple[list[str], str]] = [
    (["data.path=none.json"], "data.path: no file none.json; `memfly data fetch` downloads LoCoMo"),
    (["data.sha256=official"], "expected 79fa87e90f04...; it is another version of the data"),
    (["data.path=bad.json"], "data.path: bad.json is not JSON"),
    (["data.path=no_category.json"], "no_category.json: ada-ben, question 2: no 'category'"),
    (["data.audit=none.json"], "audit none.json: cannot read it (No such file or directory); give another file, or none"),
    (["data.audit=bad.json"], "audit bad.json: not JSON"),
    (["data.conversations=[nope]"], "data.conversations: no conversation 'nope'"),
    (["method=memfyl"], "config: no method called 'memfyl'; did you mean memfly?"),
    (["method=qqqq"], "config: no method called 'qqqq'; there are agentic_rag, amem,"),
    (["method=null"], "config: a group needs the name of a choice, such as method=memfly; null is none"),
    (["llm=extractiv"], "config: no llm called 'extractiv'; did you mean extractive?"),
    (["experiment=nope"], "config: no experiment called 'nope'"),
    (["method.tua_m=1"], "config: method.tua_m: unknown option; did you mean tau_m?"),
    (["+method.tua_m=1"], "method.tua_m: MemFly has no such option; did you mean tau_m?"),
    (["method.gate.from=x"], "config: method.gate.from: unknown option; did you mean form?"),
    (["+method.gate.from=x"], "method.gate.from: Extra inputs are not permitted; known options: form"),
    (["lmm=x"], "config: lmm: unknown option; did you mean llm?"),
    (["+lmm=x"], "config: lmm: unknown option; did you mean llm?"),
    (["method.tau_m=2"], "method.tau_m: 2.0 is outside [0, 1]"),
    (["method.tau_m=much"], "method.tau_m: Input should be a valid number, unable to parse string as a number, not 'much'"),
    (["method=rag_bm25", "method.b=nan"], "method.b: Input should be a finite number, not nan"),
    (["method=rag_bm25", "method.k=1.5"], "method.k: Input should be a valid integer, got a number with a fractional part"),
    (["method.retrieval.rrf_constant=inf"], "method.retrieval.rrf_constant: Input should be a finite number"),
    (["method.tau_m=true"], "method.tau_m: true is no value for it"),
    (["method.update=perhaps"], "method.update: Input should be a valid boolean, unable to interpret input, not 'perhaps'"),
    (["method=amem", "method.evolution=some"], "method.evolution: Input should be 'full', 'links' or 'none', not 'some'"),
    (["seed=x"], "config: seed: Input should be a valid integer"),
    (["-m", "experiment=glob(nope_*)"], "config: experiment=glob(nope_*): fits no experiment; there are ablation_full,"),
    (["method.tau_m=0.5,0.6"], "config: method.tau_m=0.5,0.6: has several values; -m runs one job for each"),
    (["method.tau_m"], "config: cannot read 'method.tau_m'; write KEY=VALUE"),
    (["method.retrieval.pathways=[topic"], "config: cannot read 'method.retrieval.pathways=[topic'"),
    (["llm=openai"], "config: llm.model has no value; give llm.model=..."),
    (["method=custom"], "config: method._target_ has no value; give method._target_=..."),
    (["method=custom", "method._target_=nope.X"], "method._target_: cannot import 'nope'"),
    (["llm=gpt-4o-mini"], "llm.api_key_env: the environment variable OPENAI_API_KEY is not set"),
    (["llm=openai", "llm.model=m", "llm.base_url=http://127.0.0.1:9/v1"], "llm.base_url: cannot reach http://127.0.0.1:9/v1"),
    (["embedder=minilm", "embedder.path=none"], "embedder.path: no folder none"),
    (["run_root=talks.json/x"], "run_root: cannot write to talks.json/x: Not a directory"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "line"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_a_mistake_is_one_line_and_exit_code_2(words: list[str], line: str, memfly: Memfly, tmp_path: Path) -> None:
    talks.write(tmp_path, no_category(), "no_category.json")
    (tmp_path / "bad.json").write_text("{not json")
    code, out, err = memfly(*words)
    assert code == 2
    assert err.count("\n") == 1, err
    assert err.startswith("memfly: ")
    assert line in err
    assert "Traceback" not in out + err
    assert out == ""


@pytest.mark.parametrize("secret", ["http://ann:hidden-pass@127.0.0.1:9/v1", "sk-hidden-pass-0123456789"])
def test_a_key_or_a_login_in_an_override_is_refused_and_written_nowhere(
    secret: str, memfly: Memfly, tmp_path: Path
) -> None:
    code, out, err = memfly("-m", "llm=openai", "llm.model=m", f"llm.base_url={secret}", "seed=1,2")
    assert (code, out) == (2, "")
    assert "holds a key or a login; keys come from the environment alone" in err
    assert "hidden-pass" not in err
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"hidden-pass" in path.read_bytes()]


def test_a_good_run_prints_its_table_and_folder(memfly: Memfly, tmp_path: Path) -> None:
    code, out, err = memfly()
    assert code == 0
    folder = Path(out.strip().splitlines()[-1])
    assert (folder / "table.md").read_text(encoding="utf-8") in out
    assert "| average (all) | 10 | 0 |" in out
    assert "questions 10/10" in err
    code, again, err = memfly()
    assert (code, err) == (0, "")
    assert again.strip().endswith("(finished before, nothing was called)")


def test_questions_that_ended_in_an_error_are_told_at_the_end(memfly: Memfly) -> None:
    code, out, err = memfly("llm.faults.rate_garbage=1", "llm.attempts=1")
    assert code == 1
    (line,) = (line for line in err.splitlines() if line.startswith("memfly: "))
    assert line.startswith("memfly: 10 of 10 questions ended in an error (kept in ")
    assert line.endswith("answers.jsonl); the same command asks them again")
    assert "| average (all) | 10 | 10 |" in out


def test_a_full_disk_is_one_line(memfly: Memfly, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("eval.runner.execute", full)
    code, out, err = memfly()
    assert (code, out) == (2, "")
    assert err == "memfly: No space left on device; what is on disk is kept, run again once it is mended\n"


def test_a_grid_over_thresholds_is_one_folder_per_point(memfly: Memfly, tmp_path: Path) -> None:
    code, *_ = memfly("method.tau_m=0.6,0.8", "method.tau_l=0.3,0.5", "-m")
    assert code == 0
    folders = sorted((tmp_path / "runs").glob("memfly-extractive-talks-*"))
    points = {
        (config["tau_m"], config["tau_l"])
        for config in (json.loads((f / "manifest.json").read_text())["config"]["method"] for f in folders)
    }
    assert points == {(0.6, 0.3), (0.6, 0.5), (0.8, 0.3), (0.8, 0.5)}
    assert len(folders) == 4
    assert all(len(answers(folder)) == 10 for folder in folders)
    code, again, err = memfly("-m", "method.tau_m=0.6,0.8", "method.tau_l=0.3,0.5")
    assert (code, err, again.count("nothing was called")) == (0, "", 4)


def test_a_job_of_a_grid_that_fails_does_not_stop_the_others(memfly: Memfly, tmp_path: Path) -> None:
    code, _, err = memfly("-m", "method.tau_m=7,0.6,8")
    assert code == 2
    assert err.splitlines()[-1] == "memfly: 2 jobs failed, the first with: method.tau_m: 7.0 is outside [0, 1]"
    assert len(list((tmp_path / "runs").glob("memfly-extractive-talks-*"))) == 1


@pytest.mark.parametrize("scoring", ["amem", "locomo", "mem0"])
def test_a_sweeper_is_never_paid_for_a_memory_that_falls_for_the_trap(
    scoring: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omegaconf import OmegaConf

    import scripts.run

    chosen = {"method": "memfly", "llm": "extractive"}
    plain = scripts.run.compose([*arguments(tmp_path), f"scoring={scoring}"])
    monkeypatch.setattr("scripts.run.HydraConfig.get", lambda: OmegaConf.create({"runtime": {"choices": chosen}}))
    composed = OmegaConf.create({k: v for k, v in plain.items() if k not in ("method_name", "llm_name")})
    objective = scripts.run.job(composed)
    (folder,) = (tmp_path / "runs").glob("memfly-*")
    summary = json.loads((folder / "summary.json").read_text())
    assert objective == summary["average4"]["f1"]
    assert objective > 0
    assert scoring == "mem0" or objective != summary["average"]["f1"]


def test_hydra_flags_work(memfly: Memfly) -> None:
    code, out, err = memfly("--cfg", "job")
    assert (code, err) == (0, "")
    assert "tau_m: 0.7" in out


def test_every_experiment_composes() -> None:
    from eval.config import validate
    from scripts.run import compose

    names = sorted(path.stem for path in (DOCS.parent / "conf" / "experiment").glob("[!_]*.yaml"))
    assert {f"ablation_{n}" for n in ("full", "wo_update", "wo_ier", "wo_topic")} <= set(names)
    for name in names[:: max(1, len(names) // 12)]:
        validate(compose([f"experiment={name}"]))


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / "own_method.md").read_text(encoding="utf-8"), re.DOTALL)


def test_a_method_of_one_s_own_exactly_as_the_page_says(tmp_path: Path) -> None:
    (code,) = blocks("python")
    (command,) = blocks("sh")
    body = [line for line in code.split("class WordOverlap")[1].splitlines() if line.strip()]
    assert len(body) <= 20, "the page promises a short one"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "my_memory.py").write_text(code, encoding="utf-8")
    program, *words = shlex.split(command)
    assert program == "memfly"
    done = subprocess.run(
        [sys.executable, "-m", "scripts.cli", *words, *arguments(tmp_path)],
        cwd=elsewhere, capture_output=True, text=True, timeout=120, check=False,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").glob("WordOverlap-extractive-talks-*")
    found = answers(folder)
    assert len(found) == 10
    assert {a["passages"] for a in found} == {3}, "+method.k=3 reached it"
    assert found[0]["ranked_turns"][0] in ("D1:1", "D2:2", "D3:1", "D1:3", "D1:4")
    assert json.loads((folder / "summary.json").read_text())["n_error"] == 0
    wrong = [word for word in words if "method.k" not in word]
    done = subprocess.run(
        [sys.executable, "-m", "scripts.cli", *wrong, "+method.kk=3", *arguments(tmp_path)],
        cwd=elsewhere, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "memfly: method.kk: WordOverlap has no such option; did you mean k?\n"


def test_two_processes_on_one_run_the_second_is_told_so(tmp_path: Path) -> None:
    import fcntl

    from eval.progress import Silent
    from eval.runner import Runner
    from tests.support.runs import config

    folder = Runner(config(tmp_path), Silent()).folder
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = subprocess.run(
            [sys.executable, "-m", "scripts.run", *arguments(tmp_path)],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert (
        done.stderr == f"memfly: {folder}: another process is working on this run; wait for it, or change the config\n"
    )
