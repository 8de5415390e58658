"""Keeps keys out of everything that is written or shown. Keys come from environment variables and from nowhere else;
one that is given to a server on its command line all the same is masked like them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_KEY_LIKE = re.compile(r"\b(?:sk|pk|hf|ghp)[-_](?=[\w-]*\d)[\w-]{16,}|(?<=Bearer )\S{8,}")
"""Keys have digits; names that begin like one, such as pk-experiments or hf-internal-testing, have none."""

_URL_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
_SECRET_FLAG = re.compile(r"(?<![\w-])--?(?:\w+[-_])*(?:key|token|secret|password|credentials?)", re.IGNORECASE)
"""Flags whose values are secrets: --api-key, --hf_token; not --tokenizer, --ssl-keyfile or --max-num-batched-tokens."""

_FLAG_AND_VALUE = re.compile(
    rf"({_SECRET_FLAG.pattern}(?![\w-])[\"']?(?:\s*[=,]\s*|\s+)(?:- +)?[\"']?)([^\s\"',\]=-][^\s\"',\]]*)"
)
_SHORTEST = 8
"""Shorter values of variables known by their name alone are no secrets; replacing them would garble ordinary words."""

_variables: set[str] = set()
_values: set[str] = set()


def register_variable(name: str | None) -> None:
    """From now on the value of this environment variable is a secret, whatever the variable is called."""
    if name:
        _variables.add(name)


def register_value(value: str) -> None:
    """From now on this value is a secret (a key on a server's command line)."""
    if len(value) >= 4:
        _values.add(value)


def redact(text: str) -> str:
    """`text` with every secret of the environment, key-like word, value after a flag such as --api-key and login in a
    URL replaced by `***`."""
    secrets = {value for name, value in os.environ.items() if len(value) >= _SHORTEST and _SECRET_NAME.search(name)}
    secrets |= {os.environ[name] for name in _variables if len(os.environ.get(name, "")) >= 4}
    for value in sorted(secrets | _values, key=len, reverse=True):  # a key may be the beginning of another one
        if value in text:
            text = (
                text.replace(value, "***")
                if value in secrets
                else re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "***", text)
            )
    text = _FLAG_AND_VALUE.sub(r"\1***", text)
    return _URL_LOGIN.sub("***@", _KEY_LIKE.sub("***", text))


def redact_command(words: Sequence[str]) -> list[str]:
    """A command's words, fit to be shown or written: every value after a flag such as --api-key masked, the rest
    redacted as any text."""
    hidden = set(_secret_positions(words))
    return [
        (f"{word.partition('=')[0]}=***" if word.startswith("-") else "***") if i in hidden else redact(word)
        for i, word in enumerate(words)
    ]


def after_secret_flags(words: Sequence[str]) -> list[str]:
    """The values given to flags such as --api-key (which takes several)."""
    return [words[i].partition("=")[2] if words[i].startswith("-") else words[i] for i in _secret_positions(words)]


def _secret_positions(words: Sequence[str]) -> Iterator[int]:
    secret = False
    for i, word in enumerate(words):
        if word.startswith("-"):
            flag, has_value, _ = word.partition("=")
            secret = bool(_SECRET_FLAG.fullmatch(flag))
            if secret and has_value:
                secret = False
                yield i
        elif secret:
            yield i


def looks_secret(text: str) -> bool:
    """Whether `text` itself looks like a key or holds a login in a URL, whatever the environment holds."""
    return bool(_KEY_LIKE.search(text) or _URL_LOGIN.search(text))


def one_line(text: str, limit: int = 300) -> str:
    """`text` redacted, on one line, cut at `limit` characters: what may enter an error message."""
    line = " ".join(redact(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
