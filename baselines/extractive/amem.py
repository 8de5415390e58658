"""A-MEM's tasks without a model: keyword phrases, a restated sentence, labels; links by overlap and cosine.

Reuses what the extractive backbone does for MemFly (`keywords`, `restate`, `overlap`): the same measures of redundancy and
connection, so that the two methods' reference rows differ by method and not by measure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from baselines.tasks.amem import (
    AnalyseInput,
    AnalyseOutput,
    EvolveInput,
    EvolveOutput,
    KeywordsInput,
    KeywordsOutput,
    LinkOutput,
)
from memfly.llm.extractive import lexicon
from memfly.llm.extractive.analysis import analyse as analyse_sentence
from memfly.llm.extractive.analysis import singular, split_sentences
from memfly.llm.extractive.base import Function, Tools
from memfly.llm.extractive.keywords import is_small_talk, question_keywords, turn_keywords
from memfly.llm.extractive.overlap import profile, scores
from memfly.llm.extractive.restate import restate
from memfly.text import STOPWORDS, words

CONNECTED = 0.5
"""Connection (`overlap.scores`) from which two notes are linked."""
REDUNDANT = 0.7
MOST_TAGS = 8
_UNIT = re.compile(r"^(?P<speaker>[^:\n]{1,60}): (?P<text>.*?)(?: \[shares a photo of: (?P<caption>.*)\])?$", re.DOTALL)
_PLANS = frozenset("will gonna plan plans planning going tomorrow soon hope hoping".split())


@lru_cache(maxsize=20_000)
def parts(content: str) -> tuple[str, str, str]:
    """(speaker, text, caption) of a rendered turn."""
    match = _UNIT.match(content)
    return (match["speaker"], match["text"], match["caption"] or "") if match else ("", content, "")


def keywords(content: str) -> list[str]:
    """The turn's keyword phrases; content words when it has none, as A-MEM asks for three at least."""
    speaker, text, caption = parts(content)
    found = list(turn_keywords(speaker, text, caption))
    own = set(words(speaker))
    for word in words(f"{text} {caption}"):
        if len(found) >= 3:
            break
        if len(word) > 3 and word not in STOPWORDS and word not in own and not any(word in k.casefold() for k in found):
            found.append(word[:120])
    return found


def tags(content: str) -> list[str]:
    """What kind of utterance it is, then the head nouns of its keywords."""
    speaker, text, caption = parts(content)
    sentences = [analyse_sentence(s) for s in split_sentences(text)]
    lows = {token.low for sentence in sentences for token in sentence.tokens}
    kinds = {
        "small talk": not caption and all(is_small_talk(s.text) for s in sentences),
        "question": any(s.question for s in sentences),
        "plan": bool(lows & _PLANS),
        "experience": bool(lows & lexicon.PAST_FORMS),
        "image": bool(caption),
        "family and friends": bool(lows & lexicon.KIN),
    }
    heads = [
        singular(keyword.split()[-1].casefold()) for keyword in turn_keywords(speaker, text, caption) if keyword.split()
    ]
    return list(dict.fromkeys([kind for kind, holds in kinds.items() if holds] + heads))[:MOST_TAGS]


async def analyse(value: AnalyseInput, tools: Tools) -> AnalyseOutput:
    """The context is the restated sentence that says most."""
    speaker, text, caption = parts(value.content)
    sentences = split_sentences(restate(speaker, text, caption or None)) or (value.content,)
    context = max(sentences, key=lambda sentence: len(analyse_sentence(sentence).roots))
    return AnalyseOutput(keywords=keywords(value.content), context=context[:2000], tags=tags(value.content))


async def _connections(value: EvolveInput, tools: Tools) -> list[int]:
    """Entries of `neighbours` that belong with the new note."""
    contents = [value.content, *(note.content for note in value.neighbours)]
    vectors = await tools.embedder.embed(contents)
    cosines = np.asarray(vectors[1:] @ vectors[0], dtype=np.float64).tolist()
    own = {keyword.casefold() for keyword in value.keywords}
    new, found = profile(value.content), []
    for entry, (note, cosine) in enumerate(zip(value.neighbours, cosines, strict=True)):
        shared = len(own & {keyword.casefold() for keyword in note.keywords})
        redundant, connected = scores(new, profile(note.content), shared, round(float(cosine), 5))
        if connected > CONNECTED or redundant > REDUNDANT:
            found.append(entry)
    return found


def _shared_tags(value: EvolveInput, connected: list[int]) -> list[str]:
    """The new note's tags, then those that two or more of the connected notes have in common."""
    counted: dict[str, int] = {}
    for entry in connected:
        for tag in dict.fromkeys(value.neighbours[entry].tags):
            counted[tag] = counted.get(tag, 0) + 1
    common = [tag for tag, count in counted.items() if count > 1]
    return list(dict.fromkeys([*tags(value.content), *common]))[:MOST_TAGS]


async def link(value: EvolveInput, tools: Tools) -> LinkOutput:
    connected = await _connections(value, tools)
    if not connected:
        return LinkOutput(should_evolve=False, actions=[], suggested_connections=[], tags_to_update=[])
    positions = [value.neighbours[entry].position for entry in connected]
    return LinkOutput(
        should_evolve=True,
        actions=["strengthen"],
        suggested_connections=positions,
        tags_to_update=_shared_tags(value, connected),
    )


async def evolve(value: EvolveInput, tools: Tools) -> EvolveOutput:
    """As `link`; a connected neighbour also gets the new note's foremost keyword as a tag. Contexts are left alone."""
    found = await link(value, tools)
    connected = set(found.suggested_connections)
    topic = value.keywords[0].casefold() if value.keywords else ""
    new_tags = []
    for note in value.neighbours:
        added = [topic] if topic and note.position in connected and topic not in note.tags else []
        new_tags.append([*note.tags[: MOST_TAGS - len(added)], *added])
    update = found.should_evolve
    return EvolveOutput(
        should_evolve=update,
        actions=["strengthen", "update_neighbor"] if update else [],
        suggested_connections=found.suggested_connections,
        tags_to_update=found.tags_to_update,
        new_context_neighborhood=[note.context for note in value.neighbours] if update else [],
        new_tags_neighborhood=new_tags if update else [],
    )


async def query(value: KeywordsInput, tools: Tools) -> KeywordsOutput:
    return KeywordsOutput(keywords=", ".join(question_keywords(value.question))[:500])


FUNCTIONS: Mapping[str, Function] = {
    "amem_analyse": analyse,
    "amem_evolve": evolve,
    "amem_link": link,
    "amem_keywords": query,
}
