"""A-MEM: what its calls are shown, what a reply changes, and which notes a question gets."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baselines.amem import AMem, Note
from baselines.tasks.amem import AMEM_EVOLVE, AMEM_LINK
from memfly.errors import BackendError, ConfigError
from memfly.types import Question, Turn
from tests.support.scripted import Log, Scripted, services

QUESTION = Question("ada-ben#0", "ada-ben", "What is the cat called?")
NOTHING = {"should_evolve": False, "actions": [], "suggested_connections": [], "tags_to_update": [],
           "new_context_neighborhood": [], "new_tags_neighborhood": []}  # fmt: skip


def analyse(value: Any) -> dict[str, Any]:
    words = value.content.split()
    return {"keywords": words[-2:], "context": f"About {words[-1]}", "tags": ["talk"]}


def backend(**scripts: Any) -> Scripted:
    usual = {"amem_analyse": analyse, "amem_evolve": lambda value: NOTHING, "amem_link": lambda value: NOTHING,
             "amem_keywords": lambda value: {"keywords": "cat, name"}}  # fmt: skip
    return Scripted(usual | scripts)


async def build(system: AMem, turns: tuple[Turn, ...]) -> AMem:
    for turn in turns:
        await system.observe(turn)
    await system.finish()
    return system


def note(number: int, links: list[int] | None = None) -> Note:
    return Note(f"D1:{number}", f"Ada: note {number}", "1 May", datetime(2024, 5, 1), ["k"], "c", ["t"], links or [])


def with_notes(system: AMem, notes: list[Note]) -> AMem:
    system.notes = notes
    return system


async def test_two_calls_per_turn_also_for_the_first_note(turns: tuple[Turn, ...]) -> None:
    llm = backend()
    system = await build(AMem(services(llm)), turns)
    assert llm.count == {"amem_analyse": 14, "amem_evolve": 14}
    assert llm.inputs("amem_evolve")[0].neighbours == ()
    assert len(llm.inputs("amem_evolve")[-1].neighbours) == 5
    assert system.stats()["notes"] == 14
    await system.recall(QUESTION)
    assert llm.count["amem_keywords"] == 1


async def test_ablations_make_the_calls_they_should(turns: tuple[Turn, ...]) -> None:
    llm = backend()
    await build(AMem(services(llm), evolution="links"), turns)
    assert llm.count == {"amem_analyse": 14, "amem_link": 14}
    llm = backend()
    system = await build(AMem(services(llm), evolution="none"), turns)
    assert llm.count == {"amem_analyse": 14}
    assert system.stats()["links"] == 0


def test_the_link_only_call_offers_no_update() -> None:
    assert "update_neighbor" in AMEM_EVOLVE.system
    assert "update_neighbor" not in AMEM_LINK.system + str(AMEM_LINK.schema())
    assert "neighborhood" not in str(AMEM_LINK.schema())
    assert "neighborhood" in str(AMEM_EVOLVE.schema())


async def test_strengthen_links_and_retags_the_new_note_only(turns: tuple[Turn, ...]) -> None:
    def evolve(value: Any) -> dict[str, Any]:
        positions = [n.position for n in value.neighbours]
        return NOTHING | {"should_evolve": True, "actions": ["strengthen"], "suggested_connections": positions[:1],
                          "tags_to_update": ["new"], "new_tags_neighborhood": [["ignored"]] * 5}  # fmt: skip

    system = await build(AMem(services(backend(amem_evolve=evolve))), turns[:4])
    assert [note.tags for note in system.notes] == [["new"]] * 4
    assert system.notes[0].links == []
    assert all(len(note.links) == 1 for note in system.notes[1:])
    assert all(note.context.startswith("About") for note in system.notes)


async def test_update_neighbour_goes_as_far_as_the_shorter_list(turns: tuple[Turn, ...]) -> None:
    shown: list[int] = []

    def evolve(value: Any) -> dict[str, Any]:
        if len(value.neighbours) < 3:
            return NOTHING
        shown[:] = [n.position for n in value.neighbours]
        return NOTHING | {"should_evolve": True, "actions": ["update_neighbor"], "suggested_connections": [0],
                          "new_tags_neighborhood": [["a"], ["b"]], "new_context_neighborhood": ["changed"]}  # fmt: skip

    system = await build(AMem(services(backend(amem_evolve=evolve))), turns[:4])
    first, second, third = (system.notes[position] for position in shown)
    assert (first.tags, first.context) == (["a"], "changed")
    assert second.tags == ["b"]
    assert second.context.startswith("About")
    assert third.tags == ["talk"]
    assert system.notes[3].links == []
    assert system.notes[3].tags == ["talk"]
    assert system.stats()["neighbour_updates"] == 2


async def test_bad_links_are_dropped_and_counted(turns: tuple[Turn, ...]) -> None:
    reply = NOTHING | {"should_evolve": True, "actions": ["strengthen", "explode"], "tags_to_update": ["t"],
                       "suggested_connections": [-1, 0, 0, 2, 3, 99]}  # fmt: skip
    llm = backend(amem_evolve=lambda value: reply if len(value.neighbours) == 3 else NOTHING)
    system = await build(AMem(services(llm)), turns[:4])
    assert system.notes[3].links == [0, 2]
    stats = system.stats()
    assert (stats["links_out_of_range"], stats["links_to_self"], stats["links_repeated"]) == (2, 1, 1)
    assert stats["unknown_actions"] == 1
    legacy = await build(AMem(services(llm), check_links=False), turns[:4])
    assert legacy.notes[3].links == [-1, 0, 0, 2, 3, 99]
    evidence = await legacy.recall(QUESTION)  # 99 would end the original's run; -1 is its last note
    assert set(evidence.turn_ids) <= {turn.id for turn in turns[:4]}


def test_linked_note_counts_of_the_spec() -> None:
    """k = 2, two hits with six links each: 2 + 3 + 1 = 6 notes with the shared counter, 2 + 3 + 3 = 8 per hit."""
    notes = [note(0, [2, 3, 4, 5, 6, 7]), note(1, [2, 3, 4, 5, 6, 7]), *(note(n) for n in range(2, 8))]
    shared = with_notes(AMem(services(backend()), k=2, link_limit="shared"), notes)
    assert list(shared._with_links([0, 1])) == [0, 2, 3, 4, 1, 2]
    per_hit = with_notes(AMem(services(backend()), k=2), notes)
    assert list(per_hit._with_links([0, 1])) == [0, 2, 3, 4, 1, 2, 3, 4]


def test_shared_counter_shows_one_more_for_each_later_hit() -> None:
    notes = [note(n, [3, 4, 5]) for n in range(3)] + [note(n) for n in range(3, 6)]
    system = with_notes(AMem(services(backend()), k=2, link_limit="shared"), notes)
    assert list(system._with_links([0, 1, 2])) == [0, 3, 4, 5, 1, 3, 2, 3]
    february = with_notes(AMem(services(backend()), link_limit="shared", linked_notes=5), notes)
    assert len(list(february._with_links([0, 1, 2]))) == 3 + (3 + 3 + 1)


async def test_repeated_notes_are_kept_or_not(turns: tuple[Turn, ...]) -> None:
    def evolve(value: Any) -> dict[str, Any]:
        first = [0] if value.neighbours else []
        return NOTHING | {"should_evolve": True, "actions": ["strengthen"], "suggested_connections": first}

    system = await build(AMem(services(backend(amem_evolve=evolve))), turns)
    evidence = await system.recall(QUESTION)
    texts = [passage.text for passage in evidence.passages]
    assert len(set(texts)) < len(texts)
    system.repeat_notes = False
    once = await system.recall(QUESTION)
    assert [p.text for p in once.passages] == list(dict.fromkeys(texts))
    assert once.ranked_turns == evidence.ranked_turns


async def test_hits_come_in_rank_order_with_dates_and_sources(turns: tuple[Turn, ...]) -> None:
    llm = backend(amem_keywords=lambda value: {"keywords": "Ada: Miso caught a mouse yesterday."})
    system = await build(AMem(services(llm), k=3, embedded_text="plain"), turns)
    evidence = await system.recall(QUESTION)
    assert evidence.passages[0].turns == ("D3:1",)
    assert evidence.passages[0].date == "9:00 pm on 2 July, 2024"
    assert evidence.passages[0].text.startswith("Ada: Miso caught a mouse yesterday.\nAbout yesterday.\n[keywords: ")
    assert evidence.ranked_turns == tuple(p.turns[0] for p in evidence.passages)


def test_embedded_text_forms() -> None:
    one = Note("D1:1", "content", "d", datetime(2024, 1, 1), ["k1", "k2"], "context", ["t1"])
    assert one.embedded("context_keywords") == "context keywords: k1, k2"
    assert one.embedded("plain") == "content k1 k2 t1 context"
    assert one.embedded("labelled") == "content: content context: context keywords: k1, k2 tags: t1"
    assert one.embedded_at_rebuild() == "content , context k1 k2 t1"


async def test_the_index_is_stale_until_the_rebuild(turns: tuple[Turn, ...]) -> None:
    def evolve(value: Any) -> dict[str, Any]:
        tags = [["zebra"]] * len(value.neighbours)
        return NOTHING | {"should_evolve": True, "actions": ["update_neighbor"], "new_tags_neighborhood": tags}

    seen: list[list[str]] = []
    made = services(backend(amem_evolve=evolve))
    embed = made.embedder.embed

    async def watch(texts: Any) -> Any:
        seen.append(list(texts))
        return await embed(texts)

    made.embedder.embed = watch  # type: ignore[method-assign]
    system = await build(AMem(made, evo_threshold=3), turns[:4])
    rebuilt = [batch for batch in seen if len(batch) > 1]
    assert system.stats()["rebuilds"] == 1
    assert [len(batch) for batch in rebuilt] == [3]
    assert "zebra" in rebuilt[0][0]
    assert all("zebra" not in text for batch in seen for text in batch if len(batch) == 1)


async def test_unusable_replies_are_counted_and_logged(turns: tuple[Turn, ...]) -> None:
    llm = Scripted({name: lambda value: "no json" for name in ("amem_analyse", "amem_evolve", "amem_keywords")})
    log = Log()
    system = await build(AMem(services(llm, log=log)), turns)
    stats = system.stats()
    assert (stats["analyse_fallback"], stats["evolve_fallback"], stats["notes"]) == (14, 14, 14)
    assert len(log.of("analyse_fallback")) == 14
    evidence = await system.recall(QUESTION)
    assert evidence.trace["keywords"] == QUESTION.text
    assert evidence.trace["keywords_fallback"] is True
    assert len(evidence.passages) == 10


async def test_a_failed_call_is_not_a_fallback(turns: tuple[Turn, ...]) -> None:
    error = BackendError("down", transient=False)
    with pytest.raises(BackendError):
        await build(AMem(services(backend(amem_evolve=lambda value: error))), turns)


async def test_prefetch_changes_nothing(turns: tuple[Turn, ...]) -> None:
    def evolve(value: Any) -> dict[str, Any]:
        positions = [n.position for n in value.neighbours]
        return NOTHING | {"should_evolve": True, "actions": ["strengthen"], "suggested_connections": positions}

    plain = await build(AMem(services(backend(amem_evolve=evolve))), turns)
    llm = backend(amem_evolve=evolve)
    llm.turns_to_wait = lambda call: hash(call.messages) % 5
    ahead = AMem(services(llm))
    for turn in turns:
        ahead.prefetch(turn)
    await build(ahead, turns)
    assert ahead.notes == plain.notes
    assert await ahead.recall(QUESTION) == await plain.recall(QUESTION)


async def test_save_and_load(turns: tuple[Turn, ...], tmp_path: Path) -> None:
    odd = replace(turns[0], text="caf\u00e9 \u4f60\u597d \U0001f600 \u2028")
    system = await build(AMem(services(backend())), (odd, *turns[1:]))
    (tmp_path / "m").mkdir()
    system.save(tmp_path / "m")
    again = AMem(services(backend()))
    again.load(tmp_path / "m")
    assert again.notes == system.notes
    assert again.stats() == system.stats()
    assert await again.recall(QUESTION) == await system.recall(QUESTION)


def test_bad_options_are_refused() -> None:
    for options in ({"k": 0}, {"evolution": "some"}, {"link_limit": "x"}, {"embedded_text": "y"}, {"linked_notes": -1}):
        with pytest.raises(ConfigError, match=r"method\."):
            AMem(services(backend()), **options)  # type: ignore[arg-type]


@given(
    links=st.lists(st.lists(st.integers(-3, 9), max_size=6), min_size=1, max_size=6),
    limit=st.integers(0, 4),
    form=st.sampled_from(["per_hit", "shared"]),
)
def test_linked_notes_are_real_and_bounded(links: list[list[int]], limit: int, form: Any) -> None:
    notes = [note(n, targets) for n, targets in enumerate(links)]
    system = with_notes(AMem(services(backend()), check_links=False, link_limit=form, linked_notes=limit), notes)
    hits = list(range(len(notes)))
    shown = list(system._with_links(hits))
    assert all(0 <= position < len(notes) for position in shown)
    most = len(hits) * (limit + 1) if form == "per_hit" else limit + len(hits)
    assert len(shown) - len(hits) <= most
