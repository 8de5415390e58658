"""`memfly compare RUN_A RUN_B ...`: which differences from the first run are real. Needs no model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from eval.audit import audit_for
from eval.categories import Category
from eval.compare import compare_groups, to_csv, to_json, to_markdown
from eval.records import write_atomic
from eval.runs import Run, grouped, load_run
from eval.scoring import MODES, PROTOCOLS, Protocol, protocol
from memfly.errors import DataError
from scripts.parser import Parser, at_least


def main(arguments: list[str]) -> int:
    chosen = _parser().parse_intermixed_args(arguments)
    if not 0 < chosen.alpha < 1:
        raise DataError(f"--alpha {chosen.alpha}: give a number between 0 and 1, such as 0.05")
    runs = [load_run(folder) for folder in chosen.runs]
    audit = audit_for(runs, chosen.audit)
    scorer = scorer_for(runs, chosen.protocol, chosen.mode)
    if chosen.json == chosen.csv == "-":
        raise DataError("compare: --json and --csv cannot both go to standard output; give one of them a file")
    report = compare_groups(
        grouped(runs),
        scorer,
        metric=chosen.metric,
        chosen=chosen.cells,
        without=audit.corrupting if audit else frozenset(),
        alpha=chosen.alpha,
        allow_mixed=chosen.allow_mixed,
    )
    if chosen.json is not None:
        _give(json.dumps(to_json(report), indent=1, ensure_ascii=False) + "\n", chosen.json)
    if chosen.csv is not None:
        _give(to_csv(report), chosen.csv)
    if "-" not in (chosen.json, chosen.csv):
        print(to_markdown(report), end="")
    return 0


def scorer_for(runs: list[Run], name: str | None, mode: str | None) -> Protocol:
    """The protocol asked for, else the one all runs were made with. Raises DataError when they have several."""
    own = sorted({(str(run.summary["protocol"]), str(run.summary["mode"])) for run in runs})
    if name is None and len({p for p, _ in own}) > 1:
        raise DataError(f"the runs were scored by {', '.join(p for p, _ in own)}; say which to use: --protocol amem")
    if mode is None and len({m for _, m in own}) > 1:
        raise DataError("the runs were scored in both modes; say which to use: --mode fixed")
    return protocol(name or own[0][0], mode or own[0][1])


def _give(text: str, where: str) -> None:
    """Write a file, or to standard output for "-"."""
    if where == "-":
        print(text, end="")
        return
    try:
        write_atomic(Path(where), text)
    except OSError as error:
        raise DataError(f"cannot write {where}: {error.strerror}; name a file in a folder that exists") from None


def _parser() -> Parser:
    parser = Parser(prog="memfly compare", description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders; the first is the reference")
    parser.add_argument("--metric", default="f1", help="f1, bleu1, evidence_recall, evidence_hit, refused, fooled ...")
    parser.add_argument("--protocol", choices=PROTOCOLS, help="default: the one the runs were made with")
    parser.add_argument("--mode", choices=MODES)
    parser.add_argument(
        "--cells",
        nargs="+",
        default=[],
        choices=[category.label for category in Category],
        help="test only these categories: a smaller family has more power",
    )
    parser.add_argument("--alpha", type=at_least(0), default=0.05)
    parser.add_argument(
        "--audit", metavar="FILE", help="leave out the questions whose gold answer this file says is wrong"
    )
    parser.add_argument(
        "--allow-mixed", action="store_true", help="compare runs of other data, prompts, ... all the same"
    )
    parser.add_argument("--json", metavar="FILE", help='write it all as JSON ("-": standard output)')
    parser.add_argument("--csv", metavar="FILE", help='write the tests as CSV ("-": standard output)')
    return parser


if __name__ == "__main__":
    from scripts.cli import guarded

    sys.exit(guarded(main, sys.argv[1:]))
