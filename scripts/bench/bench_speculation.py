"""Would speculative gating pay? Measures how often the gate's prompt for turn t+1 survives applying turn t.

Speculation would start turn t+1's gate call on the state before t and keep it only if its prompt is unchanged once t is
applied. This builds a memory with the extractive backbone and counts the prompts that would have been kept, for one and
for two turns ahead. Run: python scripts/bench/bench_speculation.py FILE CONVERSATION
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import Any

from eval.locomo import load
from memfly.embed import Embedder, MiniLM
from memfly.ingest import Draft, draft_note
from memfly.llm.config import llm_config
from memfly.llm.stack import build_llm
from memfly.memfly import MemFly
from memfly.system import Services
from memfly.types import Turn


class Watched(MemFly):
    """MemFly that notes, before each turn is applied, what the next turns' gate prompts would be."""

    upcoming: list[tuple[Turn, Draft]]

    async def shown(self, turn: Turn, draft: Draft) -> tuple[Any, ...]:
        found = await self._candidates(turn, draft)
        return tuple((n.id, n.context, tuple(n.keywords)) for n in found)


async def measure(file: Path, conversation: str, cache: Path) -> dict[str, float]:
    data = load(file).select([conversation])
    talk = data.conversations[0]
    embedder = Embedder(MiniLM(), cache / "embeddings.sqlite")
    llm = build_llm(llm_config({"kind": "extractive", "cache": "off"}), embedder=embedder, cache_dir=cache)
    system = Watched(Services(llm, embedder, talk.id, talk.speakers))
    drafts = await asyncio.gather(*(draft_note(llm, embedder, turn, ()) for turn in talk.turns))
    kept = {1: 0, 2: 0}
    early: dict[tuple[int, int], tuple[Any, ...]] = {}
    for t, turn in enumerate(talk.turns):
        for ahead in (1, 2):
            if t + ahead < len(talk.turns):
                early[t + ahead, ahead] = await system.shown(talk.turns[t + ahead], drafts[t + ahead])
        now = await system.shown(turn, drafts[t])
        for ahead in (1, 2):
            kept[ahead] += early.pop((t, ahead), None) == now
        await system.observe(turn)
    n = len(talk.turns)
    embedder.close()
    return {"turns": n, "kept_1_ahead": kept[1] / (n - 1), "kept_2_ahead": kept[2] / (n - 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("conversation")
    parser.add_argument("--cache", type=Path, help="folder of an embedding cache to use")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(measure(chosen.file, chosen.conversation, chosen.cache or Path(folder)))
    print(f"{chosen.conversation}: {result['turns']:.0f} turns")
    print(f"gate prompts unchanged, one turn ahead: {result['kept_1_ahead']:.1%}; two: {result['kept_2_ahead']:.1%}")


if __name__ == "__main__":
    main()
