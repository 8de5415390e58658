"""The console command: commands, help without weight, errors as one line, Ctrl-C and closed pipes."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

import scripts.cli as cli
from memfly import VERSION
from memfly.errors import DataError
from tests.support.fake_openai import FakeOpenAI
from tests.support.fake_runs import write_run
from tests.support.runs import arguments

HEAVY = (
    "torch",
    "hydra",
    "numpy",
    "pandas",
    "openai",
    "faiss",
    "sentence_transformers",
    "pydantic",
    "wandb",
    "datasets",
)


@pytest.mark.parametrize("words", [[], ["--help"], ["--version"], ["nonsense"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys; import scripts.cli as c; code = c.main(sys.argv[1:]); "
        f"heavy = [m for m in {HEAVY!r} if m in sys.modules]; assert not heavy, heavy; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == (2 if words == ["nonsense"] else 0), done.stderr


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {command}" in text for command in cli.COMMANDS)
    assert cli.main(["-V"]) == 0
    assert capsys.readouterr().out == f"{VERSION}\n"


def test_every_command_has_its_entry_point() -> None:
    for command in cli.COMMANDS:
        assert callable(cli.entry(command)), command


def test_an_unknown_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rnu", "method=x"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"memfly: no command 'rnu'; commands are {', '.join(cli.COMMANDS)}\n"


def test_the_project_s_errors_are_one_line_and_bugs_are_not_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    def fails(error: BaseException) -> int:
        def work(arguments: list[str]) -> int:
            raise error

        return cli.guarded(work, [])

    assert fails(DataError("data.path: two\nlines   here")) == 2
    assert capsys.readouterr().err == "memfly: data.path: two lines here\n"
    assert fails(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "memfly: interrupted; run the same command again to continue\n"
    with pytest.raises(ZeroDivisionError):
        fails(ZeroDivisionError())


def test_a_closed_pipe_is_no_error() -> None:
    code = "import scripts.cli as c, sys; sys.exit(c.guarded(lambda a: [print('x' * 100000) for _ in range(50)] and 0, []))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(30) == 0


@pytest.mark.parametrize("words", [["--help"], ["data", "check"]])
def test_help_into_a_full_disk_or_a_closed_pipe_is_no_traceback(words: list[str]) -> None:
    command = shlex.join([sys.executable, "-m", "scripts.cli", *words])
    for tail, code in ((" > /dev/full", 2), (" | true", 0)):
        done = subprocess.run(["bash", "-c", command + tail], capture_output=True, text=True, timeout=60, check=False)
        assert "Traceback" not in done.stderr
        assert done.returncode == code, done.stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["cache", "prune", "--older-than-days", "-1"],
            "memfly: cache prune: argument --older-than-days: -1 is no number",
        ),
        (
            ["cache", "prune", "--older-than-days", "nan"],
            "nan is no number of at least 0; see memfly cache prune --help",
        ),
        (["cache", "prune", "--older-than", "3"], "unrecognized arguments: --older-than 3"),
        (["estimate", "--latency", "-1"], "memfly: estimate: argument --latency: -1 is no number of at least 0"),
        (["verify"], "memfly: verify: the following arguments are required: RUN; see memfly verify --help"),
        (["data", "sell"], "memfly: data: argument command: invalid choice: 'sell'"),
    ],
)
def test_a_mistake_in_an_option_is_one_line(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert line in err


def test_the_installed_command_is_this_one() -> None:
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="memfly")
    assert script.value == "scripts.cli:main"


def test_a_closed_standard_error_is_no_error(tmp_path: Path) -> None:
    words = shlex.join([sys.executable, "-m", "scripts.cli", "run", *arguments(tmp_path, "method=no_context")])
    done = subprocess.run(["sh", "-c", f"{words} 2>&-"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert "no_context-extractive-talks-" in done.stdout


def test_an_ascii_terminal_gets_escapes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scripts.cli", "table", "ablation", str(write_run(tmp_path))]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\xb1" in done.stdout


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_every_script_is_the_command(command: str) -> None:
    path = Path(cli.__file__).parent / f"{command}.py"
    done = subprocess.run(
        [sys.executable, str(path), "--help"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"memfly {command}" in done.stdout


def test_the_cache_by_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    folder = tmp_path / "cache"
    with FakeOpenAI() as server:
        words = arguments(
            tmp_path, "llm=openai", "llm.model=fake-model", f"llm.base_url={server.url}", "method=no_context"
        )
        assert cli.main(["run", *words, f"cache.dir={folder}"]) == 0
    GlobalHydra.instance().clear()
    capsys.readouterr()
    assert cli.main(["cache", "--dir", str(folder), "stats"]) == 0
    assert re.search(r"^\| fake-model \([0-9a-f]{6}\) \| answer \| 10 \|", capsys.readouterr().out, re.MULTILINE)
    assert cli.main(["cache", "--dir", str(folder), "prune", "--model", "fake-model"]) == 0
    assert "10 replies deleted" in capsys.readouterr().out
    assert cli.main(["cache", "--dir", str(folder), "stats"]) == 0
    assert capsys.readouterr().out == f"{folder}: no replies\n"
    assert cli.main(["cache", "--dir", str(tmp_path / "none"), "stats"]) == 2
    assert "no replies.sqlite in" in capsys.readouterr().err
