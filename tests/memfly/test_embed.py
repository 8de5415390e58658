"""Embeddings do not depend on company or concurrency; the cache returns what was stored; a failure reaches everybody."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memfly.embed import Embedder, Hashing, MiniLM, Vectors
from memfly.errors import ConfigError


class Counting(Hashing):
    """The hashing encoder, keeping every batch; fails while `broken`."""

    def __init__(self, dim: int = 32) -> None:
        super().__init__(dim)
        self.batches: list[list[str]] = []
        self.broken: Exception | None = None

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.batches.append(list(texts))
        if self.broken is not None:
            raise self.broken
        return super().encode(texts)

    @property
    def seen(self) -> list[str]:
        return sorted(text for batch in self.batches for text in batch)


async def test_shape_order_and_repeats() -> None:
    embedder = Embedder(Counting())
    assert (await embedder.embed([])).shape == (0, 32)
    out = await embedder.embed(["red cat", "blue bowl", "red cat"])
    assert out.shape == (3, 32)
    assert out.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(out, axis=1), 1, atol=1e-6)
    assert out[0].tobytes() == out[2].tobytes() != out[1].tobytes()
    assert (await embedder.embed([""])).any() == np.False_


async def test_requests_in_flight_share_one_batch_and_each_text_is_encoded_once() -> None:
    encoder = Counting()
    embedder = Embedder(encoder, workers=1)
    texts = [f"text {i % 7}" for i in range(20)]
    results = await asyncio.gather(*(embedder.embed([text, "common"]) for text in texts))
    assert encoder.seen == sorted({*texts, "common"})
    assert len(encoder.batches) == 1
    for text, (own, common) in zip(texts, results, strict=True):
        assert own.tobytes() == encoder.encode([text])[0].tobytes()
        assert common.tobytes() == results[0][1].tobytes()


async def test_batches_are_bounded() -> None:
    encoder = Counting()
    embedder = Embedder(encoder, max_batch=16, workers=1)
    await asyncio.gather(*(embedder.embed([f"text {i}"]) for i in range(50)))
    assert max(map(len, encoder.batches)) <= 16
    assert len(encoder.seen) == 50


async def test_the_disk_cache_serves_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "vectors.sqlite"
    texts = [f"text {i}" for i in range(1200)] + ["half \ud83d pair", ""]
    first, second, other = Counting(), Counting(), Counting(64)
    embedder = Embedder(first, path)
    out = await embedder.embed(texts)
    embedder.close()
    embedder = Embedder(second, path)
    assert (await embedder.embed(texts)).tobytes() == out.tobytes()
    assert second.batches == []
    embedder.close()
    embedder = Embedder(other, path)  # another encoder in the same file
    assert (await embedder.embed(texts[:3])).shape == (3, 64)
    assert len(other.seen) == 3
    embedder.close()


async def test_an_error_reaches_every_waiter_and_later_calls_work(caplog: pytest.LogCaptureFixture) -> None:
    encoder = Counting()
    embedder = Embedder(encoder, workers=1)
    encoder.broken = ConfigError("no model")
    results = await asyncio.gather(*(embedder.embed([f"t{i}", "x"]) for i in range(5)), return_exceptions=True)
    assert [type(r) for r in results] == [ConfigError] * 5
    encoder.broken = None
    assert (await embedder.embed(["t0", "x"])).shape == (2, 32)
    del results
    await asyncio.sleep(0)
    assert not caplog.records, "nothing is left for the event loop to complain about"


class Slow(Counting):
    """Waits in its thread until let go."""

    def __init__(self) -> None:
        super().__init__()
        import threading

        self.go = threading.Event()

    def encode(self, texts: Sequence[str]) -> Vectors:
        assert self.go.wait(10)
        return super().encode(texts)


async def test_a_cancelled_caller_takes_nothing_from_the_others() -> None:
    encoder = Slow()
    embedder = Embedder(encoder, workers=1)
    leaves = asyncio.create_task(embedder.embed(["shared", "mine"]))
    stays = asyncio.create_task(embedder.embed(["shared"]))
    for _ in range(5):
        await asyncio.sleep(0)
    leaves.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaves
    joins = asyncio.create_task(embedder.embed(["shared", "mine"]))
    await asyncio.sleep(0)
    encoder.go.set()
    assert (await stays).shape == (1, 32)
    assert (await joins).shape == (2, 32)
    assert encoder.seen == ["mine", "shared"]


async def test_a_cache_that_cannot_be_written_reaches_the_waiters_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = Embedder(Counting(), tmp_path / "v.sqlite")
    real, store = embedder._store._db, embedder._store  # type: ignore[union-attr]

    class Full:
        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            return

        def execute(self, *arguments: Any) -> Any:
            return real.execute(*arguments)

        def executemany(self, *_: Any) -> None:
            raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(store, "_db", Full())
    results = await asyncio.wait_for(
        asyncio.gather(embedder.embed(["a"]), embedder.embed(["a", "b"]), return_exceptions=True), 10
    )
    assert [str(r) for r in results] == [str(results[0])] * 2
    assert isinstance(results[0], ConfigError)
    assert "disk is full" in str(results[0])
    monkeypatch.setattr(store, "_db", real)
    assert (await embedder.embed(["a", "b"])).shape == (2, 32)
    embedder.close()


def test_a_file_that_is_no_cache_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "v.sqlite"
    path.write_text("this is not a database, only a text that is long enough to be taken for one" * 20)
    with pytest.raises(ConfigError, match=r"cache\.dir: embedding cache .* cannot be used \(file is not a database\)"):
        Embedder(Counting(), path)


def test_hashing_is_a_function_of_the_words() -> None:
    encoder = Hashing(64)
    a, b, c = encoder.encode(["Red  cats!", "red cats", "blue bowl"])
    assert a.tobytes() == b.tobytes()
    assert float(a @ c) < 0.5 < float(a @ encoder.encode(["red cat"])[0])
    assert encoder.identity != Hashing(32).identity


def test_a_folder_of_one_s_own_goes_by_its_content(tmp_path: Path) -> None:
    for name, weights in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_text(weights)
    a, b, c = (MiniLM(str(tmp_path / name)).identity for name in "abc")
    assert a == b != c
    assert MiniLM().identity["path"] is None


def test_a_missing_model_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"embedder\.path: no folder"):
        MiniLM(str(tmp_path / "none")).encode(["x"])


async def test_a_text_has_the_same_minilm_vector_alone_and_in_any_company(tmp_path: Path) -> None:
    encoder = MiniLM()
    short = ["Miso is a grey cat.", "Hi!", "", "a blue bowl for Rosa", "Ben rode 40 kilometres on Rosa's road bike."]
    long = ["word " * n for n in (3, 20, 41, 300)]
    alone = {text: encoder.encode([text])[0] for text in [*short, *long]}
    assert {vector.shape for vector in alone.values()} == {(384,)}
    for company in (
        [*long, *short],
        [*short[::-1], *(f"filler {i}" for i in range(13)), *long],
        [*short * 5, *long * 2],
    ):
        for text, vector in zip(company, encoder.encode(company), strict=True):
            if text in alone:
                assert vector.tobytes() == alone[text].tobytes(), text
    embedder = Embedder(encoder, max_batch=5, workers=3)
    together = await asyncio.gather(*(embedder.embed([text, f"and {i}"]) for i, text in enumerate(alone)))
    for text, rows in zip(alone, together, strict=True):
        assert rows[0].tobytes() == alone[text].tobytes(), text
    assert float(alone[short[0]] @ encoder.encode(["Miso the cat is grey"])[0]) > 0.8


def test_a_text_of_one_window_has_the_vector_it_had_before_there_were_windows() -> None:
    """The model's own pipeline on the same padded shape, bit for bit, up to 256 word pieces."""
    import torch

    encoder = MiniLM()
    texts = ["Miso is a grey cat.", "", "word " * 254]
    model = encoder._load()
    for text, vector in zip(texts, encoder.encode(texts), strict=True):
        ids = model.tokenizer([text], truncation=True, max_length=256)["input_ids"][0]
        assert len(ids) <= 256
        tokens = torch.zeros((4, -(-len(ids) // 8) * 8), dtype=torch.long)
        mask = torch.zeros_like(tokens)
        mask[:, 0] = 1
        tokens[0, : len(ids)], mask[0, : len(ids)] = torch.tensor(ids), 1
        with torch.inference_mode():
            direct = model({"input_ids": tokens, "attention_mask": mask})["sentence_embedding"][0].numpy()
        assert vector.tobytes() == direct.tobytes()


def test_the_end_of_a_long_text_is_read() -> None:
    """508 pieces are two windows of 254, and the text is their unit mean; a tail weighs what it holds."""
    encoder = MiniLM()
    cats, boats = " ".join(["cat"] * 254), " ".join(["boat"] * 254)
    cat, boat, both = encoder.encode([cats, boats, f"{cats} {boats}"])
    mean = cat + boat
    np.testing.assert_allclose(both, mean / np.linalg.norm(mean), atol=1e-6)
    with_a_word = encoder.encode([f"{cats} boat"])[0]
    assert float(with_a_word @ cat) > 0.999 > float(with_a_word @ encoder.encode(["boat"])[0])
    np.testing.assert_allclose(np.linalg.norm([both, with_a_word], axis=1), 1, atol=1e-6)


async def test_stored_vectors_of_short_texts_stay_good_and_those_of_long_ones_do_not(tmp_path: Path) -> None:
    """The cache file of before there were windows: its key was the identity without them, for every text."""
    path, short, long = tmp_path / "v.sqlite", "a grey cat " * 30, "a grey cat " * 90

    class Before(Counting):
        @property
        def identity(self) -> dict[str, Any]:
            return {k: v for k, v in MiniLM().identity.items() if k != "windows"}

    before = Embedder(Before(384), path)
    kept = await before.embed([short, long])
    before.close()
    now = Embedder(MiniLM(), path)
    found = await now.embed([short, long])
    assert found[0].tobytes() == kept[0].tobytes()
    assert found[1].tobytes() == MiniLM().encode([long])[0].tobytes() != kept[1].tobytes()
    now.close()
    again = Embedder(MiniLM(), path)
    again.encoder.encode = None  # type: ignore[method-assign, assignment]
    assert (await again.embed([long]))[0].tobytes() == found[1].tobytes()
    again.close()
    assert MiniLM().identity["windows"] == "mean"


def test_a_model_folder_without_a_tokenizer_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"embedder\.path: .*tokenizer\.json cannot be read"):
        MiniLM(str(tmp_path)).encode(["x"])
