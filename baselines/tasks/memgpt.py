"""MemGPT's two tasks: one step of the agent (private thought and function calls) and the summary of evicted messages.

The functions and their arguments are declared here, after MemGPT 0.2.9 (memgpt/functions/function_sets/base.py);
`baselines.memgpt_functions` carries them out and tells the model about bad calls, so nothing about a call is checked by
the task. Servers with a tools API are offered the functions there, all others are asked for the same as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from memfly.tasks.base import Task, TaskOutput, Tool, ToolOutput

RecallSearch = Literal["substring", "bm25"]
Role = Literal["user", "assistant", "function"]

PRESSURE = "Memory pressure"
"""How the alert of a filling window begins; the extractive policy looks for it too."""
THOUGHT = 2000
TEXT = 8000


class Arguments(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Heartbeat(Arguments):
    request_heartbeat: bool = Field(default=False, description="true to run again right after this function")


class SendMessage(Arguments):
    message: str = Field(max_length=TEXT)


class CoreAppend(Heartbeat):
    name: str = Field(max_length=40, description="persona or human")
    content: str = Field(max_length=TEXT)


class CoreReplace(Heartbeat):
    name: str = Field(max_length=40, description="persona or human")
    old_content: str = Field(max_length=TEXT, description="exact text to replace")
    new_content: str = Field(max_length=TEXT, description="text to put there; empty to delete")


class ConversationSearch(Heartbeat):
    query: str = Field(max_length=1000)
    page: int = Field(default=0, ge=0, description="0 is the first page")


class ConversationSearchDate(Heartbeat):
    start_date: str = Field(max_length=40, description="YYYY-MM-DD")
    end_date: str = Field(max_length=40, description="YYYY-MM-DD, included")
    page: int = Field(default=0, ge=0, description="0 is the first page")


class ArchivalInsert(Heartbeat):
    content: str = Field(max_length=TEXT)


class ArchivalSearch(Heartbeat):
    query: str = Field(max_length=1000)
    page: int = Field(default=0, ge=0, description="0 is the first page")


class PauseHeartbeats(Arguments):
    minutes: int = Field(ge=0, le=360)


TOOLS = (
    Tool("send_message", "Say something. The only text anybody but you can read.", SendMessage),
    Tool("core_memory_append", "Add text to a block of core memory.", CoreAppend),
    Tool("core_memory_replace", "Replace an exact piece of a block of core memory.", CoreReplace),
    Tool("conversation_search", "Search recall memory by text.", ConversationSearch),
    Tool("conversation_search_date", "List recall memory between two dates.", ConversationSearchDate),
    Tool("archival_memory_insert", "Store a text in archival memory.", ArchivalInsert),
    Tool("archival_memory_search", "Search archival memory by meaning.", ArchivalSearch),
    Tool("pause_heartbeats", "Ignore timed heartbeats for some minutes.", PauseHeartbeats),
)


@dataclass(frozen=True)
class StepBlock:
    name: str
    text: str
    limit: int


@dataclass(frozen=True)
class StepMessage:
    role: Role
    text: str
    """A JSON object, as packaged by `baselines.memgpt_queue`."""


@dataclass(frozen=True)
class StepInput:
    blocks: tuple[StepBlock, ...]
    recall_count: int
    archival_count: int
    recall_search: RecallSearch
    messages: tuple[StepMessage, ...]


@dataclass(frozen=True)
class SummariseInput:
    messages: tuple[StepMessage, ...]


class SummariseOutput(TaskOutput):
    summary: str = Field(min_length=1, max_length=2000)


def _signature(tool: Tool) -> str:
    return f"{tool.name}({', '.join(tool.arguments.model_fields)}): {tool.description}"


_FUNCTIONS = "\n".join(_signature(tool) for tool in TOOLS)

STEP_SYSTEM = f"""You are an assistant with a memory of your own that you manage yourself. You watch a long series of \
conversations between two people and later answer questions about them.

How you run: in short bursts. An event (a session of the conversation, a question, a system alert, the result of a \
function) starts a burst, and the burst ends after one function call. To go on, for instance to use the result of a search, \
set request_heartbeat to true in the call; after a failed call you run again in any case.
What others see: only the text of send_message. Everything else you write is private thought; keep it under 50 words.

Your memory has three parts.
Core memory: two blocks of limited size, persona (who you are) and human (what matters most about the people). You always \
see it below. Change it with core_memory_append and core_memory_replace.
Recall memory: every message there has been, also those no longer in your window. You do not see it; search it with \
conversation_search or conversation_search_date.
Archival memory: texts without limit of size that you store yourself with archival_memory_insert. You do not see it; search \
it with archival_memory_search. Write each text so that it can be read on its own, with names and dates.

Your window is limited. At the alert "{PRESSURE}" save what you would miss; soon after, the oldest messages are replaced by \
a summary.
A session event needs no answer: save what matters, then stop. At a question, look at what you see, search archival and \
recall memory if that does not settle it, and reply once with send_message.

Functions:
{_FUNCTIONS}

Call one function in each reply. If you are offered no tools, reply with one JSON object instead:
{{"content": string, "calls": [{{"name": string, "arguments": object}}]}}
where content is your thought."""

SUMMARISE_SYSTEM = """You are an assistant with a limited window. The oldest messages in it are about to be removed, and \
you write down what they held, for yourself. Reply with one JSON object: {"summary": string}
summary: at most 100 words, in the first person, with the names, facts and dates that matter most; the summary and nothing \
else."""

_SEARCH_HINT: dict[RecallSearch, str] = {
    "substring": "conversation_search finds messages that contain the whole query, oldest first: use one word.",
    "bm25": "conversation_search finds messages that share words with the query, best first.",
}


def render_messages(messages: tuple[StepMessage, ...]) -> str:
    return "\n".join(f"{message.role}: {message.text}" for message in messages)


def render_header(value: StepInput) -> str:
    """Core memory and the sizes of the other two, as shown above the messages."""
    blocks = "\n".join(
        f"<{block.name} {len(block.text)}/{block.limit} characters>\n{block.text}\n</{block.name}>"
        for block in value.blocks
    )
    return (
        f"{_SEARCH_HINT[value.recall_search]}\nRecall memory: {value.recall_count} messages. "
        f"Archival memory: {value.archival_count} texts.\nCore memory:\n{blocks}\n\nMessages:\n"
    )


def _render_step(value: StepInput) -> str:
    return render_header(value) + render_messages(value.messages)


def _render_summarise(value: SummariseInput) -> str:
    return f"Messages to be removed:\n{render_messages(value.messages)}"


MEMGPT_STEP = Task(
    "memgpt_step", 1, "reflect", StepInput, ToolOutput, STEP_SYSTEM, _render_step, max_tokens=800, tools=TOOLS
)
MEMGPT_SUMMARISE = Task(
    "memgpt_summarise", 1, "merge", SummariseInput, SummariseOutput, SUMMARISE_SYSTEM, _render_summarise, max_tokens=300
)
