"""The rules of the design that code review forgets: imports go one way, no clock, no pickle, no print, short files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("memfly", "baselines", "eval", "scripts")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
LIBRARY = [path for path in FILES if path.relative_to(ROOT).parts[0] != "scripts"]
MAY_IMPORT = {
    "memfly": {"memfly"},
    "baselines": {"baselines", "memfly"},
    "eval": {"eval", "baselines", "memfly"},
    "scripts": {"scripts", "eval", "baselines", "memfly", "conf"},
}
OPEN_TO_BASELINES = (
    "llm",
    "embed",
    "index",
    "types",
    "system",
    "tasks",
    "text",
    "options",
    "errors",
    "keywords",
    "together",
)
MAX_LINES = 420


def label(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> set[str]:
    """Dotted names imported anywhere in the file."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{label(path)}: imports are absolute"
            found.update([node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)])
    return found


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Dotted names called anywhere in the file."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and re.fullmatch(r"[\w.]+", name := ast.unparse(node.func)):
            yield name, node


def test_imports_go_one_way() -> None:
    for path in FILES:
        package = label(path).split("/")[0]
        allowed = MAY_IMPORT[package] | ({"tests"} if label(path).startswith("scripts/bench/") else set())
        ours = {name for name in imports(path) if name.split(".")[0] in (*PACKAGES, "conf", "tests")}
        assert {name.split(".")[0] for name in ours} <= allowed, label(path)
        if package == "baselines":
            inside = {name.split(".")[1] for name in ours if name.startswith("memfly.")}
            assert inside <= set(OPEN_TO_BASELINES), label(path)


def test_the_library_prints_nothing() -> None:
    assert [label(path) for path in LIBRARY if any(name == "print" for name, _ in calls(path))] == []


def test_nothing_is_pickled() -> None:
    banned = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "joblib", "marshal"}
    for path in FILES:
        assert not {name.split(".")[0] for name in imports(path)} & banned, label(path)
        assert "allow_pickle=True" not in path.read_text(encoding="utf-8"), label(path)


CLOCKS = (
    "datetime.now", "datetime.today", "datetime.utcnow", "date.today", "time.time", "time.time_ns", "time.localtime",
    "time.gmtime", "time.strftime", "time.ctime",
)  # fmt: skip
MAY_MEASURE = ("eval/", "memfly/llm/", "scripts/")
"""Where passing time may be measured (limits, retries, progress), by time.monotonic only but for `WALL`."""
WALL = {
    "memfly/llm/cache.py": "when a reply was stored, for pruning by age; no key or reply depends on it",
    "memfly/llm/openai_server.py": "a server may name a moment, not a number of seconds, in Retry-After",
}


def test_no_clock_in_memory_code() -> None:
    for path in FILES:
        name, called = label(path), {name for name, _ in calls(path)}
        if name not in WALL and not name.startswith("scripts/"):
            assert not [c for c in called if c.endswith(CLOCKS)], name
        if not name.startswith(MAY_MEASURE):
            assert not [c for c in called if c.startswith("time.")], name
            assert "time" not in imports(path), name


def test_no_unseeded_randomness() -> None:
    for path in LIBRARY:
        for name, node in calls(path):
            where = f"{label(path)}:{node.lineno}"
            if name.startswith("random."):
                assert name == "random.Random", where
            if "np.random." in name:
                assert name.endswith((".default_rng", ".SeedSequence", ".Generator")), where
            if name.endswith(("random.Random", "default_rng")):
                assert node.args or node.keywords, f"{where}: a generator without a seed"


def test_files_stay_short_and_say_what_they_do() -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= MAX_LINES, label(path)
        if text.strip():
            assert ast.get_docstring(tree(path)), label(path)
            assert path.name == "__init__.py" or "from __future__ import annotations" in text, label(path)


def test_tests_mirror_packages() -> None:
    for folder in (ROOT / "tests").iterdir():
        if folder.is_dir() and folder.name not in ("support", "__pycache__", "conf", "docs", "bench"):
            assert (ROOT / folder.name).is_dir(), folder


def test_the_benchmark_is_not_in_the_checkout() -> None:
    for name in ("locomo10.json", "locomo_audit_errors.json", "golden_scores.jsonl"):
        assert not [p for p in ROOT.rglob(name) if ".venv" not in p.parts and p.parts[len(ROOT.parts)] != "data"]
