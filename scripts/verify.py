"""`memfly verify RUN ...`: checks run folders against their own parts. Exit code 1 when something does not fit."""

from __future__ import annotations

import argparse
from pathlib import Path

from eval.verify import verify


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="memfly verify", description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folder")
    chosen = parser.parse_args(arguments)
    failed = 0
    for run in chosen.runs:
        print(run)
        for check in verify(run):
            print(f"  {'ok    ' if check.passed else 'FAILED'} {check.name}: {check.detail}")
            failed += not check.passed
    return 1 if failed else 0
