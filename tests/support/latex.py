"""A small check of LaTeX tables: environments and braces balance, rows have the columns declared, specials are escaped."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\\(?:begin|end)\{[^}]*\}|\\[A-Za-z]+\*?|\\.|[{}&%#$_^~]|[^\\{}&%#$_^~]+", re.DOTALL)
_TEXT_MACROS = r"\\(?:textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar)\{\}"


def check(source: str) -> int:
    """Raises AssertionError with what is wrong; gives the number of table rows seen."""
    body = "\n".join(line for line in source.splitlines() if not line.startswith("%"))
    body = body.replace("{%\n", "{\n")
    _balanced(body)
    rows = 0
    for declared, content in re.findall(r"\\begin\{tabular\}\{([lrc]+)\}(.*?)\\end\{tabular\}", body, re.DOTALL):
        for row in _rows(content):
            width = sum(_span(cell) for cell in re.split(r"(?<!\\)&", row))
            assert width == len(declared), f"{width} columns instead of {len(declared)}: {row}"
            rows += 1
    assert rows, "no table rows"
    return rows


def _balanced(body: str) -> None:
    environments: list[str] = []
    depth = maths = 0
    for token in _TOKEN.findall(body):
        if token.startswith(r"\begin"):
            environments.append(token[7:-1])
        elif token.startswith(r"\end{"):
            assert environments, f"{token} without begin"
            assert environments.pop() == token[5:-1], f"{token} closes another environment"
        elif token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
            assert depth >= 0, "a brace too many"
        elif token == "$":
            maths ^= 1
        elif token in ("%", "#", "~") or (token in ("_", "^") and not maths):
            raise AssertionError(f"unescaped {token!r}")
        elif token == "&":
            assert "tabular" in environments, "& outside a table"
        elif not token.startswith("\\") and not maths:
            assert not set("<>|†≈±τ×") & set(token), f"unprintable in text mode: {token!r}"
    assert not environments, f"not closed: {environments}"
    assert depth == 0, "a brace is not closed"
    assert not maths, "a $ is not closed"


def _rows(content: str) -> list[str]:
    rules = re.compile(r"\\(?:toprule|midrule|bottomrule|addlinespace|cmidrule\(lr\)\{\d+-\d+\})")
    rows = re.sub(_TEXT_MACROS, "x", rules.sub("", content)).split(r"\\")
    return [row.strip() for row in rows if row.strip()]


def _span(cell: str) -> int:
    match = re.match(r"\s*\\multicolumn\{(\d+)\}", cell)
    return int(match[1]) if match else 1
