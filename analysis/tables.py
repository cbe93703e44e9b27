"""A small table for people: typed columns, marked cells and footnotes, in CSV, Markdown and LaTeX.

Computing is elsewhere; `analysis.comparison_tables` says which tables there are. A missing value
is shown as a dash, with its reason as the cell's detail, never as a number.
"""

import csv
import io
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import polars as pl

Value = float | int | str | bool | None
Kind = Literal["text", "number", "signed", "count", "money", "p_value"]
DASH = "–"
MINUS = "−"
NOISE = "~"
"""The mark of a gain that lies within the evaluation's noise."""
SMALL_P = 0.001
LONG = 12
"""Characters of a text, from which on a narrow column would make a heap of its words."""
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    DASH: "--",
    MINUS: "$-$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "²": r"\textsuperscript{2}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column.

    Attributes:
        key: Short, without spaces: a CSV header.
        header: What people read.
        unit: E.g. ``points``; empty: none.
        kind: How values are shown; ``signed`` has a plus, ``money`` a dollar.
        digits: After the point, of ``number``, ``signed`` and ``money``.
        is_published: It holds the study's own figures.
    """

    key: str
    header: str
    unit: str = ""
    kind: Kind = "text"
    digits: int = 1
    is_published: bool = False

    @property
    def is_number(self) -> bool:
        """Whether it is aligned to the right and sorted by number."""
        return self.kind != "text"

    @property
    def label(self) -> str:
        """Header and unit."""
        return f"{self.header} ({self.unit})" if self.unit else self.header


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One value.

    Attributes:
        is_best: The best of its column: bold.
        mark: E.g. `NOISE`.
        detail: Small words beside it, e.g. ``n=3``.
    """

    value: Value = None
    is_best: bool = False
    mark: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlCell:
    """A cell for a template, not escaped.

    Attributes:
        sort: What to sort by: a number or text; empty for a missing one.
        classes: Of ``best``, ``noise``, ``number``, ``missing``, ``published``, ``head``, and
            ``words`` for text that needs some room.
    """

    text: str
    sort: str
    detail: str
    classes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        name: A slug: file names and anchors.
        rows: Each with one cell a column.
        num_head_rows: Rows at the top that stay there when people sort, e.g. the base model's.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    footnotes: tuple[str, ...] = ()
    num_head_rows: int = field(default=0)

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.name}: {len(row)} cells for {len(self.columns)} columns"
                )

    def to_csv(self) -> str:
        """Full values under the columns' keys; marks and details in columns of their own.

        A column with any mark, best value or detail is followed by ``KEY_mark`` (``best``, the
        mark, or both) or ``KEY_detail``.
        """
        extras = [_extras(self.rows, place) for place in range(len(self.columns))]
        header = [
            name
            for column, extra in zip(self.columns, extras, strict=True)
            for name in (column.key, *(f"{column.key}_{part}" for part in extra))
        ]
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(header)
        for row in self.rows:
            line: list[Value] = []
            for cell, extra in zip(row, extras, strict=True):
                line.append("" if cell.value is None else cell.value)
                line += [_extra(cell, part) for part in extra]
            writer.writerow(line)
        return out.getvalue()

    def to_markdown(self) -> str:
        """A heading, a pipe table, and the footnotes as a list."""
        head = [_markdown(column.label) for column in self.columns]
        rule = ["---:" if column.is_number else "---" for column in self.columns]
        lines = [f"### {_markdown(self.title)}", "", _pipes(head), _pipes(rule)]
        lines += [
            _pipes([self._markdown_cell(*pair) for pair in self._pairs(r)]) for r in self.rows
        ]
        if self.footnotes:
            lines += ["", *(f"- {_markdown(note)}" for note in self.footnotes)]
        return "\n".join(lines) + "\n"

    def to_latex(self) -> str:
        """A float with booktabs rules; needs only the package booktabs."""
        shape = "".join("r" if column.is_number else "l" for column in self.columns)
        body = [
            " & ".join(self._latex_cell(*pair) for pair in self._pairs(row)) + r" \\"
            for row in self.rows
        ]
        if 0 < self.num_head_rows < len(body):
            body.insert(self.num_head_rows, r"\midrule")
        notes = [rf"\par\footnotesize {latex_escape(note)}" for note in self.footnotes]
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{latex_escape(self.title)}}}",
            rf"\label{{tab:{self.name}}}",
            rf"\begin{{tabular}}{{{shape}}}",
            r"\toprule",
            " & ".join(latex_escape(column.label) for column in self.columns) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            *notes,
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"

    def to_html_rows(self) -> list[list[HtmlCell]]:
        """The body for a template that escapes; head rows first."""
        return [
            [
                _html_cell(cell, column, is_head=place < self.num_head_rows)
                for column, cell in self._pairs(row)
            ]
            for place, row in enumerate(self.rows)
        ]

    def _pairs(self, row: Sequence[Cell]) -> list[tuple[Column, Cell]]:
        return list(zip(self.columns, row, strict=True))

    @staticmethod
    def _markdown_cell(column: Column, cell: Cell) -> str:
        text = _markdown(shown(cell.value, column))
        text = f"**{text}**" if cell.is_best else text
        text = f"{text} {_markdown(cell.mark)}" if cell.mark else text
        return f"{text} ({_markdown(cell.detail)})" if cell.detail else text

    @staticmethod
    def _latex_cell(column: Column, cell: Cell) -> str:
        text = latex_escape(shown(cell.value, column))
        text = rf"\textbf{{{text}}}" if cell.is_best else text
        text = f"{text} {latex_escape(cell.mark)}" if cell.mark else text
        return rf"{text} {{\scriptsize ({latex_escape(cell.detail)})}}" if cell.detail else text


def from_frame(
    frame: pl.DataFrame,
    columns: Sequence[Column],
    *,
    name: str,
    title: str,
    footnotes: Sequence[str] = (),
    best: Mapping[str, Literal["high", "low"]] | None = None,
    noise: str = "",
    spare: Collection[str] = (),
) -> Table:
    """A table of a frame's columns.

    Args:
        frame: Has a column for each key.
        columns: In order.
        name: See `Table`.
        title: See `Table`.
        footnotes: See `Table`.
        best: By key, which end is best.
        noise: A boolean column: rows in which signed columns are marked as within noise.
        spare: Columns that are left out where no row says anything there.
    """
    columns = [column for column in columns if column.key not in spare or _says(frame[column.key])]
    wanted = {key: _best(frame[key], end) for key, end in (best or {}).items()}
    rows = []
    for record in frame.iter_rows(named=True):
        is_noise = bool(noise and record[noise])
        rows.append(
            tuple(
                Cell(
                    value=_plain(record[column.key]),
                    is_best=column.key in wanted and record[column.key] == wanted[column.key]
                    and record[column.key] is not None,
                    mark=NOISE if is_noise and column.kind == "signed" else "",
                )
                for column in columns
            )
        )  # fmt: skip
    return Table(
        name=name,
        title=title,
        columns=tuple(columns),
        rows=tuple(rows),
        footnotes=tuple(footnotes),
    )


def write_tables(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Each table as ``NAME.csv``, ``NAME.md`` and ``NAME.tex`` in ``folder``; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for table in tables:
        for ending, text in (
            ("csv", table.to_csv()),
            ("md", table.to_markdown()),
            ("tex", table.to_latex()),
        ):
            path = folder / f"{table.name}.{ending}"
            path.write_text(text, encoding="utf-8")
            written.append(path)
    return written


def shown(value: Value, column: Column) -> str:
    """A value as people read it."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value or DASH
    if column.kind == "p_value":
        return f"< {SMALL_P}" if value < SMALL_P else f"{value:.3f}"
    if column.kind == "count":
        return f"{value:,.0f}"
    if column.kind == "text":
        return str(value)
    rounded = round(float(value), column.digits) + 0.0
    size = f"{abs(rounded):,.{column.digits}f}"
    sign = MINUS if rounded < 0 else "+" if column.kind == "signed" and rounded > 0 else ""
    return f"{sign}${size}" if column.kind == "money" else f"{sign}{size}"


def latex_escape(text: str) -> str:
    """Text as LaTeX prints it."""
    return "".join(_LATEX.get(character, character) for character in text)


def _plain(value: object) -> Value:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    assert value is None or isinstance(value, float | int | str), value
    return value


def _says(values: pl.Series) -> bool:
    """Whether a value is neither missing nor an empty text nor a no."""
    return any(not (value is None or value is False or value == "") for value in values)


def _best(values: pl.Series, end: Literal["high", "low"]) -> object:
    return values.max() if end == "high" else values.min()


def _extras(rows: Sequence[Sequence[Cell]], place: int) -> list[str]:
    cells = [row[place] for row in rows]
    marked = any(cell.mark or cell.is_best for cell in cells)
    return ["mark"] * marked + ["detail"] * any(cell.detail for cell in cells)


def _extra(cell: Cell, part: str) -> str:
    if part == "detail":
        return cell.detail
    return " ".join(filter(None, ("best" if cell.is_best else "", cell.mark)))


def _markdown(text: str) -> str:
    for character in "\\|*_`<>~":
        text = text.replace(character, f"\\{character}")
    return text


def _pipes(parts: Sequence[str]) -> str:
    return f"| {' | '.join(parts)} |"


def _html_cell(cell: Cell, column: Column, *, is_head: bool) -> HtmlCell:
    text = shown(cell.value, column)
    missing = text == DASH
    classes = {
        "number": column.is_number,
        "best": cell.is_best,
        "noise": cell.mark == NOISE,
        "missing": missing,
        "published": column.is_published,
        "head": is_head,
        "words": not column.is_number and len(text) > LONG and " " in text,
    }
    return HtmlCell(
        text=f"{text} {cell.mark}".strip(),
        sort="" if missing else str(cell.value),
        detail=cell.detail,
        classes=tuple(name for name, is_on in classes.items() if is_on),
    )
