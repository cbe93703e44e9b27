"""Runs of stories, folded and shown as the end of a sweep shows them."""

import io

from rich.console import Console

from rl_bench.config import SinkConfig
from rl_bench.paths import SweepPaths
from rl_bench.run_table import planned
from rl_bench.run_view import RunView, fold_all
from rl_bench.summary import show
from tests.rl_bench.conftest import Story


def views_of(*stories: Story) -> dict[str, RunView]:
    return {s.run_id: fold_all(s.run_id, s.entries) for s in stories if s.entries}


def shown(paths: SweepPaths, *stories: Story, width: int = 120) -> list[str]:
    out = io.StringIO()
    show(
        views_of(*stories),
        planned({run.run_id: run.spec for run in stories}),
        paths=paths,
        sink=SinkConfig(name="default"),
        command="c",
        console=Console(file=out, width=width, force_terminal=True, color_system=None),
    )
    return out.getvalue().splitlines()
