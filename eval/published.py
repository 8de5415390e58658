"""Numbers printed in papers (results/published/published.csv), by table, backbone and method. Reads only.

They were reported elsewhere: whoever shows them beside numbers measured here marks them so.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from memfly.errors import DataError

PUBLISHED = Path(__file__).resolve().parent.parent / "results" / "published" / "published.csv"

BACKBONES: Mapping[str, str] = {
    "gpt-4o-mini": "GPT-4o-mini",
    "gpt-4o": "GPT-4o",
    "qwen3-8b": "Qwen3-8B",
    "qwen3-14b": "Qwen3-14B",
    "qwen2.5-1.5b": "Qwen2.5-1.5b",
    "qwen2.5-3b": "Qwen2.5-3b",
    "llama3.2-1b": "Llama3.2-1b",
    "llama3.2-3b": "Llama3.2-3b",
}
"""`llm=` preset -> the papers' name of the model."""

MAIN: Mapping[str, str] = {
    "full_context": "LoCoMo",
    "readagent": "ReadAgent",
    "memorybank": "MemoryBank",
    "memgpt": "MemGPT",
    "amem": "A-MEM",
    "mem0": "Mem-0",
    "memfly": "MemFly",
}
"""`method=` preset -> row of the main tables, in the papers' order."""

ABLATION: Mapping[str, str] = {
    "memfly": "full",
    "memfly_wo_update": "w/o Update",
    "memfly_wo_denoise": "w/o Denoise",
    "memfly_wo_link": "w/o Link",
    "memfly_wo_merge": "w/o Merge",
    "memfly_wo_topic": "w/o Topic",
    "memfly_wo_keyword": "w/o Keyword",
    "memfly_wo_neighbor": "w/o Neighbor",
    "memfly_wo_ier": "w/o IER",
}

AMEM_ABLATION: Mapping[str, str] = {
    "amem_wo_lg_me": "A-MEM w/o link generation and evolution",
    "amem_wo_me": "A-MEM w/o evolution",
    "amem": "A-MEM full",
}

METRICS: Mapping[str, str] = {"evidence_recall": "recall", "evidence_hit": "hit_rate"}
"""Our metric name -> the file's, where they differ."""


@dataclass(frozen=True)
class Number:
    """One printed number, in percent as printed."""

    value: float
    source: str
    provenance: str
    note: str


@dataclass(frozen=True)
class Published:
    """(table, backbone, method) -> (category, metric) -> number, in the file's order."""

    rows: Mapping[tuple[str, str, str], Mapping[tuple[str, str], Number]] = field(default_factory=dict)

    def row(self, tables: tuple[str, ...], backbone: str, method: str) -> Mapping[tuple[str, str], Number]:
        """The first of `tables` that has this row; empty where none has."""
        for table in tables:
            if (table, backbone, method) in self.rows:
                return self.rows[table, backbone, method]
        return {}

    def methods(self, tables: tuple[str, ...], backbone: str) -> list[str]:
        """Methods with a row for this backbone, in the file's order."""
        return list(dict.fromkeys(m for t, b, m in self.rows if t in tables and b == backbone))

    def backbones(self, tables: tuple[str, ...]) -> list[str]:
        return list(dict.fromkeys(b for t, b, _ in self.rows if t in tables))


def load_published(path: Path = PUBLISHED) -> Published:
    """Read the file. Raises DataError with the line number for a line that is not as its header says."""
    rows: dict[tuple[str, str, str], dict[tuple[str, str], Number]] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for number, line in enumerate(csv.DictReader(file), 2):
                try:
                    key = (line["table"], line["backbone"], line["method"])
                    value = Number(float(line["value"]), line["source"], line["provenance"], line["note"])
                    rows.setdefault(key, {})[line["category"], line["metric"]] = value
                except (KeyError, TypeError, ValueError) as error:
                    raise DataError(f"{path}:{number}: not a published number ({error}); see its README") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{path}: cannot read the published numbers ({reason}); give --published FILE") from None
    if not rows:
        raise DataError(f"{path}: holds no published number; give --published FILE")
    return Published(rows)
