"""Scoring an answer: three protocols behind one interface. Pure functions; no model, no files, no averages."""

from __future__ import annotations

from eval.scoring.amem import AMem, Embed
from eval.scoring.locomo import Locomo
from eval.scoring.mem0 import Mem0
from eval.scoring.protocol import MODES, Mode, OriginalFailure, Protocol, Scores
from memfly.errors import ConfigError

__all__ = ["MODES", "PROTOCOLS", "Embed", "Mode", "OriginalFailure", "Protocol", "Scores", "protocol"]

PROTOCOLS = ("amem", "locomo", "mem0")


def protocol(name: str, mode: str = "fixed", *, embed: Embed | None = None) -> Protocol:
    """The protocol called `name` in `mode`. `embed` gives `amem` its SBERT similarity; the others ignore it.

    Raises ConfigError naming the choices.
    """
    known_mode = next((known for known in MODES if known == mode), None)
    if known_mode is None:
        raise ConfigError(f"unknown scoring mode {mode!r}; choose from {', '.join(MODES)}")
    match name:
        case "amem":
            return AMem(known_mode, embed)
        case "locomo":
            return Locomo(known_mode)
        case "mem0":
            return Mem0(known_mode)
    raise ConfigError(f"unknown scoring protocol {name!r}; choose from {', '.join(PROTOCOLS)}")
