"""Ingestion of one turn into a draft note: context, keywords, vectors (MemFly 3.1).

A draft depends on the turn and on the few turns before it, never on the memory: that is why it may be made ahead of time.
An unusable reply gives the rendered turn as context, without keywords, and is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import Field

from memfly.embed import Embedder, Vectors
from memfly.errors import ParseError
from memfly.keywords import canonical_map
from memfly.llm.client import LLM
from memfly.options import Options
from memfly.tasks.ingest import INGEST, IngestInput
from memfly.types import Turn


class IngestOptions(Options):
    window: int = Field(default=0, ge=0, le=50)
    """Preceding turns shown for resolving references (paper: none)."""


class KeywordOptions(Options):
    merge_cosine: float | None = Field(default=None, gt=0, le=1)
    """A new keyword at least this close to a stored one is taken for it; None = exact match only (ours)."""


@dataclass(frozen=True)
class Draft:
    context: str
    vector: npt.NDArray[np.float32]
    """h = Embed(c), shape (dim,)."""
    keywords: dict[str, str]
    """Canonical keyword -> phrase."""
    keyword_vectors: dict[str, npt.NDArray[np.float32]]
    fallback: bool = False


async def draft_note(
    llm: LLM, embedder: Embedder, turn: Turn, preceding: Sequence[Turn], *, denoise: bool = True
) -> Draft:
    """One ingestion call. With `denoise` off the context is the rendered turn; keywords are extracted all the same."""
    value = IngestInput(turn.date, turn.speaker, turn.text, turn.caption, tuple(t.render() for t in preceding))
    context, phrases, fallback = turn.render(), list[str](), False
    try:
        reply = await llm.run(INGEST, value, purpose=turn.id)
    except ParseError:
        fallback = True
    else:
        phrases = reply.keywords
        if denoise and reply.context.strip():
            context = reply.context.strip()
    keywords = canonical_map(phrases)
    vectors = await embedder.embed([context, *keywords.values()])
    return Draft(context, vectors[0], keywords, dict(zip(keywords, vectors[1:], strict=True)), fallback)


def match_keywords(
    draft: Draft, known: Sequence[str], vectors: Vectors, phrases: dict[str, str], threshold: float | None
) -> dict[str, str]:
    """The draft's keywords with near-duplicates of stored ones replaced by those (`keywords.merge_cosine`).

    `vectors` has the row of each of `known`; ties go to the first stored. Without a threshold nothing changes.
    """
    if threshold is None or not known:
        return draft.keywords
    stored = set(known)
    out: dict[str, str] = {}
    for key, phrase in draft.keywords.items():
        if key not in stored:
            cosines = vectors @ draft.keyword_vectors[key]
            best = int(np.argmax(cosines))
            if cosines[best] >= threshold:
                out.setdefault(known[best], phrases[known[best]])
                continue
        out.setdefault(key, phrase)
    return out
