"""Checks of constructor options that several systems make: a ConfigError in one line, named as the config names it."""

from __future__ import annotations

from typing import Any, get_args

from memfly.errors import ConfigError


def check_choices(**options: tuple[object, Any]) -> None:
    """Each option's value must be one of its Literal type's: `check_choices(order=(order, Order))`."""
    for name, (value, kind) in options.items():
        if value not in get_args(kind):
            raise ConfigError(f"method.{name}: {value!r} is none of {', '.join(get_args(kind))}")


def check_least(**options: tuple[float, float]) -> None:
    """Each option's value must not be below its bound: `check_least(k=(k, 1))`."""
    for name, (value, low) in options.items():
        if not value >= low:  # so written, not-a-number is refused too
            raise ConfigError(f"method.{name}: {value} is below {low}")
