"""A run told event by event, written as the runner writes it: ledger, and tables made from it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from analysis.results import Results, load
from rl_bench.config import (
    BudgetConfig,
    RunSpec,
)
from rl_bench.events import (
    AgentExited,
    AgentStarted,
    BaselineGraded,
    Entry,
    Evaluation,
    Event,
    RunEnd,
    RunFinished,
    RunStarted,
    SubmissionAccepted,
    SubmissionGraded,
    SubmissionRejected,
)
from rl_bench.paths import SweepPaths
from rl_bench.run_records import records_of
from rl_bench.sinks.parquet import ParquetSink
from tests.run_specs import run_spec

START = datetime(2026, 1, 1, tzinfo=UTC)
BUDGET_S = 10_000.0


def spec(*, max_submissions: int | None = None) -> RunSpec:
    """A run on one task, ``words``."""
    budget = BudgetConfig(name="test", wall_clock_s=BUDGET_S, max_submissions=max_submissions)
    return run_spec("words", rules="The rules of free.", model="base", budget=budget)


def evaluation(score: float | None, *, floor: float | None = None) -> Evaluation:
    return Evaluation(
        task="words",
        score=score,
        failure="" if score is not None else "it does not load",
        num_items=10,
        num_errors=0,
        evaluator_version="1",
        noise_floor=floor,
        queue_s=2.0,
        duration_s=5.0,
    )


class LedgerScene:
    """One run, ``r`` of a sweep; ``at_s`` is on the run's clock."""

    READY_S = 100.0

    def __init__(
        self,
        root: Path,
        *,
        sweep: str = "s",
        baseline: float | None = 50.0,
        max_submissions: int | None = None,
    ) -> None:
        self.sweep = SweepPaths(root / sweep)
        self.paths = self.sweep.run("r")
        self.entries: list[Entry] = []
        self.add(
            RunStarted(
                run_id="r", sweep=sweep, attempt=0, spec=spec(max_submissions=max_submissions)
            ),
            elapsed_s=0.0,
        )
        graded = BaselineGraded(content_hash="base", evaluations=(evaluation(baseline, floor=2.0),))
        self.add(graded, elapsed_s=50.0)
        self.add(AgentStarted(pid=1, argv=("true",)), elapsed_s=self.READY_S)

    def add(self, event: Event, *, elapsed_s: float) -> None:
        """The next ledger entry."""
        self.entries.append(
            Entry(
                seq=len(self.entries),
                time_utc=(START + timedelta(seconds=elapsed_s)).isoformat(),
                elapsed_s=elapsed_s,
                event=event,
            )
        )

    def tell(self, event: Event, at_s: float) -> None:
        """An event of the agent's time."""
        self.add(event, elapsed_s=self.READY_S + at_s)

    def submit(
        self,
        number: int,
        at_s: float,
        score: float | None = None,
        *,
        graded: bool = True,
        unchanged: bool = False,
        duplicate_of: int | None = None,
        path: str = "output/m",
    ) -> None:
        """A submission with its verdict; no score: it failed."""
        accepted = SubmissionAccepted(
            submission_id=number,
            model_path=path,
            content_hash=str(duplicate_of or number),
            tasks=("words",),
            budget_used_s=at_s,
            duplicate_of=duplicate_of,
            unchanged=unchanged,
        )
        self.tell(accepted, at_s)
        if graded:
            verdict = SubmissionGraded(submission_id=number, evaluations=(evaluation(score),))
            self.tell(verdict, at_s + 7)

    def refuse(self, at_s: float, *, path: str = "output/m") -> None:
        """A request that got a 4xx."""
        self.tell(
            SubmissionRejected(
                model_path=path,
                reason="missing_config",
                message="no config.json",
                status=422,
                budget_used_s=at_s,
            ),
            at_s,
        )

    def end(self, used_s: float, *, credit_s: float = 0.0, end: RunEnd = RunEnd.COMPLETED) -> None:
        """The agent's end and the run's."""
        exited = AgentExited(exit_code=0, killed=False, budget_used_s=used_s)
        self.tell(exited, used_s + credit_s)
        self.tell(RunFinished(end=end), used_s + credit_s + 1)

    def results(self) -> Results:
        """The tables, written and read."""
        self.paths.root.mkdir(parents=True, exist_ok=True)
        sink = ParquetSink(self.sweep.tables)
        sink.open()
        sink.write_run(records_of("r", self.entries).snapshot())
        return load([self.sweep.root])
