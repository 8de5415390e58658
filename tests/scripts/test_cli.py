"""The console command: commands, help without weight, errors as one line, Ctrl-C and closed pipes."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import scripts.cli as cli
from memfly import VERSION
from memfly.errors import DataError

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


def test_the_installed_command_is_this_one() -> None:
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="memfly")
    assert script.value == "scripts.cli:main"
