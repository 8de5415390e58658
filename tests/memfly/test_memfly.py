"""MemFly assembled, on scripted replies: what each switch does to the memory, and that keeping it changes nothing."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from memfly.errors import ConfigError
from memfly.memfly import MemFly
from memfly.types import Evidence, Question, Turn
from tests.support.scripted import Log, Scripted, services

Gate = Callable[[Any], Any]
QUESTIONS = [Question(f"ada-ben#{i}", "ada-ben", text) for i, text in enumerate(
    ["What is the name of Ada's cat?", "Who gave Ben the road bike?", "What did Ada make for Rosa?"]
)]  # fmt: skip


def ingest(value: Any) -> Any:
    """Keywords: the capitalised words that are not first; context: the text in the third person."""
    return {"keywords": re.findall(r"(?<=\s)[A-Z][a-z]+", value.text), "context": f"{value.speaker} said: {value.text}"}


def verdicts(*entries: tuple[int, str, float, float]) -> dict[str, Any]:
    keys = ("id", "relation", "s_red", "s_comp")
    return {"verdicts": [dict(zip(keys, entry, strict=True)) for entry in entries]}


def nothing(value: Any) -> Any:
    return verdicts(*((c.id, "NONE", 0.0, 0.0) for c in value.candidates))


def at(context: str, *entries: tuple[int, str, float, float], **more: Any) -> Gate:
    """These verdicts for the turn with this text, nothing for others."""
    return lambda value: verdicts(*entries) | more if context in value.context else nothing(value)


READING = {
    "question": lambda value: {"topic_desc": "a cat", "keywords": re.findall(r"[A-Z][a-z]+", value.question)},
    "sufficiency": lambda value: {"sufficient": "D" in "".join(value.evidence), "missing_info": "x", "confidence": 0.5},
    "subquery": lambda value: {"query": f"more about {value.history[-1]}" if len(value.history) < 3 else ""},
}


def scripted(gate: Gate = nothing, **more: Any) -> Scripted:
    merge = lambda value: {"context": f"{value.old_context} + {value.new_context}"}  # noqa: E731
    return Scripted({"ingest": ingest, "gate": gate, "merge": merge, **READING, **more})


async def build(backend: Scripted, turns: Iterable[Turn], log: Any = None, **options: Any) -> MemFly:
    system = MemFly(services(backend, log=log), **options)
    for turn in turns:
        await system.observe(turn)
    await system.finish()
    system.graph.check()
    return system


def links(system: MemFly) -> dict[tuple[int, int], tuple[str, float]]:
    return {(a, b): (d["relation"], d["strength"]) for a, b, d in system.graph.related.edges(data=True)}


async def recalls(system: MemFly) -> list[Evidence]:
    return [await system.recall(question) for question in QUESTIONS]


# -- building ----------------------------------------------------------------------------------------------------


async def test_append_keeps_every_turn_as_a_note_of_its_own(turns: tuple[Turn, ...]) -> None:
    log, backend = Log(), scripted()
    system = await build(backend, turns, log)
    assert [note.turns for note in system.graph.notes.values()] == [(turn.id,) for turn in turns]
    assert system.graph.notes[0].context == "Ada said: Hi Ben! I adopted a grey cat called Miso last Friday."
    assert system.graph.notes[0].keywords == ["ben", "miso", "friday"]
    assert system.graph.notes[2].pieces[0].text.endswith("[shares a photo of: a grey cat asleep on an upright piano]")
    assert [event["turn"] for event in log.of("append")] == [turn.id for turn in turns]
    assert backend.count == {"ingest": 14, "gate": 13}, "the first turn has nothing to be compared with"
    stats = system.stats()
    assert (stats["notes"], stats["turns"], stats["links"], stats["merges"]) == (14, 14, 0, 0)
    assert stats["keywords"] == len(system.graph.carriers) > 5
    assert stats["topics"] == len(system.topics.members) > 0


async def test_the_gate_sees_the_draft_and_at_most_n_candidates_with_their_ids(turns: tuple[Turn, ...]) -> None:
    backend = scripted()
    await build(backend, turns, candidates={"n": 4})
    value = backend.inputs("gate")[-1]
    assert (value.date, value.context) == ("9:00 pm on 2 July, 2024", "Ben said: Bye!")
    assert len(value.candidates) == 4
    for value in backend.inputs("gate"):
        ids = [c.id for c in value.candidates]
        assert len(set(ids)) == len(ids)
    by_context = {c.context: c for value in backend.inputs("gate") for c in value.candidates}
    cat = by_context["Ada said: Hi Ben! I adopted a grey cat called Miso last Friday."]
    assert (cat.id, cat.date, cat.keywords) == (0, "7:05 pm on 3 March, 2024", ("Ben", "Miso", "Friday"))


async def test_candidates_fuse_both_indices(turns: tuple[Turn, ...]) -> None:
    both, dense, sparse = scripted(), scripted(), scripted()
    await build(both, turns[:8])
    await build(dense, turns[:8], candidates={"k_sparse": 0, "n": 2})
    await build(sparse, turns[:8], candidates={"k_dense": 0, "n": 2})
    seven = [c.id for c in both.inputs("gate")[-1].candidates]
    assert sorted(seven) == list(range(7))
    for one in (dense, sparse):
        ids = [c.id for c in one.inputs("gate")[-1].candidates]
        assert len(ids) == 2
        assert set(ids) <= set(seven[:4])


async def test_merge_unites_pieces_and_keywords_and_asks_f_merge_once(turns: tuple[Turn, ...]) -> None:
    log, backend = Log(), scripted(at("vet", (0, "SUPPORTS", 0.71, 0.9), (2, "RELATED", 0.1, 0.9)))
    system = await build(backend, turns[:6], log)
    assert [note.turns for note in system.graph.notes.values()] == [
        ("D1:1", "D2:2"),
        ("D1:2",),
        ("D1:3",),
        ("D1:4",),
        ("D2:1",),
    ]
    note = system.graph.notes[0]
    old = "Ada said: Hi Ben! I adopted a grey cat called Miso last Friday."
    assert note.context == f"{old} + Ada said: Oh no. I took Miso to the vet, he is healthy."
    assert note.keywords == ["ben", "miso", "friday"]
    (value,) = backend.inputs("merge")
    assert (value.old_date, value.new_date) == ("7:05 pm on 3 March, 2024", "10:30 am on 20 April, 2024")
    assert links(system) == {}
    assert log.of("merge") == [{"kind": "merge", "turn": "D2:2", "note": 0}]
    assert system.stats()["merges"] == 1
    (vector,) = system.services.embedder.encoder.encode([note.context])
    assert system.note_vectors[0].tobytes() == vector.tobytes()
    assert system._dense.search(vector, 1)[0][0] == 0
    assert [i for i, _ in system.sparse.search(["vet"], 9)] == [0], "the sparse index holds the merged text"


async def test_link_stores_the_note_and_joins_it_to_all_over_tau_l(turns: tuple[Turn, ...]) -> None:
    log = Log()
    gate = at(
        "vet", (0, "RELATED", 0.7, 0.9), (1, "CONFLICTS", 0.9, 0.1), (2, "SUPPORTS", 0.0, 0.51), (3, "NONE", 0.0, 0.5)
    )
    system = await build(scripted(gate), turns[:6], log)
    assert links(system) == {(5, 0): ("RELATED", 0.9), (5, 1): ("CONFLICTS", 0.9), (5, 2): ("SUPPORTS", 0.51)}
    assert system.stats()["links"] == len(log.of("link")) == 3
    assert "D2:2" not in [event["turn"] for event in log.of("append")]


async def test_thresholds_are_the_options(turns: tuple[Turn, ...]) -> None:
    gate = at("vet", (0, "SUPPORTS", 0.6, 0.4))
    assert (await build(scripted(gate), turns[:6])).stats()["merges"] == 0
    assert (await build(scripted(gate), turns[:6], tau_m=0.6)).stats()["merges"] == 0
    assert (await build(scripted(gate), turns[:6], tau_m=0.59)).stats()["merges"] == 1
    assert (await build(scripted(gate), turns[:6], tau_l=0.39)).stats()["links"] == 1


@pytest.mark.parametrize("said", ["prose", "", '{"verdicts": 3}', '{"other": []}'])
async def test_an_unusable_gate_reply_appends_and_is_counted(said: str, turns: tuple[Turn, ...]) -> None:
    log, backend = Log(), scripted(lambda value: said)
    system = await build(backend, turns[:3], log)
    assert backend.count["gate"] == 6, "three attempts each"
    assert system.stats()["gate_fallback"] == 2
    assert [event["turn"] for event in log.of("gate_fallback")] == ["D1:2", "D1:3"]
    assert len(system.graph.notes) == 3


async def test_dropped_verdicts_are_counted(turns: tuple[Turn, ...]) -> None:
    gate = at(
        "vet", (99, "SUPPORTS", 0.9, 0.9), (0, "SUPPORTS", 1.9, 0.9), (1, "RELATED", 0.0, 0.9), (1, "SUPPORTS", 0.9, 0)
    )
    system = await build(scripted(gate), turns[:6])
    assert system.stats()["gate_dropped_verdicts"] == 3
    assert links(system) == {(5, 1): ("RELATED", 0.9)}


async def test_an_unusable_merge_reply_joins_both_texts_and_is_counted(turns: tuple[Turn, ...]) -> None:
    log, backend = Log(), scripted(at("vet", (0, "SUPPORTS", 0.9, 0.9)), merge=lambda value: '{"context": ""}')
    system = await build(backend, turns[:6], log)
    assert system.stats()["merge_fallback"] == len(log.of("merge_fallback")) == 1
    assert system.graph.notes[0].context.endswith(
        "last Friday. Ada said: Oh no. I took Miso to the vet, he is healthy."
    )


async def test_an_unusable_ingestion_reply_keeps_the_turn_as_it_stands(turns: tuple[Turn, ...]) -> None:
    log = Log()
    system = await build(
        scripted(ingest=lambda value: "nope" if "vet" in value.text else ingest(value)), turns[:7], log
    )
    assert system.stats()["ingest_fallback"] == len(log.of("ingest_fallback")) == 1
    assert system.graph.notes[5].context == turns[5].render()
    assert system.graph.notes[5].keywords == []


# -- switches ----------------------------------------------------------------------------------------------------


async def test_without_update_nothing_is_compared(turns: tuple[Turn, ...]) -> None:
    backend = scripted(at("vet", (0, "SUPPORTS", 0.9, 0.9)))
    system = await build(backend, turns, update=False)
    assert backend.count == {"ingest": 14}
    assert (len(system.graph.notes), links(system)) == (14, {})


async def test_without_denoising_the_context_is_the_turn_and_keywords_stay(turns: tuple[Turn, ...]) -> None:
    system, full = await build(scripted(), turns, denoise=False), await build(scripted(), turns)
    assert [note.context for note in system.graph.notes.values()] == [turn.render() for turn in turns]
    assert system.graph.carriers == full.graph.carriers


async def test_without_merge_or_link(turns: tuple[Turn, ...]) -> None:
    gate = at("vet", (0, "SUPPORTS", 0.9, 0.6), (1, "RELATED", 0.0, 0.9))
    without_merge = await build(scripted(gate), turns[:6], merge={"enabled": False})
    assert links(without_merge) == {(5, 0): ("SUPPORTS", 0.6), (5, 1): ("RELATED", 0.9)}
    without_link = await build(scripted(gate), turns[:6], link={"enabled": False})
    assert (without_link.stats()["merges"], links(without_link)) == (1, {})
    neither = await build(scripted(gate), turns[:6], merge={"enabled": False}, link={"enabled": False})
    assert (neither.stats()["merges"], links(neither), len(neither.graph.notes)) == (0, {}, 6)


async def test_one_strength(turns: tuple[Turn, ...]) -> None:
    said = {
        "verdicts": [
            {"id": 0, "relation": "SUPPORTS", "strength": 0.8},
            {"id": 1, "relation": "RELATED", "strength": 1},
        ]
    }
    blank: Any = {"verdicts": []}
    backend = scripted(gate_one_strength=lambda value: said if "vet" in value.context else blank)
    system = await build(backend, turns[:6], gate={"form": "one_strength"})
    assert backend.count["gate"] == 0
    assert backend.count["gate_one_strength"] == 5
    assert system.graph.notes[0].turns == ("D1:1", "D2:2")


async def test_the_gate_reply_may_bring_the_merged_text(turns: tuple[Turn, ...]) -> None:
    gate = at("vet", (0, "SUPPORTS", 0.9, 0.9), merged_context=" Miso is healthy. ")
    backend = scripted(gate_merge=lambda value: {"merged_context": ""} | gate(value))
    system = await build(backend, turns[:6], merge={"in_gate_reply": True})
    assert backend.count == {"ingest": 6, "gate_merge": 5}
    assert system.graph.notes[0].context == "Miso is healthy."


@pytest.mark.parametrize(
    "entries",
    [
        [(0, "SUPPORTS", 0.9, 0.9), (1, "CONFLICTS", 0.95, 0.9)],
        [(0, "SUPPORTS", 0.9, 0.9), (1, "SUPPORTS", 0.9, 0.1)],
        [(0, "SUPPORTS", 0.9, 0.9), (1, "SUPPORTS", 1.5, 0.1)],
    ],
    ids=["the best conflicts", "a tie", "the best is out of range"],
)
async def test_a_merged_text_about_another_note_is_not_used(entries: Any, turns: tuple[Turn, ...]) -> None:
    gate = at("vet", *entries, merged_context="about note 1, perhaps")
    backend = scripted(gate_merge=lambda value: {"merged_context": ""} | gate(value))
    system = await build(backend, turns[:6], merge={"in_gate_reply": True})
    assert backend.count["merge"] == 1
    assert system.graph.notes[0].context.endswith(" + Ada said: Oh no. I took Miso to the vet, he is healthy.")


async def test_a_merge_without_a_merged_text_in_the_reply_asks_for_it(turns: tuple[Turn, ...]) -> None:
    gate = at("vet", (0, "SUPPORTS", 0.9, 0.9))
    backend = scripted(gate_merge=lambda value: {"merged_context": " "} | gate(value))
    await build(backend, turns[:6], merge={"in_gate_reply": True})
    assert backend.count["merge"] == 1


@pytest.mark.parametrize("window", [0, 1, 3])
async def test_the_window_shows_the_turns_before(window: int, turns: tuple[Turn, ...]) -> None:
    backend = scripted()
    await build(backend, turns, ingest={"window": window})
    for i, value in enumerate(backend.inputs("ingest")):
        assert value.preceding == tuple(turn.render() for turn in turns[max(0, i - window) : i])


async def test_near_duplicate_keywords_are_joined_on_request(turns: tuple[Turn, ...]) -> None:
    names = iter(["road bicycle", "road bicycles now"])
    one = scripted(ingest=lambda value: {"keywords": [next(names)], "context": value.text})
    system = await build(one, turns[:2], keywords={"merge_cosine": 0.5})
    assert list(system.graph.carriers) == ["road bicycle"]
    assert system.graph.carriers["road bicycle"] == {0, 1}


async def test_topics_are_rebuilt_every_so_many_turns_and_at_the_end(
    turns: tuple[Turn, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    real = MemFly._rebuild_topics
    monkeypatch.setattr(MemFly, "_rebuild_topics", lambda self: (seen.append(self.counts["turns"]), real(self))[1])
    await build(scripted(), turns, topics={"every": 4})
    assert seen == [4, 8, 12, 14]


# -- reading and keeping -----------------------------------------------------------------------------------------


def busy(value: Any) -> Any:
    """A gate that merges into, and links to, candidates by arithmetic on the text."""
    entries = []
    for c in value.candidates:
        n = len(value.context) * 7 + c.id * 13
        entries.append((c.id, ["SUPPORTS", "RELATED", "CONFLICTS", "NONE"][n % 4], (n % 10) / 10 - 0.15, (n % 7) / 7))
    return verdicts(*entries)


async def test_saved_and_loaded_it_recalls_the_same(turns: tuple[Turn, ...], tmp_path: Path) -> None:
    system = await build(scripted(busy), turns, topics={"every": 4, "delta_min": 2, "delta_max": 4})
    assert system.stats()["merges"] > 0
    assert system.stats()["links"] > 0
    before = await recalls(system)
    folder = tmp_path / "memory"
    folder.mkdir()
    system.save(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["memory.json", "vectors.npz"]
    backend = scripted(busy)
    loaded = MemFly(services(backend), topics={"every": 4, "delta_min": 2, "delta_max": 4})
    loaded.load(folder)
    loaded.graph.check()
    assert await recalls(loaded) == before
    assert loaded.stats() == system.stats()
    assert not {"ingest", "gate", "merge"} & set(backend.count)
    again = tmp_path / "again"
    again.mkdir()
    loaded.save(again)
    assert (again / "memory.json").read_bytes() == (folder / "memory.json").read_bytes()


async def test_an_empty_memory_can_be_kept_and_asked(tmp_path: Path) -> None:
    system = await build(scripted(), [])
    system.save(tmp_path)
    loaded = MemFly(services(scripted()))
    loaded.load(tmp_path)
    assert (await loaded.recall(QUESTIONS[0])).passages == ()
    assert loaded.stats()["notes"] == 0


async def test_recall_changes_nothing(turns: tuple[Turn, ...], tmp_path: Path) -> None:
    system = await build(scripted(busy), turns)
    first = await recalls(system)
    together = await asyncio.gather(*(system.recall(question) for question in reversed(QUESTIONS * 3)))
    assert list(reversed(together)) == first * 3


@pytest.mark.parametrize("ahead", [1, 3, 14])
async def test_prefetching_changes_nothing(ahead: int, turns: tuple[Turn, ...]) -> None:
    options: dict[str, Any] = {"ingest": {"window": 2}, "topics": {"every": 5}}
    plain = scripted(busy)
    expected = await build(plain, turns, **options)
    backend = scripted(busy)
    backend.turns_to_wait = lambda call: (len(str(call.messages)) * 31) % 17  # replies come in another order
    system = MemFly(services(backend), **options)
    for i, turn in enumerate(turns):
        for later in turns[i : i + ahead]:
            system.prefetch(later)
        await system.observe(turn)
    await system.finish()
    assert system.graph.to_json() == expected.graph.to_json()
    assert system.topics.to_json() == expected.topics.to_json()
    assert await recalls(system) == await recalls(expected)
    assert not list(system.started())
    assert sorted(repr(call.content) for call in backend.calls) == sorted(repr(call.content) for call in plain.calls)


async def test_evidence_is_in_time_order_with_its_turns(turns: tuple[Turn, ...]) -> None:
    system = await build(scripted(at("vet", (0, "SUPPORTS", 0.9, 0.9))), turns, retrieval={"k_final": 6})
    evidence = await system.recall(QUESTIONS[0])
    assert 0 < len(evidence.passages) <= 6
    times = [passage.time for passage in evidence.passages]
    assert times == sorted(times)  # type: ignore[type-var]
    assert set(evidence.ranked_turns) == set(evidence.turn_ids)
    assert evidence.answer is None
    merged = next(passage for passage in evidence.passages if "D2:2" in passage.turns)
    assert merged.turns == ("D1:1", "D2:2")
    assert merged.date == "7:05 pm on 3 March, 2024"
    context, first, second = merged.text.split("\n")
    assert context.startswith("Ada said: Hi Ben!")
    assert first == turns[0].render()
    assert second == f"(10:30 am on 20 April, 2024) {turns[5].render()}", "a piece of another session has its own date"


@pytest.mark.parametrize(
    ("view", "text"),
    [
        ("context", "Ada said: Hi"),
        ("raw", "Ada: Hi"),
        ("both", "Ada said: Hi\nAda: Hi"),
    ],
)
async def test_note_views(view: Any, text: str, turns: tuple[Turn, ...]) -> None:
    hi = Turn("D1:1", "Ada", "Hi", 1, turns[0].time, turns[0].date)
    system = await build(scripted(), [hi], note_view=view)
    assert system._passage(0).text == text
    plain = await build(scripted(), [hi], note_view=view, denoise=False)
    assert plain._passage(0).text == "Ada: Hi", "the same line is not shown twice"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau_m": 1.1}, "method.tau_m: 1.1 is outside [0, 1]"),
        ({"tau_l": -0.1}, "method.tau_l: -0.1 is outside [0, 1]"),
        ({"note_view": "all"}, "method.note_view: 'all' is none of context, raw, both"),
        ({"gate": {"form": "three"}}, "method.gate.form: Input should be 'two_scores' or 'one_strength'"),
        ({"gate": {"from": "two_scores"}}, "method.gate.from: Extra inputs are not permitted; known options: form"),
        ({"topics": {"delta_min": 9, "delta_max": 3}}, "delta_min 9 is larger than delta_max 3"),
        ({"retrieval": {"pathways": ["topics"]}}, "method.retrieval.pathways.0: Input should be 'topic'"),
        ({"ingest": {"window": -1}}, "method.ingest.window: Input should be greater than or equal to 0"),
        (
            {"merge": {"in_gate_reply": True}, "gate": {"form": "one_strength"}},
            "method.merge.in_gate_reply needs method.gate.form=two_scores",
        ),
    ],
)
def test_wrong_options_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        MemFly(services(scripted()), **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_state_is_json_and_npz_only(tmp_path: Path) -> None:
    asyncio.run(build(scripted(), [])).save(tmp_path)
    state = json.loads((tmp_path / "memory.json").read_text(encoding="utf-8"))
    assert set(state) == {"graph", "topics", "keywords", "counts"}
