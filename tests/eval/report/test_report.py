from __future__ import annotations

import csv
import io
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.report import FORMATS, Cell, Column, Row, Table
from eval.report import latex as tex
from eval.report import markdown as md
from eval.report.figure import draw
from eval.report.model import lines
from tests.support import latex

NASTY = r'<b>&amp; 50% of $x_1^2$ {#1} ~ \emph|* `c` [a](b) "q" <script>'
COLUMNS = (
    Column("average.f1", "F1", "Average"),
    Column("average.bleu1", "BLEU-1", "Average"),
    Column("n", "n_all", "", scale=1, digits=0, ranked=False),
)
ROWS = (
    Row("Ours", "ran", {"average.f1": Cell(0.5, 0.01, mark="best"), "average.bleu1": Cell(0.4, mark="second", tied=True),
                        "n": Cell(100.0)}, "GPT-4o", "run-1"),
    Row("Quoted", "ran", {"average.f1": Cell(0.45, 0.02, n_error=2, without_errors=0.46, published=0.48, source="paper")},
        "GPT-4o", "run-2", "reported"),
    Row("Only theirs", "reported", {"average.f1": Cell(0.6, source="paper", provenance="printed")}, "GPT-4o"),
    Row("coin", "control", {"average.f1": Cell(0.51)}, "controls"),
)  # fmt: skip
TABLE = Table("main", "A table", COLUMNS, ROWS, ("A note",), facts={"protocol": "amem"})


def _labels(text: str) -> Table:
    rows = tuple(Row(text, row.kind, row.cells, text, text, text) for row in ROWS)
    columns = tuple(Column(c.key, text, text, c.scale, c.digits) for c in COLUMNS)
    return Table("main", text, columns, rows, (text,), facts={"protocol": text})


class _Page(HTMLParser):
    """Counts the cells of each table row and keeps the text; tags that are not closed in order fail."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[int] = []
        self.text: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag != "meta":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append(0)
        if tag in ("td", "th"):
            self.rows[-1] += int(dict(attrs).get("colspan") or 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_a_row_takes_the_lines_it_needs() -> None:
    kinds = [[line.kind for line in lines(row, TABLE)] for row in ROWS]
    assert kinds == [["ran"], ["ran", "without_errors", "published", "gap"], ["reported"], ["control"]]
    _, without, published, gap = lines(ROWS[1], TABLE)
    assert [line.texts[0].number for line in (without, published, gap)] == ["46.00", "48.00", "-3.00"]
    assert published.label == "reported †"
    assert lines(ROWS[2], TABLE)[0].label == "Only theirs †", "a number from a paper is always marked"


def test_markdown() -> None:
    text = md.render([TABLE])
    assert "| Ours | **50.00** ±1.00 | <u>40.00</u> ≈ | 100 |" in text
    assert "| *Only theirs †* | *60.00* | - | - |" in text
    assert "| ↳ gap | -3.00 |  |  |" in text
    widths = {line.replace(r"\|", "").count("|") for line in text.splitlines() if line.startswith("|")}
    assert widths == {5}


def test_latex_marks_best_and_second() -> None:
    text = tex.render([TABLE])
    assert r"\textbf{50.00}{\tiny$\pm$1.00} & \underline{40.00}$^{\approx}$ & 100 \\" in text
    assert latex.check(text) == 11
    for command in (r"\toprule", r"\midrule", r"\bottomrule", r"\cmidrule(lr){2-3}"):
        assert command in text


def test_html() -> None:
    page = _Page()
    page.feed(FORMATS["html"]([TABLE, TABLE]))
    assert page.open == []
    assert set(page.rows) == {4}
    assert {"b", "u"} <= page.tags


def test_csv_is_tidy_and_unrounded() -> None:
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"]([TABLE]))))
    quoted = next(r for r in rows if r["row"] == "Quoted")
    assert (quoted["kind"], float(quoted["value"]), float(quoted["published"])) == ("ran", 45.0, 48.0)
    assert float(quoted["gap"]) == pytest.approx(-3.0)
    assert next(r for r in rows if r["row"] == "Only theirs")["kind"] == "reported"
    assert {r["protocol"] for r in rows} == {"amem"}


@pytest.mark.parametrize("text", [NASTY, "\\", "[x]", "a & b \\\\ c", "†≈±τ×–"])
def test_nothing_in_a_label_is_read_as_markup(text: str) -> None:
    table = _labels(text)
    assert latex.check(tex.render([table])) == 10
    page = _Page()
    page.feed(FORMATS["html"]([table]))
    assert "script" not in page.tags
    assert text in page.text
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"]([table]))))
    assert {row["row"] for row in rows} == {text}


@given(st.text(max_size=40))
def test_any_text_stays_inside_its_cell(text: str) -> None:
    assert latex.check(tex.render([_labels("x" + text.replace("\x00", ""))])) == 10
    escaped = md.escape(text)
    assert "\n" not in escaped
    assert "|" not in escaped.replace(r"\\", "").replace(r"\|", "")


def test_the_latex_check_can_fail() -> None:
    good = tex.render([TABLE])
    for bad in (
        good.replace(" & 100", "", 1),
        good.replace(r"\end{tabular}", ""),
        good.replace("A note", "50% off_"),
        good.replace("A note", "{"),
        good.replace("A note", "a $ b"),
    ):
        with pytest.raises(AssertionError):
            latex.check(bad)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(tmp_path: Path) -> None:
    body = tex.render([TABLE, _labels(NASTY)])
    source = (
        r"\documentclass{article}\usepackage{booktabs}\usepackage{graphicx}\begin{document}" + body + r"\end{document}"
    )
    (tmp_path / "t.tex").write_text(source)
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize("grid", [True, False])
def test_figure(tmp_path: Path, grid: bool) -> None:
    if grid:
        columns = (Column("0.3", "0.3", "tau_l"), Column("0.5", "0.5", "tau_l"))
        rows = tuple(
            Row(f"tau_m = {m}", "ran", {"0.3": Cell(m / 2, mark="best"), "0.5": Cell(None)}) for m in (0.5, 0.7)
        )
    else:
        columns = (Column("average.f1", "F1", "Average"),)
        rows = tuple(Row(f"k = {k}", "ran", {"average.f1": Cell(k / 100, high=k / 90)}) for k in (10, 20))
    written = draw(Table("sensitivity", "t", columns, rows), tmp_path / "new" / "fig.png", grid=grid)
    assert [path.name for path in written] == ["fig.png", "fig.pdf"]
    assert written[0].read_bytes().startswith(b"\x89PNG")
    assert written[1].read_bytes().startswith(b"%PDF")
