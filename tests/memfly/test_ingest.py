"""One turn into a draft note: what is asked, what is kept, and the counted fallback."""

from __future__ import annotations

import numpy as np
import pytest

from memfly.errors import BackendError
from memfly.ingest import Draft, draft_note, match_keywords
from memfly.types import Turn
from tests.support.scripted import Scripted, services


async def test_the_turn_is_shown_with_its_date_caption_and_the_turns_before_it(turns: tuple[Turn, ...]) -> None:
    backend = Scripted(
        ingest=lambda value: {"keywords": ["Grey cats", "Miso", "grey cat", "..."], "context": " Miso. "}
    )
    have = services(backend)
    draft = await draft_note(have.llm, have.embedder, turns[2], turns[:2])
    (value,) = backend.inputs("ingest")
    assert (value.date, value.speaker) == ("7:05 pm on 3 March, 2024", "Ada")
    assert value.text == "Miso already sleeps on my piano."
    assert value.caption == "a grey cat asleep on an upright piano"
    assert value.preceding == tuple(turn.render() for turn in turns[:2])
    assert draft.context == "Miso."
    assert draft.keywords == {"grey cat": "Grey cats", "miso": "Miso"}
    expected = have.embedder.encoder.encode(["Miso.", "Grey cats", "Miso"])
    assert draft.vector.tobytes() == expected[0].tobytes()
    assert {k: v.tobytes() for k, v in draft.keyword_vectors.items()} == {
        "grey cat": expected[1].tobytes(),
        "miso": expected[2].tobytes(),
    }
    assert not draft.fallback


@pytest.mark.parametrize(("denoise", "context"), [(True, "  "), (False, "Ada keeps bees.")])
async def test_the_turn_itself_is_the_context_without_denoising_or_without_one(
    denoise: bool, context: str, turns: tuple[Turn, ...]
) -> None:
    have = services(Scripted(ingest=lambda value: {"keywords": ["bees"], "context": context}))
    draft = await draft_note(have.llm, have.embedder, turns[2], (), denoise=denoise)
    assert draft.context == turns[2].render()
    assert draft.context.endswith("[shares a photo of: a grey cat asleep on an upright piano]")
    assert draft.keywords == {"bee": "bees"}


async def test_an_unusable_reply_falls_back_to_the_turn_and_says_so(turns: tuple[Turn, ...]) -> None:
    backend = Scripted(ingest=lambda value: "I would rather not.")
    have = services(backend)
    draft = await draft_note(have.llm, have.embedder, turns[0], ())
    assert len(backend.calls) == 3
    assert draft.fallback
    assert (draft.context, draft.keywords) == (turns[0].render(), {})


async def test_a_failed_call_is_not_a_fallback(turns: tuple[Turn, ...]) -> None:
    have = services(Scripted(ingest=lambda value: BackendError("down", transient=False)))
    with pytest.raises(BackendError):
        await draft_note(have.llm, have.embedder, turns[0], ())


def row(*values: float) -> np.ndarray:  # type: ignore[type-arg]
    vector = np.array(values, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def test_near_duplicates_are_matched_only_with_a_threshold() -> None:
    vectors = {"kitty": row(1, 0.1), "bee": row(0, 1), "cat": row(1, 0)}
    draft = Draft("c", row(1, 0), {k: k.title() for k in vectors}, vectors)
    known, matrix, phrases = ["cat", "feline"], np.stack([row(1, 0), row(1, 0)]), {"cat": "a Cat", "feline": "feline"}
    assert match_keywords(draft, known, matrix, phrases, None) == {"kitty": "Kitty", "bee": "Bee", "cat": "Cat"}
    assert match_keywords(draft, [], matrix[:0], {}, 0.9) == {"kitty": "Kitty", "bee": "Bee", "cat": "Cat"}
    assert match_keywords(draft, known, matrix, phrases, 0.9) == {"cat": "a Cat", "bee": "Bee"}
    assert list(match_keywords(draft, known, matrix, phrases, 0.9999)) == ["kitty", "bee", "cat"]
