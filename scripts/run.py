"""`memfly run`: Hydra composes the configuration, the runner does the work. All Hydra flags work (-m, --cfg job, ...)."""

from __future__ import annotations

import difflib
import os
import re
import sys
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from memfly.errors import ConfigError


def run_config(composed: DictConfig, choices: dict[str, Any]) -> dict[str, Any]:
    """The composed configuration as plain data, with the names of the chosen method and backbone."""
    try:
        plain: Any = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"config: {_first_line(error)}") from None
    return {**plain, "method_name": _method_name(plain, choices), "llm_name": str(choices.get("llm"))}


def _method_name(plain: dict[str, Any], choices: dict[str, Any]) -> str:
    chosen = str(choices.get("method"))
    return str(plain["method"]["_target_"]).rpartition(".")[2] if chosen == "custom" else chosen


def job(composed: DictConfig) -> float:
    """One run. Returns the average F1, which Hydra's sweepers can optimise."""
    from eval.config import validate
    from eval.progress import progress_for
    from eval.runner import execute

    config = validate(run_config(composed, dict(HydraConfig.get().runtime.choices)))
    with progress_for() as progress:
        result = execute(config, progress)
    print((result.folder / "table.md").read_text(encoding="utf-8"))
    print(f"{result.folder}{' (finished before, nothing was called)' if result.reused else ''}")
    return float(result.summary["average"].get("f1") or 0.0)


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
        raise ConfigError(_explain(error)) from None
    except OmegaConfBaseException as error:
        raise ConfigError(f"config: {_first_line(error)}") from None


def main(arguments: list[str]) -> int:
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us as exceptions, and leave as one line
    if "" not in sys.path:
        sys.path.insert(0, "")  # a user's own method may live in the current folder
    sys.argv = ["memfly run", *arguments]
    try:
        hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")(job)()
    except HydraException as error:
        raise ConfigError(_explain(error)) from None
    except OmegaConfBaseException as error:
        raise ConfigError(f"config: {_first_line(error)}") from None
    return 0


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]


def _explain(error: HydraException) -> str:
    """Hydra's message in one line, with the nearest known name for a typo."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
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


def _options(group: str) -> list[str]:
    from pathlib import Path

    import conf

    return sorted(path.stem for path in (Path(str(conf.__file__)).parent / group).glob("*.yaml"))


if __name__ == "__main__":
    from scripts.cli import guarded

    sys.exit(guarded(main, sys.argv[1:]))
