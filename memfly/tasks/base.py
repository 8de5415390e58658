"""What an LLM task is: a name, a version, typed input and output, and the prompt text. Backends get the task, not a string.

The system text and the start of the user text are static, so that a server's prefix cache hits. This module does not
call anything; `memfly.llm.client.LLM.run` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

Role = Literal["ingest", "gate", "merge", "parse", "reflect", "answer", "judge"]
"""What a call is for, in the ledger: `reflect` covers sufficiency, sub-queries, page look-ups and agent steps."""


class TaskOutput(BaseModel):
    """Base of all task outputs: unknown keys are ignored when reading a reply (models add them), never sent."""

    model_config = ConfigDict(extra="ignore", frozen=True)


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

    def schema(self) -> dict[str, Any]:
        """JSON schema of the output: every key required, no others allowed, references kept under `$defs`."""
        schema = self.output.model_json_schema()
        for part in [schema, *schema.get("$defs", {}).values()]:
            if part.get("type") == "object":
                part["additionalProperties"] = False
                part["required"] = list(part.get("properties", {}))
        return schema
