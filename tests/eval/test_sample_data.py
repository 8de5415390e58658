"""Structure of the bundled sample, checked on the plain JSON.

Reads the file with `json` alone, so a fault in the project's loader cannot hide a fault in the data. Whether an answer is
right is not checked here (see eval/sample/README.md).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import date, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

SAMPLE_FILE = Path(__file__).resolve().parents[2] / "eval" / "sample" / "sample.json"
DATE_FORMAT = "%I:%M %p on %d %B, %Y"
MINIMUM_PER_CATEGORY = {1: 12, 2: 16, 3: 8, 4: 26, 5: 18}
SAMPLES: list[dict[str, Any]] = json.loads(SAMPLE_FILE.read_text(encoding="utf-8"))

each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=[s["sample_id"] for s in SAMPLES])


def sessions(sample: dict[str, Any]) -> dict[int, list[dict[str, Any]]]:
    """Session number -> turns, in file order."""
    found = {}
    for key, value in sample["conversation"].items():
        if match := re.fullmatch(r"session_(\d+)", key):
            found[int(match[1])] = value
    return found


def turns(sample: dict[str, Any]) -> list[dict[str, Any]]:
    return [turn for session in sessions(sample).values() for turn in session]


def session_times(sample: dict[str, Any]) -> list[datetime]:
    return [datetime.strptime(sample["conversation"][f"session_{n}_date_time"], DATE_FORMAT) for n in sessions(sample)]


def test_two_samples_with_distinct_ids() -> None:
    assert [s["sample_id"] for s in SAMPLES] == ["sample-1", "sample-2"]


@each_sample
def test_top_level_keys_are_those_of_locomo(sample: dict[str, Any]) -> None:
    assert set(sample) == {"qa", "conversation", "event_summary", "observation", "session_summary", "sample_id"}


@each_sample
def test_size(sample: dict[str, Any]) -> None:
    numbers = list(sessions(sample))
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 6
    assert len(turns(sample)) >= 60
    assert any(len(session) % 2 for session in sessions(sample).values()), "one session needs an odd number of turns"


@each_sample
def test_speakers_strictly_alternate(sample: dict[str, Any]) -> None:
    pair = {sample["conversation"]["speaker_a"], sample["conversation"]["speaker_b"]}
    assert len(pair) == 2
    for session in sessions(sample).values():
        assert {turn["speaker"] for turn in session} == pair
        for before, after in pairwise(session):
            assert before["speaker"] != after["speaker"], after["dia_id"]


@each_sample
def test_turn_ids_count_up_within_their_session(sample: dict[str, Any]) -> None:
    for number, session in sessions(sample).items():
        assert [turn["dia_id"] for turn in session] == [f"D{number}:{n}" for n in range(1, len(session) + 1)]


@each_sample
def test_turns_have_text_of_chat_length(sample: dict[str, Any]) -> None:
    allowed = {"speaker", "dia_id", "text", "img_url", "blip_caption", "query"}
    for turn in turns(sample):
        assert {"speaker", "dia_id", "text"} <= set(turn) <= allowed
        assert 10 <= len(turn["text"].split()) <= 50, turn["dia_id"]


@each_sample
def test_images_have_captions_and_only_some_have_links(sample: dict[str, Any]) -> None:
    images = [turn for turn in turns(sample) if set(turn) & {"img_url", "blip_caption", "query"}]
    assert len(images) >= 8
    assert all(turn["blip_caption"].strip() for turn in images)
    linked = [turn for turn in images if "img_url" in turn]
    assert [turn for turn in images if "query" in turn] == linked
    assert 0 < len(linked) < len(images)
    assert all(url.startswith("https://example.org/") for turn in linked for url in turn["img_url"])


@each_sample
def test_dates_parse_and_increase_over_months(sample: dict[str, Any]) -> None:
    times = session_times(sample)
    date_keys = [key for key in sample["conversation"] if key.endswith("_date_time")]
    assert len(date_keys) == len(times)
    days = [time.date() for time in times]
    assert all(before < after for before, after in pairwise(days))
    assert 150 <= (days[-1] - days[0]).days <= 250


@each_sample
def test_questions_are_answerable_records(sample: dict[str, Any]) -> None:
    known = {turn["dia_id"] for turn in turns(sample)}
    assert len(sample["qa"]) >= 40
    assert len({qa["question"] for qa in sample["qa"]}) == len(sample["qa"])
    for qa in sample["qa"]:
        answer_key = "adversarial_answer" if qa["category"] == 5 else "answer"
        assert set(qa) == {"question", answer_key, "evidence", "category"}, qa["question"]
        assert qa["question"].endswith("?")
        assert isinstance(qa[answer_key], (str, int))
        assert str(qa[answer_key]).strip()
        assert qa["evidence"], qa["question"]
        assert set(qa["evidence"]) <= known, qa["question"]
        assert len(set(qa["evidence"])) == len(qa["evidence"]), qa["question"]


def test_category_counts() -> None:
    counts = Counter(qa["category"] for sample in SAMPLES for qa in sample["qa"])
    assert set(counts) == set(MINIMUM_PER_CATEGORY)
    for category, minimum in MINIMUM_PER_CATEGORY.items():
        assert counts[category] >= minimum, category


def test_answer_forms() -> None:
    """The forms a loader or scorer meets in LoCoMo: JSON ints, comma lists, reasons after a semicolon."""
    by_category: dict[int, list[Any]] = {}
    for sample in SAMPLES:
        for qa in sample["qa"]:
            by_category.setdefault(qa["category"], []).append(qa.get("answer"))
    assert sum(type(answer) is int for answer in by_category[1] + by_category[2]) >= 2
    assert all(isinstance(answer, str) for answer in by_category[3] + by_category[4])
    assert any("," in str(answer) for answer in by_category[1])
    assert any("; " in answer for answer in by_category[3])


@each_sample
def test_multi_hop_evidence_spans_sessions(sample: dict[str, Any]) -> None:
    for qa in sample["qa"]:
        if qa["category"] == 1:
            assert len({dia_id.split(":")[0] for dia_id in qa["evidence"]}) >= 2, qa["question"]


@each_sample
def test_relative_gold_dates_are_anchored_at_an_evidence_session(sample: dict[str, Any]) -> None:
    days = dict(zip(sessions(sample), (time.date() for time in session_times(sample)), strict=True))
    anchored = 0
    for qa in sample["qa"]:
        if qa["category"] == 2 and (match := re.search(r"before (\d{1,2} \w+ \d{4})$", str(qa["answer"]))):
            anchor: date = datetime.strptime(match[1], "%d %B %Y").date()
            assert anchor in {days[int(dia_id[1:].split(":")[0])] for dia_id in qa["evidence"]}, qa["question"]
            anchored += 1
    assert anchored >= 5


@each_sample
def test_side_data_covers_every_session(sample: dict[str, Any]) -> None:
    speaker_of = {turn["dia_id"]: turn["speaker"] for turn in turns(sample)}
    pair = set(speaker_of.values())
    numbers = list(sessions(sample))
    assert list(sample["session_summary"]) == [f"session_{n}_summary" for n in numbers]
    assert all(len(text.split()) >= 20 for text in sample["session_summary"].values())
    assert list(sample["observation"]) == [f"session_{n}_observation" for n in numbers]
    assert list(sample["event_summary"]) == [f"events_session_{n}" for n in numbers]
    for n in numbers:
        observed = sample["observation"][f"session_{n}_observation"]
        assert set(observed) == pair
        for speaker, facts in observed.items():
            assert facts
            for fact, dia_id in facts:
                assert fact.strip()
                assert speaker_of[dia_id] == speaker
                assert dia_id.startswith(f"D{n}:")
        events = sample["event_summary"][f"events_session_{n}"]
        assert set(events) == pair | {"date"}
        assert sample["conversation"][f"session_{n}_date_time"].endswith(f" on {events['date']}")
