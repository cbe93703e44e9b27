"""Each invariant sees its own breach, and none where all is well."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.invariants import Figures, breaches, count, figures
from rl_bench.config import SinkConfig, WandbConfig
from rl_bench.events import AgentStarted, RunEnd
from rl_bench.paths import SweepPaths
from rl_bench.recorder import Recorder
from rl_bench.sinks.parquet import rebuild
from tests.rl_bench.conftest import Story, make_spec

SINK = SinkConfig(name="t", flush_interval_s=60, wandb=WandbConfig(mode="disabled"))
PIDS = (71, 72)
RUNS = ("a", "b")


class Scene(NamedTuple):
    """A finished sweep of two runs, of which the first was killed once."""

    paths: SweepPaths
    answers: Path
    reference: Figures

    def breaches(self) -> dict[str, list[str]]:
        found = breaches(self.paths, answers=self.answers, run_ids=RUNS, reference=self.reference)
        return {name: lines for name, lines in found.items() if lines}

    def tell(self, run_id: str, **answer: object) -> None:
        """Adds an answer to what a run's agent wrote down."""
        line = {"pid": PIDS[1], "model_path": "output/m", "status": 200, **answer}
        with (self.answers / f"{run_id}.jsonl").open("a") as log:
            log.write(json.dumps(line) + "\n")

    def change(self, run_id: str, change: Callable[[list[dict[str, Any]]], object]) -> None:
        """Changes a ledger's lines, and makes the tables anew."""
        ledger = self.paths.run(run_id).ledger
        lines = [json.loads(line) for line in ledger.read_text().splitlines()]
        change(lines)
        for seq, line in enumerate(lines):
            line["seq"] = seq
        ledger.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
        rebuild(self.paths)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    paths, answers = SweepPaths(tmp_path / "s"), tmp_path / "answers"
    answers.mkdir()
    for run_id in RUNS:
        story = Story(paths, run_id, spec=make_spec()).start().baseline(5.0)
        if run_id == "a":
            story.add(AgentStarted(pid=PIDS[0], argv=("true",))).submit(1, 20.004)
            story.start(1).baseline(5.0)
        story.add(AgentStarted(pid=PIDS[1], argv=("true",))).submit(1, 20.004).accept(2)
        story.grade(2, 30.0).finish()
        story.ledger.close()
    scene = Scene(paths, answers, figures(paths, RUNS))
    scene.tell("a", pid=PIDS[0], submission_id=1, score=20.0)
    scene.tell("a", submission_id=1, score=20.0)
    scene.tell("a", status=503)
    scene.tell("b", submission_id=2, status=202)
    with (answers / "b.jsonl").open("a") as log:
        log.write('{"pid": 72, "mod')  # its writer was killed
    Recorder(paths, config=SINK).close()
    return scene


def test_a_whole_sweep_has_no_breach(scene: Scene) -> None:
    assert scene.breaches() == {}
    counts = count(scene.paths, answers=scene.answers, run_ids=RUNS)
    assert (counts.num_runs, counts.num_attempts) == (2, 3)
    assert (counts.num_acknowledged, counts.num_accepted, counts.num_graded) == (3, 5, 5)


@pytest.mark.parametrize(
    "answer",
    [
        {"submission_id": 3, "score": 20.0},
        {"submission_id": 1, "score": 21.0},
        {"submission_id": 2, "status": 202, "model_path": "output/other"},
        {"submission_id": 1, "score": 20.0, "pid": 5},
        {"submission_id": 2, "status": 202, "pid": PIDS[0]},
    ],
    ids=["number", "score", "checkpoint", "agent", "attempt"],
)
def test_an_answer_that_the_ledger_does_not_hold(scene: Scene, answer: dict[str, object]) -> None:
    scene.tell("a", **answer)
    assert [*scene.breaches()] == ["answers"]


def drop_last_verdict(lines: list[dict[str, Any]]) -> None:
    [*_, last] = [i for i, line in enumerate(lines) if line["event"]["type"] == "submission_graded"]
    del lines[last]


def repeat_last_verdict(lines: list[dict[str, Any]]) -> None:
    [*_, last] = [i for i, line in enumerate(lines) if line["event"]["type"] == "submission_graded"]
    lines.insert(last, json.loads(json.dumps(lines[last])))


def void_last_verdict(lines: list[dict[str, Any]]) -> None:
    [*_, last] = [line for line in lines if line["event"]["type"] == "submission_graded"]
    last["event"]["evaluations"][0] |= {"score": None, "failure": "lost"}


def lose_an_attempt(lines: list[dict[str, Any]]) -> None:
    lines[0]["event"]["attempt"] = 3


@pytest.mark.parametrize(
    ("change", "also"),
    [
        (drop_last_verdict, {"figures"}),
        (void_last_verdict, {"figures"}),
        (repeat_last_verdict, set()),
        (lose_an_attempt, set()),
    ],
)
def test_a_submission_without_its_one_verdict(
    scene: Scene, change: Callable[[list[dict[str, Any]]], object], also: set[str]
) -> None:
    scene.change("b", change)
    assert {*scene.breaches()} - {"answers"} == {"verdicts"} | also


def change_last_score(lines: list[dict[str, Any]]) -> None:
    [*_, last] = [line for line in lines if line["event"]["type"] == "submission_graded"]
    last["event"]["evaluations"][0]["score"] += 0.5


def change_an_item(lines: list[dict[str, Any]]) -> None:
    [*_, last] = [line for line in lines if line["event"]["type"] == "submission_graded"]
    last["event"]["evaluations"][0]["items"][1]["num_tokens"] += 1


@pytest.mark.parametrize("change", [change_last_score, change_an_item])
def test_figures_that_nobody_else_gets(
    scene: Scene, change: Callable[[list[dict[str, Any]]], object]
) -> None:
    scene.change("b", change)
    assert [*scene.breaches()] == ["figures"]


def test_a_run_that_has_not_ended_or_not_well(scene: Scene) -> None:
    def break_it(lines: list[dict[str, Any]]) -> None:
        lines[-1]["event"]["end"] = RunEnd.INFRA_ERROR.value

    scene.change("b", break_it)
    assert [*scene.breaches()] == ["ends"]


def append_rows(file: Path) -> None:
    table = pq.read_table(file)
    pq.write_table(pa.concat_tables([table, table]), file)


@pytest.mark.parametrize("table", ["runs", "submissions", "items", "events"])
def test_a_row_that_is_there_twice(scene: Scene, table: str) -> None:
    append_rows(scene.paths.tables / table / "b.parquet")
    found = scene.breaches()
    assert [*found] == ["tables"]
    assert any("twice" in line for line in found["tables"])
    assert any("is not what its ledger makes" in line for line in found["tables"])


def test_tables_that_are_missing_or_of_nobody(scene: Scene) -> None:
    runs = scene.paths.tables / "runs"
    shutil.copy(runs / "b.parquet", runs / "c.parquet")
    assert [*scene.breaches()] == ["tables"]
    (runs / "c.parquet").unlink()
    (runs / "b.parquet").unlink()
    assert [*scene.breaches()] == ["tables"]


@pytest.mark.parametrize(
    "name",
    [
        "tables/runs/.b.parquet.part",
        ".views.json.5.part",
        "runs/b/ledger.reserve",
        "snapshots/.draft-x",
    ],
)
def test_something_half_written(scene: Scene, name: str) -> None:
    path = scene.paths.root / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert [*scene.breaches()] == ["tables"]
