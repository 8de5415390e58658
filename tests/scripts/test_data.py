"""`memfly data`: fetching with the hash checked, what a file holds, tables for other tools."""

from __future__ import annotations

import errno
import hashlib
from pathlib import Path

import pandas as pd
import pytest

import scripts.data
from scripts.cli import main
from tests.support import talks


@pytest.fixture
def official(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small file that stands for the official one, its hash taken for LoCoMo's."""
    path = talks.write(tmp_path, name="official.json")
    monkeypatch.setattr(scripts.data, "LOCOMO10_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


def test_fetch_checks_the_hash_and_fetches_once(
    official: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "data" / "locomo10.json"
    assert main(["data", "fetch", "--url", official.as_uri(), "--to", str(to)]) == 0
    assert to.read_bytes() == official.read_bytes()
    assert "SHA-256 as expected" in capsys.readouterr().out
    assert main(["data", "fetch", "--url", "file:///no/such/file", "--to", str(to)]) == 0
    assert "already there" in capsys.readouterr().out


def test_fetch_writes_nothing_that_is_not_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other, to = talks.write(tmp_path), tmp_path / "x.json"
    assert main(["data", "fetch", "--url", other.as_uri(), "--to", str(to)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "expected 79fa87e90f04081343b8c8debecb80a9a6842b76a7aa537dc9fdf651ea698ff4; nothing was written" in err
    assert not to.exists()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x", "file:///no/such/file", "nonsense"])
def test_fetch_without_a_source_is_one_line(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", "--url", url, "--to", str(tmp_path / "x.json")]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"memfly: data fetch: cannot download {url} (")
    assert "put locomo10.json at" in err
    assert err.count("\n") == 1


def test_check_says_what_is_there_and_what_is_odd(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", str(talks.write(tmp_path))]) == 0
    out = capsys.readouterr().out
    assert "2 conversations, 5 sessions, 21 turns (2 with a caption)" in out
    assert "10 questions: 1 multi_hop 2, 2 temporal 2, 3 open_domain 1, 4 single_hop 3, 5 adversarial 2" in out
    assert "2 odd things:" in out
    assert "  ada-ben#5: evidence 'D3:02' read as D3:2" in out


def test_check_of_the_sample_and_of_a_bad_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check"]) == 0
    assert "126 questions" in capsys.readouterr().out
    (tmp_path / "bad.json").write_text("[")
    assert main(["data", "check", str(tmp_path / "bad.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_check_of_the_benchmark(locomo10_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", str(locomo10_file)]) == 0
    out = capsys.readouterr().out
    assert "(LoCoMo-10)" in out
    assert "10 conversations, 272 sessions, 5882 turns (1226 with a caption)" in out
    assert (
        "1986 questions: 1 multi_hop 282, 2 temporal 321, 3 open_domain 96, 4 single_hop 841, 5 adversarial 446" in out
    )


def test_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "q.parquet"
    assert main(["data", "export", str(talks.write(tmp_path)), "--to", str(to)]) == 0
    assert capsys.readouterr().out == f"{to}: 10 rows\n"
    assert len(pd.read_parquet(to)) == 10
    for suffix, read in ((".csv", pd.read_csv), (".jsonl", lambda path: pd.read_json(path, lines=True))):
        path = to.with_suffix(suffix)
        assert main(["data", "export", str(tmp_path / "talks.json"), "--to", str(path)]) == 0
        assert list(read(path)["id"]) == list(pd.read_parquet(to)["id"])
    capsys.readouterr()
    assert main(["data", "export", str(tmp_path), "--to", str(to)]) == 2
    assert "no answers.jsonl" in capsys.readouterr().err
    assert main(["data", "export", str(tmp_path / "talks.json"), "--to", str(tmp_path / "q.xls")]) == 2
    assert "ends in none of .parquet, .csv, .jsonl" in capsys.readouterr().err


def test_a_file_that_is_there_survives_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = tmp_path / "q.csv"
    to.write_text("old", encoding="utf-8")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert main(["data", "export", str(talks.write(tmp_path)), "--to", str(to)]) == 2
    assert to.read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []
