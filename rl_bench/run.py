"""One attempt at a run, from an empty workspace to its last ledger line.

    prepare   workspace, sandbox, the way to the driver, grading API
    baseline  the base model graded on the run's tasks
    running   the agent's session, until it ends or the budget does
    closing   everything accepted is graded to the end, files are checked, the audit, old snapshots

`Run` owns the order of these and turns whatever goes wrong into a `RunEnd`; each step is done by
the module named after it. It knows no Ray: grading is a `Grade`, and every ledger entry is told to
``on_entry`` once it is on disk.
"""

import asyncio
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import NamedTuple

from rl_bench.agent_session import AgentSession
from rl_bench.agents.launch import is_replay
from rl_bench.agents.stream_watch import StreamWatch
from rl_bench.audit.audit import audit_run
from rl_bench.clock import RunClock
from rl_bench.config import AuditConfig, KeepModels, RunSpec
from rl_bench.counts import plural
from rl_bench.disk_watch import DiskWatch
from rl_bench.driver_link import DriverLink, open_driver
from rl_bench.errors import DriverError, LedgerError, RlBenchError, SandboxError
from rl_bench.events import (
    BaselineGraded,
    DriverFailure,
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
from rl_bench.lineage.code_history import CodeHistory
from rl_bench.lineage.code_watch import CodeWatch
from rl_bench.lineage.recording import recorded_run, write_recording
from rl_bench.lineage.retention import Retention
from rl_bench.paths import SweepPaths
from rl_bench.process.agent_process import AgentExit, tail
from rl_bench.process.run_end import classify_end, is_worth_repeating
from rl_bench.process.strays import end_earlier
from rl_bench.sandbox.base import Forward
from rl_bench.sandbox.choose import make_sandbox
from rl_bench.submission import SubmissionStore
from rl_bench.tasks.base import Task
from rl_bench.tasks.registry import make_task
from rl_bench.whole_file import write_whole
from rl_bench.workspace import Workspace

log = logging.getLogger(__name__)
WRITER_LIMIT_S = 30.0
"""How long the ledger's last writer may take to end."""
LEFTOVER_ROUNDS = 3
"""How often what an earlier attempt accepted is asked for; after the next has begun it is not."""
OnEntry = Callable[[Entry], None]
"""Told of every ledger entry once it is on disk."""


class Ending(NamedTuple):
    """How an attempt ended and, where it matters, why."""

    end: RunEnd
    detail: str = ""
    repeats: bool = True
    """Whether trying again at once may help, where infrastructure ended it."""


class ToldLedger:
    """A ledger that tells of every entry once it is on disk."""

    def __init__(self, ledger: Ledger, on_entry: OnEntry) -> None:
        self._ledger = ledger
        self._on_entry = on_entry
        self._heed: Callable[[Event], None] = lambda event: None

    def append(self, event: Event) -> Entry:
        """Returns when the event is on disk."""
        entry = self._ledger.append(event)
        self._on_entry(entry)
        self._heed(entry.event)
        return entry

    def tell(self, heed: Callable[[Event], None]) -> None:
        """Also tells ``heed``, which must not raise, of every event from now on."""
        self._heed = heed


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
        agents_dir: Where the agents' CLIs are installed.
        audit: What is looked for afterwards.
        keep_models: The rule for snapshots.
        plugins: The plug-ins that it is made with, name to version, for the record.
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
        agents_dir: Path,
        audit: AuditConfig,
        keep_models: KeepModels,
        plugins: Mapping[str, str] = MappingProxyType({}),
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
        self._agents_dir = agents_dir
        self._audit = audit
        self._keep_models: KeepModels = keep_models
        self._plugins = plugins
        self._grade = grade
        self._on_entry = on_entry
        self.is_final = False

    def execute(self, *, attempt: int, is_last: bool) -> RunEnd:
        """Makes one attempt.

        Args:
            attempt: Its number, from 0; less where an attempt before it was lost without a trace.
            is_last: Whether a failure of infrastructure is final. One of the driver's key or
                account is so anyway; `is_final` tells.

        Raises:
            LedgerError: Not even the ledger could be written.
        """
        # The process of an attempt before, killed with its sweep, may be about to end.
        with Ledger(self._paths.ledger, wait_s=WRITER_LIMIT_S) as file:
            ledger = ToldLedger(file, self._on_entry)
            before = read_ledger(self._paths.ledger)
            self._grade_leftovers(ledger, before)
            attempt = min(attempt, sum(isinstance(e.event, RunStarted) for e in before))
            ledger.append(
                RunStarted(
                    run_id=self.run_id,
                    sweep=self._sweep,
                    attempt=attempt,
                    spec=self.spec,
                    plugins=self._plugins,
                )
            )
            ending = self._guarded(ledger, attempt=attempt)
            self.is_final = is_last or not (ending.end.is_infrastructure and ending.repeats)
            if self.is_final:
                self._tidy(ledger)
            ledger.append(StateChanged(state=RunState.FINISHED))
            ledger.append(RunFinished(end=ending.end, detail=ending.detail, final=self.is_final))
            return ending.end

    def _tidy(self, ledger: ToldLedger) -> None:
        """Removes the snapshots that the sweep's rule does not keep."""
        entries = read_ledger(self._paths.ledger)
        baseline = [e.event for e in entries if isinstance(e.event, BaselineGraded)]
        base_hash = baseline[-1].content_hash if baseline else ""
        note = self._retention(base_hash).at_end(entries)
        if note is not None:
            ledger.append(note)

    def _grade_leftovers(self, ledger: ToldLedger, entries: Sequence[Entry]) -> None:
        """Grades what an earlier attempt accepted and could not grade before it was killed."""
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
                    run_id=self.run_id,
                ),
                ledger=ledger,
                clock=RunClock(self.spec.budget),
                grade=self._grade,
            )
            desk.restore(entries)
            left = desk.pending()
            for _ in range(LEFTOVER_ROUNDS):
                left = asyncio.run(desk.drain()) if left else left
            problem = (left[0].message or "no verdict was recorded") if left else ""
        except RlBenchError as error:
            problem = str(error)
        if problem:
            message = f"an earlier attempt's submissions stay ungraded: {problem}"
            ledger.append(Note(level="warning", topic="leftovers", message=message))

    def _guarded(self, ledger: ToldLedger, *, attempt: int) -> Ending:
        try:
            return self._attempt(ledger, attempt=attempt)
        except LedgerError:
            raise
        except SandboxError as error:
            return Ending(RunEnd.SANDBOX_BROKEN, str(error))
        except DriverError as error:
            return Ending(RunEnd.DRIVER_ERROR, str(error))
        except RlBenchError as error:
            return Ending(RunEnd.INFRA_ERROR, f"{type(error).__name__}: {error}")
        except Exception as error:
            # The run boundary: one run's fault must neither stop the sweep nor become a score.
            log.exception("run %s broke", self.run_id)
            trace = "".join(traceback.format_exception(error))[-3000:]
            return Ending(RunEnd.INFRA_ERROR, trace)

    def _attempt(self, ledger: ToldLedger, *, attempt: int) -> Ending:
        ledger.append(StateChanged(state=RunState.PREPARING))
        spec = self.spec
        self._write_spec()
        tasks = [make_task(task, cache=self._cache) for task in spec.tasks]
        left = end_earlier(self._paths.workspace.resolve())
        if left.num_ended:
            num_left = plural(left.num_ended, "process", "processes")
            message = f"ended {num_left} that an earlier attempt's agent had left"
            ledger.append(Note(level="info", topic="leftovers", message=message))
        workspace = Workspace.create(self._paths, spec, tasks=tasks, base_model=self._base_model)
        if is_replay(spec.agent):
            write_recording(recorded_run(spec.agent))
        clock = RunClock(spec.budget)
        history = CodeHistory(workspace.code, history=self._paths.code_history, attempt=attempt)
        code = CodeWatch(
            workspace.code,
            history=history,
            used_s=lambda: clock.used_s,
            tell=ledger.append,
            warn=lambda words: self._warn(ledger, "code_history", words),
        )
        stream = StreamWatch(
            self._paths.logs / "agent.stdout",
            rules=spec.agent.stream,
            budget_used_s=lambda: clock.used_s,
            on_event=ledger.append,
        )

        def revision() -> str:
            # What the agent said before it submitted stands before the submission.
            stream.poll()
            return code.at_submission()

        desk = GradingDesk(
            spec,
            run_id=self.run_id,
            store=self._store(workspace),
            ledger=ledger,
            clock=clock,
            grade=self._grade,
            code_revision=revision,
            on_scores=workspace.refresh,
            retention=self._retention(workspace.base_hash),
        )
        disk = DiskWatch(self._paths.root, warn=lambda words: self._warn(ledger, "disk", words))
        with ExitStack() as stack:
            # Sockets have short names only, and results may lie deep.
            sockets = Path(stack.enter_context(TemporaryDirectory(prefix="rl_bench-")))
            sandbox = make_sandbox(spec.sandbox)
            driver = stack.enter_context(
                open_driver(spec, sockets=sockets, clock=clock, on_call=ledger.append)
            )
            socket_path = sockets / "grading.sock"
            server = stack.enter_context(GradingServer(desk, socket_path=socket_path))
            ledger.append(StateChanged(state=RunState.BASELINE))
            server.run(desk.grade_baseline())
            ledger.append(StateChanged(state=RunState.RUNNING))
            session = AgentSession(
                workspace=workspace,
                paths=self._paths,
                clock=clock,
                ledger=ledger,
                sandbox=sandbox,
                driver=driver,
                stream=stream,
                grading_url=server.url,
                grading=Forward(server.port, socket_path),
                disk=disk,
                agents_dir=self._agents_dir,
                num_threads=self._num_threads,
                warn=lambda topic, words: self._warn(ledger, topic, words),
            )
            with code:
                ledger.tell(code.heed)
                exit_ = session.run()
            desk.close()
            ledger.append(StateChanged(state=RunState.CLOSING))
            ungraded = server.run(desk.drain())
        self._inspect(ledger, workspace)
        if disk.look():
            return Ending(RunEnd.INFRA_ERROR, disk.problem)
        if ungraded:
            what = plural(len(ungraded), "submission")
            return Ending(RunEnd.INFRA_ERROR, f"{what} could not be graded")
        ending = self._ending(exit_, driver, num_submissions=desk.num_submissions)
        return self._audited(ledger, ending, tasks=tasks)

    def _write_spec(self) -> None:
        """Whole or not at all: a full disk leaves no half of it for the next attempt to keep."""
        if not self._paths.spec.exists():
            write_whole(self._paths.spec, self.spec.model_dump_json(indent=2))

    def _store(self, workspace: Workspace) -> SubmissionStore:
        return SubmissionStore(
            self._sweep_paths.snapshots,
            workspace=workspace.root,
            base_model=workspace.base_model,
            base_hash=workspace.base_hash,
            run_id=self.run_id,
        )

    def _retention(self, base_hash: str) -> Retention:
        return Retention(
            self._sweep_paths.snapshots,
            spec=self.spec,
            run_id=self.run_id,
            keep_models=self._keep_models,
            base_hash=base_hash,
        )

    def _ending(self, exit_: AgentExit, driver: DriverLink, *, num_submissions: int) -> Ending:
        calls = driver.summary()
        failure = None if calls is None else calls.last_failure
        end = classify_end(
            exit_,
            agent=self.spec.agent,
            budget=self.spec.budget,
            num_submissions=num_submissions,
            num_answers=None if calls is None else calls.num_whole,
            last_failure=DriverFailure.CAPPED if driver.capped else failure,
        )
        return Ending(end, self._why(end, exit_, driver), is_worth_repeating(end, failure))

    def _why(self, end: RunEnd, exit_: AgentExit, driver: DriverLink) -> str:
        """What a reader of the table wants to know of an end that is not a plain one, in a line."""
        told = exit_.start_error or exit_.sandbox_error or exit_.reason
        calls = driver.summary()
        if end is RunEnd.DRIVER_ERROR and calls is not None and calls.last_failure is not None:
            return f"{calls.last_failure}: {calls.last_detail}"
        if end is RunEnd.TIMED_OUT and driver.capped:
            return driver.capped
        if told or end not in {RunEnd.AGENT_ERROR, RunEnd.NEVER_STARTED}:
            return told
        written = tail(self._paths.logs / "agent.stderr", max_bytes=500).strip().splitlines()
        last = f": {written[-1][:300]}" if written else ", nothing on stderr"
        return f"exit code {exit_.exit_code}{last}"

    def _audited(self, ledger: ToldLedger, ending: Ending, *, tasks: Sequence[Task]) -> Ending:
        """The end, after the run's records were read for what its mode and its score are worth."""
        if ending.end.is_infrastructure:
            return ending
        audit = audit_run(
            self._paths,
            self.spec,
            read_ledger(self._paths.ledger),
            tasks=tasks,
            base_model=self._base_model,
            snapshots=self._sweep_paths.snapshots,
            config=self._audit,
            cache=self._cache,
        )
        ledger.append(audit.mode)
        for finding in audit.findings:
            ledger.append(finding)
        breach = audit.breach
        return Ending(RunEnd.INVALID, breach) if breach else ending

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
