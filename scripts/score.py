"""`memfly score RUN`: a finished run's answers scored again, by any protocol, without a model; or judged by one.

`memfly score --pairs FILE` scores predictions made elsewhere. Nothing is answered again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.audit import audit_for
from eval.categories import Category
from eval.pairs import score_pairs
from eval.records import write_atomic
from eval.runs import Run, load_run
from eval.scoring import MODES, PROTOCOLS, Embed, Protocol, protocol
from eval.scoring.aggregate import AVERAGE, Cell
from eval.scoring.protocol import as_text
from eval.summary import score_run, write_scores
from memfly.errors import ConfigError, DataError
from scripts.parser import Parser
from scripts.run import compose


def main(arguments: list[str]) -> int:
    parser = _parser()
    chosen = parser.parse_intermixed_args(arguments)
    if (chosen.run is None) == (chosen.pairs is None):
        raise DataError("score: name a run folder or --pairs FILE, one of the two")
    if chosen.pairs is not None:
        return _pairs(chosen)
    if chosen.out is not None:
        raise DataError("--out: only --pairs takes one; a run's scores go into its folder")
    run = load_run(chosen.run, finished=False)
    if chosen.judge:
        return _judge(run, chosen)
    embed = sentence_similarity(run) if chosen.sbert else None
    name = chosen.protocol or str(run.summary["protocol"])
    scorer = protocol(name, chosen.mode or str(run.summary["mode"]), embed=embed)
    if chosen.sbert and name != "amem":
        raise DataError(f"--sbert: only the protocol amem has a sentence similarity, not {name}")
    if chosen.slices is not None:
        from eval import slices

        count = slices.write(run, slices.dataset_of(run, chosen.data), scorer, chosen.slices)
        print(f"{chosen.slices}: {count} rows")
        return 0
    rows, cells = score_run(run.records, scorer)
    path = run.folder / f"scores-{scorer.name}-{scorer.mode}.jsonl"
    write_scores(path, rows)
    print(table(run, scorer, cells), end="")
    audit = audit_for([run], chosen.audit)
    if audit is not None:
        _, cells = score_run([r for r in run.records if r.id not in audit.corrupting], scorer)
        print(f"\nWithout wrong golds ({audit.describe()}):\n")
        print(table(run, scorer, cells), end="")
    print(path)
    return 0


def _pairs(chosen: argparse.Namespace) -> int:
    if chosen.protocol is None:
        raise DataError(f"--pairs: say which protocol: --protocol {' | '.join(PROTOCOLS)}")
    if chosen.sbert or chosen.judge or chosen.slices or chosen.audit:
        raise DataError("--pairs: --sbert, --judge, --slices and --audit need a run, not pairs")
    scorer = protocol(chosen.protocol, chosen.mode or "fixed")
    lines = [json.dumps(row, ensure_ascii=False) for row in score_pairs(chosen.pairs, scorer)]
    text = "".join(line + "\n" for line in lines)
    if chosen.out is None:
        print(text, end="")
        return 0
    try:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(chosen.out, text)
    except OSError as error:
        raise DataError(f"--out {chosen.out}: cannot write it ({error.strerror})") from None
    print(f"{chosen.out}: {len(lines)} lines")
    return 0


def table(run: Run, scorer: Protocol, cells: Mapping[str, Cell]) -> str:
    """Every metric of the protocol by category; both readings where questions failed; what is unavailable and why."""
    metrics = [m for m in cells["average"].mean if any(cell.mean.get(m) is not None for cell in cells.values())]
    missing = [m for m in cells["average"].mean if m not in metrics]
    lines = [
        f"**{run.name}**, protocol {scorer.name} ({scorer.mode}), prompt set {run.summary['prompt_set']}",
        "",
        "| category | n | errors | " + " | ".join(metrics) + " |",
        "|---|---:|---:|" + "---:|" * len(metrics),
    ]
    for name, cell in cells.items():
        lines.append(_line(name, cell.count.get("f1", 0), cell.n_error, cell.mean, metrics))
        if cell.n_error and cell.n_error < cell.n:
            lines.append(
                _line(f"{name}, errors left out", cell.count_scored.get("f1", 0), 0, cell.mean_scored, metrics)
            )
    lines += ["", *_other_counts(cells[AVERAGE])]
    reasons = {"meteor": "WordNet is not installed", "sbert_similarity": "give --sbert"}
    if run.summary["n_unscored"]:
        lines.append(
            f"- the run is not finished: {run.summary['n_unscored']} questions have no answer yet and are not in n"
        )
    lines += [f"- {metric}: unavailable ({reasons.get(metric, 'not applicable')})" for metric in missing]
    return "\n".join([*lines, ""])


def _other_counts(overall: Cell) -> list[str]:
    """n is F1's; which metrics are means over more or fewer questions, and why F1's are not all."""
    f1 = overall.count.get("f1", 0)
    other: dict[int, list[str]] = {}
    for metric, count in overall.count.items():
        if count not in (0, f1):
            other.setdefault(count, []).append(metric)
    lines = [f"- n counts the questions of F1; on average {', '.join(m)} are over {n}" for n, m in other.items()]
    if overall.n_unscorable:
        lines.append(f"- the original scorer crashes on {overall.n_unscorable} questions, which have no score")
    return lines


def _line(name: str, n: int, errors: int, values: Mapping[str, float | None], metrics: Sequence[str]) -> str:
    texts = []
    for metric in metrics:
        value = values.get(metric)
        texts.append("-" if value is None else f"{value:.2f}" if metric == "answer_length" else f"{100 * value:.2f}")
    return f"| {name} | {n} | {errors} | " + " | ".join(texts) + " |"


def sentence_similarity(run: Run) -> Embed:
    """MiniLM vectors of all of the run's answers and references, made at once."""
    from memfly.embed import MiniLM

    texts: dict[str, int] = {}
    for record in run.records:
        reference = (
            record.trap if record.category == Category.ADVERSARIAL and record.trap is not None else record.answer
        )
        for value in (record.prediction, reference):
            texts.setdefault(as_text(value).strip(), len(texts))
    vectors = MiniLM().encode(list(texts))
    return lambda wanted: vectors[[texts[text] for text in wanted]]


def _judge(run: Run, chosen: argparse.Namespace) -> int:
    from eval import judge
    from memfly.embed import Embedder, Hashing
    from memfly.llm.config import llm_config
    from memfly.llm.stack import build_llm

    plain = judge_config(chosen.judge)
    config = llm_config(plain)
    if config.kind == "extractive":
        raise ConfigError("--judge llm=extractive: a judge needs a language model; name one, such as llm=gpt-4o-mini")
    cache = run.folder.parent / "cache"
    asks = judge.plan(run.records, repeats=chosen.judge_repeats, control=chosen.judge_control)
    if not asks:
        raise DataError(f"--judge: {run.folder} has no answered question in categories 1 to 4")
    embedder = Embedder(Hashing(8))  # no judge embeds anything; the stack wants one

    async def work() -> list[judge.JudgeRecord]:
        llm = build_llm(config, embedder=embedder, cache_dir=cache, seed=run.seed)
        try:
            await llm.start()
            return await judge.judge_run(run.folder, asks, llm)
        finally:
            await llm.aclose()

    try:
        judged = asyncio.run(work())
    finally:
        embedder.close()
    summary = judge.summarise(run.records, judged)
    write_atomic(run.folder / "judge.json", judge.summary_json(summary))
    print(judge.to_markdown(summary), end="")
    print(run.folder / judge.FILE)
    return 0


def judge_config(overrides: Sequence[str]) -> dict[str, object]:
    """The `llm` part of the configuration that Hydra composes from overrides such as llm=gpt-4o-mini llm.base_url=..."""
    other = next((item for item in overrides if item.lstrip("+~").split("=")[0].split(".")[0] != "llm"), None)
    if other is not None:
        raise ConfigError(f"--judge {other}: takes llm=NAME and llm.KEY=VALUE only")
    return dict(compose(list(overrides))["llm"])


def _parser() -> Parser:
    parser = Parser(prog="memfly score", description=__doc__)
    add = parser.add_argument
    add("run", nargs="?", metavar="RUN", help="folder of a finished run")
    add("--pairs", type=Path, metavar="FILE", help="JSON lines with prediction, reference, category instead of a run")
    add("--protocol", choices=PROTOCOLS, help="default: the run's own")
    add("--mode", choices=MODES, help="as_is keeps the original scorer's bugs (default: the run's own, or fixed)")
    add("--out", type=Path, metavar="FILE", help="with --pairs: where the scored lines go (default: printed)")
    add("--audit", metavar="FILE", help="known wrong golds: the table with and without them (none: not at all)")
    add("--sbert", action="store_true", help="sentence similarity too (loads all-MiniLM-L6-v2)")
    add("--slices", type=Path, metavar="FILE.parquet", help="write a row per question with what makes it hard")
    add("--data", type=Path, metavar="FILE", help="with --slices: the LoCoMo file the run was made on")
    add("--judge", nargs="+", metavar="llm=NAME", help="judge the answers: llm=gpt-4o-mini llm.base_url=... ")
    add("--judge-repeats", type=_positive, default=1, metavar="N", help="verdicts per answer (default 1)")
    add("--judge-control", type=_count, default=100, metavar="N", help="questions to test the judge's leniency on")
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("give 0 or more")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("give 1 or more")
    return value


if __name__ == "__main__":
    from scripts.cli import guarded

    sys.exit(guarded(main, sys.argv[1:]))
