"""Option groups refuse what they do not know; small text helpers that every system stands on."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfly.errors import ConfigError
from memfly.gate import CandidateOptions
from memfly.options import options
from memfly.text import content_stems, count_tokens, cut_tokens, split_tokens, stems, whole, words
from memfly.types import Passage, Turn, shown_in_time_order


def test_options_from_nothing_a_mapping_or_themselves() -> None:
    made = options(CandidateOptions, {"n": 3}, "method.candidates")
    assert (made.n, made.k_dense) == (3, 10)
    assert options(CandidateOptions, made, "method.candidates") is made
    assert options(CandidateOptions, None, "method.candidates") == CandidateOptions()


@pytest.mark.parametrize(
    ("given_", "line"),
    [
        ({"m": 3}, "method.candidates.m: Extra inputs are not permitted; known options: k_dense, k_sparse, n"),
        ({"n": 0}, "method.candidates.n: Input should be greater than or equal to 1"),
        ({"n": "many"}, "method.candidates.n: Input should be a valid integer, unable to parse string as an integer"),
    ],
)
def test_a_wrong_option_is_one_line(given_: dict[str, object], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options(CandidateOptions, given_, "method.candidates")
    assert str(caught.value) == line


def test_words_and_stems() -> None:
    assert words("Rosa’s road-bikes, 40 km!") == ["rosa's", "road", "bikes", "40", "km"]
    assert stems("Rosa's bikes were stolen") == ["rosa", "bike", "were", "stolen"]
    assert content_stems("Where did Rosa ride the bikes?") == ["rosa", "ride", "bike"]


@given(st.text(max_size=60), st.integers(-1, 12))
def test_cut_tokens_is_a_prefix_of_at_most_n_tokens(text: str, n: int) -> None:
    text = whole(text)
    cut = cut_tokens(text, n)
    assert text.rstrip("\ufffd").startswith(cut) or text.startswith(cut)
    assert count_tokens(cut) <= max(n, 0)


@given(st.text(max_size=80), st.integers(4, 9))
def test_split_tokens_loses_nothing(text: str, size: int) -> None:
    text = whole(text)
    pieces = split_tokens(text, size)
    assert "".join(pieces) == text
    assert all(pieces)


def nested(text: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    leaves = text | st.integers() | st.none()
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=8)


@given(nested(st.text()))
def test_sound_text_stays_as_it_is(value: object) -> None:
    assert whole(value) == value


@given(nested(st.text(st.characters(codec=None))))
def test_any_text_can_be_written_afterwards(value: object) -> None:
    json.dumps(whole(value), ensure_ascii=False).encode("utf-8")
    assert whole(whole(value)) == whole(value)


def test_half_a_surrogate_pair_is_replaced() -> None:
    assert whole({"a\ud83d": ["\ude00x", 1, "ok é"]}) == {"a\ufffd": ["\ufffdx", 1, "ok é"]}


def test_time_order_keeps_equals_and_puts_the_undated_last(turns: tuple[Turn, ...]) -> None:
    def made(text: str, time: object) -> Passage:
        return Passage(text, (), "", time)  # type: ignore[arg-type]

    late, early = turns[-1].time, turns[0].time
    found, ranking = shown_in_time_order([made("n", None), made("b", late), made("a1", early), made("a2", early)])
    assert [found[i].text for i in ranking] == ["n", "b", "a1", "a2"]
    assert [passage.text for passage in found] == ["a1", "a2", "b", "n"]
