"""Tables as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from eval.report.model import Line, Table, Text, lines

_STYLE = (
    "body{font:14px system-ui,sans-serif;margin:2em}table{border-collapse:collapse;margin:1em 0}"
    "caption{text-align:left;font-weight:600;padding:.3em 0}td,th{padding:.15em .6em;text-align:right;white-space:nowrap}"
    "td:first-child,th:first-child{text-align:left}thead{border-top:2px solid;border-bottom:1px solid}"
    "tbody{border-bottom:1px solid}.section td{font-weight:600}.reported,.control{font-style:italic}"
    ".reported,.published,.gap,.without_errors{color:#555}.sub td:first-child{padding-left:2em}small{color:#777}"
)


def render(tables: Sequence[Table]) -> str:
    title = escape(tables[0].title) if tables else "tables"
    head = f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return "\n".join([head + "</head><body>", *map(_table, tables), "</body></html>"]) + "\n"


def _table(table: Table) -> str:
    out = [f"<table><caption>{escape(table.title)}</caption>", "<thead>", *_head(table), "</thead>"]
    for section in table.sections:
        out.append("<tbody>")
        if section:
            out.append(f'<tr class="section"><td colspan="{len(table.columns) + 1}">{escape(section)}</td></tr>')
        for row in table.rows:
            if row.section == section:
                out += [_line(line, row.detail) for line in lines(row, table)]
        out.append("</tbody>")
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    return "\n".join([*out, "</table>", f"<ul>{notes}</ul>"])


def _head(table: Table) -> list[str]:
    titles = "<tr><th></th>" + "".join(f"<th>{escape(column.title)}</th>" for column in table.columns) + "</tr>"
    spans = table.spans()
    if not any(name for name, _ in spans):
        return [titles]
    over = "".join(f'<th colspan="{size}">{escape(name)}</th>' for name, size in spans)
    return [f"<tr><th></th>{over}</tr>", titles]


def _line(line: Line, detail: str) -> str:
    sub = "" if line.kind in ("ran", "reported", "control") else " sub"
    hover = f' title="{escape(detail)}"' if detail and line.kind == "ran" else ""
    cells = "".join(f"<td>{_text(text)}</td>" for text in line.texts)
    return f'<tr class="{line.kind}{sub}"{hover}><td>{escape(line.label)}</td>{cells}</tr>'


def _text(text: Text) -> str:
    number = escape(text.number)
    number = {"best": f"<b>{number}</b>", "second": f"<u>{number}</u>"}.get(text.mark, number)
    return number + (" ≈" if text.tied else "") + (f" <small>±{escape(text.error)}</small>" if text.error else "")
