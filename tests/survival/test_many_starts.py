"""Twenty sweeps that are started in one instant, of as many names and of a single one."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from rl_bench.events import SubmissionGraded
from rl_bench.ledger import read_ledger
from rl_bench.paths import SweepPaths

ROOT = Path(__file__).resolve().parents[2]
NUM = 20

# The real command in `NUM` processes, from its composed config on, but for what it does once the
# name is its own. Composed and checked once before, since twenty times would take a minute of CPU.
STARTS = """
import json, multiprocessing, os, pathlib, sys
import actors.sweep_driver, rl_bench.compose, rl_bench.sweep
from rl_bench.events import SubmissionGraded
from rl_bench.ledger import read_ledger
from rl_bench.paths import SweepPaths
from rl_bench.plan import expand
from rl_bench.preflight import preflight
results, out, num, one_name = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "one"
composed = rl_bench.compose.compose(
    ["agent=noop", "sandbox=none", "sweep.name=mine", f"paths.results={results}"]
)
plan = expand(composed.experiment)
paths = SweepPaths(pathlib.Path(results) / "unused")
preflight(composed.experiment, plan=plan, paths=paths)
context = multiprocessing.get_context("fork")
begin, end = context.Barrier(num), context.Barrier(num)

def run_sweep(experiment, plan, paths):
    with open(os.path.join(out, f"at_work-{os.getpid()}"), "w") as file:
        file.write(json.dumps([experiment.sweep.name, len(plan)]))
    end.wait(60)  # holds the name until every other has had its answer
    return 0

def start(number):
    log = os.open(os.path.join(out, f"log-{number}"), os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    name = "mine" if one_name else f"mine-{number}"
    experiment = composed.experiment
    sweep = experiment.sweep.model_copy(update={"name": name})
    named = composed._replace(experiment=experiment.model_copy(update={"sweep": sweep}))
    rl_bench.compose.compose = lambda *_, **__: named
    begin.wait(60)
    code = rl_bench.sweep.main(["agent=noop"])
    if code != 0:
        end.wait(60)
    with open(os.path.join(out, f"code-{number}"), "w") as file:
        file.write(str(code))

actors.sweep_driver.run_sweep = run_sweep
children = [context.Process(target=start, args=(number,)) for number in range(num)]
for child in children:
    child.start()
for child in children:
    child.join()
"""


class Started(NamedTuple):
    """Exit codes with their number, the names at work, and what each process printed."""

    codes: Counter[int]
    at_work: list[list[object]]
    logs: list[str]


def start_all(folder: Path, which: str) -> Started:
    out = folder / "out"
    out.mkdir()
    words = [str(folder / "results"), str(out), str(NUM), which]
    done = subprocess.run(
        [sys.executable, "-c", STARTS, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Started(
        codes=Counter(int(path.read_text()) for path in out.glob("code-*")),
        at_work=sorted(json.loads(path.read_text()) for path in out.glob("at_work-*")),
        logs=[path.read_text() for path in out.glob("log-*")],
    )


@pytest.mark.timeout(200)
def test_of_one_name_one_runs_and_the_others_are_refused(tmp_path: Path) -> None:
    started = start_all(tmp_path, "one")

    assert started.codes == {0: 1, 2: NUM - 1}
    assert started.at_work == [["mine", 1]]
    refused = [log for log in started.logs if "is being run by another process" in log]
    assert len(refused) == NUM - 1
    assert not list((tmp_path / "results" / "mine").glob("*.part"))


@pytest.mark.timeout(200)
def test_of_twenty_names_each_runs(tmp_path: Path) -> None:
    started = start_all(tmp_path, "many")

    assert started.codes == {0: NUM}
    assert started.at_work == sorted([f"mine-{number}", 1] for number in range(NUM))
    for number in range(NUM):
        record = json.loads(SweepPaths(tmp_path / "results" / f"mine-{number}").config.read_text())
        assert len(record["run_ids"]) == 1


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_whole_sweeps_that_start_together_take_turns_and_all_finish(tmp_path: Path) -> None:
    words = ["agent=copy_base", "task=gsm8k_mini", "task.num_eval=6", "sandbox=none"]
    words += ["sink=no_wandb", f"paths.results={tmp_path}"]
    names = [f"whole-{number}" for number in range(4)]
    sweeps = []
    for name in names:
        with (tmp_path / f"{name}.log").open("wb") as log:
            command = [sys.executable, "-m", "tests.survival.toy_engine", *words]
            sweeps.append(
                subprocess.Popen(
                    [*command, f"sweep.name={name}"], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT
                )
            )
    codes = [sweep.wait(timeout=500) for sweep in sweeps]
    assert codes == [0] * len(names), (tmp_path / f"{names[0]}.log").read_text()[-3000:]
    for name in names:
        [run] = SweepPaths(tmp_path / name).runs.glob("*/ledger.jsonl")
        graded = [e.event for e in read_ledger(run) if isinstance(e.event, SubmissionGraded)]
        assert len(graded) == 1
