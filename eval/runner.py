"""Runs one configuration: builds (or reuses) each conversation's memory, answers its questions, keeps everything.

Conversations and questions run side by side; records do not depend on their order. Everything final is on disk before the
next thing starts, so a run killed at any moment continues where it was. A finished run returns at once, without a call.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.answer import answer, answers_the_same, prompt, render
from eval.audit import read_audit
from eval.config import RunConfig, build_system, check_locomo_hash, method_options, system_class
from eval.folder import check_writable, finished_summary, locked
from eval.identity import made_by, manifest, memory_fingerprint, run_folder_name, run_identity, system_identity
from eval.locomo import Dataset, load
from eval.loggers import Logger, NoLogger, log_finished, logger_for
from eval.memories import BuildInfo, MemoryStore, built
from eval.progress import Progress, Silent
from eval.records import (
    AnswerRecord,
    EventWriter,
    ItemError,
    final_records,
    item_error,
    write_answers,
    write_atomic,
)
from eval.spending import Meter, bill, paid, wall_s
from eval.summary import write_results
from memfly.embed import Embedder, Encoder, Hashing, MiniLM
from memfly.errors import BackendError, BudgetExceeded, ConfigError, DataError, MemflyError, ParseError
from memfly.llm.client import LLM
from memfly.llm.config import llm_config
from memfly.llm.extractive.base import Function
from memfly.llm.ledger import Tally, scope
from memfly.llm.prices import price_of
from memfly.llm.stack import build_llm
from memfly.system import MemorySystem, Services
from memfly.together import cancel, together
from memfly.types import Conversation, Evidence, Question, Turn

FINAL_FAILURES = (ParseError, BackendError)
"""Errors that become an item's final state; all others end the run, with everything finished kept."""


@dataclass(frozen=True)
class RunResult:
    folder: Path
    summary: dict[str, Any]
    reused: bool = False
    """The run had been finished before: nothing was done."""


def execute(config: RunConfig, progress: Progress | None = None) -> RunResult:
    """Run to the end. Raises ConfigError or DataError before any call, BudgetExceeded when a hard limit stops it."""
    return asyncio.run(Runner(config, progress or Silent()).run())


class Runner:
    def __init__(self, config: RunConfig, progress: Progress) -> None:
        self.config, self.progress = config, progress
        self.root = Path(config.run_root)
        data = config.data
        dataset = load(data.file(), name=data.name, captions=data.captions, sha256=check_locomo_hash(data))
        self.dataset: Dataset = dataset.select(data.conversations, data.limit_questions)
        if not self.dataset.questions:
            raise DataError(f"data.path: {data.file()} has no questions in the conversations chosen")
        if data.audit is not None:
            read_audit(
                Path(data.audit).expanduser()
            )  # used by tables only, but a wrong path should show before the run
        self.cls = system_class(str(config.method.get("_target_", "")))
        self.options = method_options(self.cls, config.method)
        cache = Path(config.cache.dir)
        check_writable(self.root, "run_root")
        check_writable(cache, "cache.dir")
        self._events: EventWriter | None = None
        self._made_by: list[dict[str, Any]] = []
        self.embedder = Embedder(_encoder(config), cache / "embeddings.sqlite")
        try:
            self.llm: LLM = self._backbone(cache)
            self._system(self.dataset.conversations[0])  # wrong options show before there is a run folder
        except BaseException:
            self.embedder.close()
            raise
        self.backends = {"llm": dict(self.llm.identity), "embedder": dict(self.embedder.identity)}
        self.build_identity = system_identity(self.cls, self.options, build_only=True)
        system = system_identity(self.cls, self.options, build_only=False)
        self.identity = run_identity(config, system, self.backends, self.dataset)
        self.folder = self.root / run_folder_name(config, self.identity)
        self.store = MemoryStore(self.root / "memory")
        self._questions = asyncio.Semaphore(config.concurrency)
        self._conversations = asyncio.Semaphore(config.concurrency)

    def _backbone(self, cache: Path) -> LLM:
        chosen = llm_config(self.config.llm)
        extra: Mapping[str, Function] = {}
        if chosen.kind == "extractive":
            from baselines.extractive import FUNCTIONS

            extra = FUNCTIONS
        return build_llm(chosen, embedder=self.embedder, cache_dir=cache, seed=self.config.seed, extra_functions=extra)

    def fingerprint(self, conversation: Conversation) -> str:
        return memory_fingerprint(self.build_identity, self.backends, conversation, self.config.seed)

    def memories(self) -> list[BuildInfo]:
        """What is stored of this run's memories, in conversation order."""
        found = (self.store.info(self.fingerprint(c)) for c in self.dataset.conversations)
        return [info for info in found if info is not None]

    # -- the whole run -------------------------------------------------------------------------------------------

    async def run(self) -> RunResult:
        finished = self._finished()
        if finished is not None:
            self.llm.spent_before(
                self.folder.name, paid(self.folder / "events.jsonl")
            )  # a sweep's limit is over all jobs
            await self.aclose()
            log_finished(self.config.logger, self.config, self.folder, finished.summary)
            return finished
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder):
            return await self._run_locked()

    async def aclose(self) -> None:
        """Let go of the backbone (and of a server started for it) and of the embedding cache."""
        await self.llm.aclose()
        self.embedder.close()

    async def _run_locked(self) -> RunResult:
        started = time.monotonic()
        self._events = EventWriter(self.folder / "events.jsonl")
        self._made_by = made_by(self.folder / "manifest.json")
        self.llm.spent_before(self.folder.name, paid(self._events.path))
        done = final_records(self._events.path, keep_errors=False)
        self._write_manifest()
        self.progress.start("turns", self.dataset.n_turns)
        self.progress.start("questions", len(self.dataset.questions), len(done))
        logger: Logger = NoLogger()
        status = "failed"
        try:
            logger = logger_for(self.config.logger, self.config, self.folder)
            await together(self._conversation(c, done) for c in self.dataset.conversations)
            status = "finished"
        except BudgetExceeded:
            status = "stopped"
            raise
        finally:
            self._events.write("process_end", {"status": status, "wall_s": round(time.monotonic() - started, 3)})
            self._events.close()
            summary = self._write_results(status)
            self._write_manifest()
            logger.finish(summary, 0 if status == "finished" else 1)
            await self.aclose()
        return RunResult(self.folder, summary)

    def _finished(self) -> RunResult | None:
        """The stored result, if the run is complete and has no errors that another try could mend."""
        summary = finished_summary(self.folder)
        if summary is None:
            return None
        scoring = self.config.scoring
        if (summary["protocol"], summary["mode"]) != (scoring.protocol, scoring.mode):
            summary = self._write_results("finished")
        return RunResult(self.folder, summary, reused=True)

    # -- one conversation ----------------------------------------------------------------------------------------

    async def _conversation(self, conversation: Conversation, done: dict[str, AnswerRecord]) -> None:
        async with self._conversations:
            questions = [q for q in self.dataset.questions if q.conversation == conversation.id]
            left = [q for q in questions if q.id not in done]
            fingerprint = self.fingerprint(conversation)
            if not left and self.store.info(fingerprint) is not None:
                self.progress.advance("turns", len(conversation.turns))
                return
            system = self._system(conversation)
            try:
                with _told_where(self.cls, conversation.id):
                    await self._memory(system, conversation, fingerprint)
            except FINAL_FAILURES as error:
                for question in left:
                    self._keep(self._failed(question, item_error("build", error), {}))
                return
            await together(self._question(system, question) for question in left)

    def _system(self, conversation: Conversation) -> MemorySystem:
        def log(kind: str, /, **fields: Any) -> None:
            assert self._events is not None
            self._events.write(kind, {**fields, "conversation": conversation.id})

        services = Services(
            llm=self.llm,
            embedder=self.embedder,
            conversation=conversation.id,
            speakers=conversation.speakers,
            seed=self.config.seed,
            session_notes={s.number: s.notes for s in conversation.sessions},
            log=log,
        )
        return build_system(self.cls, self.options, services)

    async def _memory(self, system: MemorySystem, conversation: Conversation, fingerprint: str) -> None:
        """Load the memory if it was built before, else build and store it."""
        assert self._events is not None
        info = self.store.load(fingerprint, system)
        turns = conversation.turns
        if info is not None:
            self._events.write("memory_reused", {"conversation": conversation.id, "info": info.model_dump()})
            self.progress.advance("turns", len(turns))
        else:
            self._events.write("build_start", {"conversation": conversation.id, "fingerprint": fingerprint})
            started = time.monotonic()
            with scope(conversation.id, "build") as tally:
                meter = Meter(self._events, conversation.id)
                try:
                    await self._build(system, turns, lambda: meter.read(tally))
                finally:
                    meter.read(tally)
            info = BuildInfo(
                fingerprint=fingerprint,
                system=self.build_identity["class"],
                conversation=conversation.id,
                built_by=self.folder.name,
                calls=tally.logical(),
                stats=dict(system.stats()),
                build_s=round(time.monotonic() - started, 3),
            )
            info = self.store.save(system, info)
            self._events.write("build_end", {"conversation": conversation.id, "info": info.model_dump()}, durable=True)

    async def _build(self, system: MemorySystem, turns: Sequence[Turn], observed: Callable[[], None]) -> None:
        """Turns in order; work that does not depend on the memory runs up to `concurrency` turns ahead."""
        try:
            for position, turn in enumerate(turns):
                for ahead in turns[position : position + self.config.concurrency]:
                    system.prefetch(ahead)
                await system.observe(turn)
                observed()
                self.progress.advance("turns")
            await system.finish()
        finally:
            await cancel(list(system.started()))

    # -- one question --------------------------------------------------------------------------------------------

    async def _question(self, system: MemorySystem, question: Question) -> None:
        assert self._events is not None
        async with self._questions:
            with scope(question.conversation, question.id) as tally:
                try:
                    with _told_where(self.cls, question.id):
                        record, shown = await self._answer(system, question, tally)
                finally:
                    Meter(self._events, question.conversation).read(tally)
            self._keep(record, shown)

    async def _answer(
        self, system: MemorySystem, question: Question, tally: Tally
    ) -> tuple[AnswerRecord, tuple[str, ...]]:
        gold, options = self.dataset.golds[question.id], self.config.answer
        try:
            evidence = await system.recall(question)
        except FINAL_FAILURES as error:
            return self._failed(question, item_error("recall", error), tally.logical()), ()
        if not isinstance(evidence, Evidence):
            kind = type(evidence).__name__
            raise ConfigError(f"method: {self.cls.__name__}.recall gave a {kind}, not a memfly.types.Evidence")
        prompted = prompt(question, gold, evidence, options, self.config.seed)
        native = options.native and evidence.answer is not None and answers_the_same(prompted, options)
        shown = dict.fromkeys(t for p in prompted.shown for t in p.turns)
        fields: dict[str, Any] = {
            "style": "native" if native else prompted.value.style,
            "options": list(prompted.value.options),
            "shown_turns": list(shown),
            "ranked_turns": [turn for turn in evidence.ranked_turns if turn in shown],  # a budget may have cut some
            "traceable": evidence.traceable,
            "passages": len(prompted.shown),
            "evidence_tokens": prompted.evidence_tokens,
            "trace": evidence.trace,
        }
        lines = tuple(render(passage) for passage in prompted.shown)
        try:
            text = evidence.answer if native else await answer(self.llm, prompted, options)
        except FINAL_FAILURES as error:
            record = self._failed(question, item_error("answer", error), tally.logical())
            return record.model_copy(update=fields), lines
        base = self._base(question)
        return (
            AnswerRecord(**base, **fields, state="answered", prediction=text, native=native, calls=tally.logical()),
            lines,
        )

    def _base(self, question: Question) -> dict[str, Any]:
        gold = self.dataset.golds[question.id]
        return {
            "id": question.id,
            "conversation": question.conversation,
            "category": int(gold.category),
            "question": question.text,
            "answer": gold.answer,
            "trap": gold.trap,
            "gold_evidence": list(gold.evidence),
        }

    def _failed(self, question: Question, error: ItemError, calls: dict[str, dict[str, int]]) -> AnswerRecord:
        return AnswerRecord(**self._base(question), state="error", error=error, calls=calls)

    def _keep(self, record: AnswerRecord, shown: tuple[str, ...] = ()) -> None:
        """The final record goes to disk before anything else happens with the question."""
        assert self._events is not None
        self._events.write("answer", {"record": record.model_dump(mode="json"), "evidence": list(shown)}, durable=True)
        self.progress.advance("questions")

    # -- results -------------------------------------------------------------------------------------------------

    def _write_manifest(self) -> None:
        extra = {
            **self._probed(),
            "run": self.folder.name,
            "made_by": self._made_by,
            "memories": {c.id: self.fingerprint(c) for c in self.dataset.conversations},
        }
        text = json.dumps(
            manifest(self.config, self.identity, self.dataset, extra), indent=1, ensure_ascii=False, default=str
        )
        write_atomic(self.folder / "manifest.json", text)

    def _probed(self) -> dict[str, Any]:
        """What the start-up probe found; what an earlier process found when this one needed no server."""
        if self.llm.startup is None:
            return {}
        if self.llm.startup.found:
            return {"probe": {}, **self.llm.startup.found}
        try:
            before = json.loads((self.folder / "manifest.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            before = {}
        return {"probe": before.get("probe", {})}

    def _write_results(self, status: str) -> dict[str, Any]:
        """answers.jsonl, scores.jsonl, summary.json and table.md from the event log alone, whatever state the run is in."""
        events = self.folder / "events.jsonl"
        kept = final_records(events, keep_errors=True)
        records = [kept[q.id] for q in self.dataset.questions if q.id in kept]
        write_answers(self.folder / "answers.jsonl", records)
        memories = built(events)
        infos = [memories[c.id] for c in self.dataset.conversations if c.id in memories]
        spent = paid(events)
        process = {"role_totals": spent.to_dict(), "paid": bill(spent, price_of(llm_config(self.config.llm)))}
        header, scoring = self._header(status), self.config.scoring
        return write_results(self.folder, header, records, infos, process, scoring, wall_s(events))

    def _header(self, status: str) -> dict[str, Any]:
        return {
            "run": self.folder.name,
            "status": status,
            "method": self.config.method_name,
            "backbone": self.config.llm_name,
            "model": self.backends["llm"].get("model"),
            "embedder": self.config.embedder.kind,
            "data": {"name": self.dataset.name, "sha256": self.dataset.sha256, "captions": self.config.data.captions},
            "prompt_set": self.config.answer.prompt_set,
            "token_budget": self.config.answer.token_budget,
            "seed": self.config.seed,
            "n_questions": len(self.dataset.questions),
        }


@contextmanager
def _told_where(cls: type[MemorySystem], item: str) -> Iterator[None]:
    """A bug in a method keeps its traceback, which then ends with what it was working on."""
    try:
        yield
    except MemflyError:
        raise
    except Exception as error:
        error.add_note(f"{cls.__module__}.{cls.__qualname__} was working on {item}")
        raise


def _encoder(config: RunConfig) -> Encoder:
    chosen = config.embedder
    return Hashing(chosen.dim) if chosen.kind == "hashing" else MiniLM(chosen.path)


__all__ = ["MemflyError", "RunResult", "Runner", "execute"]
