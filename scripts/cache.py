"""`memfly cache stats | export | restore | prune`: the reply cache of a run root."""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path
from typing import Any

from memfly.errors import ConfigError
from memfly.llm import cache
from memfly.llm.base import stable_hash
from scripts.parser import Parser, at_least

DEFAULT = Path("results/runs/cache")


def main(arguments: list[str]) -> int:
    parser = Parser(prog="memfly cache", description=__doc__)
    parser.add_argument("--dir", type=Path, default=DEFAULT, help=f"cache folder (default {DEFAULT})")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("stats", help="replies, tokens and age by backend and task")
    out = commands.add_parser("export", help="all replies as JSON lines, to share or to keep with a paper")
    out.add_argument("file", type=Path)
    back = commands.add_parser("restore", help="read an exported file; replies already there stay")
    back.add_argument("file", type=Path)
    less = commands.add_parser("prune", help="delete the replies that fit every condition given")
    less.add_argument("--older-than-days", type=at_least(0), metavar="DAYS")
    less.add_argument("--task", help="name of a task, as `stats` lists it")
    less.add_argument("--model", help="name of a model, as `stats` lists it")
    chosen = parser.parse_args(arguments)
    folder: Path = chosen.dir
    if chosen.command != "restore" and not (folder / cache.FILE_NAME).is_file():
        raise ConfigError(f"cache: no {cache.FILE_NAME} in {folder}; give the cache folder of a run root with --dir")
    if chosen.command == "stats":
        return show(folder)
    if chosen.command == "export":
        print(f"{chosen.file}: {cache.export(folder, chosen.file)} replies")
    elif chosen.command == "restore":
        print(f"{folder}: {cache.restore(folder, chosen.file)} replies added")
    else:
        age = None if chosen.older_than_days is None else chosen.older_than_days * 86400
        count = cache.prune(folder, older_than_s=age, task=chosen.task, model=chosen.model)
        print(f"{folder}: {count} replies deleted")
    return 0


def show(folder: Path) -> int:
    rows = cache.stats(folder)
    if not rows:
        print(f"{folder}: no replies")
        return 0
    print("| backend | task | replies | prompt tokens | completion tokens | characters | oldest | newest |")
    print("|---|---|---:|---:|---:|---:|---|---|")
    for row in rows:
        oldest, newest = (datetime.datetime.fromtimestamp(row[k], datetime.UTC).date() for k in ("oldest", "newest"))
        print(
            f"| {_backend(row['backend'])} | {row['task']} | {row['replies']:,} | {row['prompt_tokens']:,} | "
            f"{row['completion_tokens']:,} | {row['characters']:,} | {oldest} | {newest} |"
        )
    return 0


def _backend(identity: str) -> str:
    """Model, revision and a short hash of a backend's identity, which tells apart what differs in sampling alone."""
    known: dict[str, Any] = json.loads(identity)
    label = "@".join(str(known[key]) for key in ("model", "revision") if known.get(key))
    return f"{label or known.get('kind', '?')} ({stable_hash(known, 6)})"


if __name__ == "__main__":
    from scripts.cli import guarded

    sys.exit(guarded(main, sys.argv[1:]))
