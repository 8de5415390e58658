"""Is the evidence enough, and what to look for next (tasks `sufficiency`, `subquery`), from coverage alone.

Coverage is the share of the question's content roots that the best few evidence lines hold together, plus whether a line
that matches the question carries the kind of answer asked for (a date, a number, a name). No answer is judged.
"""

from __future__ import annotations

from functools import lru_cache

from memfly.llm.extractive.analysis import analyse, root, split_sentences
from memfly.llm.extractive.base import Tools
from memfly.llm.extractive.dates import expressions
from memfly.llm.extractive.keywords import question_keywords, turn_keywords
from memfly.tasks.refine import SubqueryInput, SubqueryOutput, SufficiencyInput, SufficiencyOutput

ENOUGH = 0.75
"""Coverage from which evidence counts as sufficient."""
_EMPTY = frozenset(
    root(w)
    for w in "kind type sort many much often long time name event thing say tell describe mention recently do go get "
    "have according would likely consider".split()
)


@lru_cache(maxsize=20_000)
def question_roots(question: str) -> tuple[str, ...]:
    """Content roots that evidence should hold, in the question's order."""
    return tuple(
        dict.fromkeys(
            root(t.low)
            for s in split_sentences(question)
            for t in analyse(s).tokens
            if t.tag in "VNPDA" and root(t.low) not in _EMPTY and len(t.low) > 1
        )
    )


@lru_cache(maxsize=20_000)
def line_roots(line: str) -> frozenset[str]:
    """Content roots of one evidence line, the persons it names included."""
    return frozenset().union(*(analyse(s).roots for s in split_sentences(line)))


@lru_cache(maxsize=20_000)
def line_has_time(line: str) -> bool:
    body = line.split(" | ", 1)[-1]
    return bool(expressions(body))


def coverage(question: str, evidence: tuple[str, ...]) -> tuple[float, tuple[str, ...]]:
    """(share of question roots covered by the two lines that cover most, the roots in no line at all)."""
    wanted = question_roots(question)
    if not wanted:
        return 1.0, ()
    sets = [line_roots(line) & frozenset(wanted) for line in evidence]
    best: frozenset[str] = max(sets, key=len, default=frozenset())
    second = max((best | other for other in sets), key=len, default=best)
    missing = tuple(r for r in wanted if not any(r in s for s in sets))
    return (len(best) + len(second)) / (2 * len(wanted)), missing


def _has_answer_type(question: str, evidence: tuple[str, ...]) -> bool:
    words = question.lower().split()
    wanted = frozenset(question_roots(question))
    near = [line for line in evidence if len(line_roots(line) & wanted) * 2 >= len(wanted)]
    if "when" in words[:2]:
        return any(line_has_time(line) for line in near)
    if words[:2] == ["how", "many"] or words[:2] == ["how", "much"]:
        return any(analyse(s).numbers for line in near for s in split_sentences(line.split(" | ", 1)[-1]))
    return bool(near)


async def sufficiency(value: SufficiencyInput, tools: Tools) -> SufficiencyOutput:
    share, missing = coverage(value.question, value.evidence)
    typed = _has_answer_type(value.question, value.evidence)
    confidence = round(min(1.0, 0.85 * share + 0.15 * typed), 4)
    enough = share >= ENOUGH and typed
    if enough:
        return SufficiencyOutput(sufficient=True, missing_info="", confidence=confidence)
    words = _words_of(value.question, missing)
    lacking = ", ".join(words) if words else "a statement that answers the question"
    return SufficiencyOutput(sufficient=False, missing_info=lacking[:500], confidence=confidence)


def _words_of(question: str, roots: tuple[str, ...]) -> list[str]:
    found = [t.text for s in split_sentences(question) for t in analyse(s).tokens if root(t.low) in roots]
    return list(dict.fromkeys(found))


async def subquery(value: SubqueryInput, tools: Tools) -> SubqueryOutput:
    """Subject, missing terms and the keywords of the evidence line closest to the question; empty when that is old news."""
    wanted = frozenset(question_roots(value.question))
    best = max(value.evidence, key=lambda line: len(line_roots(line) & wanted), default="")
    people = [k for k in question_keywords(value.question) if k[:1].isupper()]
    terms = [k for k in question_keywords(value.question) if not k[:1].isupper()]
    body = best.split(" | ", 1)[-1]
    bridge = [k for k in turn_keywords("", body, "") if k not in people and root(k.lower()) not in wanted][:2]
    missing = list(_words_of(value.question, coverage(value.question, value.evidence)[1]))
    words = list(dict.fromkeys([*people, *(missing or terms), *bridge]))
    query = " ".join(words)[:300]
    asked = {value.question.casefold(), *(h.casefold() for h in value.history)}
    new = frozenset(root(w) for w in query.lower().split()) - wanted
    if not query or query.casefold() in asked or (not new and not missing):
        return SubqueryOutput(query="")
    return SubqueryOutput(query=query)
