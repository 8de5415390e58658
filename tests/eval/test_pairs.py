from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval.pairs import score_pairs
from eval.scoring import protocol
from memfly.errors import DataError


def _score(tmp_path: Path, *lines: Any, name: str = "amem", mode: str = "fixed") -> list[dict[str, Any]]:
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return list(score_pairs(path, protocol(name, mode)))


def _pair(prediction: Any = "7 May", reference: Any = "7 May 2023", category: Any = 2, **more: Any) -> dict[str, Any]:
    return {"prediction": prediction, "reference": reference, "category": category, **more}


def test_lines_keep_their_keys_and_order_and_get_scores(tmp_path: Path) -> None:
    first, second = _score(tmp_path, _pair(id="a", extra=[1]), "", _pair("7 May 2023", category=4))
    assert list(first) == ["prediction", "reference", "category", "id", "extra", "scores"]
    assert first["scores"]["f1"] == pytest.approx(0.8)
    assert second["scores"]["exact_match"] == 1.0


def test_a_category_5_reference_is_the_trap(tmp_path: Path) -> None:
    (amem,) = _score(tmp_path, _pair("red wool", "red wool", 5))
    (locomo,) = _score(tmp_path, _pair("Not mentioned", "red wool", 5), name="locomo", mode="as_is")
    assert (amem["scores"]["f1"], amem["scores"]["fooled"]) == (1.0, 1.0)
    assert (locomo["scores"]["f1"], locomo["scores"]["fooled"]) == (1.0, 0.0)


def test_where_the_original_crashes_there_is_an_error_and_no_score(tmp_path: Path) -> None:
    (row,) = _score(tmp_path, _pair(prediction=None), name="locomo", mode="as_is")
    assert (row["scores"], row["error"]) == (None, "AttributeError")
    (fixed,) = _score(tmp_path, _pair(prediction=None), name="locomo")
    assert fixed["scores"]["f1"] == 0.0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "found a list"),
        ("null", "found null"),
        ({"prediction": "x", "category": 1}, "no 'reference'"),
        (_pair(category="2"), "from 1 to 5"),
        (_pair(category=6), "from 1 to 5"),
        (_pair(category=True), "from 1 to 5"),
        (_pair(category=2.5), "from 1 to 5"),
        (_pair(prediction=["x"]), "prediction must be"),
        (_pair(reference={"a": 1}), "reference must be"),
        (_pair(reference=False), "found true or false"),
    ],
)
def test_bad_input_is_one_line_with_file_and_line_number(tmp_path: Path, line: Any, said: str) -> None:
    with pytest.raises(DataError, match=r"pairs\.jsonl:3: ") as caught:
        _score(tmp_path, _pair(), _pair(), line)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_file_and_no_lines_and_no_utf8(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        list(score_pairs(tmp_path / "none", protocol("amem")))
    with pytest.raises(DataError, match="no lines"):
        _score(tmp_path, "", " ")
    (tmp_path / "latin").write_bytes(b'{"prediction": "caf\xe9"}')
    with pytest.raises(DataError, match="latin:1: not JSON"):
        list(score_pairs(tmp_path / "latin", protocol("amem")))


def test_every_golden_line_gets_the_original_scores(golden_rows: list[dict[str, Any]], tmp_path: Path) -> None:
    for row, official in zip(golden_rows, _score(tmp_path, *golden_rows, name="locomo", mode="as_is"), strict=True):
        assert official["scores"]["f1"] == pytest.approx(row["locomo_official"], abs=1e-9)
