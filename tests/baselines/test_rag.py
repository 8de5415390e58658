"""RAG: units, retrievers, context and smoothing, notes from the file or made, and the reference points."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from baselines.extractive import FUNCTIONS
from baselines.rag import Rag
from baselines.rag_units import chunk_units
from eval.evidence import score_evidence, summarise
from eval.locomo import Dataset
from memfly.embed import Embedder, Hashing, MiniLM
from memfly.errors import ConfigError, DataError
from memfly.index import Bm25Index
from memfly.llm.client import LLM
from memfly.llm.extractive import Extractive
from memfly.system import Services
from memfly.text import content_stems, count_tokens
from memfly.types import Evidence, Observation, Question, SessionNotes, Turn
from tests.support.scripted import Log, Scripted, services

NOTES = {
    1: SessionNotes((Observation("Ada", "Ada has a cat called Miso.", ("D1:1", "D9:9", "D1:1")),), "Ada got a cat."),
    2: SessionNotes((Observation("Ben", "Ben hurt his knee.", ("D2:1",)),), "Ben hurt his knee, Ada makes pottery."),
    3: SessionNotes((Observation("Ada", "Ada wants bees.", ("D3:3",)),), "Miso caught a mouse, Ben rode a bike."),
}


def question(text: str) -> Question:
    return Question("ada-ben#0", "ada-ben", text)


async def build(turns: tuple[Turn, ...], backend: Scripted | None = None, **options: Any) -> Rag:
    given = services(backend or Scripted(), log=options.pop("log", None))
    notes = options.pop("notes", {})
    given = Services(given.llm, given.embedder, given.conversation, given.speakers, 0, notes, given.log)
    system = Rag(given, **options)
    for turn in turns:
        await system.observe(turn)
    await system.finish()
    return system


async def ids(system: Rag, text: str) -> tuple[str, ...]:
    return (await system.recall(question(text))).ranked_turns


async def test_bm25_over_turns(turns: tuple[Turn, ...]) -> None:
    """Speaker, text and caption are indexed; turns that match nothing are not shown; the rest in time order."""
    system = await build(turns)
    evidence = await system.recall(question("Which bowl is for Rosa?"))
    assert evidence.ranked_turns[0] == "D2:6"
    assert set(evidence.ranked_turns) == {"D2:3", "D2:6", "D3:2"}
    assert [p.turns[0] for p in evidence.passages] == ["D2:3", "D2:6", "D3:2"]
    assert evidence.passages[1].text == turns[9].render()
    assert evidence.passages[1].date == "10:30 am on 20 April, 2024"
    assert (await ids(system, "upright"))[:1] == ("D1:3",)
    assert await ids(system, "zxqv") == ()


async def test_scores_are_those_of_the_index(turns: tuple[Turn, ...]) -> None:
    system = await build(turns, k1=0.9, b=0.4)
    index = Bm25Index(0.9, 0.4)
    for i, turn in enumerate(turns):
        index.set(i, content_stems(f"{turn.speaker}: {turn.text} {turn.caption or ''}"))
    expected = [turns[i].id for i, _ in index.search(content_stems("Did Miso sleep on Ada's piano?"), 20)]
    assert list(await ids(system, "Did Miso sleep on Ada's piano?")) == expected


async def test_k_and_order(turns: tuple[Turn, ...]) -> None:
    by_score = await (await build(turns, k=3, order="score")).recall(question("Ben rode Rosa's road bike"))
    by_time = await (await build(turns, k=3)).recall(question("Ben rode Rosa's road bike"))
    assert tuple(p.turns[0] for p in by_score.passages) == by_score.ranked_turns == by_time.ranked_turns
    assert by_score.ranked_turns[0] == "D3:2"
    assert sorted(p.turns[0] for p in by_time.passages) == [p.turns[0] for p in by_time.passages]


async def test_context_adds_the_turn_before_of_the_same_session(turns: tuple[Turn, ...]) -> None:
    assert await ids(await build(turns), "pottery") == ("D2:4",)
    assert await ids(await build(turns, context_turns=1), "pottery") == ("D2:4", "D2:5")
    assert await ids(await build(turns, context_turns=2), "pottery") == ("D2:4", "D2:5", "D2:6")
    assert await ids(await build(turns, context_turns=3), "bowl") == ("D2:6",)  # the last of its session


async def test_dense_ranks_by_cosine(turns: tuple[Turn, ...]) -> None:
    text = "Ada and her cat Miso"
    system = await build(turns, retriever="dense", k=14)
    rows = await system.services.embedder.embed([f"{t.speaker}: {t.text} {t.caption or ''}".rstrip() for t in turns])
    cosines = rows @ (await system.services.embedder.embed([text]))[0]
    assert list(await ids(system, text)) == [turns[i].id for i in np.argsort(-cosines, kind="stable")]


async def test_hybrid_is_rank_fusion(turns: tuple[Turn, ...]) -> None:
    """Worked for two lists of depth 2: 1/61 and 1/62 each, ties by first appearance in time."""
    system = await build(turns, retriever="hybrid", depth=2)
    lexical = (await ids(await build(turns), "Rosa's old road bike"))[:2]
    dense = (await ids(await build(turns, retriever="dense"), "Rosa's old road bike"))[:2]
    scores = dict.fromkeys([*lexical, *dense], 0.0)
    for ranked in (lexical, dense):
        for rank, turn in enumerate(ranked, 1):
            scores[turn] += 1 / (60 + rank)
    place = {turn.id: i for i, turn in enumerate(turns)}
    expected = sorted(scores, key=lambda turn: (-round(scores[turn], 12), place[turn]))
    assert list(await ids(system, "Rosa's old road bike")) == expected


async def test_sum_of_bm25_and_z_scored_cosine(turns: tuple[Turn, ...]) -> None:
    text = "Rosa's old road bike"
    only_lexical = await build(turns, retriever="sum", dense_weight=0.0)
    assert (await ids(only_lexical, text))[:3] == (await ids(await build(turns), text))[:3]
    mostly_dense = await build(turns, retriever="sum", dense_weight=1e6)
    assert await ids(mostly_dense, text) == await ids(await build(turns, retriever="dense"), text)


async def test_smoothing_is_a_weighted_mean_within_the_session(turns: tuple[Turn, ...]) -> None:
    """ "pottery" is in D2:4 alone, with score s: its neighbours get 0.5 s / 2, it keeps s / 2; D2:1 and D3 nothing."""
    system = await build(turns, smooth=0.5)
    assert await ids(system, "pottery") == ("D2:4", "D2:3", "D2:5")
    assert await ids(system, "bowl") == ("D2:6", "D2:5")  # nothing leaks into the next session
    smoothed = system._smoothed(np.array([0, 0, 0, 0, 3.0, 0, 0, 0, 0, 6.0, 0, 0, 0, 0]))
    assert smoothed.tolist() == [0, 0, 0, 0, 2.0, 0.75, 0, 0, 1.5, 4.0, 0, 0, 0, 0]


async def test_observations_of_the_file(turns: tuple[Turn, ...]) -> None:
    system = await build(turns, unit="observations", notes=NOTES)
    evidence = await system.recall(question("What is Ada's cat called?"))
    assert evidence.ranked_turns[0] == "D1:1"
    assert evidence.passages[0].text == "Ada has a cat called Miso."
    assert evidence.passages[0].date == "7:05 pm on 3 March, 2024"
    assert system.stats() == {"dropped_turn_ids": 1, "turns": 14, "units": 3}


async def test_the_date_is_indexed_where_asked(turns: tuple[Turn, ...]) -> None:
    plain = await build(turns, unit="observations", notes=NOTES)
    dated = await build(turns, unit="observations", notes=NOTES, embed_date=True)
    assert await ids(plain, "What happened in April?") == ()
    assert await ids(dated, "What happened in April?") == ("D2:1",)


async def test_summaries_show_no_turns(turns: tuple[Turn, ...]) -> None:
    system = await build(turns, unit="summaries", notes=NOTES, k=1)
    evidence = await system.recall(question("Who hurt a knee?"))
    assert [p.text for p in evidence.passages] == [NOTES[2].summary]
    assert evidence.turn_ids == ()


async def test_notes_are_made_where_the_file_has_none(turns: tuple[Turn, ...]) -> None:
    llm = Scripted(
        rag_observations=lambda v: {"facts": [{"speaker": "Ada", "fact": v.lines[0].text, "turns": [v.lines[0].id]}]},
        rag_summary=lambda v: {"summary": f"made from {len(v.lines)} turns of {v.date}"},
    )
    auto = await build(turns, llm, unit="summaries", notes={1: NOTES[1]})
    assert llm.count == {"rag_summary": 2}
    assert [u.indexed for u in auto.units] == [
        "Ada got a cat.",
        "made from 6 turns of 10:30 am on 20 April, 2024",
        "made from 4 turns of 9:00 pm on 2 July, 2024",
    ]
    assert auto.stats()["sessions_made"] == 2
    made = await build(turns, llm, unit="observations", source="made", notes=NOTES)
    assert llm.count["rag_observations"] == 3
    assert [u.passage.turns for u in made.units] == [("D1:1",), ("D2:1",), ("D3:1",)]
    with pytest.raises(DataError, match=r"session 2 has no summaries"):
        await build(turns, unit="summaries", source="file", notes={1: NOTES[1]})


async def test_an_unusable_reply_leaves_the_session_s_own_words(turns: tuple[Turn, ...]) -> None:
    log = Log()
    llm = Scripted(rag_observations=lambda v: "no", rag_summary=lambda v: '{"summary": " "}')
    facts = await build(turns, llm, unit="observations", log=log)
    assert [u.passage.turns for u in facts.units] == [(turn.id,) for turn in turns]
    summaries = await build(turns, llm, unit="summaries", log=log)
    assert "Miso already sleeps" in summaries.units[0].passage.text
    assert facts.stats()["notes_fallback"] == summaries.stats()["notes_fallback"] == 3
    assert len(log.of("notes_fallback")) == 6


def test_chunks_have_their_size_and_every_turn_is_in_one(turns: tuple[Turn, ...]) -> None:
    units = chunk_units(turns, 64)
    assert [count_tokens(unit.indexed) for unit in units[:-1]] == [64] * (len(units) - 1)
    whole = "".join(unit.indexed for unit in units)
    assert whole == "".join(f"{t.date} | {t.speaker}: {t.text}\n" for t in turns)
    assert "upright piano" not in whole  # mem0's RAG has no captions
    assert [turn for unit in units for turn in unit.passage.turns] == [t.id for t in turns]
    for unit in units:
        for turn in unit.passage.turns:
            text = next(t.text for t in turns if t.id == turn)
            half = len(text) // 2
            assert text[half + 1 :] in unit.indexed or text[:half] in unit.indexed


async def test_dense_chunks(turns: tuple[Turn, ...]) -> None:
    system = await build(turns, unit="chunks", chunk_tokens=50, retriever="dense", k=2)
    evidence = await system.recall(question("half marathon in Bergen"))
    assert len(evidence.passages) == 2
    assert all(not p.date for p in evidence.passages)


@pytest.mark.parametrize(
    "options", [{"unit": "pages"}, {"k": 0}, {"chunk_tokens": 8}, {"retriever": "x"}, {"smooth": -1}]
)
def test_wrong_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"method.{next(iter(options))}"):
        Rag(services(Scripted()), **options)


async def test_a_loaded_memory_is_indexed_once(turns: tuple[Turn, ...], tmp_path: Path) -> None:
    """The first questions come together; a failed attempt is no obstacle to the next."""
    system = await build(turns, retriever="dense")
    system.save(tmp_path)
    loaded = Rag(services(Scripted()), retriever="dense")
    loaded.load(tmp_path)
    real, built = loaded._build_index, 0

    async def counting() -> Any:
        nonlocal built
        built += 1
        await asyncio.sleep(0)
        if built == 1:
            raise ConfigError("no model")
        return await real()

    loaded._build_index = counting  # type: ignore[method-assign]
    asked = question("Where is the piano?")
    with pytest.raises(ConfigError):
        await loaded.recall(asked)
    found = await asyncio.gather(*(loaded.recall(asked) for _ in range(16)))
    assert built == 2
    assert found == [await system.recall(asked)] * 16


async def test_notes_without_a_model(turns: tuple[Turn, ...]) -> None:
    """The extractive functions: facts point at the turn they come from and name their speaker."""
    embedder = Embedder(Hashing(64))
    llm = LLM(Extractive(embedder, FUNCTIONS))
    system = Rag(Services(llm, embedder, "ada-ben", ("Ada", "Ben")), unit="observations")
    for turn in turns:
        await system.observe(turn)
    await system.finish()
    facts = {u.passage.turns: u.passage.text for u in system.units}
    assert facts[("D1:1",)] == "Ada adopted a grey cat called Miso last Friday."
    assert ("D2:5",) not in facts  # a question
    assert ("D3:4",) not in facts  # small talk


# -- the reference points (docs/systems/rag.md) ------------------------------------------------------------------

REFERENCE = {
    "rag_bm25": (0.7008, 0.7568),
    "rag_dense": (0.5193, 0.5782),
    "rag_hybrid": (0.6357, 0.6917),
    "rag_bm25_context": (0.7849, 0.8385),
    "rag_bm25_context_dense": (0.7988, 0.8542),
    "rag_smoothed": (0.8158, 0.8683),
}


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    return Embedder(MiniLM(), tmp_path_factory.mktemp("vectors") / "minilm.sqlite")


async def measured(preset: str, data: Dataset, embedder: Embedder) -> tuple[float, float]:
    """Evidence recall and hit rate over all questions with usable evidence."""
    path = Path(__file__).resolve().parents[2] / "conf" / "method" / f"{preset}.yaml"
    options = yaml.safe_load(path.read_text(encoding="utf-8"))
    options.pop("_target_")
    rows = []
    for conversation in data.conversations:
        system = Rag(Services(LLM(Scripted()), embedder, conversation.id, conversation.speakers), **options)
        for turn in conversation.turns:
            await system.observe(turn)
        await system.finish()
        for asked in data.questions:
            if asked.conversation == conversation.id:
                evidence: Evidence = await system.recall(asked)
                rows.append(score_evidence(data.golds[asked.id].evidence, evidence.turn_ids))
    summary = summarise(rows)
    assert summary.n == 1982
    return summary.mean["evidence_recall"], summary.mean["evidence_hit"]


@pytest.mark.slow
@pytest.mark.parametrize("preset", REFERENCE)
async def test_reference_points(preset: str, locomo10_data: Dataset, minilm: Embedder) -> None:
    recall, hit = await measured(preset, locomo10_data, minilm)
    assert recall == pytest.approx(REFERENCE[preset][0], abs=0.005)
    assert hit == pytest.approx(REFERENCE[preset][1], abs=0.005)
