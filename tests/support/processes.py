"""Processes that tests start."""

from __future__ import annotations

import signal


def hears_ctrl_c() -> None:
    """For `preexec_fn`: a suite that runs in the background ignores SIGINT, and what it starts would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
