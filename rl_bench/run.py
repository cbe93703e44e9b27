"""One attempt at a run, from an empty workspace to its last ledger line.

    prepare   workspace, base model's snapshot
    baseline  the base model graded on the run's tasks
    running   grading API up, clock started, agent in its sandbox until it ends or the budget does
    closing   everything accepted is graded to the end, base model and files are checked

`Run` owns the order of these and turns whatever goes wrong into a `RunEnd`; each step is done by
the module named after it. It knows no Ray: grading is a `Grade`, and every ledger entry is told to
``on_entry`` once it is on disk.
"""

import asyncio
import logging
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rl_bench.clock import RunClock
from rl_bench.code_history import CodeHistory
from rl_bench.config import RunSpec
from rl_bench.disk_watch import DiskWatch
from rl_bench.errors import LedgerError, RlBenchError
from rl_bench.events import (
    AgentExited,
    AgentStarted,
    Entry,
    Event,
    Note,
    RunEnd,
    RunFinished,
    RunStarted,
    RunState,
    StateChanged,
    SubmissionAccepted,
)
from rl_bench.grading import Grade
from rl_bench.grading_api import GradingServer
from rl_bench.grading_desk import GradingDesk
from rl_bench.ledger import Ledger, read_ledger
from rl_bench.paths import SweepPaths
from rl_bench.process import AgentExit, AgentProcess, tail
from rl_bench.run_end import classify_end
from rl_bench.sandbox import Launch, make_sandbox
from rl_bench.submission import SubmissionStore
from rl_bench.tasks.registry import make_task
from rl_bench.workspace import Workspace

log = logging.getLogger(__name__)
OnEntry = Callable[[Entry], None]
"""Told of every ledger entry once it is on disk."""


class Ending(NamedTuple):
    """How an attempt ended and, where it matters, why."""

    end: RunEnd
    detail: str = ""


class ToldLedger:
    """A ledger that tells of every entry once it is on disk."""

    def __init__(self, ledger: Ledger, on_entry: OnEntry) -> None:
        self._ledger = ledger
        self._on_entry = on_entry

    def append(self, event: Event) -> Entry:
        """Returns when the event is on disk."""
        entry = self._ledger.append(event)
        self._on_entry(entry)
        return entry


class Run:
    """Carries out attempts at one run.

    Args:
        spec: The run.
        run_id: Its id.
        sweep: The sweep's name, for the record.
        paths: The sweep's paths.
        cache: Where generated and unpacked data are kept.
        base_model: The base model's folder.
        num_threads: OMP threads of the agent's processes.
        grade: Grades checkpoints.
        on_entry: Told of every ledger entry.
    """

    def __init__(
        self,
        spec: RunSpec,
        *,
        run_id: str,
        sweep: str,
        paths: SweepPaths,
        cache: Path,
        base_model: Path,
        num_threads: int,
        grade: Grade,
        on_entry: OnEntry = lambda entry: None,
    ) -> None:
        self.spec = spec
        self.run_id = run_id
        self._sweep = sweep
        self._sweep_paths = paths
        self._paths = paths.run(run_id)
        self._cache = cache
        self._base_model = base_model
        self._num_threads = num_threads
        self._grade = grade
        self._on_entry = on_entry

    def execute(self, *, attempt: int, is_last: bool) -> RunEnd:
        """Makes one attempt.

        Args:
            attempt: Its number, from 0.
            is_last: Whether a failure of infrastructure is final.

        Raises:
            LedgerError: Not even the ledger could be written.
        """
        self._paths.root.mkdir(parents=True, exist_ok=True)
        if not self._paths.spec.exists():
            self._paths.spec.write_text(self.spec.model_dump_json(indent=2), encoding="utf-8")
        with Ledger(self._paths.ledger) as file:
            ledger = ToldLedger(file, self._on_entry)
            self._grade_leftovers(ledger)
            ledger.append(
                RunStarted(run_id=self.run_id, sweep=self._sweep, attempt=attempt, spec=self.spec)
            )
            ending = self._guarded(ledger)
            is_final = is_last or not ending.end.is_infrastructure
            ledger.append(StateChanged(state=RunState.FINISHED))
            ledger.append(RunFinished(end=ending.end, detail=ending.detail, final=is_final))
            return ending.end

    def _grade_leftovers(self, ledger: ToldLedger) -> None:
        """Grades what an earlier attempt accepted and could not grade before it was killed."""
        entries = read_ledger(self._paths.ledger)
        if not any(isinstance(entry.event, SubmissionAccepted) for entry in entries):
            return
        try:
            desk = GradingDesk(
                self.spec,
                run_id=self.run_id,
                store=SubmissionStore(
                    self._sweep_paths.snapshots,
                    workspace=self._paths.workspace,
                    base_model=self._base_model,
                ),
                ledger=ledger,
                clock=RunClock(self.spec.budget),
                grade=self._grade,
            )
            desk.restore(entries)
            if desk.pending():
                asyncio.run(desk.drain())
        except RlBenchError as error:
            message = f"an earlier attempt's submissions stay ungraded: {error}"
            ledger.append(Note(level="warning", topic="leftovers", message=message))

    def _guarded(self, ledger: ToldLedger) -> Ending:
        try:
            return self._attempt(ledger)
        except LedgerError:
            raise
        except RlBenchError as error:
            return Ending(RunEnd.INFRA_ERROR, f"{type(error).__name__}: {error}")
        except Exception as error:
            # The run boundary: one run's fault must neither stop the sweep nor become a score.
            log.exception("run %s broke", self.run_id)
            trace = "".join(traceback.format_exception(error))[-3000:]
            return Ending(RunEnd.INFRA_ERROR, trace)

    def _attempt(self, ledger: ToldLedger) -> Ending:
        ledger.append(StateChanged(state=RunState.PREPARING))
        spec = self.spec
        tasks = [make_task(task, cache=self._cache) for task in spec.tasks]
        workspace = Workspace.create(self._paths, spec, tasks=tasks, base_model=self._base_model)
        store = SubmissionStore(
            self._sweep_paths.snapshots,
            workspace=workspace.root,
            base_model=workspace.base_model,
            base_hash=workspace.base_hash,
        )
        clock = RunClock(spec.budget)
        desk = GradingDesk(
            spec,
            run_id=self.run_id,
            store=store,
            ledger=ledger,
            clock=clock,
            grade=self._grade,
            code_revision=CodeHistory(workspace.code, history=self._paths.code_history).record,
            on_scores=workspace.refresh,
        )
        with GradingServer(desk) as server:
            ledger.append(StateChanged(state=RunState.BASELINE))
            server.run(desk.grade_baseline())
            ledger.append(StateChanged(state=RunState.RUNNING))
            disk = DiskWatch(self._paths.root, warn=lambda words: self._warn(ledger, "disk", words))
            exit_ = self._run_agent(
                ledger, workspace=workspace, clock=clock, url=server.url, disk=disk
            )
            desk.close()
            ledger.append(StateChanged(state=RunState.CLOSING))
            ungraded = server.run(desk.drain())
        self._inspect(ledger, workspace)
        if disk.look():
            return Ending(RunEnd.INFRA_ERROR, disk.problem)
        if ungraded:
            return Ending(RunEnd.INFRA_ERROR, f"{len(ungraded)} submissions could not be graded")
        end = classify_end(
            exit_, agent=spec.agent, budget=spec.budget, num_submissions=desk.num_submissions
        )
        return Ending(end, self._why(end, exit_))

    def _why(self, end: RunEnd, exit_: AgentExit) -> str:
        """What a reader of the table wants to know of an agent that failed, in a line."""
        if exit_.start_error or end not in {RunEnd.AGENT_ERROR, RunEnd.NEVER_STARTED}:
            return exit_.start_error
        written = tail(self._paths.logs / "agent.stderr", max_bytes=500).strip().splitlines()
        last = f": {written[-1][:300]}" if written else ", nothing on stderr"
        return f"exit code {exit_.exit_code}{last}"

    def _run_agent(
        self,
        ledger: ToldLedger,
        *,
        workspace: Workspace,
        clock: RunClock,
        url: str,
        disk: DiskWatch,
    ) -> AgentExit:
        """Starts the agent and waits until nothing of it is left."""
        sandbox = make_sandbox(self.spec.sandbox)
        for warning in sandbox.warnings():
            ledger.append(Note(level="info", topic="sandbox", message=warning))
        launch = sandbox.wrap(
            Launch(
                argv=workspace.argv(),
                env=workspace.environment(url, num_threads=self._num_threads),
                cwd=workspace.root,
            ),
            workspace=workspace.root,
        )
        grace_s = self.spec.budget.kill_grace_s
        stderr = self._paths.logs / "agent.stderr"
        workspace.start_clock(clock)
        agent = AgentProcess.start(
            launch.argv,
            env=launch.env,
            cwd=launch.cwd,
            stdout=self._paths.logs / "agent.stdout",
            stderr=stderr,
            grace_s=grace_s,
        )
        try:
            ledger.append(AgentStarted(pid=agent.pid, argv=tuple(launch.argv)))
            exit_ = agent.wait(
                remaining_s=lambda: clock.remaining_s,
                grace_s=grace_s,
                should_abort=disk.is_full,
                on_stall=lambda seconds: self._note_stall(ledger, seconds),
            )
        except BaseException:
            agent.stop(grace_s=0.0)
            raise
        ledger.append(
            AgentExited(
                exit_code=exit_.exit_code,
                killed=exit_.killed,
                budget_used_s=clock.used_s,
                num_survivors_killed=exit_.num_survivors_killed,
                stderr_tail=tail(stderr),
            )
        )
        return exit_

    def _note_stall(self, ledger: ToldLedger, seconds: float) -> None:
        message = f"the agent has neither written nor computed for {seconds:.0f} s"
        self._warn(ledger, "stall", message)

    def _warn(self, ledger: ToldLedger, topic: str, message: str) -> None:
        with suppress(LedgerError):
            ledger.append(Note(level="warning", topic=topic, message=message))

    def _inspect(self, ledger: ToldLedger, workspace: Workspace) -> None:
        """Notes what the agent did to what was only its to read."""
        for name in workspace.tampered():
            self._warn(ledger, "tampering", f"changed: {name}")
        base = workspace.verify_base()
        if not base.view_intact:
            self._warn(ledger, "tampering", "the agent changed its view of the base model")
        if not base.original_intact:
            message = f"the shared base model {self._base_model} was changed during the run"
            ledger.append(Note(level="error", topic="tampering", message=message))
