"""Canonical keywords: one form for one thing, and canonical forms stay what they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfly.keywords import canonical, canonical_map, singular


@pytest.mark.parametrize(
    ("phrases", "key"),
    [
        (["Pottery classes", "pottery class", " pottery  class.", "POTTERY-CLASSES", "the pottery class"], "pottery class"),
        (["cats", "Cat", "a cat", "“cats”", "'cats'", "cats'"], "cat"),
        (["Ada’s cat", "ada's cats"], "ada's cat"),
        (["Rosa's", "Rosa’s"], "rosa's"),
        (["road_bike", "Road Bikes!"], "road bike"),
        (["stories", "story"], "story"),
        (["boxes", "box"], "box"),
        (["movies", "movie"], "movy"),
        (["headaches", "a headache"], "headach"),
        (["sizes", "size"], "siz"),
        (["heroes", "hero"], "hero"),
        (["old shoes", "old shoe"], "old sho"),
        (["news", "the news"], "news"),
        (["new"], "new"),
        (["bus"], "bus"),
        (["glasses", "glass"], "glass"),
        (["Paris"], "paris"),
        (["chess"], "chess"),
        (["gas"], "gas"),
        (["ﬁlms", "film"], "film"),
        (["STRASSE", "straße"], "strasse"),
        (["", "  ", "...", "'", "''", "the", "A", "the the", "_", "🐝"], ""),
        (["1990s"], "1990"),
    ],
)  # fmt: skip
def test_one_form_for_one_thing(phrases: list[str], key: str) -> None:
    assert {canonical(phrase) for phrase in phrases} == {key}


PHRASES = st.text() | st.lists(
    st.sampled_from(
        ["the", "a", "an", "thes", "ans", "cats", "classes", "'", "dad's", "boxes", "x" * 70, "ies", "s's"]
    ),
    max_size=5,
).map(" ".join)


@given(PHRASES)
def test_canonical_is_idempotent(phrase: str) -> None:
    key = canonical(phrase)
    assert canonical(key) == key
    assert key == " ".join(key.split())
    assert len(key) <= 120


@given(PHRASES)
def test_case_and_white_space_do_not_matter(phrase: str) -> None:
    spaced = "  ".join(phrase.split())
    assert canonical(f" {spaced}\t") == canonical(" ".join(phrase.split()))


@given(st.text())
def test_singular_is_idempotent(word: str) -> None:
    assert singular(singular(word)) == singular(word)


def test_a_map_keeps_order_and_first_phrases_and_drops_empty_ones() -> None:
    assert canonical_map(["Road  Bikes", "...", "cat", "a road bike", "Cats"]) == {
        "road bike": "Road Bikes",
        "cat": "cat",
    }


def test_long_phrases_are_cut() -> None:
    assert all(len(k) <= 120 and len(p) <= 120 for k, p in canonical_map(["word " * 100, "w" * 500]).items())
