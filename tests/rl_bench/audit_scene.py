"""A recorded run to be audited: real ledger entries, code history, workspace, checkpoints."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from rl_bench.audit.audit import Audit, audit_run
from rl_bench.config import (
    AuditConfig,
    BudgetConfig,
    DriverConfig,
    RunSpec,
    TaskConfig,
)
from rl_bench.events import (
    AgentEvent,
    BaselineGraded,
    Entry,
    Evaluation,
    Event,
    FindingMade,
    ProcessSeen,
    RunStarted,
    SubmissionAccepted,
    SubmissionGraded,
)
from rl_bench.lineage.code_history import CodeHistory
from rl_bench.paths import SweepPaths
from rl_bench.tasks.base import Task
from tests.rl_bench.grading_scene import write_checkpoint
from tests.run_specs import run_spec

CASES = Path(__file__).parent / "audit_cases"


def case(name: str) -> str:
    """The text of a training script."""
    return (CASES / f"{name}.py.txt").read_text()


def make_spec(
    mode: str, *, tasks: Sequence[TaskConfig] = (), driver: DriverConfig | None = None
) -> RunSpec:
    return run_spec(
        *(tasks or ("words",)),
        mode=mode,
        rules=f"The rules of {mode}.",
        driver=driver,
        model="base",
        budget=BudgetConfig(name="test", wall_clock_s=3600),
    )


class AuditScene:
    """One run below ``root``; what happens is told in order of the run's clock."""

    def __init__(
        self,
        root: Path,
        mode: str = "sft_only",
        *,
        tasks: Sequence[TaskConfig] = (),
        driver: DriverConfig | None = None,
    ) -> None:
        self.sweep = SweepPaths(root / "s")
        self.paths = self.sweep.run("r")
        self.spec = make_spec(mode, tasks=tasks, driver=driver)
        self.workspace = self.paths.workspace
        for name in ("code", "output", "data"):
            (self.workspace / name).mkdir(parents=True)
        self.paths.logs.mkdir()
        self.base = write_checkpoint(root / "base", value=5.0)
        self.history = CodeHistory(self.workspace / "code", history=self.paths.code_history)
        self.entries: list[Entry] = []
        self._num_calls = 0
        self.add(RunStarted(run_id="r", sweep="s", attempt=0, spec=self.spec))
        self.add(BaselineGraded(content_hash="base", evaluations=(self._evaluation(10.0),)))

    def add(self, event: Event) -> None:
        """The next ledger entry."""
        now = datetime.now(UTC).isoformat()
        seq = len(self.entries)
        self.entries.append(Entry(seq=seq, time_utc=now, elapsed_s=float(seq), event=event))

    def write(self, name: str, text: str, *, at_s: float = 1.0) -> str:
        """A file of the agent's code in a revision of its own; the revision."""
        path = self.workspace / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return self.history.record("change", budget_used_s=at_s).id

    def process(self, *argv: str, at_s: float = 10.0, duration_s: float = 60.0) -> None:
        """A process that was seen."""
        self.add(
            ProcessSeen(
                pid=7,
                parent_pid=1,
                argv=argv,
                began_s=at_s,
                duration_s=duration_s,
                cpu_s=duration_s,
            )
        )

    def command(
        self, text: str, output: str = "", *, at_s: float = 10.0, name: str = "Bash"
    ) -> None:
        """A tool call of the trace with its result."""
        self._num_calls += 1
        call = f"call{self._num_calls}"
        self.add(
            AgentEvent(kind="tool_call", budget_used_s=at_s, name=name, text=text, call_id=call)
        )
        self.add(AgentEvent(kind="tool_result", budget_used_s=at_s, text=output, call_id=call))

    def submit(
        self,
        submission_id: int = 1,
        *,
        score: float = 50.0,
        at_s: float = 100.0,
        digest: str = "none",
        unchanged: bool = False,
        model_path: str = "output/m",
    ) -> None:
        """An accepted and graded submission."""
        self.add(
            SubmissionAccepted(
                submission_id=submission_id,
                model_path=model_path,
                content_hash=digest,
                tasks=("words",),
                budget_used_s=at_s,
                unchanged=unchanged,
            )
        )
        evaluations = (self._evaluation(score),)
        self.add(SubmissionGraded(submission_id=submission_id, evaluations=evaluations))

    def _evaluation(self, score: float) -> Evaluation:
        name = self.spec.tasks[0].name
        return Evaluation(task=name, score=score, num_items=10, num_errors=0, evaluator_version="1")

    def audit(
        self, *, tasks: Sequence[Task] = (), config: AuditConfig | None = None, base: str = ""
    ) -> Audit:
        """Judges it."""
        return audit_run(
            self.paths,
            self.spec,
            self.entries,
            tasks=tasks,
            base_model=Path(base) if base else self.base,
            snapshots=self.sweep.snapshots,
            config=config or AuditConfig(name="default"),
        )

    def findings(self, audit: Audit, rule: str) -> list[FindingMade]:
        """Those of one rule."""
        return [finding for finding in audit.findings if finding.rule == rule]


def save_weights(folder: Path, tensors: dict[str, np.ndarray]) -> Path:
    """A checkpoint with nothing but weights and a config."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    save_file(tensors, folder / "model.safetensors")
    return folder
