"""One attempt from workspace to last ledger line: a real agent process, a scripted grader."""

import errno
import json
import sys
from pathlib import Path

import pytest

from rl_bench.config import AgentConfig, BudgetConfig, RunSpec
from rl_bench.errors import GraderError, LedgerError
from rl_bench.events import (
    AgentExited,
    Entry,
    Evaluation,
    Event,
    Note,
    RunEnd,
    RunFinished,
    RunStarted,
    RunState,
    StateChanged,
    SubmissionAccepted,
    SubmissionGraded,
)
from rl_bench.grading import GradeJob
from rl_bench.ledger import read_ledger
from rl_bench.paths import SweepPaths
from rl_bench.run import LEFTOVER_ROUNDS
from tests.rl_bench.grading_scene import ScriptedGrade, make_spec
from tests.rl_bench.run_scene import make_run

SUBMIT = """
import json, os, shutil, sys, urllib.error, urllib.request
from pathlib import Path
import numpy as np
from safetensors.numpy import load_file, save_file
target = Path(os.environ["OUTPUT_DIR"], "new")
shutil.copytree(os.environ["MODEL_PATH"], target)
target.chmod(0o755)
for file in target.iterdir():
    file.chmod(0o644)
weights = load_file(target / "model.safetensors")
weights["model.embed_tokens.weight"] = np.full((4, 2), 42.0, dtype=np.float32)
save_file(weights, target / "model.safetensors")
request = urllib.request.Request(
    os.environ["GRADING_SERVER_URL"] + "/submit",
    data=json.dumps({"model_path": "output/new"}).encode(),
    headers={"Content-Type": "application/json"},
)
try:
    print(urllib.request.urlopen(request).read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
"""


def spec_of(*argv: str, wall_clock_s: float = 600.0) -> RunSpec:
    budget = BudgetConfig(name="test", wall_clock_s=wall_clock_s, kill_grace_s=0.3)
    agent = AgentConfig(name="test", argv=argv, expects_submissions=False)
    return make_spec("gsm8k_mini", budget=budget, agent=agent)


class SubmissionsFail(ScriptedGrade):
    """Grades baselines; its first ``submission_errors`` gradings of submissions fail."""

    submission_errors = 0

    async def __call__(self, job: GradeJob) -> tuple[Evaluation, ...]:
        if job.submission_id is not None and self.submission_errors > 0:
            self.submission_errors -= 1
            raise GraderError("engine died")
        return await super().__call__(job)


class Laboratory:
    """A run in its folder, with everything it told."""

    def __init__(self, root: Path, spec: RunSpec) -> None:
        # The one real task that needs no engine; its evaluation is the scripted grader's.
        task = spec.tasks[0].model_copy(update={"kind": "gsm8k", "num_eval": 3, "num_train": 3})
        spec = spec.model_copy(update={"tasks": (task,)})
        self.grade = SubmissionsFail()
        self.told: list[Entry] = []
        paths = SweepPaths(root / "sweep")
        self.ledger = paths.run("r").ledger
        self.logs = paths.run("r").logs
        self.run = make_run(spec, root, sweep="sweep", grade=self.grade, on_entry=self.told.append)

    def events(self, *types: type[Event]) -> list[Event]:
        entries = read_ledger(self.ledger)
        return [entry.event for entry in entries if isinstance(entry.event, types)]


def test_a_run_goes_through_its_states_and_tells_every_entry(tmp_path: Path) -> None:
    lab = Laboratory(tmp_path, spec_of(sys.executable, "-c", SUBMIT))
    assert lab.run.execute(attempt=0, is_last=True) is RunEnd.COMPLETED
    states = [e.state for e in lab.events(StateChanged) if isinstance(e, StateChanged)]
    assert states == [
        RunState.PREPARING,
        RunState.BASELINE,
        RunState.RUNNING,
        RunState.CLOSING,
        RunState.FINISHED,
    ]
    [graded] = lab.events(SubmissionGraded)
    assert isinstance(graded, SubmissionGraded)
    assert graded.evaluations[0].score == 42.0
    answer = json.loads((lab.logs / "agent.stdout").read_text())
    assert (answer["score"], answer["baseline_score"], answer["improvement"]) == (42.0, 5.0, 37.0)
    assert lab.told == read_ledger(lab.ledger)


def test_the_deadline_ends_the_agent_and_the_run(tmp_path: Path) -> None:
    lab = Laboratory(tmp_path, spec_of("sleep", "60", wall_clock_s=0.5))
    assert lab.run.execute(attempt=0, is_last=True) is RunEnd.TIMED_OUT
    [exited] = lab.events(AgentExited)
    assert isinstance(exited, AgentExited)
    assert exited.killed
    assert exited.budget_used_s < 40


@pytest.mark.parametrize("is_last", [False, True])
def test_a_baseline_that_fails_is_infrastructure_and_starts_no_agent(
    tmp_path: Path, is_last: bool
) -> None:
    lab = Laboratory(tmp_path, spec_of("true"))
    lab.grade.errors = [GraderError("engine died")]
    assert lab.run.execute(attempt=0, is_last=is_last) is RunEnd.INFRA_ERROR
    [finished] = lab.events(RunFinished)
    assert isinstance(finished, RunFinished)
    assert finished.final is is_last
    assert "engine died" in finished.detail
    assert not lab.events(AgentExited)


@pytest.mark.parametrize("num_more", [0, LEFTOVER_ROUNDS - 1])
def test_what_an_attempt_could_not_grade_is_graded_before_the_next(
    tmp_path: Path, num_more: int
) -> None:
    lab = Laboratory(tmp_path, spec_of(sys.executable, "-c", SUBMIT))
    lab.grade.submission_errors = 3  # asked for by the agent, once more at the end, once spare
    assert lab.run.execute(attempt=0, is_last=False) is RunEnd.INFRA_ERROR
    [accepted] = lab.events(SubmissionAccepted)
    assert (lab.logs / "agent.stdout").read_text().split() == ["503"]

    lab.grade.submission_errors = num_more
    assert lab.run.execute(attempt=1, is_last=True) is RunEnd.COMPLETED
    assert not lab.events(Note)
    events = lab.events(RunStarted, SubmissionGraded)
    starts = [i for i, event in enumerate(events) if isinstance(event, RunStarted)]
    before = events[starts[1] - 1]
    assert isinstance(before, SubmissionGraded)
    assert isinstance(accepted, SubmissionAccepted)
    assert before.submission_id == accepted.submission_id
    assert before.evaluations[0].score == 42.0


def test_what_cannot_be_graded_holds_no_attempt_back_and_is_told(tmp_path: Path) -> None:
    lab = Laboratory(tmp_path, spec_of(sys.executable, "-c", SUBMIT))
    lab.grade.submission_errors = 2
    assert lab.run.execute(attempt=0, is_last=False) is RunEnd.INFRA_ERROR

    lab.grade.submission_errors = LEFTOVER_ROUNDS
    assert lab.run.execute(attempt=1, is_last=True) is RunEnd.COMPLETED
    [note] = [event for event in lab.events(Note) if isinstance(event, Note)]
    assert note.level == "warning"
    assert "stay ungraded: " in note.message


def test_an_attempt_after_one_that_left_no_trace_takes_its_number(tmp_path: Path) -> None:
    lab = Laboratory(tmp_path, spec_of(sys.executable, "-c", SUBMIT))
    assert lab.run.execute(attempt=2, is_last=False) is RunEnd.COMPLETED
    assert lab.run.execute(attempt=1, is_last=True) is RunEnd.COMPLETED
    numbers = [e.attempt for e in lab.events(RunStarted) if isinstance(e, RunStarted)]
    assert numbers == [0, 1]


def test_a_changed_base_model_is_noted(tmp_path: Path) -> None:
    script = 'chmod -R u+w "$MODEL_PATH"; echo {} > "$MODEL_PATH/config.json"'
    lab = Laboratory(tmp_path, spec_of("sh", "-c", script))
    assert lab.run.execute(attempt=0, is_last=True) is RunEnd.COMPLETED
    notes = [e.message for e in lab.events(Note) if isinstance(e, Note) and e.topic == "tampering"]
    assert any("view of the base model" in message for message in notes)


def test_a_failed_agent_says_why(tmp_path: Path) -> None:
    lab = Laboratory(tmp_path, spec_of("sh", "-c", "echo cannot find my script >&2; exit 127"))
    assert lab.run.execute(attempt=0, is_last=True) is RunEnd.AGENT_ERROR
    [finished] = lab.events(RunFinished)
    assert isinstance(finished, RunFinished)
    assert finished.detail == "exit code 127: cannot find my script"


def test_a_file_in_the_place_of_a_runs_folder_is_a_ledgers_error(tmp_path: Path) -> None:
    lab = Laboratory(tmp_path, spec_of("true"))
    lab.ledger.parent.parent.mkdir(parents=True)
    lab.ledger.parent.touch()
    with pytest.raises(LedgerError, match=r"cannot open ledger .*move the run's folder away"):
        lab.run.execute(attempt=0, is_last=True)


def test_a_spec_that_a_full_disk_cut_is_written_by_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Laboratory(tmp_path, spec_of(sys.executable, "-c", ""))
    spec = lab.ledger.parent / "spec.json"
    whole = Path.write_bytes

    def cut(path: Path, data: bytes) -> int:
        if path.parent == spec.parent:
            whole(path, data[:10])
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", cut)
        assert lab.run.execute(attempt=0, is_last=False) is RunEnd.INFRA_ERROR
    assert not spec.exists()
    assert lab.run.execute(attempt=1, is_last=True) is RunEnd.COMPLETED
    assert RunSpec.model_validate_json(spec.read_text()) == lab.run.spec
