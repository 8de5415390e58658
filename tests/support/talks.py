"""Two small invented conversations in LoCoMo's file format, for tests that need to know every turn."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from eval.locomo import Dataset, load
from memfly.types import Turn

Sample = dict[str, Any]

_ADA = [
    ("7:05 pm on 3 March, 2024", [
        ("Ada", "Hi Ben! I adopted a grey cat called Miso last Friday."),
        ("Ben", "Lovely! I am training for the Bergen half marathon in June."),
        ("Ada", "Miso already sleeps on my piano.", "a grey cat asleep on an upright piano"),
        ("Ben", "Send my love to Miso."),
    ]),
    ("10:30 am on 20 April, 2024", [
        ("Ben", "I hurt my knee, so the half marathon is off."),
        ("Ada", "Oh no. I took Miso to the vet, he is healthy."),
        ("Ben", "My sister Rosa gave me her old road bike."),
        ("Ada", "I started pottery classes at the Lind studio."),
        ("Ben", "What do you make there?"),
        ("Ada", "A blue bowl for Rosa, as a thank you.", "a blue glazed bowl"),
    ]),
    ("9:00 pm on 2 July, 2024", [
        ("Ada", "Miso caught a mouse yesterday."),
        ("Ben", "I rode 40 kilometres on Rosa's road bike."),
        ("Ada", "Now I want to keep bees."),
        ("Ben", "Bye!"),
    ]),
]  # fmt: skip
_ADA_QA = [
    {"question": "What is the name of Ada's cat?", "answer": "Miso", "evidence": ["D1:1"], "category": 4},
    {"question": "When did Ada adopt Miso?", "answer": "1 March 2024", "evidence": ["D1:1"], "category": 2},
    {"question": "Which presents did Rosa give and get?", "answer": "a road bike, a blue bowl",
     "evidence": ["D2:3", "D2:6"], "category": 1},
    {"question": "Would Ben run a race this summer?", "answer": "No, his knee is hurt", "evidence": ["D2:1"],
     "category": 3},
    {"question": "What did Ben adopt last Friday?", "adversarial_answer": "a grey cat", "evidence": ["D1:1"],
     "category": 5},
    {"question": "How many kilometres did Ben ride?", "answer": 40, "evidence": ["D3:02"], "category": 4},
]  # fmt: skip
_CLEO = [
    ("1:15 pm on 9 May, 2023", [
        ("Cleo", "I moved to Porto for a job at the harbour museum."),
        ("Dev", "Congratulations! I still teach chemistry in Leeds."),
        ("Cleo", "The museum shows old lighthouse lamps."),
    ]),
    ("8:40 am on 12 June, 2023", [
        ("Dev", "I booked a flight to Porto for August."),
        ("Cleo", "Great, we can visit the lighthouse together."),
        ("Dev", "Can you recommend a hotel?"),
        ("Cleo", "Stay with me, the sofa is free."),
    ]),
]  # fmt: skip
_CLEO_QA = [
    {"question": "Where does Cleo work?", "answer": "the harbour museum in Porto", "evidence": ["D1:1"], "category": 4},
    {"question": "When will Dev fly to Porto?", "answer": "August 2023", "evidence": ["D2:1"], "category": 2},
    {"question": "What does Cleo teach?", "adversarial_answer": "chemistry", "evidence": ["D1:2"], "category": 5},
    {"question": "What connects Cleo's work and the planned visit?", "answer": "lighthouses",
     "evidence": ["D1:3", "D2:2"], "category": 1},
]  # fmt: skip


def _sample(name: str, speakers: tuple[str, str], sessions: list[Any], qa: list[Sample]) -> Sample:
    talk: Sample = {"speaker_a": speakers[0], "speaker_b": speakers[1]}
    for number, (date, turns) in enumerate(sessions, 1):
        talk[f"session_{number}_date_time"] = date
        talk[f"session_{number}"] = [
            {"speaker": who, "dia_id": f"D{number}:{i}", "text": text}
            | ({"blip_caption": caption[0], "img_url": ["u"], "query": "q"} if caption else {})
            for i, (who, text, *caption) in enumerate(turns, 1)
        ]
    return {"sample_id": name, "conversation": talk, "qa": copy.deepcopy(qa), "observation": {}, "session_summary": {}}


def samples() -> list[Sample]:
    """Fresh copies: `ada-ben` (3 sessions, 14 turns, 6 questions) and `cleo-dev` (2 sessions, 7 turns, 4 questions)."""
    return [
        _sample("ada-ben", ("Ada", "Ben"), _ADA, _ADA_QA),
        _sample("cleo-dev", ("Cleo", "Dev"), _CLEO, _CLEO_QA),
    ]


N_TURNS, N_QUESTIONS = 21, 10


def write(folder: Path, data: Any = None, name: str = "talks.json") -> Path:
    """The samples (or `data`) as a file."""
    path = folder / name
    path.write_text(json.dumps(samples() if data is None else data, ensure_ascii=False), encoding="utf-8")
    return path


def dataset(folder: Path) -> Dataset:
    return load(write(folder), name="talks")


def turns(folder: Path) -> tuple[Turn, ...]:
    """The turns of `ada-ben`."""
    return dataset(folder).conversations[0].turns
