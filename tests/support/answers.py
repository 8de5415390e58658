"""Lets a fake server answer as the extractive backbone does, so that a run over HTTP can be compared with one without.

A prompt cannot be turned back into a task's typed input; so the inputs are noted where requests are made, in this process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from memfly.embed import Embedder, Encoder, Hashing
from memfly.llm import openai_server
from memfly.llm.base import Call, Reply
from memfly.llm.extractive import Extractive, Function
from memfly.llm.wire import request_body
from tests.support.fake_openai import Body, from_schema


class ExtractiveAnswers:
    """`FakeOpenAI(answer=ExtractiveAnswers(monkeypatch))`. Requests it has no input for are answered from their schema."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        encoder: Encoder | None = None,
        extra: Mapping[str, Function] | None = None,
    ) -> None:
        self._calls: dict[tuple[str, ...], Call] = {}
        self._encoder = encoder or Hashing()
        self._extra = extra
        self._backend: Extractive | None = None

        def noting(call: Call, config: Any, **options: Any) -> dict[str, Any]:
            self._calls[tuple(text for _, text in call.messages)] = call
            return request_body(call, config, **options)

        monkeypatch.setattr(openai_server, "request_body", noting)

    async def __call__(self, body: Body) -> str:
        call = self._calls.get(tuple(message["content"] for message in body["messages"]))
        if call is None or call.task.name == "probe":
            return from_schema(body)
        if self._backend is None:  # made here, because an embedder belongs to the event loop that uses it
            self._backend = Extractive(Embedder(self._encoder), self._extra)
        reply: Reply = await self._backend.complete(call)
        return reply.text
