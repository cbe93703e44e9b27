"""Plots: real files, the same every time, legible colours, words for who cannot see them."""

import re
from itertools import combinations
from pathlib import Path
from time import process_time
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from analysis.comparisons.compare import Comparison, compare
from analysis.plots.all_plots import all_plots, stack_palette
from analysis.plots.style import LIGHT, MAX_SERIES, THEMES, Palette, Plot, Theme, save, save_all
from analysis.plots.words import listed, points, short_number
from analysis.results import load
from tests.analysis.frames import Run, right, write

STACKS = [("codex", "x"), ("codex", "y"), ("claude_code", "x"), ("open_$code", "y")]
NUM_PLOTS_OF_A_GROUP = 7
# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
VISION = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
         [0.004733, 0.691367, 0.303900]]
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    runs = [
        Run(
            name=f"{agent}-{driver}-{task}-{mode}-{seed}", agent=agent, driver=driver, task=task,
            mode=mode, seed=seed, baseline=20.0, floor=1.0, cost=5.0 + 3 * place,
            scores=[20.0 + place, None, 25.0 + 10 * place + seed],
            items={0: right(20, 40), 3: right(30, 40, seed=seed)},
            calls=[(0.5, 100, 1.0), (3.5, 900, 2.0)],
        )
        for place, (agent, driver) in enumerate(STACKS)
        for task in ("gsm8k", "alfworld")
        for mode in ("free", "sft_only")
        for seed in range(2)
    ]  # fmt: skip
    return compare(load([write(tmp_path_factory.mktemp("results"), runs)]))


def of_one_mode(comparison: Comparison) -> list[Plot]:
    return [plot for plot in all_plots(comparison) if "sft" not in plot.name]


def linear(color: str) -> NDArray[np.float64]:
    parts = np.array([int(color[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """By WCAG."""
    light = sorted(float(linear(color) @ [0.2126, 0.7152, 0.0722]) for color in (a, b))
    return (light[1] + 0.05) / (light[0] + 0.05)


def lab(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    """CIE L*a*b* of linear sRGB, D65."""
    matrix = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = matrix @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_series_stand_out_and_apart_for_every_eye(theme: Theme) -> None:
    assert len(theme.series) == MAX_SERIES
    assert all(contrast(color, theme.ground) >= 3 for color in (*theme.series, theme.rest))
    assert contrast(theme.ink, theme.ground) >= 7
    for matrix in VISION.values():
        seen = [lab(matrix @ linear(color)) for color in theme.series]
        apart = min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2))
        assert apart > 12


def test_every_kind_of_plot_is_there(comparison: Comparison) -> None:
    names = [plot.name for plot in all_plots(comparison)]
    assert len(set(names)) == len(names)
    for start in (
        "gains", "budget", "driver-slopes", "scaffold-slopes", "static-interactive", "cost",
        "usage", "modes", "dots", "trajectories",
    ):  # fmt: skip
        assert any(name.startswith(start) for name in names), start
    assert len(names) == 2 * NUM_PLOTS_OF_A_GROUP + 1 + 2 * 2 * 2


def test_plots_say_what_they_show(comparison: Comparison) -> None:
    by_name = {plot.name: plot for plot in all_plots(comparison)}
    gains = by_name["gains-m-free"].alt
    assert "Highest: open_$code/y on GSM8K, +35.5 points" in gains
    assert "lowest: codex/x on ALFWorld, +5.5 points" in gains
    assert "from codex/x (5.5" not in gains
    slopes = by_name["driver-slopes-m-free"].alt
    assert "10.0 points within codex" in slopes
    assert "from x (+5.5 points) to y (+15.5 points)" in slopes
    assert "base model has 20.0" in by_name["trajectories-m-free-gsm8k"].alt
    for plot in by_name.values():
        assert len(plot.alt) > 40
        assert plot.alt.endswith(".")
        assert "nan" not in plot.alt


def test_files_are_real_and_the_same_every_time(comparison: Comparison, tmp_path: Path) -> None:
    plots = all_plots(comparison)[:3]
    first = save_all(plots, tmp_path / "a")
    second = save_all(plots, tmp_path / "b")
    assert [path.name for path in first] == [path.name for path in second]
    assert len(first) == 3 * 2 * 2
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
        if one.suffix == ".svg":
            root = ElementTree.parse(one).getroot()  # noqa: S314  (our own file)
            assert root.tag.endswith("svg")
            assert not re.search(r"<dc:date>", one.read_text(encoding="utf-8"))


def test_pictures_are_readable_on_a_phone(comparison: Comparison, tmp_path: Path) -> None:
    for plot in of_one_mode(comparison):
        (path,) = save(plot, tmp_path, formats=("svg",), themes=("light",))
        text = path.read_text(encoding="utf-8")
        width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)[0])
        sizes = [float(size) for size in re.findall(r"font(?:-size)?: (?:bold )?([\d.]+)px", text)]
        assert sizes, plot.name
        assert min(sizes) * 375 / width >= 9.0, plot.name
        assert height < 1.8 * width
        families = set(re.findall(r"font-family: ([^;\"]+)", text))
        assert families == {"'DejaVu Sans', sans-serif"}
        words = " ".join(re.findall(r"<text[^>]*>([^<]+)</text>", text))
        assert "m, free" in words or plot.name == "modes-m"


def test_nothing_is_cut_off_at_the_edges(comparison: Comparison, tmp_path: Path) -> None:
    for plot in of_one_mode(comparison):
        (path,) = save(plot, tmp_path, formats=("png",), themes=("light",))
        pixels = np.asarray(Image.open(path).convert("L"), dtype=np.int64)
        edges = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
        assert (edges > 250).all(), plot.name
        assert (pixels < 128).mean() > 0.001, plot.name


def test_a_dark_picture_is_the_light_one_in_other_colours(
    comparison: Comparison, tmp_path: Path
) -> None:
    for plot in of_one_mode(comparison):
        recolored = save(plot, tmp_path / "a", formats=("svg",))[1].read_text(encoding="utf-8")
        (path,) = save(plot, tmp_path / "b", formats=("svg",), themes=("dark",))
        drawn = path.read_text(encoding="utf-8")
        assert re.findall(r"#[0-9a-f]{6}\b", recolored) == re.findall(r"#[0-9a-f]{6}\b", drawn)
        assert len(recolored) == len(drawn)


def test_themes_have_their_own_ground(comparison: Comparison, tmp_path: Path) -> None:
    plot = all_plots(comparison)[0]
    for path in save(plot, tmp_path, formats=("png",)):
        corner = Image.open(path).convert("RGB").crop((0, 0, 1, 1)).tobytes()
        theme = THEMES["dark" if ".dark." in path.name else "light"]
        assert f"#{corner.hex()}" == theme.ground


def test_a_plot_takes_less_than_a_second(comparison: Comparison, tmp_path: Path) -> None:
    first, *plots = of_one_mode(comparison)
    save(first, tmp_path)
    begin = process_time()
    save_all(plots, tmp_path, themes=("light",))
    assert (process_time() - begin) / len(plots) < 1.0


def test_many_stacks_share_the_last_colour(tmp_path: Path) -> None:
    runs = [
        Run(name=f"s{place}", agent=f"agent{place:02d}", scores=[50.0 + place])
        for place in range(30)
    ]
    comparison = compare(load([write(tmp_path / "results", runs)]))
    palette = stack_palette(comparison)
    assert palette.is_named("agent29/d")
    assert not palette.is_named("agent05/d")
    assert palette.color("agent05/d", LIGHT) == LIGHT.rest
    plots = all_plots(comparison)
    paths = save_all(plots, tmp_path, formats=("svg",), themes=("light",))
    (curves,) = [path for path in paths if path.name.startswith("trajectories")]
    assert "23 more" in curves.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "runs",
    [
        [Run(name="nothing")],
        [Run(name="one", scores=[60.0])],
        [Run(name="flat", scores=[50.0])],
        [Run(name="no_base", scores=[60.0], baseline=None)],
        [Run(name="free", scores=[60.0], cost=0.0)],
        [Run(name="short", scores=[60.0], budget_h=0.5, hours=[0.1])],
        [Run(name="other", task="gsm8k", scores=[60.0], driver="")],
    ],
    ids=lambda runs: runs[0].name,
)
def test_degenerate_sweeps_draw_what_there_is(tmp_path: Path, runs: list[Run]) -> None:
    comparison = compare(load([write(tmp_path / "results", runs)]))
    plots = all_plots(comparison)
    names = {plot.name.split("-")[0] for plot in plots}
    if runs[0].best is None:
        assert not names
    elif runs[0].baseline is None:
        assert "gains" not in names
        assert "trajectories" in names
    else:
        assert names == {"trajectories", "budget"}
    save_all(plots, tmp_path, formats=("svg",), themes=("dark",))


def test_what_would_be_a_single_point_is_no_plot(tmp_path: Path) -> None:
    calls = [(0.5, 100, 1.0)]
    one = Run(name="a", scores=[60.0], used_h=0.9, calls=calls)
    alone = compare(load([write(tmp_path / "one", [one])]))
    assert {plot.name.split("-")[0] for plot in all_plots(alone)} == {"trajectories", "budget"}
    other = Run(name="b", agent="b", scores=[70.0], used_h=0.9, calls=calls)
    both = compare(load([write(tmp_path / "two", [one, other])]))
    names = {plot.name.split("-")[0] for plot in all_plots(both)}
    assert {"gains", "dots", "cost", "usage"} <= names


def test_a_short_budget_is_drawn_in_minutes(tmp_path: Path) -> None:
    for hours, unit, cuts in ((0.5, "minutes", False), (12.0, "hours", True)):
        runs = [Run(name="a", scores=[60.0], hours=[0.1], budget_h=hours)]
        comparison = compare(load([write(tmp_path / unit, runs)]))
        (plot,) = (plot for plot in all_plots(comparison) if plot.name.startswith("budget"))
        (path,) = save(plot, tmp_path, formats=("svg",), themes=("light",))
        text = path.read_text(encoding="utf-8")
        assert f"Budget used ({unit})" in text
        assert ("lines: cuts" in text) == cuts


def test_words() -> None:
    assert points(-0.04) == "0.0 points"
    assert points(-3.25) == "−3.2 points"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(["a"]) == "a"
    assert [short_number(value) for value in (12.0, 3400.0, 1.2e6, 5e9)] == [
        "12",
        "3.4k",
        "1.2M",
        "5G",
    ]


def test_a_palette_keeps_its_order() -> None:
    palette = Palette(["b", "a", "b"])
    assert palette.names == ("b", "a")
    assert palette.color("b", LIGHT) == LIGHT.series[0]
    assert palette.marker("a") != palette.marker("b")
    assert palette.dash("a") != palette.dash("b")
