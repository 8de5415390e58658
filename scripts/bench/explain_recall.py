"""Where MemFly's evidence recall comes from and where it is lost, pathway by pathway, on memories that a run has built.

For every question: recall of each pathway's whole list (can it reach the evidence at all?), of its first 20 notes in the
order the paper leaves open (cosine to the question, ours), of the fused list, and of the same candidates ordered by BM25
instead. One retrieval, no refinement. Run: python -m scripts.bench.explain_recall OVERRIDES (those of the run)
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections import defaultdict
from pathlib import Path

from eval.config import validate
from eval.progress import Silent
from eval.runner import Runner
from memfly.keywords import canonical_map
from memfly.llm.ledger import scope
from memfly.memfly import MemFly
from memfly.retrieve import Retriever, pool
from memfly.tasks.question import QUESTION, QuestionInput
from memfly.text import stems
from memfly.types import Question
from scripts.run import compose

K = 20


async def explain(runner: Runner) -> dict[str, list[float]]:
    """Recall of every stage, one value per question with usable evidence."""
    found: dict[str, list[float]] = defaultdict(list)
    for conversation in runner.dataset.conversations:
        system = runner._system(conversation)
        assert isinstance(system, MemFly)
        if runner.store.load(runner.fingerprint(conversation), system) is None:
            raise SystemExit(f"{conversation.id}: no memory built for this configuration; run it first")
        for question in runner.dataset.questions:
            gold = set(runner.dataset.golds[question.id].evidence)
            if question.conversation == conversation.id and gold:
                with scope(question.conversation, question.id):
                    lists = await stages(system, question)
                for name, notes in lists.items():
                    shown = {turn for note in notes for turn in system.graph.notes[note].turns}
                    found[name].append(len(gold & shown) / len(gold))
                    found[f"{name}, notes"].append(len(notes))
    return found


async def stages(system: MemFly, question: Question) -> dict[str, list[int]]:
    services = system.services
    retriever = Retriever(system, services.llm, services.embedder, system.retrieval_options)
    plan = await services.llm.run(QUESTION, QuestionInput(question.text), purpose=question.text)
    keys = list(canonical_map(plan.keywords).values())
    vectors = await services.embedder.embed([question.text, plan.topic_desc.strip() or question.text, *keys])
    lists = retriever._lists(vectors[0], vectors[1], vectors[2:])
    fused = pool([await retriever.retrieve(question.text)], K)
    reachable = list(dict.fromkeys(note for notes in lists.values() for note in notes))
    scores = system.sparse.scores(stems(question.text))
    by_bm25 = sorted(reachable, key=lambda note: (-scores.get(note, 0.0), note))
    every = retriever._order(system.graph.notes, vectors[0])
    out = {f"{name}, whole list": notes for name, notes in lists.items()}
    out |= {f"{name}, first {K}": notes[:K] for name, notes in lists.items()}
    out |= {
        "all pathways together, whole": reachable,
        f"all pathways, fused, first {K} (the method)": fused,
        f"same candidates by cosine, first {K}": retriever._order(reachable, vectors[0])[:K],
        f"same candidates by BM25 over notes, first {K}": by_bm25[:K],
        f"every note by cosine, first {K}": every[:K],
    }
    return out


def main() -> None:
    runner = Runner(validate(compose(sys.argv[1:])), Silent())
    found = asyncio.run(explain(runner))
    runner.embedder.close()
    print("| stage | evidence recall | notes (mean) |\n|---|---:|---:|")
    for name in [name for name in found if not name.endswith(", notes")]:
        values, sizes = found[name], found[f"{name}, notes"]
        print(f"| {name} | {math.fsum(values) / len(values):.4f} | {math.fsum(sizes) / len(sizes):.1f} |")
    print(f"\n{len(found[name])} questions with usable evidence; run root {Path(runner.config.run_root)}")


if __name__ == "__main__":
    main()
