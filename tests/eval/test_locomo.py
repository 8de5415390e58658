"""The loader: nothing dropped or invented, everything odd reported, every bad input one line that says where."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from eval.categories import Category
from eval.locomo import LOCOMO10_SHA256, SAMPLE, Dataset, load
from memfly.errors import DataError
from memfly.types import Observation, Question
from tests.support import talks

# -- a small file ------------------------------------------------------------------------------------------------


def test_a_small_file_in_full(talk_file: Path) -> None:
    data = load(talk_file, name="talks")
    assert (data.name, data.path, data.sha256) == (
        "talks",
        talk_file,
        hashlib.sha256(talk_file.read_bytes()).hexdigest(),
    )
    assert [c.id for c in data.conversations] == ["ada-ben", "cleo-dev"]
    ada = data.conversations[0]
    assert ada.speakers == ("Ada", "Ben")
    assert [(s.number, s.date, len(s.turns)) for s in ada.sessions] == [
        (1, "7:05 pm on 3 March, 2024", 4),
        (2, "10:30 am on 20 April, 2024", 6),
        (3, "9:00 pm on 2 July, 2024", 4),
    ]
    turn = ada.turns[2]
    assert (turn.id, turn.speaker, turn.session) == ("D1:3", "Ada", 1)
    assert turn.time.isoformat() == "2024-03-03T19:05:00"
    assert (
        turn.render()
        == "Ada: Miso already sleeps on my piano. [shares a photo of: a grey cat asleep on an upright piano]"
    )
    assert data.n_turns == talks.N_TURNS
    assert [q.id for q in data.questions] == [f"ada-ben#{i}" for i in range(6)] + [f"cleo-dev#{i}" for i in range(4)]
    gold = data.golds["ada-ben#4"]
    assert (gold.category, gold.answer, gold.trap, gold.evidence) == (
        Category.ADVERSARIAL,
        None,
        "a grey cat",
        ("D1:1",),
    )
    assert data.golds["ada-ben#5"].evidence == ("D3:2",)
    assert data.golds["ada-ben#5"].evidence_raw == ("D3:02",)
    assert data.oddities == (
        "ada-ben#5: the answer is the number 40, not a text: kept, scored as text",
        "ada-ben#5: evidence 'D3:02' read as D3:2",
    )


def test_a_question_knows_nothing_of_category_or_gold() -> None:
    assert {field.name for field in fields(Question)} == {"id", "conversation", "text"}


@pytest.mark.parametrize(("captions", "kept"), [("all", 3), ("with_url", 2), ("none", 0)])
def test_captions_by_option(captions: Any, kept: int, tmp_path: Path) -> None:
    data = talks.samples()
    del data[0]["conversation"]["session_2"][5]["img_url"]
    data[1]["conversation"]["session_1"][0] |= {"blip_caption": "a harbour", "img_url": ["u"]}
    loaded = load(talks.write(tmp_path, data), captions=captions)
    assert sum(turn.caption is not None for c in loaded.conversations for turn in c.turns) == kept


def test_sessions_come_in_numeric_order_from_their_lists(tmp_path: Path) -> None:
    sample = talks.samples()[0]
    talk = sample["conversation"]
    for old, new in ((3, 11), (2, 10)):
        talk[f"session_{new}"] = talk.pop(f"session_{old}")
        talk[f"session_{new}_date_time"] = talk.pop(f"session_{old}_date_time")
    talk["session_2"], talk["session_2_date_time"] = [], "8:00 am on 1 January, 2020"
    talk["session_12_date_time"] = talk["session_13_date_time"] = "1:00 pm on 3 July, 2024"
    talk["session_14"] = None
    sample["qa"] = []
    loaded = load(talks.write(tmp_path, [sample]))
    assert [s.number for s in loaded.conversations[0].sessions] == [1, 2, 10, 11]
    assert [t.id[:2] for t in loaded.conversations[0].turns] == ["D1"] * 4 + ["D2"] * 6 + ["D3"] * 4
    assert loaded.oddities == (
        "ada-ben: 2 session dates without a session (12-13): ignored",
        "ada-ben: session 2 is dated before session 1: order kept",
        "ada-ben: session 2 has no turns",
    )


def test_side_data_of_sessions(tmp_path: Path) -> None:
    sample = talks.samples()[0]
    facts = {
        "Ada": [["has a cat", "D1:1"], ["likes bees", ["D3:3", "D1:1"]], ["plays", "D1:3, D1:1"], "bare"],
        "Ben": [],
    }
    sample["observation"] = {"session_1_observation": facts}
    sample["session_summary"] = {"session_1_summary": "They talk.", "session_3_summary": None}
    sessions = load(talks.write(tmp_path, [sample])).conversations[0].sessions
    assert sessions[0].notes.observations == (
        Observation("Ada", "has a cat", ("D1:1",)),
        Observation("Ada", "likes bees", ("D3:3", "D1:1")),
        Observation("Ada", "plays", ("D1:3", "D1:1")),
        Observation("Ada", "bare", ()),
    )
    assert [s.notes.summary for s in sessions] == ["They talk.", "", ""]


def test_odd_answers_and_evidence_are_kept_and_reported(tmp_path: Path) -> None:
    sample = talks.samples()[0]
    sample["qa"] = [
        {"question": "a", "answer": "x", "evidence": [], "category": 1},
        {"question": "b", "answer": "x", "evidence": ["D9:9"], "category": "2"},
        {"question": "c", "answer": "No", "adversarial_answer": 7, "evidence": "D1:1; D1:2", "category": 5},
        {"question": "d", "category": 5},
    ]
    loaded = load(talks.write(tmp_path, [sample]))
    assert loaded.oddities == (
        "ada-ben#0: no usable evidence ([]): left out of recall",
        "ada-ben#1: evidence 'D9:9' names no turn, dropped D9:9",
        "ada-ben#1: no usable evidence (['D9:9']): left out of recall",
        "ada-ben#2: category 5 with an answer ('No') beside its trap: both kept",
        "ada-ben#2: evidence 'D1:1; D1:2' read as D1:1, D1:2",
        "ada-ben#3: category 5 without adversarial_answer",
        "ada-ben#3: no usable evidence ([]): left out of recall",
    )
    golds = list(loaded.golds.values())
    assert [g.category for g in golds] == [1, 2, 5, 5]
    assert (golds[2].answer, golds[2].trap, golds[2].evidence) == ("No", "7", ("D1:1", "D1:2"))
    assert golds[3].trap is None


def test_empty_turns_and_cut_emoji_are_kept(tmp_path: Path) -> None:
    sample = talks.samples()[0]
    sample["conversation"]["session_1"][3]["text"] = None
    text = json.dumps([sample]).replace("Bye!", "Bye \\ud83d!")
    path = tmp_path / "odd.json"
    path.write_text(text)
    loaded = load(path)
    turns = loaded.conversations[0].turns
    assert (turns[3].text, turns[-1].text) == ("", "Bye \ufffd!")
    assert "ada-ben, session 1, turn 3: neither text nor caption: kept, empty" in loaded.oddities


def test_selecting(talk_file: Path) -> None:
    data = load(talk_file)
    part = data.select(["cleo-dev"], limit_questions=2)
    assert [c.id for c in part.conversations] == ["cleo-dev"]
    assert [q.id for q in part.questions] == list(part.golds) == ["cleo-dev#0", "cleo-dev#1"]
    assert [q.id for q in data.select(limit_questions=1).questions] == ["ada-ben#0", "cleo-dev#0"]
    with pytest.raises(DataError, match=r"no conversation 'eve' in .*; it has ada-ben, cleo-dev"):
        data.select(["eve"])


# -- bad input ---------------------------------------------------------------------------------------------------

Damage = Callable[[list[Any]], Any]


def put(*path: Any, value: Any) -> Damage:
    def damage(data: list[Any]) -> None:
        at: Any = data
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return damage


def drop(*path: Any) -> Damage:
    def damage(data: list[Any]) -> None:
        at: Any = data
        for key in path[:-1]:
            at = at[key]
        del at[path[-1]]

    return damage


TURN = (0, "conversation", "session_1", 2)
BAD: list[tuple[str, Damage, str]] = [
    ("no category", drop(0, "qa", 2, "category"), "ada-ben, question 2: no 'category'; LoCoMo files have one here"),
    ("category 6", put(0, "qa", 2, "category", value=6), "ada-ben, question 2: category 6 is not one of 1 to 5"),
    ("category 1.5", put(0, "qa", 2, "category", value=1.5), "ada-ben, question 2: category 1.5 is not one of 1 to 5"),
    ("category text", put(0, "qa", 2, "category", value="temporal"), "category 'temporal' is not one of 1 to 5"),
    ("category bool", put(0, "qa", 2, "category", value=True), "category True is not one of 1 to 5"),
    ("category list", put(0, "qa", 2, "category", value=[1]), "category [1] is not one of 1 to 5"),
    ("no question", drop(0, "qa", 2, "question"), "ada-ben, question 2: no 'question'"),
    ("question null", put(0, "qa", 2, "question", value=None), "ada-ben, question 2: no 'question'"),
    ("question number", put(0, "qa", 2, "question", value=3), "question 2, question: expected a str, found int"),
    ("no answer", drop(0, "qa", 2, "answer"), "ada-ben, question 2: category 1 without an answer"),
    ("answer list", put(0, "qa", 2, "answer", value=["a"]), "question 2: the answer is a list; give a text or a whole number"),
    ("answer float", put(0, "qa", 2, "answer", value=2.5), "question 2: the answer is a float"),
    ("answer bool", put(0, "qa", 2, "answer", value=True), "question 2: the answer is a bool"),
    ("question a string", put(0, "qa", 2, value="what?"), "ada-ben, question 2: expected a dict, found str"),
    ("qa null", put(0, "qa", value=None), "ada-ben, qa: expected a list, found NoneType"),
    ("no conversation", drop(0, "conversation"), "ada-ben: no 'conversation'"),
    ("conversation list", put(0, "conversation", value=[]), "ada-ben, conversation: expected a dict, found list"),
    ("no speaker_b", drop(0, "conversation", "speaker_b"), "ada-ben: no 'speaker_b'"),
    ("sample a number", put(1, value=7), "sample 1: expected a dict, found int"),
    ("same sample_id", put(1, "sample_id", value="ada-ben"), "ada-ben: two samples have this sample_id"),
    ("no date", drop(0, "conversation", "session_2_date_time"), "ada-ben: no 'session_2_date_time'"),
    ("iso date", put(0, "conversation", "session_2_date_time", value="2024-04-20"),
     "ada-ben, session_2_date_time: '2024-04-20' is not a date like '1:56 pm on 8 May, 2023'"),
    ("session a dict", put(0, "conversation", "session_2", value={}), "ada-ben, session 2: expected a list, found dict"),
    ("turn a string", put(*TURN, value="hi"), "ada-ben, session 1, turn 2: expected a dict, found str"),
    ("no dia_id", drop(*TURN, "dia_id"), "ada-ben, session 1, turn 2: no 'dia_id'"),
    ("dia_id number", put(*TURN, "dia_id", value=3), "ada-ben, session 1, turn 2, dia_id: expected a str, found int"),
    ("no speaker", drop(*TURN, "speaker"), "ada-ben, session 1, turn 2: no 'speaker'"),
    ("text a list", put(*TURN, "text", value=["x"]), "ada-ben, session 1, turn 2, text: expected a str, found list"),
    ("caption a number", put(*TURN, "blip_caption", value=3), "session 1, turn 2, blip_caption: expected a str, found int"),
    ("dia_id twice", put(*TURN, "dia_id", value="D1:1"), "ada-ben, session 1: dia_id D1:1 occurs twice; ids must be unique"),
    ("observation list", put(0, "observation", value=["x"]), "ada-ben, observation: expected a dict, found list"),
    ("facts a text", put(0, "observation", value={"session_1_observation": {"Ada": "x"}}),
     "session_1_observation: expected a list, found str"),
    ("summary list", put(0, "session_summary", value=["x"]), "ada-ben, session_summary: expected a dict, found list"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_malformed_file_is_one_line_that_says_where(damage: Damage, message: str, tmp_path: Path) -> None:
    data = talks.samples()
    damage(data)
    path = talks.write(tmp_path, data)
    with pytest.raises(DataError) as caught:
        load(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{not json", "is not JSON"),
        (b"", "is not JSON"),
        (b"\xff\xfe\x00bad", "is not JSON"),
        (b"\x89PNG\r\n\x1a\n\x00\x81", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"{}", "holds no list of conversations"),
        (b"[]", "holds no list of conversations"),
        (b"null", "holds no list of conversations"),
        (b'"text"', "holds no list of conversations"),
    ],
)
def test_what_is_no_locomo_file(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        load(path)
    assert message in str(caught.value)
    assert "give a LoCoMo file such as locomo10.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_folders_and_wrong_hashes(tmp_path: Path, talk_file: Path) -> None:
    with pytest.raises(DataError, match=r"data\.path: no file .*none\.json; `memfly data fetch` downloads LoCoMo"):
        load(tmp_path / "none.json")
    with pytest.raises(DataError, match=r"data\.path: cannot read .*: Is a directory"):
        load(tmp_path)
    with pytest.raises(DataError, match=r"has SHA-256 .*, expected 79fa87e90f04\.\.\.; .* set data\.sha256=null"):
        load(talk_file, sha256=LOCOMO10_SHA256)
    assert load(talk_file, sha256=hashlib.sha256(talk_file.read_bytes()).hexdigest()).n_turns == talks.N_TURNS


# -- the bundled sample and the benchmark ------------------------------------------------------------------------


def test_the_bundled_sample_is_clean() -> None:
    data = load(SAMPLE)
    assert len(data.conversations) == 2
    assert len(data.questions) == 126
    assert all(gold.evidence for gold in data.golds.values())
    assert all("number" in line or "answer" in line for line in data.oddities), data.oddities


def test_locomo10_has_the_published_counts(locomo10_data: Dataset) -> None:
    data = locomo10_data
    assert data.sha256 == LOCOMO10_SHA256
    assert (len(data.conversations), sum(len(c.sessions) for c in data.conversations), data.n_turns) == (10, 272, 5882)
    assert Counter(gold.category for gold in data.golds.values()) == {1: 282, 2: 321, 3: 96, 4: 841, 5: 446}
    golds = list(data.golds.values())
    assert sum(isinstance(gold.answer, int) for gold in golds) == 6
    assert sum(gold.answer is None for gold in golds if gold.category == 5) == 444
    assert all(gold.trap for gold in golds if gold.category == 5)
    assert sum(bool(gold.evidence) for gold in golds) == 1982
    assert sum(not gold.evidence_raw for gold in golds) == 4
    repaired = [line for line in data.oddities if ": evidence " in line]
    assert len(repaired) == 9
    assert sum("names no turn" in line for line in repaired) == 3
    assert [line for line in data.oddities if "without a session" in line] == [
        "conv-26: 16 session dates without a session (20-35): ignored"
    ]
    assert len(data.oddities) == 22
    for conversation in data.conversations:
        numbers = [session.number for session in conversation.sessions]
        assert numbers == sorted(numbers)
        assert len({turn.id for turn in conversation.turns}) == len(conversation.turns)


@pytest.mark.parametrize(("captions", "kept"), [("all", 1226), ("with_url", 910), ("none", 0)])
def test_locomo10_captions(captions: Any, kept: int, locomo10_file: Path) -> None:
    data = load(locomo10_file, captions=captions)
    assert sum(turn.caption is not None for c in data.conversations for turn in c.turns) == kept
