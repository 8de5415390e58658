"""From text to output: valid JSON in any wrapping is found, nothing else becomes an output, nothing crashes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memfly.errors import ParseError
from memfly.llm.base import Reply
from memfly.llm.parse import parse_reply
from memfly.tasks.base import Task
from memfly.tasks.refine import SUBQUERY, SubqueryInput
from tests.support.calls import AGENT, TOY, ToyInput, ToyOutput

VALUE = ToyInput("x")

WORDS = st.lists(st.text(max_size=15), max_size=4)
ITEMS = st.lists(st.fixed_dictionaries({"id": st.integers(0, 99), "score": st.floats(0, 1)}), max_size=3)
OUTPUTS = st.fixed_dictionaries({"words": WORDS, "note": st.text(max_size=40), "items": ITEMS})
NOISE = st.text(st.characters(exclude_characters="{}`[]", exclude_categories=["Cs"]), max_size=60)


def outcome(task: Task[Any, Any], reply: Reply) -> tuple[Any, str]:
    """(output, "") or (None, the reason); any other exception fails the test."""
    try:
        return parse_reply(task, VALUE, reply), ""
    except ParseError as error:
        return None, str(error)


@given(OUTPUTS, NOISE, NOISE, st.sampled_from(["{}", "```json\n{}\n```", "```\n{}\n```", "```JSON\n{}```"]))
def test_valid_json_is_found_in_any_wrapping(value: dict[str, object], before: str, after: str, form: str) -> None:
    text = before + form.replace("{}", json.dumps(value)) + after
    assert parse_reply(TOY, VALUE, Reply(text)) == ToyOutput.model_validate(value)


@given(st.text(max_size=200), st.sampled_from(["stop", "length", "content_filter"]))
@example('{"words": ', "stop")
@example("{" * 500, "stop")
@example("[" * 5000 + "{", "stop")
@example('{"words": [1e999]}', "stop")
@example('{"words": NaN}', "stop")
@example("```json\n```", "stop")
@example("```json\n{}```{", "stop")
@example("\ud83d{", "stop")
def test_any_text_is_an_output_or_a_parse_error(text: str, finish: str) -> None:
    for task in (TOY, AGENT):
        output, error = outcome(task, Reply(text, finish))
        assert isinstance(output, task.output) or (error and "\n" not in error)


@given(OUTPUTS, st.data())
def test_damaged_json_is_never_a_crash(value: dict[str, object], data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = data.draw(st.integers(0, len(text)))
    junk = data.draw(st.text('{}[]",:\\ 0a`', max_size=6))
    for damaged in (text[:cut], text[:cut] + junk + text[cut:], text[:cut] + text[cut + 1 :]):
        output, error = outcome(TOY, Reply(damaged))
        assert output or (error and "\n" not in error)


@given(OUTPUTS, st.data())
def test_a_cut_reply_is_never_completed_by_guessing(value: dict[str, object], data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = data.draw(st.integers(1, len(text) - 1))
    with pytest.raises(ParseError):
        parse_reply(TOY, VALUE, Reply(text[:cut], "length"))


@pytest.mark.parametrize("finish", ["length", "content_filter", "refusal", "unclosed_think", "some_new_word"])
def test_only_stop_is_a_whole_reply(finish: str) -> None:
    with pytest.raises(ParseError):
        parse_reply(TOY, VALUE, Reply('{"words": ["Ann went to the', finish))
    if finish in ("content_filter", "refusal"):
        with pytest.raises(ParseError, match=f"^{finish}: ") as caught:
            parse_reply(TOY, VALUE, Reply('{"words": []}', finish))
        assert caught.value.reply == '{"words": []}'


@pytest.mark.parametrize("before", ["Use {x} and {y}. ", "{", "}{ ", 'e.g. {"note": } or ', "{{nested}} "])
def test_braces_in_the_prose_do_not_hide_the_answer(before: str) -> None:
    text = before + '{"words": ["a {b}"], "note": "n"} done {z}'
    assert parse_reply(TOY, VALUE, Reply(text)) == ToyOutput(words=["a {b}"], note="n")


def test_whole_json_passes_although_the_limit_was_reached() -> None:
    assert parse_reply(TOY, VALUE, Reply('{"words": []}   ', "length")).words == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        ("I would rather not.", "not a JSON object"),
        ("[1, 2]", "not a JSON object"),
        ('{"words": "no list"}', "words"),
        ('{"words": [], "items": [{"id": 1, "score": 7.5}]}', "items.0.score"),
        ('{"words": ["a", "b", "c", "d", "e"]}', "words"),
        ('{"note": "words are missing"}', "words"),
        ('{"unexpected": 1}', "none of the keys"),
        ("{}", "none of the keys"),
    ],
)
def test_reasons_name_the_place(text: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        parse_reply(TOY, VALUE, Reply(text))


def test_a_reply_inside_its_reasoning_is_no_answer() -> None:
    with pytest.raises(ParseError, match="reasoning"):
        parse_reply(TOY, VALUE, Reply('{"words": []}', "unclosed_think"))


def test_an_unrelated_object_is_not_an_empty_output() -> None:
    """All of a sub-query's keys have defaults: without a check, any object would read as "no further query"."""
    with pytest.raises(ParseError, match="none of the keys"):
        parse_reply(SUBQUERY, SubqueryInput("q", (), (), ""), Reply('{"question": "Where?"}'))


def test_repair_closes_what_a_model_left_open_without_a_cut() -> None:
    assert parse_reply(TOY, VALUE, Reply("{'words': ['a', 'b',], 'note': 'x'")).words == ["a", "b"]


def test_the_right_object_is_chosen_among_several() -> None:
    text = 'First {"draft": true}.\n```json\n{"words": ["final"]}\n```'
    assert parse_reply(TOY, VALUE, Reply(text)).words == ["final"]
