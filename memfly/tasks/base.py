"""What an LLM task is: a name, a version, typed input and output, and the prompt text. Backends get the task, not a string.

The system text and the start of the user text are static, so that a server's prefix cache hits. This module does not
call anything; `memfly.llm.client.LLM.run` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Role = Literal["ingest", "gate", "merge", "parse", "reflect", "answer", "judge"]
"""What a call is for, in the ledger: `reflect` covers sufficiency, sub-queries, page look-ups and agent steps."""


class TaskOutput(BaseModel):
    """Base of all task outputs: unknown keys are ignored when reading a reply (models add them), never sent."""

    model_config = ConfigDict(extra="ignore", frozen=True)


@dataclass(frozen=True)
class Tool:
    """One function an agent may call: its name, what it does, and a pydantic model of its arguments."""

    name: str
    description: str
    arguments: type[BaseModel]


class ToolCall(TaskOutput):
    """One call the model asks for. `arguments` is the model's raw text when it is not a JSON object; neither the name
    nor the arguments are checked here, because an agent answers a bad call with a message to the model."""

    name: str = Field(max_length=64)
    arguments: dict[str, Any] | str = Field(default_factory=dict)


class ToolOutput(TaskOutput):
    """Output of a task with `tools` (subclass it to add nothing but defaults)."""

    content: str = Field(default="", max_length=4000, description="private thought or text beside the calls")
    calls: list[ToolCall] = Field(default_factory=list, max_length=8)


In = TypeVar("In")
Out = TypeVar("Out", bound=TaskOutput)


@dataclass(frozen=True)
class Task(Generic[In, Out]):
    """One kind of call. `render` turns the typed input into the user message; nothing outside the input may enter it."""

    name: str
    version: int
    role: Role
    input: type[In]
    output: type[Out]
    system: str
    render: Callable[[In], str]
    max_tokens: int
    temperature: float = 0.0
    check: Callable[[In, Out], None] | None = None
    """Optional semantic check of a parsed reply against its input; raises ValueError with a message for the model."""

    tools: tuple[Tool, ...] = ()
    """Functions the reply may call; `output` is then ToolOutput, and the system text describes them too. A server with
    a tools API is offered them there, any other one is asked for the same as JSON:
    {"content": string, "calls": [{"name": string, "arguments": object}]}."""
    max_items: Callable[[In], Mapping[str, int]] | None = None
    """Most entries an array of the output can hold for a given input (one verdict per candidate): decoding constrained
    by the schema then cannot run on. Replies with more are not refused."""

    def schema(self, value: In | None = None) -> dict[str, Any]:
        """JSON schema of the output, for `value` where one is given: every key required, no others allowed, references
        kept under `$defs`. Shared between calls: not to be changed by the caller."""
        schema = _tool_schema(self.tools) if self.tools else _schema(self.output)
        if value is None or self.max_items is None:
            return schema
        sizes = self.max_items(value)
        properties = {
            name: part | {"maxItems": max(1, sizes[name])} if name in sizes else part
            for name, part in schema["properties"].items()
        }
        return schema | {"properties": properties}


@lru_cache(maxsize=256)
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    for part in [schema, *schema.get("$defs", {}).values()]:
        if part.get("type") == "object":
            part["additionalProperties"] = False
            part["required"] = list(part.get("properties", {}))
    return schema


@lru_cache(maxsize=64)
def _tool_schema(tools: tuple[Tool, ...]) -> dict[str, Any]:
    """Schema of ToolOutput in which each call's arguments fit the function it names."""
    definitions: dict[str, Any] = {}
    calls = []
    for tool in tools:
        arguments = dict(_schema(tool.arguments))
        definitions.update(arguments.pop("$defs", {}))
        name = {"type": "string", "enum": [tool.name]}
        calls.append(_record({"name": name, "arguments": arguments}) | {"description": tool.description})
    content = {"type": "string", "maxLength": 4000}
    schema = _record({"content": content, "calls": {"type": "array", "maxItems": 8, "items": {"anyOf": calls}}})
    return schema | ({"$defs": definitions} if definitions else {})


def _record(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
