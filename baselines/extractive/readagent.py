"""ReadAgent without a model: page ends at topic shifts, gists of informative sentences, look-up by shared words.

A topic shift is where the turns before and after have few content words in common, and above all where a session ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from baselines.extractive.sentences import overlap, roots, shorten
from baselines.tasks.readagent import (
    BreakInput,
    BreakOutput,
    GistInput,
    GistOutput,
    LookUpInput,
    LookUpOutput,
    NextPageOutput,
)
from memfly.llm.extractive.base import Function, Tools
from memfly.llm.extractive.evidence import ask

GIST_SHARE = 0.2
WINDOW = 4
WORTH_IT = 0.6
"""Share of the best page's score another page needs to be read again."""
_NEW_SESSION = re.compile(r"\([^()\n]{0,40}\d{4}[^()\n]{0,12}\) ")


def cohesion(before: frozenset[str], after: frozenset[str]) -> float:
    """Shared content roots per root of the smaller side, in [0, 1]."""
    return len(before & after) / max(min(len(before), len(after)), 1)


async def page_break(value: BreakInput, tools: Tools) -> BreakOutput:
    """The label with the least cohesion over it; a session's start counts as none at all. Ties go to the later label."""
    texts = [roots(paragraph) for paragraph in (*value.paragraphs, value.following)]
    best, least = max(label for label in value.labels if label is not None), 2.0
    for position, label in enumerate(value.labels):
        if label is None:
            continue
        before = frozenset[str]().union(*texts[max(position - WINDOW, 0) : position])
        after = frozenset[str]().union(*texts[position : position + WINDOW])
        opening = value.paragraphs[position] if position < len(value.paragraphs) else value.following
        score = -1.0 if _NEW_SESSION.match(opening) else cohesion(before, after)
        if score <= least:
            best, least = label, score
    return BreakOutput(label=best, reason=f"cohesion {least:.2f}")


async def gist(value: GistInput, tools: Tools) -> GistOutput:
    """About a fifth of the words: the most informative sentences in their order."""
    lines = _NEW_SESSION.sub("", value.page, count=1).split("\n")
    text = shorten(lines, max(int(len(value.page.split()) * GIST_SHARE), 30))
    return GistOutput(gist=text[:6000] or "(nothing said)")


async def _scores(value: LookUpInput, tools: Tools) -> list[float]:
    """Per page: the question's roots its text holds, a rare one counting more, plus half the cosine."""
    asked = ask(value.question)
    wanted = asked.roots | roots(value.question)
    lexical = overlap(wanted, [roots(page) for page in value.pages])
    vectors = await tools.embedder.embed([value.question, *value.pages])
    return [score + 0.5 * float(vectors[0] @ row) for score, row in zip(lexical, vectors[1:], strict=True)]


async def look_up(value: LookUpInput, tools: Tools) -> LookUpOutput:
    """The best page and up to `most` in all that come near it."""
    scores = await _scores(value, tools)
    ranked = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    pages = [i for i in ranked if scores[i] >= WORTH_IT * scores[ranked[0]]]
    return LookUpOutput(pages=pages[: value.most])


async def next_page(value: LookUpInput, tools: Tools) -> NextPageOutput:
    """The best page not read yet, or stop when it is far below the best of all."""
    scores = await _scores(value, tools)
    left = sorted((i for i in range(len(scores)) if i not in value.read), key=lambda i: (-scores[i], i))
    worth = bool(left) and scores[left[0]] >= WORTH_IT * max(scores)
    return NextPageOutput(page=left[0] if worth else None)


FUNCTIONS: Mapping[str, Function] = {
    "read_break": page_break,
    "read_gist": gist,
    "read_look_up": look_up,
    "read_next_page": next_page,
}
