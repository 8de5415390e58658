"""`memfly verify RUN ...`: checks run folders against their own parts. Exit code 1 when something does not fit."""

from __future__ import annotations

import sys
from pathlib import Path

from eval.verify import verify
from memfly.errors import DataError
from scripts.parser import Parser


def main(arguments: list[str]) -> int:
    parser = Parser(prog="memfly verify", description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folder")
    chosen = parser.parse_args(arguments)
    failed, no_runs = 0, []
    for run in chosen.runs:
        try:
            checks = verify(run)
        except DataError as error:
            no_runs.append(str(error))
            continue
        print(run)
        for check in checks:
            print(f"  {'ok    ' if check.passed else 'FAILED'} {check.name}: {check.detail}")
            failed += not check.passed
    if no_runs:
        more = f" (and {len(no_runs) - 1} more that are no runs)" if len(no_runs) > 1 else ""
        raise DataError(no_runs[0] + more)
    return 1 if failed else 0


if __name__ == "__main__":
    from scripts.cli import guarded

    sys.exit(guarded(main, sys.argv[1:]))
