"""`memfly run`: Hydra composes the configuration, the runner does the work. All Hydra flags work (-m, --cfg job, ...)."""

from __future__ import annotations

import difflib
import os
import re
import sys
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from memfly.errors import ConfigError, MemflyError


def run_config(composed: DictConfig, choices: dict[str, Any]) -> dict[str, Any]:
    """The composed configuration as plain data, with the names of the chosen method and backbone."""
    try:
        plain: Any = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise ConfigError(f"config: {error.full_key} has no value; give {error.full_key}=...") from None
    except OmegaConfBaseException as error:
        raise ConfigError(f"config: {_first_line(error)}") from None
    return {**plain, "method_name": _method_name(plain, choices), "llm_name": str(choices.get("llm"))}


def _method_name(plain: dict[str, Any], choices: dict[str, Any]) -> str:
    chosen = str(choices.get("method"))
    return str(plain["method"]["_target_"]).rpartition(".")[2] if chosen == "custom" else chosen


_with_errors: set[int] = set()
"""Processes a job of which ended with questions without an answer."""

_failed: dict[int, list[MemflyError | OSError]] = {}
"""Users' errors of jobs, by the process that started them; see `job`."""


def job(composed: DictConfig) -> float:
    """One run. Returns the F1 over categories 1 to 4, which Hydra's sweepers can optimise.

    Category 5 is left out under every protocol: A-MEM's compares it with the trap, so a sweeper would be paid for a memory
    that falls for it. A job that ends in an error returns nan.

    An error goes round Hydra, which would put a line of its own before it, and leaves at the end of `main`; a job in
    another process (Ray, Slurm) has only Hydra's way.
    """
    try:
        return _run(composed)
    except (MemflyError, OSError) as error:
        if os.getpid() not in _failed:
            raise
        _failed[os.getpid()].append(error)
        return float("nan")


def _run(composed: DictConfig) -> float:
    from eval.config import validate
    from eval.progress import progress_for
    from eval.runner import execute

    config = validate(run_config(composed, dict(HydraConfig.get().runtime.choices)))
    with progress_for() as progress:
        result = execute(config, progress)
    print((result.folder / "table.md").read_text(encoding="utf-8", errors="replace"))
    print(f"{result.folder}{' (finished before, nothing was called)' if result.reused else ''}")
    if result.summary["n_error"]:
        _with_errors.add(os.getpid())
        print(
            f"memfly: {result.summary['n_error']} of {result.summary['n_questions']} questions ended in an error (kept in "
            f"{result.folder}/answers.jsonl); the same command asks them again",
            file=sys.stderr,
        )
    return float(result.summary["average4"].get("f1") or 0.0)


def compose(overrides: list[str]) -> dict[str, Any]:
    """The configuration `memfly run` would get from these overrides, for commands that look before a run."""
    try:
        with hydra.initialize_config_module("conf", version_base="1.3"):
            composed = hydra.compose("config", overrides, return_hydra_config=True)
        choices = dict(composed.hydra.runtime.choices)
        with open_dict(composed):
            del composed.hydra
        return run_config(composed, choices)
    except HydraException as error:
        raise ConfigError(_explain(error, overrides)) from None
    except OmegaConfBaseException as error:
        raise ConfigError(f"config: {_first_line(error)}") from None
    except ValueError as error:
        raise _as_config_error(error) from None


def main(arguments: list[str]) -> int:
    """Exit code 0 when every question of every job has an answer, 1 when some ended in an error."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us as exceptions, and leave as one line
    _refuse_secrets(arguments)
    _refuse_empty_globs(arguments)
    if "" not in sys.path:
        sys.path.insert(0, "")  # a user's own method may live in the current folder
    multirun = [flag for flag in arguments if flag in ("-m", "--multirun")]
    sys.argv = ["memfly run", *multirun, *(word for word in arguments if word not in multirun)]  # -m may stand anywhere
    failed = _failed[os.getpid()] = []
    _with_errors.discard(os.getpid())
    try:
        hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")(job)()
    except HydraException as error:
        raise ConfigError(_explain(error, arguments)) from None
    except OmegaConfBaseException as error:
        raise ConfigError(f"config: {_first_line(error)}") from None
    except ValueError as error:
        raise _as_config_error(error) from None
    finally:
        del _failed[os.getpid()]
    if len(failed) > 1:
        raise ConfigError(f"{len(failed)} jobs failed, the first with: {failed[0]}")
    if failed:
        raise failed[0]
    return 1 if os.getpid() in _with_errors else 0


def _refuse_secrets(arguments: list[str]) -> None:
    """Raises ConfigError for a key or a login among the overrides: Hydra would write it into multirun.yaml."""
    from memfly.llm.redaction import looks_secret, redact

    for word in filter(looks_secret, arguments):
        raise ConfigError(
            f"config: {redact(word)}: holds a key or a login; keys come from the environment alone, by the name in "
            "llm.api_key_env"
        )


def _refuse_empty_globs(arguments: list[str]) -> None:
    """Raises ConfigError for a sweep over glob(...) that fits no choice: Hydra would run nothing and say nothing."""
    if any(word.startswith(("-", "hydra.searchpath")) and word not in ("-m", "--multirun") for word in arguments):
        return  # choices may come from elsewhere
    for word in arguments:
        if "=glob(" not in word:
            continue
        try:
            (override,) = OverridesParser.create().parse_overrides([word])
        except HydraException:
            continue  # said better when the configuration is composed
        pattern, known = override.value(), _options(override.key_or_group)
        if isinstance(pattern, Glob) and not pattern.filter(known):
            raise ConfigError(
                f"config: {word}: fits no {override.key_or_group}; there are {', '.join(known) or 'none'}"
            )


def _as_config_error(error: ValueError) -> Exception:
    """Hydra's bare ValueError for `method=null`; any other is a bug and stays what it is."""
    if str(error).startswith("Config group override"):
        return ConfigError("config: a group needs the name of a choice, such as method=memfly; null is none")
    return error


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]


def _explain(error: HydraException, arguments: list[str]) -> str:
    """Hydra's message in one line, with the nearest known name for a typo."""
    if isinstance(error, OverrideParseException):
        return f"config: cannot read {error.override!r}; write KEY=VALUE, in quotes where the shell would change it"
    unknown = getattr(error.__cause__, "full_key", None)
    if unknown:
        return f"config: {unknown}: unknown option{_nearest_option(unknown, arguments)}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines[0].startswith("Ambiguous value"):
        word = lines[0].partition("'")[2].rstrip("'")
        return f"config: {word}: has several values; -m runs one job for each, KEY=[a,b] makes a list"
    cause = error.__cause__
    detail = f" ({_first_line(cause)})" if cause is not None and not isinstance(cause, HydraException) else ""
    choice = re.match(r"(?:In '.*': )?Could not find '(\w+)/([^']*)'", lines[0])
    if choice is None and len(lines) > 1:
        choice = re.match(r"(?:In '.*': )?Could not find '(\w+)/([^']*)'", " ".join(lines))
    if choice:
        group, name = choice.groups()
        known = re.findall(r"\t?([\w.\-]+)", " ".join(lines[2:-1] if "Config search path" in lines[-1] else lines[2:]))
        known = _options(group) or known
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
        return f"config: no {group} called {name!r}; {hint}"
    return f"config: {' '.join(lines[:2]) if lines[0].endswith(':') else lines[0]}{detail}"


def _nearest_option(path: str, arguments: list[str]) -> str:
    """A hint for a mistyped key, from the configuration the other overrides make."""
    from eval.config import nearest

    parent, _, key = path.rpartition(".")
    others = [word for word in arguments if "=" in word and not word.lstrip("+~").startswith(path)]
    try:
        node: Any = compose(others)
        for part in filter(None, parent.split(".")):
            node = node[part]
    except (ConfigError, KeyError, TypeError):
        return ""
    known = [name for name in node if name not in ("method_name", "llm_name")] if isinstance(node, dict) else []
    return nearest(key, known) if known else ""


def _options(group: str) -> list[str]:
    from pathlib import Path

    import conf

    return sorted(path.stem for path in (Path(str(conf.__file__)).parent / group).glob("[!_]*.yaml"))


if __name__ == "__main__":
    from scripts.cli import guarded

    sys.exit(guarded(main, sys.argv[1:]))
