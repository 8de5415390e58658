"""`memfly table KIND`: finished runs as the papers' tables, in markdown, LaTeX, CSV or HTML. Needs no model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from eval import costs, sweeps
from eval.audit import audit_for
from eval.control_table import make as make_controls
from eval.published import PUBLISHED, Published, load_published
from eval.records import write_atomic
from eval.report import FORMATS, Table
from eval.runs import Run, discover, load_run, where
from eval.scoring import MODES, PROTOCOLS, protocol
from eval.tables import LAYOUTS, TITLES, Choices, fitting, make
from memfly.errors import DataError
from scripts.compare import scorer_for
from scripts.parser import Parser

KINDS = (*LAYOUTS, "sensitivity", "efficiency", "controls")


def main(arguments: list[str]) -> int:
    chosen = _parser().parse_intermixed_args(arguments)
    tables = _tables(chosen)
    text = FORMATS[chosen.format](tables)
    if chosen.out is None:
        print(text, end="")
    else:
        try:
            chosen.out.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(chosen.out, text)
        except OSError as error:
            raise DataError(f"--out {chosen.out}: cannot write it ({error.strerror})") from None
        print(chosen.out)
    return 0


def _tables(chosen: argparse.Namespace) -> list[Table]:
    if chosen.figure is not None and chosen.kind != "sensitivity":
        raise DataError("--figure: only `memfly table sensitivity` draws one")
    if chosen.kind == "controls":
        names = [chosen.protocol] if chosen.protocol else ["amem", "locomo"]
        scorers = [protocol(name, chosen.mode or "fixed") for name in names]
        return make_controls(chosen.data, scorers, None if chosen.audit == "none" else chosen.audit)
    runs = _runs(chosen)
    if chosen.kind == "efficiency":
        return costs.make(runs, allow_mixed=chosen.allow_mixed)
    if chosen.kind in LAYOUTS:
        runs = fitting(runs, LAYOUTS[chosen.kind])
    choices = Choices(
        published=_published(chosen),
        reported=chosen.reported,
        against=chosen.against,
        audit=audit_for(runs, chosen.audit),
        allow_mixed=chosen.allow_mixed,
        controls=not chosen.no_controls,
    )
    scorer = scorer_for(runs, chosen.protocol, chosen.mode) if runs else protocol("amem")
    if chosen.kind in LAYOUTS:
        return make(LAYOUTS[chosen.kind], runs, scorer, choices)
    tables = sweeps.make(runs, scorer, choices, axes=chosen.axes, metric=chosen.metric, cell=chosen.cell)
    if chosen.figure is not None:
        from eval.report.figure import draw

        for written in draw(tables[0], chosen.figure, grid=len(chosen.axes) == 2):
            print(written, file=sys.stderr)  # standard output is the table's
    return tables


def _runs(chosen: argparse.Namespace) -> list[Run]:
    """The runs named, or every finished one under the root; then the conditions of --where."""
    if chosen.runs:
        found = [load_run(folder) for folder in chosen.runs]
    else:
        found = discover(chosen.root, chosen.pattern)
        if not found:
            raise DataError(
                f"table {chosen.kind}: no finished run matches {chosen.root / chosen.pattern}; name run folders, or give "
                "--root with the runs' run_root"
            )
    kept = where(found, chosen.where)
    if not kept:
        raise DataError(f"table {chosen.kind}: none of {len(found)} runs has {' and '.join(chosen.where)}")
    return kept


def _published(chosen: argparse.Namespace) -> Published:
    if chosen.published is None and not PUBLISHED.is_file():
        return Published()  # an installed copy without the repository's results/
    return load_published(chosen.published or PUBLISHED)


def _parser() -> Parser:
    parser = Parser(prog="memfly table", description=__doc__)
    add = parser.add_argument
    add("kind", choices=KINDS)
    add("runs", nargs="*", metavar="RUN", help="run folders; default: all finished runs under --root that fit")
    add("--root", type=Path, default=Path("results/runs"), help="where runs are (default: results/runs)")
    add("--runs", dest="pattern", default="*", metavar="GLOB", help="only run folders whose name matches")
    add(
        "--where",
        action="extend",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="only runs so configured: method.tau_m=0.7 ...",
    )
    add("--format", choices=list(FORMATS), default="markdown")
    add("--out", type=Path, metavar="FILE", help="write the table there instead of printing it")
    add("--protocol", choices=PROTOCOLS, help="default: the one the runs were made with")
    add("--mode", choices=MODES)
    add("--audit", metavar="FILE", help="known wrong golds: every table with and without them (none: not at all)")
    add("--published", type=Path, metavar="FILE", help="papers' numbers (default: results/published/published.csv)")
    add("--reported", choices=("matching", "all", "none"), default="matching", help="rows that only papers have")
    add("--against", metavar="BACKBONE", help='quote the numbers published for this backbone, such as "Qwen3-8B"')
    add("--no-controls", action="store_true", help="leave out the rows of control answers")
    add("--allow-mixed", action="store_true", help="combine runs of other data, prompts, budgets ... all the same")
    add("--axes", nargs="+", default=list(sweeps.AXES), metavar="OPTION", help="sensitivity: method options swept")
    add("--metric", default="f1", help="sensitivity: what the grid shows")
    add("--cell", default="average", choices=list(TITLES), help="sensitivity: over which questions")
    add("--figure", type=Path, metavar="FILE", help="sensitivity: draw it, as FILE.png and FILE.pdf")
    add("--data", type=Path, metavar="FILE", help="controls: a LoCoMo file (default: the bundled sample)")
    return parser


if __name__ == "__main__":
    from scripts.cli import guarded

    sys.exit(guarded(main, sys.argv[1:]))
