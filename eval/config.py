"""The configuration of one run, validated in one place before anything is loaded. A wrong key or value is one line.

Hydra composes (conf/); this module only checks and types what came out. A method's own options are checked against its
constructor, so `+method.tua_m=1` fails as loudly as `method.tua_m=1`.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from pydantic import ConfigDict, Field, PydanticSchemaGenerationError, TypeAdapter, ValidationError

from eval.answer import AnswerOptions
from eval.locomo import LOCOMO10_SHA256, SAMPLE, Captions
from memfly.errors import ConfigError
from memfly.llm.redaction import redact
from memfly.options import Options, options
from memfly.system import MemorySystem, Services


class DataConfig(Options):
    name: str
    path: str | None = None
    """None: where the name implies a file (`sample` is bundled)."""
    sha256: str | None = None
    captions: Captions = "all"
    conversations: tuple[str, ...] = ()
    """Ids to use; empty = all."""
    limit_questions: int | None = Field(default=None, ge=1)
    """Per conversation; for trying things out. Part of the run's identity."""
    audit: str | None = None
    """File of known wrong golds (format of dial481/locomo-audit); tables then come with and without them."""

    def file(self) -> Path:
        if self.path is not None:
            return Path(self.path).expanduser()
        if self.name == "sample":
            return SAMPLE
        return Path("data") / "locomo10.json"


class EmbedderConfig(Options):
    kind: Literal["minilm", "hashing"] = "minilm"
    path: str | None = None
    """A local sentence-transformers folder, for `minilm`; None = the packaged model."""
    dim: int = Field(default=256, ge=8)
    """For `hashing` only."""


class ScoringConfig(Options):
    protocol: Literal["amem", "locomo", "mem0"] = "amem"
    mode: Literal["fixed", "as_is"] = "fixed"


class LoggerConfig(Options):
    kind: Literal["none", "wandb"] = "none"
    project: str = "locomo-memory-bench"
    entity: str | None = None
    group: str | None = None
    mode: Literal["offline", "online", "disabled"] = "offline"
    tags: tuple[str, ...] = ()


class CacheConfig(Options):
    dir: str
    """Folder of the reply cache and the embedding cache."""


class RunConfig(Options):
    """Everything a run is made from."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, arbitrary_types_allowed=True)

    method: dict[str, Any]
    method_name: str
    llm: dict[str, Any]
    llm_name: str
    embedder: EmbedderConfig
    data: DataConfig
    answer: AnswerOptions
    scoring: ScoringConfig
    logger: LoggerConfig
    cache: CacheConfig
    run_root: str = Field(min_length=1)
    seed: int = 0
    concurrency: int = Field(default=16, ge=1)
    """Questions in flight, conversations in flight, and turns prefetched per conversation, each at most this many. Does
    not change results, so it is no part of the run's identity."""


_MESSAGES = {"extra_forbidden": "unknown option", "tuple_type": "give a list, such as [a,b]"}
"""Own words for pydantic's kinds of fault that speak of Python."""


def validate(config: Mapping[str, Any]) -> RunConfig:
    """The typed config. Raises ConfigError naming the key, what is wrong, and the nearest known key."""
    try:
        return RunConfig.model_validate(dict(config))
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        hint = _nearest(first, dict(config)) if first["type"] == "extra_forbidden" else ""
        message = _MESSAGES.get(first["type"], first["msg"])
        raise ConfigError(f"config: {path}: {message}{hint}") from None


def shown(config: RunConfig) -> dict[str, Any]:
    """The configuration as it may be written or sent: without logins in addresses and words that look like keys."""
    plain = config.model_dump(mode="json")
    return plain | {"llm": _redacted(plain["llm"])}


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _redacted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_redacted(item) for item in value]
    return redact(value) if isinstance(value, str) else value


def _nearest(error: Any, config: Mapping[str, Any]) -> str:
    groups: dict[str, type[Options]] = {
        "data": DataConfig,
        "embedder": EmbedderConfig,
        "answer": AnswerOptions,
        "scoring": ScoringConfig,
        "logger": LoggerConfig,
        "cache": CacheConfig,
    }
    *parents, key = [str(part) for part in error["loc"]]
    known = groups[parents[0]] if parents and parents[0] in groups else RunConfig
    return nearest(key, known.model_fields)


def nearest(key: str, known: Any) -> str:
    """A hint for a mistyped name: the closest known one, or all of them."""
    close = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(sorted(known))}"


def system_class(target: str) -> type[MemorySystem]:
    """The class a `_target_` names, from the project or from anywhere on the import path."""
    module_name, _, name = target.rpartition(".")
    if not module_name:
        raise ConfigError(f"method._target_: {target!r} is no dotted path to a class, such as memfly.memfly.MemFly")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"method._target_: cannot import {module_name!r} ({error}); its folder must be on PYTHONPATH or be the "
            "current one"
        ) from None
    except (SyntaxError, ImportError) as error:
        raise ConfigError(f"method._target_: cannot import {module_name!r}: {error}") from None
    found = getattr(module, name, None)
    if not (inspect.isclass(found) and issubclass(found, MemorySystem)):
        raise ConfigError(f"method._target_: {target} is not a memfly.system.MemorySystem")
    return found


def method_options(cls: type[MemorySystem], method: Mapping[str, Any]) -> dict[str, Any]:
    """All options of the system as its constructor's annotations type them, defaults filled in, those of option groups
    too. Raises ConfigError for one the constructor does not have and for a value of another type."""
    parameters = list(inspect.signature(cls).parameters.values())[1:]
    known = {p.name: p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    given = {key: value for key, value in method.items() if key != "_target_"}
    for key in given:
        if key not in known:
            raise ConfigError(f"method.{key}: {cls.__name__} has no such option{nearest(key, known)}")
    missing = [n for n, p in known.items() if p.default is p.empty and n not in given]
    if missing:
        raise ConfigError(f"method.{missing[0]}: {cls.__name__} needs a value for it")
    hints = _annotations(cls)
    values = {name: given.get(name, p.default) for name, p in known.items()}
    groups = {name for name in known if _group(hints.get(name)) is not None}
    return {
        name: _typed(hints.get(name), value, f"method.{name}") if name in given or name in groups else value
        for name, value in values.items()
    }


def _annotations(cls: type[MemorySystem]) -> dict[str, Any]:
    """Types of the constructor's parameters; empty when a user's class names types that cannot be resolved."""
    try:
        return get_type_hints(cls.__init__)
    except (NameError, TypeError):
        return {}


def _group(hint: Any) -> type[Options] | None:
    """The option group among the types an annotation allows."""
    return next((k for k in (hint, *get_args(hint)) if inspect.isclass(k) and issubclass(k, Options)), None)


def _typed(hint: Any, value: Any, where: str) -> Any:
    """The value as its annotation says: option groups made whole, "no" a bool where a bool is asked for."""
    if hint is None:
        return value
    kind = _group(hint)
    if kind is not None:
        return options(kind, value, where)
    if isinstance(value, bool) and hint not in (Any, object) and bool not in (hint, *get_args(hint)):
        raise ConfigError(f"{where}: {str(value).lower()} is no value for it")
    try:
        return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)).validate_python(
            value
        )
    except PydanticSchemaGenerationError:
        return value
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{where}: {first['msg']}, not {value!r}") from None


def build_system(cls: type[MemorySystem], chosen: Mapping[str, Any], services: Services) -> MemorySystem:
    """An instance; a value its constructor refuses with TypeError or ValueError becomes a ConfigError."""
    try:
        return cls(services, **chosen)  # type: ignore[call-arg]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"method: {cls.__name__} refused its options: {error}") from None


def check_locomo_hash(data: DataConfig) -> str | None:
    """The hash the data file must have: as configured; a `sha256` of "official" stands for LoCoMo-10's."""
    return LOCOMO10_SHA256 if data.sha256 == "official" else data.sha256
