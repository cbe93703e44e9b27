"""A sweep's name: fixed to its config, held by one driver, readable after a kill."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from rl_bench.compose import compose
from rl_bench.config import Experiment
from rl_bench.errors import SweepConflictError
from rl_bench.paths import SweepPaths
from rl_bench.plan import expand
from rl_bench.sweep_claim import check_sweep_config, claim_sweep

HOLDER = """
import sys, time
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def experiment_of(*overrides: str) -> Experiment:
    return compose(["+experiment=quickstart", *overrides]).experiment


def start(paths: SweepPaths, *overrides: str) -> None:
    experiment = experiment_of(*overrides)
    with claim_sweep(paths, experiment=experiment, plan=expand(experiment)):
        pass


@pytest.fixture
def paths(tmp_path: Path) -> SweepPaths:
    return SweepPaths(tmp_path / "quickstart")


@pytest.mark.parametrize(
    "change",
    [
        "cluster.max_parallel_runs=7",
        "grader.num_graders=2",
        "grader.num_rollout_workers=3",
        "sink.wandb.mode=disabled",
        "paths.min_free_gib=0",
    ],
)
def test_the_same_conditions_may_start_again(paths: SweepPaths, change: str) -> None:
    start(paths)
    before = paths.config.read_bytes()

    start(paths, change)

    assert paths.config.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ("budget.wall_clock_s=601", "budget.wall_clock_s: 240.0 before, 601.0 now"),
        ("sweep.seeds=[0,1]", "sweep.seeds: [0] before, [0, 1] now"),
        ("task.num_eval=3", "options.tasks.alfworld_mini.num_eval:"),
        ("grader.max_num_seqs=3", "grader.max_num_seqs:"),
        ("cluster.threads_per_run=2", "cluster.threads_per_run: 1 before, 2 now"),
    ],
)
def test_another_config_is_refused_with_the_differences(
    paths: SweepPaths, change: str, shown: str
) -> None:
    start(paths, "budget.wall_clock_s=240")

    changed = change if change.startswith("budget") else f"budget.wall_clock_s=240 {change}"
    with pytest.raises(SweepConflictError) as caught:
        start(paths, *changed.split())

    assert shown in str(caught.value)
    assert "sweep.name=" in str(caught.value)


def test_other_runs_under_the_same_config_are_refused(paths: SweepPaths) -> None:
    """A plan also depends on what no config says, such as where data lie."""
    experiment = experiment_of()
    plan = expand(experiment)
    paths.root.mkdir()
    check_sweep_config(paths, experiment, plan)

    check_sweep_config(paths, experiment, plan)
    with pytest.raises(SweepConflictError, match=f"plan: {len(plan)} runs before"):
        check_sweep_config(paths, experiment, plan[:-1])


def test_comparing_writes_nothing(paths: SweepPaths) -> None:
    experiment = experiment_of()

    check_sweep_config(paths, experiment, expand(experiment), write=False)

    assert not paths.root.exists()


def test_an_unreadable_record_is_no_licence_to_start(paths: SweepPaths) -> None:
    paths.root.mkdir()
    paths.config.write_text('{"version": 1, "cond')

    with pytest.raises(SweepConflictError, match="cannot be read"):
        start(paths)


def test_a_second_driver_is_refused_until_the_first_is_gone(paths: SweepPaths) -> None:
    paths.root.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(paths.lock)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(SweepConflictError, match="another process"):
            start(paths)
        holder.kill()

    deadline = time.monotonic() + 5
    while True:
        try:
            start(paths)
            break
        except SweepConflictError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
