"""What `make agents` shows of its runs."""

from collections.abc import Callable

import pytest

from rl_bench.events import RunEnd
from rl_bench.paths import SweepPaths
from tests.rl_bench.conftest import Story
from tools import agents_table


@pytest.fixture
def finished(story: Callable[..., Story], sweep_paths: SweepPaths) -> Callable[..., None]:
    def make(run_id: str, *scores: float, end: RunEnd = RunEnd.COMPLETED) -> None:
        told = story(run_id).start().baseline(10.0)
        for number, score in enumerate(scores, start=1):
            told.submit(number, score)
        told.finish(end)
        paths = sweep_paths.run(run_id)
        paths.spec.write_text(told.spec.model_dump_json(), encoding="utf-8")
        paths.logs.mkdir()
        lines = "".join(f"line {number}\n" for number in range(9)) + "x" * 5000
        (paths.logs / "agent.stdout").write_text(lines, encoding="utf-8")

    return make


def test_a_row_and_the_last_lines_are_shown(
    finished: Callable[..., None], sweep_paths: SweepPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    finished("run0", 20.0, 30.0, 25.0)

    assert agents_table.main([str(sweep_paths.root)]) == 0

    out = capsys.readouterr().out
    shown = agents_table.read_run(sweep_paths.run("run0"))
    cells = dict(zip(agents_table.COLUMNS, agents_table.row(shown), strict=True))
    assert (cells["agent"], cells["end"]) == ("reference", "completed")
    assert (cells["submissions"], cells["best"]) == ("3", "30.00")
    assert "line 8" in out
    assert "line 6" not in out
    assert "x" * 300 not in out


@pytest.mark.parametrize(("scores", "end"), [((), RunEnd.COMPLETED), ((20.0,), RunEnd.AGENT_ERROR)])
def test_a_run_that_did_not_work_is_a_failure(
    scores: tuple[float, ...],
    end: RunEnd,
    finished: Callable[..., None],
    sweep_paths: SweepPaths,
) -> None:
    finished("run0", 20.0)
    finished("run1", *scores, end=end)
    assert agents_table.main([str(sweep_paths.root)]) == 1


def test_a_folder_that_is_no_sweep_is_refused(
    sweep_paths: SweepPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    assert agents_table.main([str(sweep_paths.root / "absent")]) == 2
    assert "usage" in capsys.readouterr().err
