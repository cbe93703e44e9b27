"""How every plot looks, and how one becomes files: colours, sizes, SVG and PNG.

A `Plot` says what it shows in words (`alt`) and draws itself on a figure in a given theme. The
seven series colours keep apart for the common kinds of colour blindness and have a contrast of
three or more on their ground; each series has a marker and a dash of its own besides. Figures are
five inches wide with type that is still read at 375 pixels; an SVG's words stay words, in the
reader's own sans-serif where DejaVu, which is wider than most, is missing. Files are the same for
the same data: no dates, no random ids.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import LineStyleType, RcKeyType

ThemeName = Literal["light", "dark"]
Format = Literal["svg", "png"]
WIDTH_IN = 5.0
PNG_DPI = 160
MAX_SERIES = 7
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[LineStyleType, ...] = (
    "-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """Colours on one ground.

    Attributes:
        series: Of `MAX_SERIES` series; ``rest`` is for all others.
        low, middle, high: Of the scale of gains: below zero, zero, above.
    """

    name: ThemeName
    ground: str
    ink: str
    faint: str
    rest: str
    series: tuple[str, ...]
    low: str
    middle: str
    high: str


LIGHT = Theme(
    name="light",
    ground="#ffffff",
    ink="#1f2328",
    faint="#d4d8dd",
    rest="#8a9099",
    series=("#0072b2", "#d55e00", "#009e73", "#aa3377", "#222222", "#6a51c8", "#7a1f1f"),
    low="#d55e00",
    middle="#f4f4f4",
    high="#0072b2",
)
DARK = Theme(
    name="dark",
    ground="#14171c",
    ink="#e6e8eb",
    faint="#3a4048",
    rest="#8a9099",
    series=("#56b4e9", "#e69f00", "#b8e986", "#c86090", "#f5f5f5", "#8f6fe0", "#d5603a"),
    low="#e8814a",
    middle="#262b32",
    high="#56b4e9",
)
THEMES: dict[ThemeName, Theme] = {"light": LIGHT, "dark": DARK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot, not yet drawn.

    Attributes:
        name: A slug: file names and anchors.
        alt: What it shows, in a sentence or two, for who cannot see it.
        height_in: Inches; the width is `WIDTH_IN`.
        draw: Fills the figure.
        is_recolorable: It has no colours but the theme's ground, ink, faint, rest and series.
    """

    name: str
    title: str
    alt: str
    height_in: float
    draw: Callable[[Figure, Theme], None]
    is_recolorable: bool = True

    def file_name(self, theme: ThemeName, ending: Format) -> str:
        """E.g. ``gains-m-free.light.svg``."""
        return f"{self.name}.{theme}.{ending}"


def save(
    plot: Plot,
    folder: Path,
    *,
    formats: Sequence[Format] = ("svg", "png"),
    themes: Sequence[ThemeName] = ("light", "dark"),
) -> list[Path]:
    """Draws a plot in each theme and writes its files; returns their paths.

    Where its colours are all the theme's, the dark SVG is the light one in other colours.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name in themes:
        drawn = list(formats)
        twin = folder / plot.file_name("light", "svg")
        if name != "light" and twin in written and plot.is_recolorable:
            path = folder / plot.file_name(name, "svg")
            path.write_text(_recolored(twin.read_text(encoding="utf-8"), THEMES[name]), "utf-8")
            written.append(path)
            drawn.remove("svg")
        if drawn:
            written += _draw(plot, folder, drawn, THEMES[name])
    return written


def _draw(plot: Plot, folder: Path, formats: Sequence[Format], theme: Theme) -> list[Path]:
    written = []
    with mpl.rc_context(_settings(theme)):
        figure = Figure(figsize=(WIDTH_IN, plot.height_in), layout="constrained")
        FigureCanvasAgg(figure)
        plot.draw(figure, theme)
        # Laid out once for all formats: it costs as much as drawing.
        if engine := figure.get_layout_engine():
            engine.execute(figure)
        figure.set_layout_engine("none")
        for ending in formats:
            path = folder / plot.file_name(theme.name, ending)
            _write(figure, path, ending, plot)
            written.append(path)
    return written


def _recolored(svg: str, theme: Theme) -> str:
    """A light plot's SVG in another theme's colours."""
    new = dict(zip(_colors(LIGHT), _colors(theme), strict=True))
    return re.sub(r"#[0-9a-f]{6}\b", lambda found: new.get(found[0], found[0]), svg)


def _colors(theme: Theme) -> tuple[str, ...]:
    return theme.ground, theme.ink, theme.faint, theme.rest, *theme.series


def save_all(
    plots: Iterable[Plot],
    folder: Path,
    *,
    formats: Sequence[Format] = ("svg", "png"),
    themes: Sequence[ThemeName] = ("light", "dark"),
) -> list[Path]:
    """`save` for each of ``plots``."""
    return [path for plot in plots for path in save(plot, folder, formats=formats, themes=themes)]


class Palette:
    """Which series has which colour, marker and dash; the same in every plot of a report."""

    def __init__(self, names: Iterable[str]) -> None:
        """The first `MAX_SERIES` names get one of their own, all others share the rest's."""
        self.names = tuple(dict.fromkeys(names))
        self._places = {name: place for place, name in enumerate(self.names[:MAX_SERIES])}

    def is_named(self, name: str) -> bool:
        """Whether a series has a colour of its own."""
        return name in self._places

    def color(self, name: str, theme: Theme) -> str:
        place = self._places.get(name)
        return theme.rest if place is None else theme.series[place]

    def marker(self, name: str) -> str:
        place = self._places.get(name)
        return "." if place is None else MARKERS[place]

    def dash(self, name: str) -> LineStyleType:
        place = self._places.get(name)
        return "-" if place is None else DASHES[place]

    def legend(
        self, figure: Figure, theme: Theme, names: Sequence[str], *, lines: bool = True
    ) -> None:
        """A legend below the axes: named series, and how many others there are."""
        handles = [
            Line2D(
                [],
                [],
                color=self.color(name, theme),
                marker=self.marker(name),
                linestyle=self.dash(name) if lines else "none",
                markersize=5,
                label=name,
            )
            for name in names
            if self.is_named(name)
        ]
        if num_rest := sum(not self.is_named(name) for name in names):
            style: LineStyleType = "-" if lines else "none"
            handles.append(
                Line2D([], [], color=theme.rest, marker=".", linestyle=style,
                       label=f"{num_rest} more")
            )  # fmt: skip
        if handles:
            figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)


def legend_height(num_names: int) -> float:
    """Inches that `Palette.legend` takes."""
    return 0.2 * ((min(num_names, MAX_SERIES + 1) + 1) // 2) + 0.1


def title(figure: Figure, text: str, *below: str) -> None:
    """A title at the figure's left edge, with lines of words below it."""
    words = "\n".join([text, *filter(None, below)])
    figure.suptitle(words, x=0.01, ha="left", fontsize=10.0)


@lru_cache(maxsize=2)
def _settings(theme: Theme) -> dict[RcKeyType, object]:
    return {
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 9.5,
        "axes.titlesize": 10.5,
        "axes.labelsize": 9.5,
        "xtick.labelsize": 9.0,
        "ytick.labelsize": 9.0,
        "legend.fontsize": 9.0,
        "legend.handlelength": 2.4,
        "figure.facecolor": theme.ground,
        "savefig.facecolor": theme.ground,
        "axes.facecolor": theme.ground,
        "text.color": theme.ink,
        "axes.labelcolor": theme.ink,
        "axes.titlecolor": theme.ink,
        "xtick.color": theme.ink,
        "ytick.color": theme.ink,
        "axes.edgecolor": theme.faint,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": theme.faint,
        "grid.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "lines.linewidth": 1.8,
        "lines.solid_capstyle": "butt",  # an interval ends where its line does
        "lines.markersize": 5.0,
        "axes.unicode_minus": True,
        "text.parse_math": False,
        "svg.hashsalt": "rl_bench",
        "svg.fonttype": "none",
        "path.simplify": True,
    }


def _write(figure: Figure, path: Path, ending: Format, plot: Plot) -> None:
    if ending == "svg":
        words = {"Title": plot.title, "Description": plot.alt, "Date": None, "Creator": None}
        figure.savefig(path, format="svg", metadata=words)
    else:
        figure.savefig(path, format="png", dpi=PNG_DPI, metadata={"Software": None})
