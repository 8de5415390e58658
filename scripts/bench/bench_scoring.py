"""How long it takes to score a whole LoCoMo run, where the time goes, and what plain library calls would take.

    python scripts/bench/bench_scoring.py [--data LOCOMO10_JSON] [--repeats 5]

Scores 1,986 answers under `amem` (set F1, BLEU-1..4, ROUGE-1/2/L, both readings of category 5) and `locomo` (official F1),
caches empty at the start of every repeat, one process, imports not counted. The library path computes the same numbers
with nltk's sentence_bleu, rouge-score and uncached tokens and stems; the two are checked against each other, interleaved,
and their ratio is taken within each repeat. Without a data file the texts are drawn from a seeded vocabulary.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import pstats
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from nltk.stem.porter import PorterStemmer
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from rouge_score.rouge_scorer import RougeScorer

from eval.categories import Category
from eval.scoring import protocol
from eval.scoring import text as scoring_text
from eval.scoring.adversarial import REFUSAL
from eval.scoring.locomo import stems
from eval.scoring.treebank import tokenize_in_full

QUESTIONS = 1986
Pair = tuple[str, str, Category]
"""Prediction, reference (the trap in category 5), category."""


def load_pairs(data: Path | None) -> list[Pair]:
    """Gold answers, and predictions made from them by dropping, adding and moving words; seeded."""
    rng = random.Random(0)
    if data is not None:
        questions = [
            question for conversation in json.loads(data.read_text("utf-8")) for question in conversation["qa"]
        ]
        golds = [(str(q["adversarial_answer" if q["category"] == 5 else "answer"]), q["category"]) for q in questions]
    else:
        words = (
            "the a her his new May 2023 pottery, camping running race support group. self-care beach he's it".split()
        )
        golds = [(" ".join(rng.choices(words, k=rng.randint(1, 12))), 1 + i % 5) for i in range(QUESTIONS)]
    return [(_near(gold, rng), gold, Category(category)) for gold, category in golds]


def _near(gold: str, rng: random.Random) -> str:
    words = [word for word in gold.split() if rng.random() < 0.8] + rng.choices(["the", "it", "went.", "really"], k=2)
    if rng.random() < 0.3:
        rng.shuffle(words)
    return REFUSAL if rng.random() < 0.1 else " ".join(words)


def ours(pairs: list[Pair]) -> list[list[float]]:
    """Scores by `eval.scoring`, starting from empty caches."""
    for cached in (
        scoring_text.word_tokens,
        scoring_text.stem,
        scoring_text.rouge_tokens,
        scoring_text.normalise,
        stems,
    ):
        cached.cache_clear()
    amem, locomo = protocol("amem"), protocol("locomo")
    rows = []
    for prediction, reference, category in pairs:
        trap = reference if category is Category.ADVERSARIAL else None
        scores = amem.score(prediction, reference, trap, category)
        official = locomo.score(prediction, reference, trap, category)["f1"]
        names = ("f1", "bleu1", "bleu2", "bleu3", "bleu4", "rouge1_f", "rouge2_f", "rougeL_f")
        rows.append([scores[name] or 0.0 for name in names] + [official or 0.0])
    return rows


def plain(pairs: list[Pair]) -> list[list[float]]:
    """The same by one library call per number, nothing cached."""
    smoothing, rouge, porter = (
        SmoothingFunction().method1,
        RougeScorer(["rouge1", "rouge2", "rougeL"], True),
        PorterStemmer(),
    )
    weights = [(1, 0, 0, 0), *scoring_text.BLEU_WEIGHTS[1:]]

    def bleu(prediction: str, reference: str, weight: tuple[float, ...]) -> float:
        tokens = [tokenize_in_full(reference.lower())], tokenize_in_full(prediction.lower())
        return float(sentence_bleu(*tokens, weights=weight, smoothing_function=smoothing))

    def stemmed(prediction: str, reference: str) -> float:
        sides = [
            Counter(porter.stem(word) for word in scoring_text.normalise.__wrapped__(side).split())
            for side in (prediction, reference)
        ]
        return scoring_text.f_measure((sides[0] & sides[1]).total(), sides[0].total(), sides[1].total())

    def official(prediction: str, reference: str, category: Category) -> float:
        if category is Category.ADVERSARIAL:
            return float("no information available" in prediction.lower() or "not mentioned" in prediction.lower())
        if category is Category.MULTI_HOP:
            golds = reference.split(",")
            return sum(max(stemmed(piece, gold) for piece in prediction.split(",")) for gold in golds) / len(golds)
        return stemmed(prediction, reference.split(";")[0] if category is Category.OPEN_DOMAIN else reference)

    rows = []
    for prediction, reference, category in pairs:
        prediction, reference = prediction.strip(), reference.strip()
        rouges = rouge.score(reference, prediction)
        rows.append(
            [
                scoring_text.set_f1(prediction, reference),
                *(bleu(prediction, reference, weight) for weight in weights),
                *(float(rouges[name].fmeasure) for name in ("rouge1", "rouge2", "rougeL")),
                official(prediction, reference, category),
            ]
        )
    return rows


def timed(work: Callable[[list[Pair]], list[list[float]]], pairs: list[Pair]) -> tuple[float, list[list[float]]]:
    start = time.process_time()
    rows = work(pairs)
    return time.process_time() - start, rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the scoring of one LoCoMo run.")
    parser.add_argument("--data", type=Path, help="locomo10.json; synthetic texts without it")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    pairs = load_pairs(arguments.data)
    fast, slow = [], []
    for _ in range(arguments.repeats):
        (seconds, rows), (plain_seconds, plain_rows) = timed(ours, pairs), timed(plain, pairs)
        if rows != plain_rows:
            raise SystemExit("eval.scoring and the plain library calls disagree; run the tests")
        fast.append(seconds)
        slow.append(plain_seconds)
    ratios = [s / f for s, f in zip(slow, fast, strict=True)]
    print(f"{len(pairs)} answers, {arguments.repeats} repeats, CPU seconds on one core, imports not counted")
    print(f"  eval.scoring   median {statistics.median(fast):.3f}  (min {min(fast):.3f}, max {max(fast):.3f})")
    print(f"  plain library  median {statistics.median(slow):.3f}  (min {min(slow):.3f}, max {max(slow):.3f})")
    print(
        f"  ratio          median {statistics.median(ratios):.1f}x (min {min(ratios):.1f}, max {max(ratios):.1f}); same numbers"
    )
    profile = cProfile.Profile()
    profile.runcall(ours, pairs)
    report = io.StringIO()
    pstats.Stats(profile, stream=report).strip_dirs().sort_stats("tottime").print_stats(14)
    print(report.getvalue())


if __name__ == "__main__":
    main()
