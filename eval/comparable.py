"""Whether runs may stand in one table or comparison: what has to be equal besides method and backbone, and what to do if not."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eval.runs import Run, setting_text
from memfly.errors import DataError


def check_comparable(runs: Sequence[Run], *, allow_mixed: bool = False, swept: Sequence[str] = ()) -> list[str]:
    """What differs, besides method and backbone, that makes numbers incomparable: data, prompts, answering, embedder.

    Raises DataError naming two runs, unless `allow_mixed`; then the differences come back as lines for the caption. `swept`
    are settings that are meant to differ.
    """
    lines = []
    for aspect, (of, prefix) in _ASPECTS.items():
        found = _first_difference(runs, of, swept)
        if found is None:
            continue
        key, one, other = found
        values = " and ".join(f"{_short(of(run)[key])} in {run.name}" for run in (one, other))
        said = f"{aspect} differs in {key.rpartition('.')[2]}: {values}"
        if not allow_mixed:
            raise DataError(f"{said}; {_how_to_separate(one, other, prefix, key)}, or give --allow-mixed")
        lines.append(said)
    return lines


def _answering(run: Run) -> dict[str, Any]:
    """How evidence became an answer. `native` concerns systems that answer themselves, so it is held against runs of the
    same system only; under a token budget it says nothing, since their own answers keep none."""
    found = {key: run.config.get(f"answer.{key}") for key in ("token_budget", "temperature", "temperature_adversarial")}
    found["max_tokens"] = run.config.get("answer.max_tokens")
    if found["token_budget"] is None:
        system = str(run.manifest["identity"]["system"]["class"]).rpartition(".")[2]
        found[f"native of {system}"] = run.config.get("answer.native")
    return found


_ASPECTS: Mapping[str, tuple[Callable[[Run], Mapping[str, Any]], str]] = {
    "data": (lambda run: run.manifest["identity"]["data"], "data."),
    "prompt set": (lambda run: {"prompt_set": run.summary["prompt_set"]}, "answer."),
    "answering": (_answering, "answer."),
    "note view": (lambda run: {k: v for k, v in run.config.items() if k == "method.note_view"}, "method.note_view"),
    "embedder": (lambda run: run.manifest["identity"]["backends"].get("embedder", {}), "embedder."),
}
"""What has to be equal, and how the settings begin that it comes from. A key that a run does not have is not compared."""


def _first_difference(
    runs: Sequence[Run], of: Callable[[Run], Mapping[str, Any]], swept: Sequence[str]
) -> tuple[str, Run, Run] | None:
    seen: dict[str, Run] = {}
    for run in runs:
        for key, value in of(run).items():
            first = seen.setdefault(key, run)
            if key not in swept and of(first)[key] != value:
                return key, first, run
    return None


def _how_to_separate(one: Run, other: Run, prefix: str, key: str) -> str:
    """The --where that keeps the first run and not the other. Data of one name and two contents can only be named."""
    settings = [k for k in one.config if k.startswith(prefix) and k not in ("data.path", "data.sha256", "data.audit")]
    for setting in sorted(settings, key=lambda k: not k.endswith(f".{key}")):
        value = setting_text(one.config[setting])
        if value != setting_text(other.config.get(setting, "")):
            return f"choose runs that match (tables: --where {shlex.quote(f'{setting}={value}')})"
    return "no setting tells them apart: name the run folders that belong together"


def _short(value: Any) -> str:
    text = setting_text(value)
    return text if len(text) <= 40 else text[:37] + "..."
