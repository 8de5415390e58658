"""Command-line arguments of the commands that Hydra does not read: argparse, with one line for a mistake."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any, NoReturn

from memfly.errors import ConfigError


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as everything else here does, and takes no abbreviated options."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog.removeprefix('memfly ')}: {message}; see {self.prog} --help")


def at_least(least: float) -> Callable[[str], float]:
    """An argparse type: a finite number no smaller than `least`."""

    def number(text: str) -> float:
        value = float(text)
        if not math.isfinite(value) or value < least:
            raise argparse.ArgumentTypeError(f"{text} is no number of at least {least:g}")
        return value

    return number
