"""Where a run's summary is sent besides its folder: nowhere, or Weights & Biases (offline unless told otherwise).

W&B is a sink: one W&B run per job, named and identified by the run folder, with the run's own exit code: jobs
of a sweep stay apart, and a failed one does not show as finished. Nothing is read back from it, and it never sees a key:
only the config and the summary's numbers are sent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from eval.config import LoggerConfig, RunConfig, shown
from memfly.errors import ConfigError
from memfly.llm.redaction import one_line


class Logger(Protocol):
    def finish(self, summary: Mapping[str, Any], exit_code: int) -> None: ...


class NoLogger:
    def finish(self, summary: Mapping[str, Any], exit_code: int) -> None:
        return


class WandbLogger:
    def __init__(self, options: LoggerConfig, config: RunConfig, folder: Path) -> None:
        try:
            import wandb
        except ImportError:
            raise ConfigError("logger=wandb needs the package wandb: pip install wandb, or use logger=none") from None
        if options.mode == "online" and not os.environ.get("WANDB_API_KEY"):
            raise ConfigError("logger.mode=online needs WANDB_API_KEY in the environment; offline needs nothing")
        settings = wandb.Settings(
            silent=True,
            console="off",
            disable_git=True,
            save_code=False,
            x_disable_meta=True,  # the command line may hold an address with a login
            x_disable_stats=True,
        )
        try:
            self._run = wandb.init(
                project=options.project,
                entity=options.entity,
                group=options.group,
                tags=list(options.tags),
                mode=options.mode,
                id=folder.name,
                name=folder.name,
                dir=str(folder),
                config={key: value for key, value in shown(config).items() if key not in ("run_root", "cache")},
                resume="allow",
                reinit="finish_previous",
                settings=settings,
            )
        except wandb.errors.Error as error:
            raise ConfigError(
                f"logger=wandb: {one_line(str(error))}; logger.mode=offline keeps it in the run folder for `wandb sync`"
            ) from None

    def finish(self, summary: Mapping[str, Any], exit_code: int) -> None:
        numbers = {key: value for key, value in flatten(summary) if isinstance(value, (int, float))}
        self._run.log(numbers)
        self._run.finish(exit_code=exit_code)


def log_finished(options: LoggerConfig, config: RunConfig, folder: Path, summary: Mapping[str, Any]) -> None:
    """Send a run that had been finished before, unless it was sent from its folder already."""
    if options.kind == "wandb" and not (folder / "wandb").is_dir():
        logger_for(options, config, folder).finish(summary, 0)


def flatten(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested mappings as dotted keys."""
    out: list[tuple[str, Any]] = []
    for key, item in value.items():
        name = f"{prefix}{key}"
        out += flatten(item, f"{name}.") if isinstance(item, Mapping) else [(name, item)]
    return out


def logger_for(options: LoggerConfig, config: RunConfig, folder: Path) -> Logger:
    return WandbLogger(options, config, folder) if options.kind == "wandb" else NoLogger()
