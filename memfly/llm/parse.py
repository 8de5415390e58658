"""From a reply's text to a task's output, in layers: strict JSON, tolerant JSON (fences, prose around it), repaired JSON,
any whole object in the text.

Every layer ends in the same validation; a server's promise to follow a schema is never trusted. An empty, cut,
filtered or unclosed reply is an error here, never an empty output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TypeVar

from json_repair import repair_json
from pydantic import ValidationError

from memfly.errors import ParseError
from memfly.llm.base import Reply
from memfly.llm.redaction import one_line
from memfly.tasks.base import Task, TaskOutput
from memfly.text import whole

In = TypeVar("In")
Out = TypeVar("Out", bound=TaskOutput)

FINAL = frozenset({"refusal", "content_filter"})
"""Ends that asking the same again does not change: the model, or a filter behind it, will not answer this."""

MOST_BRACES = 200
"""How many opening braces are tried as the start of an object."""

_FENCE = re.compile(r"```(?:json|JSON)?\s*\n?(.*?)```", re.DOTALL)


def parse_reply(task: Task[In, Out], value: In, reply: Reply) -> Out:
    """The reply as the task's output. Raises ParseError with a one-line reason fit to be sent back to the model."""
    if reply.finish == "unclosed_think":
        raise ParseError("the reply ended inside its reasoning", reply=reply.text)
    if reply.finish == "refusal":
        raise ParseError(f"refusal: the model said {one_line(reply.text, 200)!r}", reply=reply.text)
    if reply.finish == "content_filter":
        raise ParseError("content_filter: the server's filter cut the reply off", reply=reply.text)
    if not reply.text.strip():
        raise ParseError("the reply was empty", reply=reply.text)
    try:
        output, reason = _first_valid(task, value, _objects(reply.text, cut=reply.finish != "stop"))
    except RecursionError:  # a model stuck on one bracket
        output, reason = None, "it is nested too deeply"
    if output is not None:
        return output
    if reply.finish == "length":
        reason = f"the reply was cut at the token limit ({reason})"
    elif reply.finish != "stop":
        reason = f"the reply is not whole, it ended with {one_line(reply.finish, 40)} ({reason})"
    raise ParseError(" ".join(reason.split()), reply=reply.text)


def _first_valid(task: Task[In, Out], value: In, candidates: Iterator[dict[str, Any]]) -> tuple[Out | None, str]:
    """(the first candidate that is a valid output, "") or (None, why the last one is not)."""
    reason = "it is not a JSON object"
    for candidate in map(whole, candidates):
        if not candidate.keys() & task.output.model_fields.keys():
            reason = f"it has none of the keys {', '.join(task.output.model_fields)}"
            continue  # where every key has a default, an unrelated object would pass as an empty output
        try:
            output = task.output.model_validate(candidate)
            if task.check is not None:
                task.check(value, output)
        except ValidationError as error:
            first = error.errors()[0]
            reason = f"{'.'.join(str(part) for part in first['loc']) or 'reply'}: {first['msg']}"
        except ValueError as error:
            reason = str(error)
        else:
            return output, ""
    return None, reason


def _objects(text: str, *, cut: bool) -> Iterator[dict[str, Any]]:
    """JSON objects the text may stand for, most literal reading first. A cut reply is not repaired: what is missing
    from its end cannot be known."""
    sources = [text.strip(), *(match.strip() for match in _FENCE.findall(text)), _outermost(text)]
    for source in dict.fromkeys(s for s in sources if s):
        try:
            value = json.loads(source)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
    if cut or "{" not in text:
        return
    try:
        repaired = repair_json(_outermost(text) or text[text.index("{") :], return_objects=True)
    except ValueError:
        repaired = None
    if isinstance(repaired, dict):
        yield repaired
    yield from _scan(text)


def _scan(text: str) -> Iterator[dict[str, Any]]:
    """Whole objects anywhere in the text, for prose that has braces of its own around the answer."""
    decoder = json.JSONDecoder()
    position = text.find("{")
    for _ in range(MOST_BRACES):
        if position < 0:
            return
        try:
            value, end = decoder.raw_decode(text, position)
        except ValueError:
            end = position + 1
        else:
            yield value
        position = text.find("{", end)


def _outermost(text: str) -> str:
    """From the first opening brace to the last closing one; empty when there is no such pair."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else ""
