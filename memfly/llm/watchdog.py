"""Runs a command and makes sure it ends with whoever started it, even when that one is killed with SIGKILL.

    python -P watchdog.py PARENT_PID LOG_FILE COMMAND...

Started as a process of its own. It ends the command's whole session when its standard input closes, when the parent is
gone, or when it is itself told to stop; should the watchdog be killed, the kernel ends the command (Linux). Standard
library only, because it runs outside the package.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

TICK_S = 0.2
GRACE_S = 10.0
"""Between the polite signal and SIGKILL; a model server needs a moment to free its GPUs."""

PR_SET_PDEATHSIG = 1


def _die_with_watchdog() -> None:
    """In the child, before it becomes the command: ask the kernel for SIGTERM when the watchdog dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the command and every process of its session, politely first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)


def main(arguments: list[str]) -> int:
    parent, log, *command = arguments
    told_to_stop = False

    def stop(_number: int, _frame: object) -> None:
        nonlocal told_to_stop
        told_to_stop = True

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    with Path(log).open("ab") as out:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_watchdog,
        )
    try:
        while child.poll() is None and not told_to_stop and os.getppid() == int(parent):
            if select.select([sys.stdin], [], [], TICK_S)[0]:
                break
        code = child.poll()
    finally:
        _end(child)  # also after its own end: workers of a crashed server may still hold a GPU
    return 0 if code is None else abs(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
