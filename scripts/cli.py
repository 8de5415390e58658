"""`memfly <command> ...`: finds the command's entry point, and turns the project's errors into one line and exit code 2.

Nothing heavy is imported before the command is known, so `memfly --help` answers at once.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import signal
import sys
from collections.abc import Callable

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("scripts.run:main", "run a method on a benchmark (Hydra overrides: method=rag_bm25 data=locomo10 -m ...)"),
    "score": ("scripts.score:main", "RUN | --pairs FILE: score answers again by any protocol, judge them, slice them"),
    "compare": ("scripts.compare:main", "RUN_A RUN_B ...: paired tests against the first run"),
    "table": (
        "scripts.table:main",
        "main | ablation | amem_ablation | sensitivity | efficiency | controls: paper tables",
    ),
    "data": ("scripts.data:main", "fetch | check FILE | export RUN: the benchmark file and a run's answers as a table"),
    "estimate": ("scripts.estimate:main", "calls, tokens, time and dollars of a run, before it runs"),
    "verify": ("scripts.verify:main", "check a run folder against its own parts"),
    "cache": ("scripts.cache:main", "stats | export | restore | prune: the cache of model replies"),
    "serve": ("scripts.serve:main", "start a preset's vLLM server by hand and keep it until Ctrl-C"),
}
"""Command -> (entry point, one line of help)."""


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: memfly COMMAND [ARGUMENTS]   (memfly COMMAND --help for each)",
            "",
            "The LoCoMo memory bench: MemFly and the systems it is compared with, on LoCoMo.",
            "",
            *lines,
        ]
    )


def main(argv: list[str] | None = None) -> int:
    code = guarded(_dispatch, list(sys.argv[1:] if argv is None else argv))
    if argv is None and code == 128 + signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is on disk; another Ctrl-C would only break the exit
    return code


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if arguments[0] in ("-V", "--version"):
        from memfly import VERSION

        print(VERSION)
        return 0
    command, rest = arguments[0], arguments[1:]
    if command not in COMMANDS:
        return fail(f"memfly: no command {command!r}; commands are {', '.join(COMMANDS)}")
    return entry(command)(rest)


def entry(command: str) -> Callable[[list[str]], int]:
    module, _, name = COMMANDS[command][0].partition(":")
    found: Callable[[list[str]], int] = getattr(importlib.import_module(module), name)
    return found


def guarded(work: Callable[[list[str]], int], arguments: list[str]) -> int:
    """Exit code of the work: its own, 2 for a user's error (one line), 130 for Ctrl-C."""
    from memfly.errors import MemflyError
    from memfly.llm.redaction import redact

    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that cannot show "±" gets it escaped, not a crash
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = work(arguments)
        sys.stdout.flush()  # a full disk or a closed pipe behind it shows here, not after the last line
        return code
    except MemflyError as error:
        return fail(f"memfly: {redact(one_line(error))}")
    except KeyboardInterrupt:
        return fail("memfly: interrupted; run the same command again to continue", 128 + signal.SIGINT)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            return _reader_gone()
        where = f": {error.filename}" if error.filename else ""
        then = "; what is on disk is kept, run again once it is mended" if error.errno in _LOST_DISK else ""
        _reader_gone()
        return fail(f"memfly: {error.strerror or error}{where}{then}")


_LOST_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)


def _reader_gone() -> int:
    """The reader of our pipe has ended, or cannot take more; nothing is left to say to it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.__stdout__.fileno() if sys.__stdout__ else nowhere)
    os.close(nowhere)
    return 0


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def fail(message: str, code: int = 2) -> int:
    print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
