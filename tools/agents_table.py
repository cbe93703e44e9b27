"""Shows what the published CLIs did in a sweep: a row each, and the last lines of its stream.

    python -m tools.agents_table results/agents

reads the ledgers and the raw output of the sweep's runs. Exit code 0 when every run completed with
a graded submission, 1 otherwise.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from rl_bench.config import RunSpec
from rl_bench.events import RunEnd
from rl_bench.ledger import read_ledger
from rl_bench.paths import RunPaths, SweepPaths
from rl_bench.run_view import RunView, fold_all

NUM_LINES = 3
MAX_LINE = 240
COLUMNS = ("agent", "version", "sandbox", "end", "submissions", "best", "calls", "tokens in", "out",
           "cost $", "revisions", "tool calls", "seconds")  # fmt: skip


class Shown(NamedTuple):
    """One run."""

    spec: RunSpec
    view: RunView
    last_lines: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """It completed, and something that it submitted has a score."""
        return self.view.end is RunEnd.COMPLETED and best(self.view) is not None


def read_run(paths: RunPaths) -> Shown:
    """Reads a run's ledger and the end of its stream."""
    spec = RunSpec.model_validate_json(paths.spec.read_bytes())
    view = fold_all(paths.root.name, read_ledger(paths.ledger))
    return Shown(spec, view, last_lines(paths.logs / "agent.stdout"))


def best(view: RunView) -> float | None:
    """The best score of any task."""
    scores = [task.best for task in view.tasks.values() if task.best is not None]
    return max(scores) if scores else None


def last_lines(path: Path, *, num: int = NUM_LINES) -> tuple[str, ...]:
    """The last lines of the raw output, each cut at a limit."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    lines = [line for line in text.splitlines() if line.strip()][-num:]
    return tuple(line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]} ..." for line in lines)


def row(shown: Shown) -> tuple[str, ...]:
    """A run's cells, in the order of `COLUMNS`."""
    view, spec = shown.view, shown.spec
    use = view.driver_use
    cells = (
        spec.agent.name,
        spec.agent.version,
        view.sandbox,
        str(view.end or view.state),
        view.num_submissions,
        _number(best(view), 2),
        use.num_calls,
        use.input_tokens,
        use.output_tokens,
        _number(use.cost_usd, 4),
        view.num_revisions,
        view.agent_use.num_tool_calls,
        f"{view.budget_used_s:.0f}",
    )
    return tuple("-" if cell is None else str(cell) for cell in cells)


def show(runs: Sequence[Shown], console: Console) -> None:
    """Prints the table and the last lines."""
    table = Table(box=None, pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, no_wrap=True)
    for shown in runs:
        table.add_row(*row(shown))
    console.print(table)
    for shown in runs:
        console.print(f"\n{shown.spec.agent.name}, last lines of its stream:", highlight=False)
        for line in shown.last_lines:
            console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def main(argv: Sequence[str]) -> int:
    """Shows the sweep in the folder that is named."""
    if len(argv) != 1 or not (sweep := SweepPaths(Path(argv[0]))).runs.is_dir():
        sys.stderr.write("usage: python -m tools.agents_table FOLDER_OF_A_SWEEP\n")
        return 2
    folders = sorted(path for path in sweep.runs.iterdir() if (path / "ledger.jsonl").exists())
    runs = sorted(map(read_run, map(RunPaths, folders)), key=lambda each: each.spec.agent.name)
    show(runs, Console(width=200, soft_wrap=True))
    return 0 if runs and all(shown.is_good for shown in runs) else 1


def _number(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
