"""`memfly estimate OVERRIDES`: calls, tokens, time and dollars of `memfly run OVERRIDES`, before it runs."""

from __future__ import annotations

import sys

from eval.config import validate
from eval.estimate import estimate, keep, table
from eval.progress import progress_for
from scripts.parser import Parser, at_least
from scripts.run import compose


def main(arguments: list[str]) -> int:
    parser = Parser(prog="memfly estimate", description=__doc__)
    parser.add_argument(
        "--conversations", type=_some, default=3, help="typical conversations to scale from (default 3)"
    )
    parser.add_argument("--latency", type=at_least(0), default=1.0, help="seconds per call, for the time (default 1.0)")
    parser.add_argument("overrides", nargs="*", help="the same Hydra overrides as for `memfly run`")
    chosen = parser.parse_intermixed_args(arguments)
    config = validate(compose(chosen.overrides))
    with progress_for() as progress:
        found = estimate(config, conversations=chosen.conversations, progress=progress)
    print(table(found, config, latency_s=chosen.latency))
    kept = keep(found, config)
    if kept is not None:
        print(f"kept for comparison with the run: {kept}")
    return 0


def _some(text: str) -> int:
    return max(1, int(text))


if __name__ == "__main__":
    from scripts.cli import guarded

    sys.exit(guarded(main, sys.argv[1:]))
