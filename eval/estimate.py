"""What a configuration will take before it runs: calls, tokens, time and dollars, by role.

The system itself is run without a model (llm=extractive) on a few whole conversations, with its real prompts, and scaled to
all turns and questions. What only a model decides (how often it merges, refines, or writes long) is the no-model
backbone's habit here; the table says so, and `memfly run` shows predicted against real once the run is done.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eval.config import RunConfig, check_locomo_hash
from eval.locomo import Dataset, load
from eval.progress import Progress, Silent
from eval.records import counts, read_answers, write_atomic
from eval.runner import Runner
from eval.summary import ESTIMATE
from memfly.errors import MemflyError
from memfly.llm.config import LLMConfig, OpenAIConfig, llm_config
from memfly.llm.ledger import RoleCount
from memfly.llm.prices import PRICES_AS_OF, price_of


@dataclass(frozen=True)
class RoleEstimate:
    """Predicted totals of one role over the whole run. Tokens are o200k_base, counted on the real prompts."""

    calls: float
    prompt_tokens: float
    completion_tokens: float


@dataclass(frozen=True)
class Estimate:
    roles: dict[str, RoleEstimate]
    usd: float | None
    """None when the price of the model is not known; 0 for a server of your own."""
    chain_calls: float
    """Calls that must follow one another in the longest conversation's build: what no concurrency can shorten."""
    based_on: list[str]
    n_turns: int
    n_questions: int
    reasoning_tokens: int = 0
    """Completion tokens each call may take on top for reasoning, in neither `roles` nor `usd`."""

    @property
    def calls(self) -> float:
        return sum(role.calls for role in self.roles.values())

    def seconds(self, latency_s: float, concurrency: int) -> float:
        """Time at a given latency per call and calls in flight: the longer of the work's total and the longest chain."""
        return max(self.calls * latency_s / concurrency, self.chain_calls * latency_s)


def estimate(config: RunConfig, *, conversations: int = 3, progress: Progress | None = None) -> Estimate:
    """Predict a run. The dry runs are kept under `<run_root>/estimates`, so asking again costs nothing."""
    backbone = llm_config(config.llm)  # a mistake in it shows before the dry run
    data = load(
        config.data.file(), name=config.data.name, captions=config.data.captions, sha256=check_locomo_hash(config.data)
    )
    full = data.select(config.data.conversations, config.data.limit_questions)
    chosen = _typical(full, conversations)
    dry = config.model_copy(
        update={
            "llm": {"kind": "extractive", "cache": "off"},
            "llm_name": "extractive",
            "data": config.data.model_copy(update={"conversations": tuple(chosen)}),
            "run_root": str(Path(config.run_root) / "estimates"),
            "logger": config.logger.model_copy(update={"kind": "none"}),
        }
    )
    runner = Runner(dry, progress or Silent())
    result = asyncio.run(runner.run())
    build = counts(info.calls for info in runner.memories())
    asked = counts(record.calls for record in read_answers(result.folder))
    part = full.select(chosen)
    turns, questions = full.n_turns / part.n_turns, len(full.questions) / max(len(part.questions), 1)
    roles = {
        role: RoleEstimate(
            *(
                build.get(role, {}).get(name, 0) * turns + asked.get(role, {}).get(name, 0) * questions
                for name in ("calls", "prompt_tokens", "completion_tokens")
            )
        )
        for role in sorted(build.keys() | asked.keys())
    }
    longest = max(len(c.turns) for c in full.conversations)
    chain = sum(n["calls"] for role, n in build.items() if role != "ingest") / part.n_turns * longest
    reasoning = backbone.reasoning_room if isinstance(backbone, OpenAIConfig) else 0
    return Estimate(
        roles,
        _dollars(backbone, roles),
        chain,
        chosen,
        full.n_turns,
        len(full.questions),
        reasoning,
    )


def _typical(data: Dataset, n: int) -> list[str]:
    """The conversations whose size is nearest to the mean, by turns and by questions."""
    questions = {c.id: sum(q.conversation == c.id for q in data.questions) for c in data.conversations}
    size = len(data.conversations)
    mean_turns, mean_questions = data.n_turns / size, len(data.questions) / size

    def distance(conversation: Any) -> float:
        turns = abs(len(conversation.turns) / max(mean_turns, 1) - 1)
        return float(turns + abs(questions[conversation.id] / max(mean_questions, 1) - 1))

    ranked = sorted(data.conversations, key=lambda c: (distance(c), c.id))
    return sorted(c.id for c in ranked[: max(n, 1)])


def _dollars(backbone: LLMConfig, roles: dict[str, RoleEstimate]) -> float | None:
    price = price_of(backbone)
    if price is None:
        return None
    counts_by_role = (
        RoleCount(billed_prompt_tokens=round(r.prompt_tokens), billed_completion_tokens=round(r.completion_tokens))
        for r in roles.values()
    )
    return sum(price.cost_of(count) for count in counts_by_role)


def table(found: Estimate, config: RunConfig, *, latency_s: float) -> str:
    """The prediction in markdown."""
    lines = [
        f"**{config.method_name}** on {config.llm_name}, {found.n_turns:,} turns, {found.n_questions:,} questions; scaled "
        f"from {', '.join(found.based_on)} run without a model",
        "",
        "| role | calls | prompt tokens (o200k) | completion tokens (o200k) |",
        "|---|---:|---:|---:|",
    ]
    for role, r in found.roles.items():
        lines.append(f"| {role} | {r.calls:,.0f} | {r.prompt_tokens:,.0f} | {r.completion_tokens:,.0f} |")
    total_prompt = sum(r.prompt_tokens for r in found.roles.values())
    total_completion = sum(r.completion_tokens for r in found.roles.values())
    lines.append(f"| **all** | {found.calls:,.0f} | {total_prompt:,.0f} | {total_completion:,.0f} |")
    in_flight = min(config.concurrency, llm_config(config.llm).max_concurrency)
    seconds = found.seconds(latency_s, in_flight)
    if found.usd is None:
        money = "price not known: give llm.price"
    elif found.usd == 0:
        money = "none per token (no model, or a server of your own; llm.price sets a price)"
    else:
        money = f"${found.usd:,.2f} ({'prices of ' + PRICES_AS_OF if config.llm.get('price') is None else 'llm.price'})"
    per_100 = "" if not found.usd else f", ${100 * found.usd / found.n_questions:,.2f} per 100 questions"
    lines += [
        "",
        f"- cost: {money}{per_100}",
        f"- time at {latency_s:g} s a call, {in_flight} in flight: about {seconds / 60:,.0f} min (longest chain "
        f"{found.chain_calls:,.0f} calls)",
        *_thinking(found),
        "- how often a model merges, refines and how much it writes is its own; these are the no-model backbone's habits",
    ]
    return "\n".join(lines) + "\n"


def _thinking(found: Estimate) -> list[str]:
    if not found.reasoning_tokens:
        return []
    return [
        f"- reasoning is not in it: up to {found.reasoning_tokens:,} completion tokens a call, "
        f"{found.calls * found.reasoning_tokens:,.0f} in all"
    ]


def keep(found: Estimate, config: RunConfig) -> Path | None:
    """Put the prediction into the folder the run will have, so that its table can show predicted against real. None when
    the backbone cannot be named yet (no key, say)."""
    try:
        runner = Runner(config, Silent())
    except MemflyError:
        return None
    folder = runner.folder
    asyncio.run(runner.aclose())
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / ESTIMATE, json.dumps(asdict(found), indent=1))
    return folder / ESTIMATE
