"""Property tests without a time limit per example: the machine may be busy, and no test here is about speed."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("steady", deadline=None)
settings.load_profile("steady")
