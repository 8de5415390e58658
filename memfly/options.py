"""Base of the option groups of a method: typed, closed, with a ConfigError in one line for a wrong key or value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from memfly.errors import ConfigError


class Options(BaseModel):
    """A group of options. Unknown keys are refused, so a typo cannot pass as a default."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


Group = TypeVar("Group", bound=Options)


def options(kind: type[Group], value: Group | Mapping[str, Any] | None, where: str) -> Group:
    """The group from a mapping (a Hydra node, say). `where` is its place in the config, for the message."""
    if isinstance(value, kind):
        return value
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"{where}: takes options, such as {{{next(iter(kind.model_fields))}: ...}}, not {value!r}")
    try:
        return kind.model_validate(dict(value or {}))
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join([where, *(str(part) for part in first["loc"])])
        known = f"; known options: {', '.join(sorted(kind.model_fields))}" if first["type"] == "extra_forbidden" else ""
        raise ConfigError(f"{path}: {first['msg']}{known}") from None
