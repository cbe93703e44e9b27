"""Makes the recording that the agent `replay` reads, from a recorded run's ledger and settings.

Commands come from the agent's own stream where it has one. An agent without a driver is its own
command. For any other without a stream, the processes that were seen are the commands.

A revision is stored a moment after the change that it holds, so the code that a command ran with is
the first revision after its start, if that came within `SETTLE_S` and before the agent's next call
of a tool, else the last one before.
"""

import contextlib
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TypeGuard

from rl_bench.agents.launch import is_replay
from rl_bench.agents.replay.recording import (
    HISTORY,
    RECORDING,
    Command,
    RecordedSubmission,
    Recording,
)
from rl_bench.config import AgentConfig, RunSpec
from rl_bench.counts import plural
from rl_bench.errors import LedgerError, PreflightError
from rl_bench.events import (
    AgentEvent,
    BaselineGraded,
    CodeChanged,
    Event,
    ProcessSeen,
    RunStarted,
    SubmissionAccepted,
    SubmissionGraded,
)
from rl_bench.ledger import read_ledger
from rl_bench.lineage.order import Placed, in_order
from rl_bench.paths import RunPaths
from rl_bench.scoreboard import score_of
from rl_bench.whole_file import write_whole

SETTLE_S = 3.0
MAX_LISTED = 20
SHELL_TOOLS: Mapping[str, bool] = {
    "Bash": True,
    "bash": False,
    "command_execution": False,
    "exec_command": False,
    "execute_bash": True,
    "run_shell_command": False,
    "shell": False,
    "terminal": True,
}
"""Tools that take a command, and whether the next one starts in the folder where it ended."""
_RUNNERS = re.compile(r"(python[\d.]*|bash|sh|dash|zsh|torchrun|accelerate|deepspeed)")
_CUT = re.compile(r"… \[\d+ more characters\]$")


def recorded_run(agent: AgentConfig) -> Path:
    """The folder of the run that a replay agent is to replay.

    Raises:
        PreflightError: Its settings name none.
    """
    run = agent.settings.get("run")
    if not isinstance(run, str) or not run.startswith("/"):
        raise PreflightError(
            f"agent {agent.name}: settings.run is {run!r}",
            cure="Give the absolute path of a run: agent.settings.run=/…/results/SWEEP/runs/ID",
        )
    return Path(run)


def check_recording(spec: RunSpec) -> str:
    """Whether the run that ``spec``'s agent is to replay can be; what it holds, in words.

    Raises:
        PreflightError: It is not there, has nothing to replay, or is of other tasks or another
            model.
    """
    run = recorded_run(spec.agent)
    events = _last_attempt(run)
    then = _spec_of(events)
    _check_same(run, then, spec)
    recording = _recording(run, events)
    if not (run / HISTORY / "HEAD").is_file() and any(step.revision for step in recording.steps):
        raise PreflightError(
            f"{run} has no code history", cure=f"Give a run whose folder holds {HISTORY}"
        )
    commands = plural(len(recording.commands), "command")
    held = f"{commands}, {plural(len(recording.submissions), 'submission')}"
    differs = [
        f"{name} {now} where it was {before}"
        for name, before, now in (
            ("seed", then.seed, spec.seed),
            ("mode", then.mode.name, spec.mode.name),
        )
        if before != now
    ]
    return f"{held}; this run has {', '.join(differs)}" if differs else held


def _check_same(run: Path, then: RunSpec, now: RunSpec) -> None:
    for group, before, wanted in (
        ("task", [task.name for task in then.tasks], [task.name for task in now.tasks]),
        ("model", [then.model.name], [now.model.name]),
    ):
        if before != wanted:
            raise PreflightError(
                f"{run} was a run on {', '.join(before)}, not on {', '.join(wanted)}",
                cure=f"Replay it with {group}={','.join(before)}",
            )


def write_recording(run: Path) -> Path:
    """Puts the recording into the recorded run's folder, before a replay starts.

    Raises:
        PreflightError: It cannot be made, see `make_recording`, or not be written.
    """
    text = make_recording(run).model_dump_json(indent=1)
    try:
        write_whole(run / RECORDING, text, is_shared=True)
    except OSError as error:
        raise PreflightError(
            f"{run / RECORDING} cannot be written: {error}", cure="Make the run's folder writable"
        ) from error
    return run / RECORDING


def make_recording(run: Path) -> Recording:
    """The recording of a run's last attempt.

    Args:
        run: The run's folder.

    Raises:
        PreflightError: There is no ledger, no submission, or nothing that tells how the first one
            was made.
    """
    return _recording(run, _last_attempt(run))


def _last_attempt(run: Path) -> list[Event]:
    """The events of a run's last attempt, from its start."""
    try:
        events = [entry.event for entry in read_ledger(RunPaths(run).ledger)]
    except LedgerError as error:
        runs = sorted(ledger.parent for ledger in run.glob("runs/*/ledger.jsonl"))
        if runs:
            listed = ", ".join(folder.name for folder in runs[:MAX_LISTED])
            more = f" and {len(runs) - MAX_LISTED} more" if len(runs) > MAX_LISTED else ""
            raise PreflightError(
                f"{run} is a sweep; its runs: {listed}{more}",
                cure=f"Give one of them: agent.settings.run={runs[0]}",
            ) from error
        raise PreflightError(
            f"there is no run to replay at {run}: {error.message}",
            cure="Give the folder of a run, which holds ledger.jsonl",
        ) from error
    starts = [number for number, event in enumerate(events) if isinstance(event, RunStarted)]
    if not starts:
        raise PreflightError(f"the run at {run} never started", cure="Give another run")
    return events[starts[-1] :]


def _spec_of(events: Sequence[Event]) -> RunSpec:
    started = events[0]
    assert isinstance(started, RunStarted)
    if is_replay(started.spec.agent):
        raise PreflightError(
            f"run {started.run_id} is itself a replay, of {started.spec.agent.settings.get('run')}",
            cure="Replay that one",
        )
    return started.spec


def _recording(run: Path, events: Sequence[Event]) -> Recording:
    recording = _of_attempt(events)
    _check_steps(recording, run)
    return recording


def _of_attempt(events: Sequence[Event]) -> Recording:
    started = events[0]
    assert isinstance(started, RunStarted)
    spec = _spec_of(events)
    baseline = [
        e for event in events if isinstance(event, BaselineGraded) for e in event.evaluations
    ]
    return Recording(
        run_id=started.run_id,
        agent=spec.agent.name,
        mode=spec.mode.name,
        model=spec.model.name,
        seed=spec.seed,
        tasks=tuple(task.name for task in spec.tasks),
        settings=dict(spec.agent.settings),
        env={} if spec.agent.apis else dict(spec.agent.env),
        baseline={verdict.task: score_of(verdict) for verdict in baseline},
        noise={verdict.task: verdict.noise_floor for verdict in baseline},
        steps=in_order(list(_commands(events, spec)), list(_submissions(events, spec))),
    )


def _check_steps(recording: Recording, run: Path) -> None:
    if not recording.submissions:
        raise PreflightError(
            f"the run at {run} has no submissions", cure="Give a run that submitted something"
        )
    for step in recording.steps:
        if isinstance(step, Command):
            return
        if not step.is_base:
            raise PreflightError(
                f"nothing in the ledger at {run} tells how submission {step.submission_id} "
                f"({step.model_path}) was made: no command or process was recorded before it",
                cure="Give a run whose agent's stream was read, see `stream` in conf/agent",
            )


def _submissions(events: Sequence[Event], spec: RunSpec) -> Iterator[Placed]:
    scores: dict[int, dict[str, float | None]] = {}
    for event in events:
        if isinstance(event, SubmissionGraded):
            of = scores.setdefault(event.submission_id, {})
            of.update({e.task: score_of(e) for e in event.evaluations if of.get(e.task) is None})
    base = {f"models/{spec.model.name}"}
    for number, event in enumerate(events):
        if isinstance(event, SubmissionAccepted):
            is_base = event.unchanged and (
                event.model_path in base or event.model_path.startswith("/")
            )
            known = scores.get(event.submission_id, {})
            yield Placed(
                number,
                RecordedSubmission(
                    submission_id=event.submission_id,
                    model_path=event.model_path,
                    tasks=event.tasks,
                    revision=event.code_revision,
                    at_s=event.budget_used_s,
                    scores={task: known.get(task) for task in event.tasks},
                    is_base=is_base,
                ),
            )


def _commands(events: Sequence[Event], spec: RunSpec) -> Iterator[Placed]:
    if not spec.agent.apis:
        yield Placed(0, Command(argv=spec.agent.argv, is_agent=True, at_s=0.0))
        return
    of_stream = list(_stream_commands(events))
    yield from of_stream or _process_commands(events, spec.agent)


class _Trace:
    """What an attempt's ledger tells of tools and revisions, for quick look-ups."""

    def __init__(self, events: Sequence[Event]) -> None:
        traced = [(n, event) for n, event in enumerate(events) if isinstance(event, AgentEvent)]
        self.traced = traced
        self._calls = [number for number, event in traced if event.kind == "tool_call"]
        self._changes = [(n, event) for n, event in enumerate(events) if _is_change(event)]
        self._change_numbers = [number for number, _ in self._changes]
        self._ends: dict[str, AgentEvent] = {}
        for _, event in traced:
            if event.kind == "tool_result" and event.call_id:
                self._ends.setdefault(event.call_id, event)

    def end_s(self, call: AgentEvent) -> float | None:
        """When a call's result was told."""
        end = self._ends.get(call.call_id)
        return None if end is None else end.budget_used_s

    def answer(self, call: AgentEvent) -> str:
        """What a call's result said, as far as it was told."""
        end = self._ends.get(call.call_id)
        return "" if end is None else end.text

    def revision_at(self, start: int, at_s: float) -> str:
        """The code's revision for a command that began after event ``start``; empty: none yet."""
        index = bisect_right(self._change_numbers, start)
        if index < len(self._changes):
            number, change = self._changes[index]
            later_calls = bisect_right(self._calls, start)
            is_before = later_calls == len(self._calls) or number < self._calls[later_calls]
            if is_before and change.budget_used_s <= at_s + SETTLE_S:
                return change.revision
        return self._changes[index - 1][1].revision if index else ""


def _is_change(event: Event) -> TypeGuard[CodeChanged]:
    return isinstance(event, CodeChanged)


def _stream_commands(events: Sequence[Event]) -> Iterator[Placed]:
    trace = _Trace(events)
    before: tuple[int, AgentEvent] | None = None
    for number, event in trace.traced:
        text = _shell_text(event)
        if text:
            end_s = trace.end_s(event)
            start, begun = number, event
            if end_s == event.budget_used_s and before is not None:
                # Told together with its result: it began when the one before was told.
                start, begun = before
            at_s = begun.budget_used_s
            yield Placed(
                start + 0.5,
                Command(
                    text=text,
                    keeps_folder=SHELL_TOOLS[event.name],
                    revision=trace.revision_at(start, at_s),
                    at_s=at_s,
                    duration_s=None if end_s is None else round(max(0.0, end_s - at_s), 3),
                    is_cut=bool(_CUT.search(text)),
                ),
                trace.answer(event),
            )
        before = number, event


def _shell_text(event: AgentEvent) -> str:
    """The command that an event tells of; empty when it tells of none."""
    if event.kind != "tool_call" or event.name not in SHELL_TOOLS:
        return ""
    with contextlib.suppress(ValueError, RecursionError):
        fields = json.loads(event.text)
        if isinstance(fields, dict):
            command = fields.get("command", fields.get("cmd", ""))
            return command if isinstance(command, str) else ""
    return event.text.strip()


def _process_commands(events: Sequence[Event], agent: AgentConfig) -> Iterator[Placed]:
    """The topmost interpreters that were seen, less the agent's own."""
    seen = [event for event in events if isinstance(event, ProcessSeen)]
    runs = {p.pid: p for p in seen if p.argv and _is_runner(p, agent)}
    parents = {p.pid: p.parent_pid for p in seen}
    for process in sorted(runs.values(), key=lambda p: (p.began_s, p.pid)):
        if any(pid in runs for pid in _ancestors(process.pid, parents)):
            continue
        yield Placed(
            _place(events, process.began_s),
            Command(
                argv=process.argv,
                revision=_revision_by(events, process.began_s + SETTLE_S),
                at_s=process.began_s,
                duration_s=process.duration_s,
                is_cut=any(word.endswith("…") for word in process.argv),
            ),
        )


def _is_runner(process: ProcessSeen, agent: AgentConfig) -> bool:
    if agent.binary and any(PurePath(word).name == agent.binary for word in process.argv[:3]):
        return False
    return bool(_RUNNERS.fullmatch(PurePath(process.argv[0]).name))


def _ancestors(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    known = {pid}
    while (pid := parents.get(pid, 0)) and pid not in known:
        known.add(pid)
        yield pid


def _place(events: Sequence[Event], at_s: float) -> float:
    """Before the first submission that came later."""
    for number, event in enumerate(events):
        if isinstance(event, SubmissionAccepted) and event.budget_used_s >= at_s:
            return number - 0.5
    return float(len(events))


def _revision_by(events: Sequence[Event], at_s: float) -> str:
    known = [e for e in events if isinstance(e, CodeChanged) and e.budget_used_s <= at_s]
    return known[-1].revision if known else ""
