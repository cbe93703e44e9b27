"""Which processes carry out a sweep's runs, and what the loop does at its end."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayError

from actors import sweep_loop
from actors.remote import Handle
from actors.sweep_loop import close_recorder
from benchmarks.runner_overhead import NoGrading, ungraded_sweep
from rl_bench.compose import compose
from rl_bench.events import Entry, RunEnd, RunFinished
from rl_bench.ledger import read_ledger
from rl_bench.paths import SweepPaths
from rl_bench.plan import expand, run_id
from rl_bench.run_view import RunView


class LostRecorder:
    """A handle of a recorder that never closes."""

    def __init__(self, error: RayError) -> None:
        self._error = error
        self.num_asked = 0

    @property
    def close(self) -> "LostRecorder":
        return self

    def remote(self) -> None:
        self.num_asked += 1
        raise self._error


@pytest.mark.parametrize(
    ("error", "is_asked_again"),
    [(ActorDiedError(), True), (GetTimeoutError("too slow"), False)],
)
def test_a_recorder_that_does_not_close_is_told_with_what_completes_its_tables(
    error: RayError, is_asked_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.sweep_loop.POLL_S", 0.01)
    said: list[str] = []
    recorder = LostRecorder(error)
    close_recorder(recorder, say=said.append, limit_s=0.2)
    [words] = said
    assert str(error).strip().splitlines()[-1].strip() in words
    assert "the same command completes them" in words
    assert (recorder.num_asked > 1) is is_asked_again


class NoRecorder:
    """Takes everything and keeps nothing."""

    def views(self, known: dict[str, int] | None = None) -> dict[str, RunView]:
        return {}

    def record(self, run_id: str, entries: list[Entry]) -> None:
        """Nobody reads it."""

    def close(self) -> None:
        """Has no tables."""


@dataclass(frozen=True)
class NotedRun:
    """Ends as it is told and notes in which process, the first ``num_lost`` of which are lost."""

    path: Path
    end: RunEnd
    num_lost: int = 0

    def __call__(self, **services: object) -> "NotedRun":
        return self

    def execute(self, *, attempt: int, is_last: bool) -> RunEnd:
        with self.path.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if len(self.path.read_text().split()) <= self.num_lost:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.end

    @property
    def is_final(self) -> bool:
        return not self.end.is_infrastructure or len(self.path.read_text().split()) == 2


@pytest.fixture
def processes(
    tmp_path: Path, ray_session: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., list[list[str]]]]:
    """Carries out runs one after the other that end so; the processes of each run's attempts."""
    words = ["agent=noop", "task=gsm8k_mini", "sink=no_wandb", f"paths.results={tmp_path}"]
    recorder: Handle = ray.remote(NoRecorder).options(num_cpus=0).remote()
    pool: Handle = ray.remote(NoGrading).options(num_cpus=0).remote()

    def execute(ends: list[RunEnd], *, num_lost: int = 0) -> list[list[str]]:
        more = [f"sweep.seeds={list(range(len(ends)))}", "cluster.max_parallel_runs=1"]
        experiment = compose([*words, *more]).experiment
        specs = {run_id(spec): spec for spec in expand(experiment)}
        runs = {
            name: NotedRun(tmp_path / name, end, num_lost)
            for name, end in zip(specs, ends, strict=True)
        }
        monkeypatch.setattr(sweep_loop, "run_factory", lambda _, *, run_id, **__: runs[run_id])
        with ungraded_sweep(
            experiment,
            tmp_path,
            specs=list(specs.values()),
            base_model=tmp_path,
            recorder=recorder,
            pool=pool,
        ) as carry_out:
            carry_out()
        return [run.path.read_text().split() for run in runs.values()]

    yield execute
    for actor in (recorder, pool):
        ray.kill(actor)


@pytest.mark.ray
def test_runs_share_a_process_until_something_goes_wrong_in_it(
    processes: Callable[..., list[list[str]]],
) -> None:
    fine, broken = RunEnd.COMPLETED, RunEnd.INFRA_ERROR
    [[first], [second], third, [fourth]] = processes([fine, fine, broken, fine])
    assert first == second == third[0]
    assert first != fourth == third[1]


@pytest.mark.ray
@pytest.mark.parametrize(
    ("num_lost", "num_tries"),
    [(2, 0), (9, 2)],
    ids=["now and then", "time and again"],
)
def test_a_process_that_is_lost_before_the_run_begins_uses_up_no_try(
    num_lost: int,
    num_tries: int,
    processes: Callable[..., list[list[str]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweep_loop, "MAX_UNBEGUN", 2)
    [used] = processes([RunEnd.COMPLETED], num_lost=num_lost)
    assert len(set(used)) == len(used) == 2 + max(1, num_tries)
    [ledger] = SweepPaths(tmp_path).root.rglob("ledger.jsonl")
    ends = [entry.event for entry in read_ledger(ledger)]
    assert [end.final for end in ends if isinstance(end, RunFinished)] == [False, True][:num_tries]
