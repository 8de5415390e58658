"""The one error vocabulary of the project. Every message is a single line: what is wrong, where, and what to do.

The command line turns each of these into that line on standard error and exit code 2; nothing else is caught there.
"""

from __future__ import annotations


class MemflyError(Exception):
    """Base of all errors a user can cause or meet; `str(error)` is the line shown to the user."""


class ConfigError(MemflyError):
    """The configuration asks for something that does not exist or cannot work."""


class DataError(MemflyError):
    """A data file is missing, malformed, or not the file it should be."""


class BackendError(MemflyError):
    """A language-model call failed.

    `transient` tells whether the same call may succeed later (429, 5xx, timeout, dropped connection);
    `retry_after` is the server's own waiting time in seconds, where it gave one.
    """

    def __init__(self, message: str, *, transient: bool, retry_after: float | None = None, kind: str = "backend"):
        super().__init__(message)
        self.transient = transient
        self.retry_after = retry_after
        self.kind = kind
        self.tries = 1
        """Transport attempts made before giving up; set by the retry layer."""


class ParseError(MemflyError):
    """A reply could not be turned into the task's output type; `reply` keeps the raw text for the record."""

    def __init__(self, message: str, *, reply: str = ""):
        super().__init__(message)
        self.reply = reply


class BudgetExceeded(MemflyError):
    """A hard limit on money or tokens was reached; everything finished so far is kept and the run can be resumed."""
