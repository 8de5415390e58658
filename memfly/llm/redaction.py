"""Keeps keys out of everything that is written or shown. Keys come from environment variables and from nowhere else."""

from __future__ import annotations

import os
import re

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_KEY_LIKE = re.compile(r"\b(?:sk|pk|hf|ghp)[-_][A-Za-z0-9_-]{16,}|(?<=Bearer )\S+", re.IGNORECASE)
_URL_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
_SHORTEST = 8
"""Shorter values are no secrets, and replacing them would garble ordinary words."""


def redact(text: str) -> str:
    """`text` with every secret of the environment, key-like word and login in a URL replaced by `***`."""
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST and _SECRET_NAME.search(name):
            text = text.replace(value, "***")
    return _URL_LOGIN.sub("***@", _KEY_LIKE.sub("***", text))


def looks_secret(text: str) -> bool:
    """Whether `text` itself looks like a key or holds a login in a URL, whatever the environment holds."""
    return bool(_KEY_LIKE.search(text) or _URL_LOGIN.search(text))


def one_line(text: str, limit: int = 300) -> str:
    """`text` redacted, on one line, cut at `limit` characters: what may enter an error message."""
    line = " ".join(redact(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
