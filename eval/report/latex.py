"""Tables as LaTeX with booktabs; needs \\usepackage{booktabs} and \\usepackage{graphicx}, nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from eval.report.model import Line, Table, Text, lines

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",
    "]": "{]}",
    '"': "''",
    "†": r"$\dagger$",
    "≈": r"$\approx$",
    "±": r"$\pm$",
    "τ": r"$\tau$",
    "–": "--",
    "×": r"$\times$",
}


def escape(text: str) -> str:
    """The text as LaTeX prints it literally, on one line; characters outside ASCII stay as they are (UTF-8 input)."""
    return "".join(_SPECIAL.get(character, character) for character in " ".join(text.split()))


def render(tables: Sequence[Table]) -> str:
    head = r"% needs \usepackage{booktabs} and \usepackage{graphicx}"
    return "\n".join([head, *map(_table, tables)])


def _table(table: Table) -> str:
    width = len(table.columns) + 1
    caption = " ".join(
        escape(note if note.endswith((".", "!", "?")) else f"{note}.") for note in (table.title, *table.notes)
    )
    out = [
        r"\begin{table*}[t]",
        r"\centering\scriptsize",
        rf"\caption{{{caption}}}",
        rf"\label{{tab:{_label(table)}}}",
        r"\resizebox{\textwidth}{!}{%",
        rf"\begin{{tabular}}{{l{'r' * (width - 1)}}}",
        r"\toprule",
        *_head(table),
        r"\midrule",
    ]
    for number, section in enumerate(table.sections):
        if number:
            out.append(r"\midrule")
        if section:
            out.append(rf"\multicolumn{{{width}}}{{l}}{{\textbf{{{escape(section)}}}}} \\")
        kind = None
        for row in table.rows:
            if row.section != section:
                continue
            if kind is not None and row.kind != kind:
                out.append(r"\addlinespace")
            kind = row.kind
            out += [_line(line) for line in lines(row, table)]
    return "\n".join([*out, r"\bottomrule", r"\end{tabular}}", r"\end{table*}"]) + "\n"


def _label(table: Table) -> str:
    return "-".join(
        "".join(c if c.isascii() and c.isalnum() else "-" for c in part) for part in (table.name, table.subset)
    )


def _head(table: Table) -> list[str]:
    titles = " & ".join(["", *(escape(column.title) for column in table.columns)]) + r" \\"
    spans = table.spans()
    if not any(name for name, _ in spans):
        return [titles]
    groups, rules, at = [""], [], 2
    for name, size in spans:
        groups.append(rf"\multicolumn{{{size}}}{{c}}{{{escape(name)}}}")
        if name:
            rules.append(rf"\cmidrule(lr){{{at}-{at + size - 1}}}")
        at += size
    return [" & ".join(groups) + r" \\", " ".join(rules), titles]


def _line(line: Line) -> str:
    label = escape(line.label)
    if line.kind in ("reported", "control"):
        label = rf"\textit{{{label}}}"
    elif line.kind != "ran":
        label = rf"\quad {label}"
    return " & ".join([label, *(_text(text, line.kind) for text in line.texts)]) + r" \\"


def _text(text: Text, kind: str) -> str:
    number = escape(text.number)
    if text.mark:
        number = rf"\textbf{{{number}}}" if text.mark == "best" else rf"\underline{{{number}}}"
    if kind == "reported":
        number = rf"\textit{{{number}}}"
    tied = r"$^{\approx}$" if text.tied else ""
    return number + tied + (rf"{{\tiny$\pm${text.error}}}" if text.error else "")
