"""Token pieces: joined they are the text, each as long as asked, no character cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfly.text import count_tokens, split_tokens


@given(st.text(st.characters(codec="utf-8"), max_size=300), st.integers(4, 40))
def test_pieces_join_to_the_text(text: str, size: int) -> None:
    pieces = split_tokens(text, size)
    assert "".join(pieces) == text
    assert all(pieces)


def test_pieces_are_as_long_as_asked() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 50
    pieces = split_tokens(text, 30)
    assert [count_tokens(piece) for piece in pieces[:-1]] == [30] * (len(pieces) - 1)
    assert len(pieces) == -(-count_tokens(text) // 30)
    assert split_tokens("", 30) == []


def test_a_character_of_several_tokens_stays_whole() -> None:
    assert all("\ufffd" not in piece for piece in split_tokens("👩‍👩‍👧 𠜎 " * 20, 4))


def test_a_size_below_a_character_is_refused() -> None:
    with pytest.raises(ValueError, match="3 tokens"):
        split_tokens("x", 3)
