"""The protocol: what exactly is sent (contract), and how any response is read."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfly.errors import BackendError, ParseError
from memfly.llm.base import Call
from memfly.llm.config import OpenAIConfig
from memfly.llm.parse import parse_reply
from memfly.llm.wire import MAX_NUMBER, bounded_schema, read_reply, request_body, split_think, strict_schema
from memfly.tasks.base import Task
from tests.support.calls import AGENT, TOY, ToyInput, toy_call
from tests.support.fake_openai import _tasks as all_tasks


def body(call: Call | None = None, *, own_server: bool = True, **config: Any) -> dict[str, Any]:
    return request_body(call or toy_call("hi"), OpenAIConfig(model="m", **config), own_server=own_server)


def test_every_request_carries_model_messages_and_sampling() -> None:
    call = toy_call("hi", temperature=0.7, seed=99, max_tokens=33)
    sent = body(call, top_p=0.9)
    assert sent["model"] == "m"
    assert sent["messages"] == [{"role": "system", "content": TOY.system}, {"role": "user", "content": "hi"}]
    assert (sent["temperature"], sent["top_p"], sent["seed"], sent["max_tokens"]) == (0.7, 0.9, 99, 33)
    assert body(call, temperature=0.2)["temperature"] == 0.2


def test_openai_wants_another_name_for_the_limit() -> None:
    sent = body(own_server=False)
    assert sent["max_completion_tokens"] == 50
    assert "max_tokens" not in sent


def test_json_schema_request() -> None:
    form = body(structured="json_schema")["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["name"] == "toy"
    assert form["json_schema"]["strict"] is True
    schema = form["json_schema"]["schema"]
    assert schema["required"] == ["words", "note", "items"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["words"]["items"] == {"type": "string"}
    assert "maxItems 4" in schema["properties"]["words"]["description"]


def test_guided_request() -> None:
    sent = body(structured="guided")
    assert "response_format" not in sent
    properties = sent["structured_outputs"]["json"]["properties"]
    assert properties["words"]["maxItems"] == 4
    assert properties["note"] == {"type": "string"}
    assert (sent["structured_outputs"]["json"]["$defs"]["Item"]["properties"]["id"]) == {
        "type": "integer", "minimum": -MAX_NUMBER, "maximum": MAX_NUMBER,
    }  # fmt: skip


def test_json_object_and_plain_requests() -> None:
    assert body(structured="json_object")["response_format"] == {"type": "json_object"}
    assert not {"response_format", "structured_outputs"} & body(structured="plain").keys()


@pytest.mark.parametrize(("thinking", "expected"), [("on", True), ("off", False)])
def test_thinking_goes_to_the_chat_template(thinking: str, expected: bool) -> None:
    sent = body(thinking=thinking, reasoning_tokens=1000)
    assert sent["chat_template_kwargs"] == {"enable_thinking": expected}
    assert sent["max_tokens"] == 50 + 1000 * expected


def test_a_cap_on_tokens_leaves_room_for_reasoning() -> None:
    assert body(max_tokens=20)["max_tokens"] == 20
    assert body(max_tokens=500)["max_tokens"] == 50
    assert body(max_tokens=20, thinking="on", reasoning_tokens=1000)["max_tokens"] == 1020


def test_no_thinking_setting_sends_nothing() -> None:
    assert "chat_template_kwargs" not in body()


def test_tools_are_offered_through_the_api_or_as_schema() -> None:
    native = body(toy_call(task=AGENT))
    assert "response_format" not in native
    (tool,) = native["tools"]
    assert tool["type"] == "function"
    assert tool["function"]["name"] == "search"
    assert tool["function"]["strict"] is True
    assert tool["function"]["parameters"]["required"] == ["query"]
    plain = body(toy_call(task=AGENT), tool_calls="json", structured="guided")
    assert "tools" not in plain
    (call,) = plain["structured_outputs"]["json"]["properties"]["calls"]["items"]["anyOf"]
    assert call["properties"]["name"] == {"type": "string", "enum": ["search"]}
    assert call["properties"]["arguments"]["properties"]["query"] == {"type": "string"}


ALLOWED_IN_STRICT = {
    "type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const", "description", "$defs", "$ref",
}  # fmt: skip


def nodes(schema: Any) -> list[dict[str, Any]]:
    """All schema nodes (not the name -> schema maps between them)."""
    if isinstance(schema, list):
        return [node for item in schema for node in nodes(item)]
    if not isinstance(schema, dict):
        return []
    found = [schema]
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            found += [node for part in value.values() for node in nodes(part)]
        elif key in ("items", "anyOf", "allOf"):
            found += nodes(value)
    return found


@pytest.mark.parametrize(
    "task", [*sorted(all_tasks().values(), key=lambda t: t.name), TOY, AGENT], ids=lambda t: t.name
)
def test_every_task_fits_every_server(task: Task[Any, Any]) -> None:
    for node in nodes(strict_schema(task.schema())):
        assert node.keys() <= ALLOWED_IN_STRICT
        if node.get("type") == "object":
            assert node["additionalProperties"] is False
            assert node["required"] == list(node["properties"])
        assert "$ref" not in node or len(node) == 1
    for node in nodes(bounded_schema(task.schema())):
        assert not node.keys() & {"minLength", "maxLength"}  # what makes grammars slow; the token limit ends a string
        if node.get("type") == "array":
            assert "maxItems" in node
        if node.get("type") in ("integer", "number"):
            assert -MAX_NUMBER <= node["minimum"] < node["maximum"] <= MAX_NUMBER
    assert "JSON" in task.system or task.name == "probe"  # OpenAI's json_object mode refuses prompts that do not say so


def response(finish: str | None = "stop", usage: Any = None, **message: Any) -> dict[str, Any]:
    return {
        "model": "m-1",
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
        "usage": usage,
    }


GOOD = '{"words": ["ok"]}'


@pytest.mark.parametrize(
    ("message", "text", "reasoning", "finish"),
    [
        ({"content": GOOD}, GOOD, "", "stop"),
        ({"content": f"<think>\nhm {{x}}\n</think>\n\n{GOOD}"}, GOOD, "hm {x}", "stop"),
        ({"content": f"<think></think>{GOOD}"}, GOOD, "", "stop"),
        ({"content": f"<think>a</think>\n<think>b</think>{GOOD}"}, GOOD, "a\nb", "stop"),
        ({"content": f"opened by the template</think>{GOOD}"}, GOOD, "opened by the template", "stop"),
        ({"content": '{"words": ["</think>"]}'}, '{"words": ["</think>"]}', "", "stop"),
        ({"content": "<think>for ever"}, "", "for ever", "unclosed_think"),
        ({"content": GOOD, "reasoning_content": "why"}, GOOD, "why", "stop"),
        ({"content": GOOD, "reasoning": "why"}, GOOD, "why", "stop"),
        ({"content": None, "reasoning_content": GOOD}, GOOD, "", "stop"),
        ({"content": "", "reasoning": f"```json\n{GOOD}\n```"}, f"```json\n{GOOD}\n```", "", "stop"),
        ({"content": None, "reasoning_content": "only a thought"}, "", "only a thought", "stop"),
        ({"content": f"<think>t</think>{GOOD}", "reasoning_content": "r"}, GOOD, "r\nt", "stop"),
        ({"content": [{"type": "text", "text": GOOD}]}, GOOD, "", "stop"),
        ({"content": None, "refusal": "I will not"}, "I will not", "", "refusal"),
    ],
)
def test_answer_and_reasoning_are_told_apart(message: dict[str, Any], text: str, reasoning: str, finish: str) -> None:
    reply = read_reply(response(**message), toy_call(), 0.1)
    assert (reply.text.strip(), reply.reasoning, reply.finish) == (text, reasoning, finish)


@pytest.mark.parametrize(
    ("said", "finish"),
    [
        (None, "stop"), ("stop", "stop"), ("STOP", "stop"), ("tool_calls", "stop"), ("end_turn", "stop"),
        ("max_tokens", "length"), ("MAX_TOKENS", "length"), ("content_filter", "content_filter"),
        ("SAFETY", "content_filter"), ("refusal", "refusal"), ("repetition", "repetition"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("task", [TOY, AGENT], ids=lambda task: task.name)
def test_ends_of_replies_in_our_words(said: str | None, finish: str, task: Task[Any, Any]) -> None:
    assert read_reply(response(said, content=GOOD), toy_call(task=task), 0.1).finish == finish


@pytest.mark.parametrize("said", ["stop", "content_filter", "length", "abort", "error", "repetition"])
@pytest.mark.parametrize("task", [TOY, AGENT], ids=lambda task: task.name)
def test_only_a_whole_reply_is_completed(said: str, task: Task[Any, Any]) -> None:
    """What is missing from the end of a reply that was cut off cannot be known, whatever it was that cut it."""
    content = '{"words": ["Ann went to the' if task is TOY else '{"content": "Ann went", "calls": [{"name": "sea'
    try:
        output = parse_reply(task, ToyInput("x"), read_reply(response(said, content=content), toy_call(task=task), 0.1))
    except (BackendError, ParseError):
        assert said != "stop"
    else:
        assert said == "stop", output


@pytest.mark.parametrize("broken", [{"finish_reason": "error"}, {"finish_reason": "abort"}, {"error": {"code": 502}}])
def test_a_reply_the_server_broke_off_may_succeed_later(broken: dict[str, Any]) -> None:
    body = response(content='{"words": ["half a')
    body["choices"][0].update(broken)
    with pytest.raises(BackendError, match="broke the reply off") as caught:
        read_reply(body, toy_call(), 0.1)
    assert (caught.value.transient, caught.value.kind) == (True, "server")


def test_reasoning_models_get_no_sampling_settings_and_room_to_reason() -> None:
    sent = body(reasoning_model=True, reasoning_tokens=1000)
    assert sent["max_completion_tokens"] == 1050
    assert not {"temperature", "top_p", "max_tokens", "chat_template_kwargs"} & sent.keys()


@pytest.mark.parametrize("usage", [{"prompt_tokens": 5, "completion_tokens": "many"}, {"prompt_tokens": "5"}])
def test_usage_that_is_no_number_is_estimated(usage: dict[str, Any]) -> None:
    assert read_reply(response(content=GOOD, usage=usage), toy_call(), 0.1).usage.estimated
    odd = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": "few"}}
    assert read_reply(response(content=GOOD, usage=odd), toy_call(), 0.1).usage.cached_prompt_tokens == 0


def test_reasoning_cut_by_the_limit_is_unclosed() -> None:
    reply = read_reply(response("length", content=None, reasoning_content="still thinking"), toy_call(), 0.1)
    assert reply.finish == "unclosed_think"


def test_usage_is_the_servers_or_an_estimate_marked_so() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}
    reply = read_reply(response(content=GOOD, usage=usage), toy_call(), 0.1)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.cached_prompt_tokens) == (9, 4, 5)
    assert not reply.usage.estimated
    guessed = read_reply(response(content=GOOD), toy_call(), 0.1).usage
    assert guessed.estimated
    assert guessed.prompt_tokens > 0 < guessed.completion_tokens
    assert read_reply(response(content=GOOD, usage={**usage, "prompt_tokens_details": None}), toy_call(), 0).usage


@pytest.mark.parametrize(
    "bad", [None, [], {}, {"choices": []}, {"choices": [None]}, {"choices": [{"message": None}]}, "x"]
)
def test_what_is_no_completion_is_a_transient_error(bad: Any) -> None:
    with pytest.raises(BackendError) as caught:
        read_reply(bad, toy_call(), 0.1)
    assert (caught.value.transient, caught.value.kind) == (True, "protocol")


def called(arguments: Any, name: str = "search") -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_tool_calls_become_the_tasks_output() -> None:
    calls = [called('{"query": "cats"}'), called("not json"), called("", "nothing")]
    reply = read_reply(response("tool_calls", content="let me look", tool_calls=calls), toy_call(task=AGENT), 0.1)
    assert reply.finish == "stop"
    output = parse_reply(AGENT, ToyInput("x"), reply)
    assert output.content == "let me look"
    assert [(c.name, c.arguments) for c in output.calls] == [
        ("search", {"query": "cats"}), ("search", "not json"), ("nothing", {}),
    ]  # fmt: skip


def test_text_without_tool_calls_is_content_and_json_is_taken_as_it_is() -> None:
    reply = read_reply(response(content="just talking"), toy_call(task=AGENT), 0.1)
    assert parse_reply(AGENT, ToyInput("x"), reply).content == "just talking"
    as_json = json.dumps({"content": "", "calls": [{"name": "search", "arguments": {"query": "q"}}]})
    output = parse_reply(AGENT, ToyInput("x"), read_reply(response(content=as_json), toy_call(task=AGENT), 0.1))
    assert output.calls[0].arguments == {"query": "q"}
    with pytest.raises(ParseError):
        parse_reply(AGENT, ToyInput("x"), read_reply(response(content=None), toy_call(task=AGENT), 0.1))


def test_cut_tool_arguments_are_a_truncated_reply() -> None:
    reply = read_reply(response("length", tool_calls=[called('{"query": "ca')]), toy_call(task=AGENT), 0.1)
    with pytest.raises(ParseError, match=r"empty|cut"):
        parse_reply(AGENT, ToyInput("x"), reply)
    assert reply.finish == "length"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "message", "content", "reasoning", "tool_calls", "function", "usage", "finish_reason"]
            )
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(ANYTHING, st.sampled_from([TOY, AGENT]))
def test_any_response_is_a_reply_or_a_protocol_error(value: Any, task: Task[Any, Any]) -> None:
    for shaped in (value, {"choices": [{"message": value, "finish_reason": "stop"}], "usage": value}):
        with contextlib.suppress(BackendError):  # any other exception fails the test
            assert isinstance(read_reply(shaped, toy_call(task=task), 0.0).text, str)


@given(st.text(max_size=60), st.text(max_size=60))
def test_thinking_never_ends_up_in_the_answer(thought: str, rest: str) -> None:
    thought = thought.replace("</think>", "").replace("<think>", "")
    answer, reasoning, closed = split_think(f"<think>{thought}</think>{{{rest}")
    assert closed
    assert answer == "{" + rest
    assert reasoning == thought.strip()
