"""Tables as GitHub markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from eval.report.model import Line, Table, Text, lines

_SPECIAL = re.compile(r"([\\`*_|<>\[\]])")


def render(tables: Sequence[Table]) -> str:
    return "\n".join(map(_table, tables))


def escape(text: str) -> str:
    """The text with everything that markdown would read as markup made literal, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _table(table: Table) -> str:
    titles = [f"{column.group} {column.title}".strip() for column in table.columns]
    head = ["", *map(escape, titles)]
    out = [f"**{escape(table.title)}**", "", "| " + " | ".join(head) + " |", "|---|" + "---:|" * len(table.columns)]
    for section in table.sections:
        if section:
            out.append("| " + " | ".join([f"**{escape(section)}**", *[""] * len(table.columns)]) + " |")
        for row in table.rows:
            if row.section == section:
                out += [_line(line) for line in lines(row, table)]
    return "\n".join([*out, "", *(f"- {escape(note)}" for note in table.notes)]) + "\n"


def _line(line: Line) -> str:
    label = escape(line.label)
    if line.kind in ("reported", "control"):
        label = f"*{label}*"
    elif line.kind != "ran":
        label = f"↳ {label}"
    texts = [_text(text) for text in line.texts]
    if line.kind == "reported":
        texts = [f"*{text}*" if text not in ("", "-") else text for text in texts]
    return "| " + " | ".join([label, *texts]) + " |"


def _text(text: Text) -> str:
    number = {"best": f"**{text.number}**", "second": f"<u>{text.number}</u>"}.get(text.mark, text.number)
    return number + (" ≈" if text.tied else "") + (f" ±{text.error}" if text.error else "")
