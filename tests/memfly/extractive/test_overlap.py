"""Gate and merge: repeats, related notes, conflicts, and that merging loses nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memfly.embed import Embedder, Hashing
from memfly.llm.extractive.analysis import analyse, split_sentences
from memfly.llm.extractive.base import Tools
from memfly.llm.extractive.merge import union
from memfly.llm.extractive.overlap import gate, gate_merge, gate_one_strength, profile, relation, scores
from memfly.tasks.gate import GateCandidate, GateInput

TOOLS = Tools(Embedder(Hashing()))
RACE = "Nora ran a charity race for mental health in Lisbon."
NOTES = (
    GateCandidate(4, "d", "Nora ran the charity race for mental health in Lisbon.", ("charity race", "Lisbon")),
    GateCandidate(7, "d", "Nora trains for the next race in the Lisbon park.", ("race", "Lisbon")),
    GateCandidate(9, "d", "Tim's sister sells used cars.", ("sister", "cars")),
)
VALUE = GateInput("d", RACE, ("charity race", "Lisbon"), NOTES)


async def test_a_repeat_is_redundant_a_topic_is_not_and_the_rest_is_nothing() -> None:
    same, close, far = (await gate(VALUE, TOOLS)).verdicts
    assert (same.id, close.id, far.id) == (4, 7, 9)
    assert same.s_red > 0.7
    assert same.relation == "SUPPORTS"
    assert close.s_red < 0.5
    assert close.s_comp > far.s_comp
    assert far.relation == "NONE"
    assert max(far.s_red, far.s_comp) < 0.2


async def test_gate_merge_adds_the_union_with_the_most_redundant_note() -> None:
    output = await gate_merge(VALUE, TOOLS)
    assert output.merged_context == RACE or output.merged_context == NOTES[0].context
    assert (await gate_merge(GateInput("d", RACE, (), ()), TOOLS)).merged_context == ""


async def test_one_strength_is_redundancy_for_supports_and_complementarity_else() -> None:
    two = (await gate(VALUE, TOOLS)).verdicts
    one = (await gate_one_strength(VALUE, TOOLS)).verdicts
    for v, w in zip(two, one, strict=True):
        assert w.strength == (v.s_red if v.relation == "SUPPORTS" else v.s_comp)


def test_a_flipped_negation_and_a_moved_date_are_conflicts() -> None:
    old = profile("Nora will join the choir concert on 3 May.")
    assert relation(profile("Nora will not join the choir concert on 3 May."), old, 0.8, 0.8) == "CONFLICTS"
    assert relation(profile("The choir concert Nora will join is moved to 9 June."), old, 0.4, 0.8) == "CONFLICTS"
    assert relation(profile("Nora will join the choir concert on 3 May."), old, 0.9, 0.9) == "SUPPORTS"


def test_disagreeing_facts_lower_redundancy() -> None:
    one, other = profile("Nora has 2 cats in her flat."), profile("Nora has 3 cats in her flat.")
    assert scores(one, other, 0, 0.95)[0] < scores(one, one, 0, 0.95)[0]


def test_pleasantries_are_not_one_fact() -> None:
    assert scores(profile("Nora: Great pic!"), profile("Nora: Great photo, great day!"), 0, 0.6)[0] < 0.7


def test_union_drops_what_is_covered_and_keeps_every_detail() -> None:
    merged = union("Nora has 2 cats. She lives in Oslo.", "Nora has 2 cats. She lives in Bergen.")
    assert merged == "Nora has 2 cats. She lives in Oslo. She lives in Bergen."


def test_a_fuller_sentence_replaces_the_shorter_one() -> None:
    assert union("Nora bought a boat.", "Nora bought a red boat in Oslo.") == "Nora bought a red boat in Oslo."


SENTENCES = st.lists(
    st.sampled_from(
        [
            "Nora has 2 cats.",
            "Nora has 3 cats.",
            "Tim moved to Oslo.",
            "Tim didn't move.",
            "They met on Friday.",
            "Rain fell.",
        ]
    ),
    min_size=1,
    max_size=5,
).map(" ".join)


@given(SENTENCES, SENTENCES)
def test_union_keeps_all_numbers_names_and_negations(old: str, new: str) -> None:
    merged = [analyse(s) for s in split_sentences(union(old, new))]
    for sentence in (analyse(s) for s in split_sentences(f"{old} {new}")):
        assert sentence.numbers <= frozenset().union(*(m.numbers for m in merged))
        assert sentence.names <= frozenset().union(*(m.names for m in merged))
        assert any(m.negated == sentence.negated for m in merged)


@given(SENTENCES)
def test_union_with_itself_says_nothing_twice(text: str) -> None:
    parts = split_sentences(union(text, text))
    assert len(parts) == len(set(split_sentences(text)))
