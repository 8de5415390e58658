"""How layers are put together: the order, what each setting reaches, and that nothing heavy is imported."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memfly.embed import Embedder, Hashing
from memfly.errors import BudgetExceeded, ConfigError
from memfly.llm.base import Backend
from memfly.llm.budget import forget_budgets
from memfly.llm.client import LLM
from memfly.llm.config import llm_config
from memfly.llm.ledger import Tally, scope
from memfly.llm.stack import build_llm
from memfly.tasks.ingest import INGEST, IngestInput
from tests.support.calls import TOY, ToyInput, ToyOutput
from tests.support.fake_openai import FakeOpenAI, from_schema

ROOT = Path(__file__).resolve().parents[3]


def build(folder: Path, **data: Any) -> LLM:
    return build_llm(llm_config({"kind": "extractive", **data}), embedder=Embedder(Hashing()), cache_dir=folder, seed=3)


def layers(backend: Backend) -> list[str]:
    names = [type(backend).__name__]
    while inner := getattr(backend, "inner", None):
        backend = inner
        names.append(type(backend).__name__)
    return names


def test_the_order_of_the_layers(tmp_path: Path) -> None:
    full = build(tmp_path, faults={"rate_429": 0.1})
    assert layers(full.backend) == ["Cache", "Retry", "Limits", "Faults", "Extractive"]
    bare = build(tmp_path, cache="off")
    assert layers(bare.backend) == ["Retry", "Limits", "Extractive"]
    remote = build(tmp_path, kind="openai", model="m", base_url="http://127.0.0.1:1/v1")
    assert layers(remote.backend) == ["Cache", "Retry", "Limits", "Startup"]


async def test_transport_faults_change_neither_identity_nor_result(tmp_path: Path) -> None:
    value = IngestInput("1 May", "Ann", "I adopted a puppy in Boston")
    plain = build(tmp_path / "a")
    faulty = build(tmp_path / "b", faults={"rate_500": 0.9}, retry={"base_s": 0.0, "tries": 200})
    assert plain.identity == faulty.identity
    with scope("c", "q") as tally:
        assert await faulty.run(INGEST, value) == await plain.run(INGEST, value)
    assert tally.role("ingest").retries > 0
    assert build(tmp_path / "c", faults={"rate_empty": 0.1}).identity != plain.identity


async def test_extra_functions_reach_the_extractive_backbone(tmp_path: Path) -> None:
    async def toy(value: ToyInput, _tools: object) -> ToyOutput:
        return ToyOutput(words=value.text.split())

    llm = build_llm(
        llm_config({"kind": "extractive"}),
        embedder=Embedder(Hashing()),
        cache_dir=tmp_path,
        extra_functions={"toy": toy},
    )
    assert (await llm.run(TOY, ToyInput("a b"))).words == ["a", "b"]
    with pytest.raises(ConfigError, match="toy"):
        await build(tmp_path / "other").run(TOY, ToyInput("a b"))


@pytest.fixture(autouse=True)
def _a_purse_of_its_own() -> None:
    forget_budgets()


PRICED = {"prompt": 100.0, "cached": 100.0, "completion": 100.0}


async def test_a_stop_in_the_middle_loses_no_call_that_was_paid(tmp_path: Path) -> None:
    """Eight at a time, everything cancelled at the first BudgetExceeded as a run does it; then again with more money."""
    slow = 0

    def answer(body: dict[str, Any]) -> Any:
        async def later() -> str:
            nonlocal slow
            slow += 1
            await asyncio.sleep(0.02 if slow % 3 else 0.15)
            return from_schema(body)

        return later()

    async def work(server: FakeOpenAI, usd: float) -> tuple[bool, int]:
        settings = {"kind": "openai", "model": "fake-model", "base_url": server.url, "price": PRICED}
        llm = build(tmp_path, **settings, budget={"usd": usd}, max_concurrency=8)
        tally = Tally()

        async def one(number: int) -> None:
            with scope("c", f"q{number}") as counted:
                try:
                    await llm.run(INGEST, IngestInput("1 May", "Ann", f"I saw {number} birds"))
                finally:
                    tally.add(counted)

        tasks = [asyncio.ensure_future(one(i)) for i in range(40)]
        stopped = False
        try:
            for finished in asyncio.as_completed(tasks):
                await finished
        except BudgetExceeded:
            stopped = True
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await llm.aclose()
        return stopped, tally.role("ingest").billed_calls

    with FakeOpenAI(answer=answer) as server:
        billed = 0
        for usd in (0.2, 0.21, 0.22, 0.23, 50.0):
            stopped, paid = await work(server, usd)
            billed += paid
            assert stopped == (usd < 1)
            assert billed == len(server.requests)
        assert len(server.requests) == 40


async def asked_twelve_times(llm: LLM, label: str) -> tuple[int, bool]:
    """How many of twelve questions, one after another, were answered, and whether the budget stopped them."""
    done, stopped = 0, False
    try:
        for i in range(12):
            with scope("c", f"{label} {i}"):
                await llm.run(INGEST, IngestInput("1 May", "Ann", f"I saw {i} birds"))
            done += 1
    except BudgetExceeded:
        stopped = True
    await llm.aclose()
    return done, stopped


async def test_jobs_of_one_process_share_the_limit(tmp_path: Path) -> None:
    async def job(server: FakeOpenAI, seed: str) -> int:
        settings = {"kind": "openai", "model": "fake-model", "base_url": server.url, "price": PRICED}
        llm = build(tmp_path / seed, **settings, budget={"usd": 0.2})
        done, _ = await asked_twelve_times(llm, seed)
        return done

    with FakeOpenAI() as server:
        assert [await job(server, seed) > 0 for seed in ("1", "2", "3")] == [True, False, False]


def test_a_budget_for_a_public_server_needs_a_price(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"llm\.budget: no price known for m; give llm\.price"):
        build(tmp_path, kind="openai", model="m", base_url="https://openrouter.ai/api/v1", budget={"usd": 1})
    build(tmp_path, kind="openai", model="m", base_url="https://openrouter.ai/api/v1", budget={"tokens": 1})


async def test_a_budget_stops_and_a_larger_one_continues_without_paying_twice(tmp_path: Path) -> None:
    async def work(server: FakeOpenAI, usd: float) -> tuple[int, bool]:
        price = {"prompt": 100.0, "cached": 100.0, "completion": 100.0}
        settings = {"kind": "openai", "model": "fake-model", "base_url": server.url, "price": price}
        llm = build(tmp_path, **settings, budget={"usd": usd})
        return await asked_twelve_times(llm, "q")

    with FakeOpenAI() as server:
        done, stopped = await work(server, 0.2)
        assert stopped
        assert 0 < done < 12
        assert len(server.requests) == done
        assert await work(server, 10.0) == (12, False)
        assert len(server.requests) == 12


@pytest.mark.parametrize("address", [{"base_url": "http://127.0.0.1:1/v1"}, {"serve": "auto"}])
def test_dollars_cannot_limit_a_server_that_has_no_price(address: dict[str, str], tmp_path: Path) -> None:
    config = {"kind": "openai", "model": "m", **address, "budget": {"usd": 1}}
    with pytest.raises(ConfigError, match=r"llm\.budget\.usd: m on a server of your own has no price, so dollars"):
        build_llm(llm_config(config), embedder=Embedder(Hashing(8)), cache_dir=tmp_path)


def test_a_budget_without_a_price_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x" * 20)
    with pytest.raises(ConfigError, match=r"llm\.budget: no price known for gpt-99; give llm\.price"):
        build(tmp_path, kind="openai", model="gpt-99", budget={"usd": 1})


def test_a_model_without_a_server_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x" * 20)
    with pytest.raises(ConfigError, match=r"no server for Qwen/Qwen3-8B; set llm\.base_url to one, or llm\.serve=auto"):
        build(tmp_path, kind="openai", model="Qwen/Qwen3-8B")


def test_building_imports_neither_torch_nor_openai(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from memfly.llm.stack import build_llm; "
        "from memfly.llm.config import llm_config; from memfly.embed import Embedder, Hashing; "
        "build_llm(llm_config({'kind': 'openai', 'model': 'm', 'base_url': 'http://127.0.0.1:1/v1'}), "
        f"embedder=Embedder(Hashing()), cache_dir=Path({str(tmp_path)!r})); "
        "print([m for m in ('openai', 'torch', 'xllamacpp', 'transformers') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
