"""`memfly data fetch | check | export`: the benchmark file, what is odd in it, and tables for other tools."""

from __future__ import annotations

import hashlib
import http.client
import sys
import urllib.error
import urllib.request
from pathlib import Path

from eval.locomo import LOCOMO10_SHA256, LOCOMO10_URL, SAMPLE, load
from eval.records import write_atomic
from memfly.errors import DataError
from scripts.parser import Parser


def main(arguments: list[str]) -> int:
    parser = Parser(prog="memfly data", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    get = commands.add_parser("fetch", help="download locomo10.json from its repository and check its SHA-256")
    get.add_argument("--to", type=Path, default=Path("data/locomo10.json"))
    get.add_argument("--url", default=LOCOMO10_URL, help="another address of the same file")
    check = commands.add_parser("check", help="print what is in a LoCoMo file and what is odd about it")
    check.add_argument("file", type=Path, nargs="?", default=SAMPLE)
    export = commands.add_parser("export", help="a run's answers, or a file's questions, as a table")
    export.add_argument("source", type=Path, help="run folder, or LoCoMo file")
    export.add_argument("--to", type=Path, required=True, help="the file to write: .parquet, .csv or .jsonl")
    chosen = parser.parse_args(arguments)
    if chosen.command == "fetch":
        return fetch(chosen.url, chosen.to)
    if chosen.command == "check":
        return describe(chosen.file)
    from eval.hf import export as write

    print(f"{chosen.to}: {write(chosen.source, chosen.to)} rows")
    return 0


def fetch(url: str, to: Path) -> int:
    if to.exists() and hashlib.sha256(to.read_bytes()).hexdigest() == LOCOMO10_SHA256:
        print(f"{to}: already there, SHA-256 as expected")
        return 0
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            content = reply.read()
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise DataError(f"data fetch: cannot download {url} ({reason}); put locomo10.json at {to} by hand") from None
    digest = hashlib.sha256(content).hexdigest()
    if digest != LOCOMO10_SHA256:
        raise DataError(f"data fetch: {url} has SHA-256 {digest}, expected {LOCOMO10_SHA256}; nothing was written")
    to.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(to, content)
    print(f"{to}: {len(content):,} bytes, SHA-256 as expected. LoCoMo is CC BY-NC 4.0: do not redistribute it.")
    return 0


def describe(file: Path) -> int:
    data = load(file)
    sessions = sum(len(c.sessions) for c in data.conversations)
    captions = sum(t.caption is not None for c in data.conversations for t in c.turns)
    print(f"{file}: SHA-256 {data.sha256}{' (LoCoMo-10)' if data.sha256 == LOCOMO10_SHA256 else ''}")
    print(
        f"{len(data.conversations)} conversations, {sessions} sessions, {data.n_turns} turns ({captions} with a caption)"
    )
    categories = [gold.category for gold in data.golds.values()]
    split = ", ".join(f"{c.value} {c.label} {categories.count(c)}" for c in sorted(set(categories)))
    print(f"{len(data.questions)} questions: {split}")
    print(f"{len(data.oddities)} odd things:" if data.oddities else "nothing odd")
    for line in data.oddities:
        print(f"  {line}")
    return 0


if __name__ == "__main__":
    from scripts.cli import guarded

    sys.exit(guarded(main, sys.argv[1:]))
