"""The optional LLM judge over a finished run's answers: verdicts kept raw, repeated, and checked for leniency.

Judging never answers anew: it reads answers.jsonl and appends to judge.jsonl, where every verdict stands with the judge's
model, the prompt's hash and the words it said. What is there already is not asked again. An off-menu reply is unscored; it
is neither right nor wrong. Category 5 has no gold answer and is not judged.

Leniency is measured on answers known to be wrong: `vague` ones, which repeat the question's topic and say nothing, and
the gold answers of other questions of the same conversation and category.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ValidationError

from eval.categories import Category
from eval.records import AnswerRecord, dumps, read_lines, write_atomic
from eval.scoring.protocol import as_text
from eval.scoring.text import normalise, set_f1
from eval.stats import Estimate, cluster_mean
from memfly.errors import BackendError, DataError, ParseError
from memfly.llm.base import stable_hash
from memfly.llm.client import LLM
from memfly.llm.ledger import scope
from memfly.tasks.judge import JUDGE, JudgeInput, Verdict, verdict
from memfly.text import STOPWORDS, words
from memfly.together import together

FILE = "judge.jsonl"
Kind = Literal["answer", "vague", "other_gold"]
NEAR = 0.3
"""Another question's gold answer counts as wrong only if its set F1 with this one's gold is below this."""
IN_FLIGHT = 32

PROMPT_HASH = stable_hash(
    {"task": JUDGE.name, "version": JUDGE.version, "system": JUDGE.system, "schema": JUDGE.schema()}, 12
)


class JudgeRecord(BaseModel):
    """One verdict. `verdict` None = unscored; `error` says why where the judge gave no reply to read."""

    id: str
    kind: Kind
    repeat: int
    judged: str
    gold: str
    judge: str
    """Hash of the judge's backbone and prompt: verdicts of different judges are never mixed."""
    model: str
    prompt_hash: str
    raw: str = ""
    reason: str = ""
    verdict: Verdict | None = None
    error: str | None = None

    @property
    def key(self) -> tuple[str, str, int, str, str]:
        return (self.id, self.kind, self.repeat, self.judge, stable_hash([self.judged, self.gold], 12))


@dataclass(frozen=True)
class Ask:
    """One answer to be judged."""

    record: AnswerRecord
    kind: Kind
    repeat: int
    text: str


def judge_hash(llm: LLM) -> str:
    return stable_hash({"llm": dict(llm.identity), "prompt": PROMPT_HASH}, 12)


def judged_records(records: Iterable[AnswerRecord]) -> list[AnswerRecord]:
    """What a judge can say something about: answered questions of categories 1 to 4."""
    return [r for r in records if r.state == "answered" and r.category != Category.ADVERSARIAL]


def plan(records: Sequence[AnswerRecord], *, repeats: int, control: int, seed: int = 0) -> list[Ask]:
    """Everything to judge: each answer `repeats` times, and wrong answers to a seeded choice of `control` questions."""
    usable = judged_records(records)
    asks = [Ask(r, "answer", repeat, r.prediction or "") for r in usable for repeat in range(repeats)]
    golds = [r for r in records if r.category != Category.ADVERSARIAL and r.answer is not None]
    chosen = golds if control >= len(golds) else random.Random(f"{seed}/judge control").sample(golds, control)
    for record in chosen:
        asks += [Ask(record, kind, 0, text) for kind, text in wrong_answers(record, golds).items()]
    return asks


def wrong_answers(record: AnswerRecord, golds: Sequence[AnswerRecord]) -> dict[Kind, str]:
    """Answers known to be wrong: on topic and empty of content, and another question's gold; those that can be made.

    Deterministic: the draw is keyed on the question's id.
    """
    gold = as_text(record.answer)
    told = set(normalise(gold).split())
    topic = [
        w for w in dict.fromkeys(words(record.question)) if w not in STOPWORDS and not set(normalise(w).split()) & told
    ]
    found: dict[Kind, str] = {}
    if topic:
        found["vague"] = f"Something that had to do with {' and '.join(topic[:4])}"
    others = sorted(
        {
            as_text(other.answer)
            for other in golds
            if (other.conversation, other.category) == (record.conversation, record.category)
            and other.id != record.id
            and set_f1(as_text(other.answer), gold) < NEAR
            and normalise(as_text(other.answer)) != normalise(gold)
        }
    )
    if others:
        found["other_gold"] = random.Random(f"{record.id}/judge").choice(others)
    return found


async def judge_run(folder: Path, asks: Sequence[Ask], llm: LLM) -> list[JudgeRecord]:
    """Judge what judge.jsonl does not hold yet, keeping each verdict as it comes. Gives the records of these asks.

    A call that fails for good is kept as an error and asked again next time. Raises ConfigError and BudgetExceeded.
    """
    judge, model = judge_hash(llm), str(llm.identity.get("model") or llm.identity.get("kind"))
    path = folder / FILE
    kept = {record.key: record for record in read_judged(folder)}
    known = {key for key, record in kept.items() if not (record.error or "").startswith("BackendError")}
    limit = asyncio.Semaphore(IN_FLIGHT)
    wanted = [(ask, _blank(ask, judge, model)) for ask in asks]
    with path.open("a", encoding="utf-8") as file:

        async def one(ask: Ask, blank: JudgeRecord) -> None:
            async with limit:
                found = await _ask(ask, blank, llm)
            file.write(dumps(found.model_dump(mode="json")) + "\n")
            file.flush()
            kept[found.key] = found

        await together(one(ask, blank) for ask, blank in wanted if blank.key not in known)
    records = sorted(kept.values(), key=lambda r: (r.judge, r.kind, r.id, r.repeat))
    write_atomic(path, "".join(dumps(record.model_dump(mode="json")) + "\n" for record in records))
    return [kept[blank.key] for _, blank in wanted]


def _blank(ask: Ask, judge: str, model: str) -> JudgeRecord:
    return JudgeRecord(
        id=ask.record.id,
        kind=ask.kind,
        repeat=ask.repeat,
        judged=ask.text,
        gold=as_text(ask.record.answer),
        judge=judge,
        model=model,
        prompt_hash=PROMPT_HASH,
    )


async def _ask(ask: Ask, blank: JudgeRecord, llm: LLM) -> JudgeRecord:
    value = JudgeInput(ask.record.question, blank.gold, ask.text)
    with scope(ask.record.conversation, f"{ask.record.id}/{ask.kind}"):
        try:
            reply = await llm.run(JUDGE, value, purpose=f"judge {ask.repeat}")
        except ParseError as error:
            said = error.reply
            return blank.model_copy(
                update={"raw": said, "verdict": verdict(said), "error": f"ParseError: {error}"[:300]}
            )
        except BackendError as error:
            return blank.model_copy(update={"error": f"BackendError: {error}"[:300]})
    return blank.model_copy(update={"raw": reply.label, "reason": reply.reason, "verdict": verdict(reply.label)})


def read_judged(folder: Path) -> list[JudgeRecord]:
    """All verdicts kept with a run; empty without any. Raises DataError for lines that are none."""
    try:
        return [JudgeRecord.model_validate(line) for line in read_lines(folder / FILE)]
    except ValidationError as error:
        raise DataError(
            f"{folder / FILE}: not verdicts of this version ({error.errors()[0]['msg']}); move it away and judge again"
        ) from None


@dataclass(frozen=True)
class JudgeSummary:
    """`categories`: label -> share judged CORRECT (a question's repeats averaged first). `leniency`: kind of wrong answer
    -> (share judged CORRECT, n scored). `repeat_sd`: standard deviation of the repeats' overall shares."""

    judge: str
    model: str
    prompt_hash: str
    repeats: int
    categories: Mapping[str, Estimate]
    n_unscored: int
    n_failed: int
    n_error: int
    repeat_sd: float | None
    leniency: Mapping[str, tuple[float, int]]


def summarise(records: Sequence[AnswerRecord], judged: Sequence[JudgeRecord]) -> JudgeSummary:
    """Shares over the questions with a verdict; questions without an answer count as wrong, and are counted.

    Raises DataError without a single verdict on an answer.
    """
    answers = [j for j in judged if j.kind == "answer"]
    verdicts: dict[str, list[float]] = {}
    for one in answers:
        if one.verdict is not None:
            verdicts.setdefault(one.id, []).append(float(one.verdict == "CORRECT"))
    failed = [r for r in records if r.state == "error" and r.category != Category.ADVERSARIAL]
    if not verdicts:
        said = next((j.error or j.raw for j in answers), "nothing was judged")
        raise DataError(f"judge: no verdict could be read from {len(answers)} replies; the first says: {said[:120]!r}")
    values = {id: float(np.mean(v)) for id, v in verdicts.items()} | {r.id: 0.0 for r in failed}
    by_id = {record.id: record for record in records}
    cells: dict[str, list[str]] = {}
    for id in values:
        cells.setdefault(Category(by_id[id].category).label, []).append(id)
        cells.setdefault("average4", []).append(id)
    order = [*(c.label for c in Category), "average4"]
    first = answers[0]
    return JudgeSummary(
        judge=first.judge,
        model=first.model,
        prompt_hash=first.prompt_hash,
        repeats=1 + max(j.repeat for j in answers),
        categories={
            label: cluster_mean([values[id] for id in cells[label]], [by_id[id].conversation for id in cells[label]])
            for label in order
            if label in cells
        },
        n_unscored=sum(j.verdict is None and not _failed(j) for j in judged),
        n_failed=sum(map(_failed, judged)),
        n_error=len(failed),
        repeat_sd=_repeat_sd(answers),
        leniency=_leniency(judged),
    )


def _failed(record: JudgeRecord) -> bool:
    return (record.error or "").startswith("BackendError")


def _repeat_sd(answers: Sequence[JudgeRecord]) -> float | None:
    by_repeat: dict[int, list[float]] = {}
    for one in answers:
        if one.verdict is not None:
            by_repeat.setdefault(one.repeat, []).append(float(one.verdict == "CORRECT"))
    means = [math.fsum(v) / len(v) for v in by_repeat.values()]
    return float(np.std(means, ddof=1)) if len(means) > 1 else None


def _leniency(judged: Sequence[JudgeRecord]) -> dict[str, tuple[float, int]]:
    found = {}
    for kind in ("vague", "other_gold"):
        scored = [float(j.verdict == "CORRECT") for j in judged if j.kind == kind and j.verdict is not None]
        if scored:
            found[kind] = (math.fsum(scored) / len(scored), len(scored))
    return found


def to_markdown(summary: JudgeSummary) -> str:
    """The judge's table, with everything needed to distrust it."""
    lines = [
        f"Judge {summary.model} (judge {summary.judge}, prompt {summary.prompt_hash}), {summary.repeats} repeat"
        f"{'s' if summary.repeats > 1 else ''}; categories 1-4",
        "",
        "| category | n | judged CORRECT |",
        "|---|---:|---:|",
    ]
    for label, estimate in summary.categories.items():
        error = "" if estimate.se is None else f" ±{100 * estimate.se:.2f}"
        lines.append(f"| {label} | {estimate.n} | {100 * estimate.mean:.2f}{error} |")
    lines += ["", f"- unscored (off the menu): {summary.n_unscored}; failed calls: {summary.n_failed}; questions without an "
              f"answer, counted as wrong: {summary.n_error}"]  # fmt: skip
    if summary.repeat_sd is not None:
        lines.append(f"- standard deviation between repeats: {100 * summary.repeat_sd:.2f}")
    names = {"vague": "vague answers on the topic", "other_gold": "another question's gold answer"}
    for kind, (share, n) in summary.leniency.items():
        lines.append(f"- leniency: {100 * share:.1f} % of {n} wrong answers ({names[kind]}) passed as CORRECT")
    return "\n".join(lines) + "\n"


def mean_verdicts(folder: Path) -> dict[str, dict[str, float]]:
    """Each judge of this run, as "model (hash)" -> question id -> mean verdict, for comparisons."""
    found: dict[str, dict[str, list[float]]] = {}
    for one in read_judged(folder):
        if one.kind == "answer" and one.verdict is not None:
            of_judge = found.setdefault(f"{one.model} ({one.judge})", {})
            of_judge.setdefault(one.id, []).append(float(one.verdict == "CORRECT"))
    return {judge: {id: math.fsum(v) / len(v) for id, v in ids.items()} for judge, ids in found.items()}


def summary_json(summary: JudgeSummary) -> str:
    """For judge.json beside judge.jsonl."""
    plain: dict[str, Any] = {
        **{name: getattr(summary, name) for name in ("judge", "model", "prompt_hash", "repeats", "repeat_sd")},
        **{name: getattr(summary, name) for name in ("n_unscored", "n_failed", "n_error")},
        "categories": {k: {"mean": e.mean, "se": e.se, "n": e.n} for k, e in summary.categories.items()},
        "leniency": {kind: {"share": share, "n": n} for kind, (share, n) in summary.leniency.items()},
    }
    return json.dumps(plain, indent=1) + "\n"
