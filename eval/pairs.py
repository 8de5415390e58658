"""Predictions made elsewhere: JSON lines with `prediction`, `reference` and `category`, scored line by line.

A category-5 reference is taken for the trap, as A-MEM's harness does. Lines keep all their other keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eval.categories import Category
from eval.scoring.protocol import OriginalFailure, Protocol
from memfly.errors import DataError


def score_pairs(path: Path, protocol: Protocol) -> Iterator[dict[str, Any]]:
    """Each line with a `scores` object added; where the original scorer would crash (`as_is`), `scores` is null and `error`
    names its exception. Blank lines are passed over. Raises DataError naming file and line for anything else."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"--pairs {path}: cannot read it ({error.strerror})") from None
    count = 0
    for number, line in enumerate(raw.split(b"\n"), 1):
        if line.strip():
            count += 1
            yield _scored(line, f"{path}:{number}", protocol)
    if not count:
        raise DataError(f"--pairs {path}: no lines; each is an object with prediction, reference and category")


def _scored(line: bytes, where: str, protocol: Protocol) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8"))
    except ValueError as error:
        raise DataError(f"{where}: not JSON ({error})") from None
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected an object with prediction, reference and category, found {_kind(row)}")
    missing = [key for key in ("prediction", "reference", "category") if key not in row]
    if missing:
        raise DataError(f"{where}: no {missing[0]!r}; a line needs prediction, reference and category")
    for key in ("prediction", "reference"):
        value = row[key]
        if value is not None and (isinstance(value, bool) or not isinstance(value, (str, int))):
            raise DataError(f"{where}: {key} must be a text, an integer or null, found {_kind(value)}")
    number = row["category"]
    if isinstance(number, bool) or not isinstance(number, int) or number not in list(Category):
        names = ", ".join(f"{c.value} {c.label}" for c in Category)
        raise DataError(f"{where}: category must be a number from 1 to 5 ({names}), found {number!r}")
    category = Category(number)
    reference = row["reference"]
    trap = str(reference) if category is Category.ADVERSARIAL and reference is not None else None
    try:
        return {**row, "scores": protocol.score(row["prediction"], reference, trap, category)}
    except OriginalFailure as failure:
        return {**row, "scores": None, "error": failure.original}


def _kind(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bool: "true or false",
        float: "a fraction",
        int: "a number",
    }
    return names.get(type(value), "null")
