"""An outline told as the events of a ledger, with the times that the runner would give them."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np

from analysis.synthetic.calls import calls
from analysis.synthetic.evaluations import evaluation
from analysis.synthetic.outline import BASE, Outline, Request, Training
from analysis.synthetic.scripts import FILES, METHOD_NAMES, PROBE_FILE, script
from rl_bench.config import RunSpec
from rl_bench.events import (
    AgentEvent,
    AgentExited,
    AgentStarted,
    BaselineGraded,
    CodeChanged,
    Entry,
    Event,
    Evidence,
    FindingMade,
    ModeAudited,
    ModeVerdict,
    ProcessSeen,
    RunEnd,
    RunFinished,
    RunStarted,
    RunState,
    SandboxReady,
    StateChanged,
    SubmissionAccepted,
    SubmissionGraded,
    SubmissionRejected,
)

START = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
RULES = "synthetic-1"
_READY_S = 120.0
"""From a run's start to its agent's."""


class Told(NamedTuple):
    """An event at its time: seconds from the start of the attempt."""

    at_s: float
    event: Event


def digest(*parts: object) -> str:
    """A content hash that depends on nothing else."""
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()


def text_of(training: Training) -> str:
    """The script of a try."""
    return script(
        training.method,
        base=training.base,
        out=training.out,
        rate=training.rate,
        steps=training.steps,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Tells one run.

    Attributes:
        revisions: Commit ids of the agent's code, by the number of the try that it was written
            for; 0: before the first.
        shows_code: The trace shows the scripts as they are written.
    """

    spec: RunSpec
    run_id: str
    sweep: str
    outline: Outline
    revisions: Mapping[int, str]
    shows_code: bool
    rng: np.random.Generator
    started: datetime

    def entries(self) -> list[Entry]:
        """The whole ledger."""
        told: list[Told] = []
        if self.outline.fate == "retried":
            told += self._broken_attempt()
        told += self._attempt(1 if told else 0, after_s=told[-1].at_s + 30 if told else 0.0)
        # Attempts are processes of their own: each counts its seconds from zero.
        offset_s, entries = 0.0, []
        for seq, (at_s, event) in enumerate(told):
            if isinstance(event, RunStarted):
                offset_s = at_s
            time = self.started + timedelta(seconds=at_s)
            entries.append(
                Entry(
                    seq=seq,
                    time_utc=time.isoformat(timespec="microseconds"),
                    elapsed_s=round(at_s - offset_s, 6),
                    event=event,
                )
            )
        return entries

    def _started(self, attempt: int, at_s: float) -> list[Told]:
        event = RunStarted(run_id=self.run_id, sweep=self.sweep, attempt=attempt, spec=self.spec)
        return [Told(at_s, event), Told(at_s + 0.1, StateChanged(state=RunState.PREPARING))]

    def _broken_attempt(self) -> list[Told]:
        told = self._started(0, 0.0)
        detail = "the grader's engine did not start"
        end = RunFinished(end=RunEnd.INFRA_ERROR, detail=detail, final=False)
        return [*told, Told(95.0, end)]

    def _attempt(self, attempt: int, *, after_s: float) -> list[Told]:
        told = self._started(attempt, after_s)
        if self.outline.fate == "infra_error":
            end = RunFinished(end=RunEnd.INFRA_ERROR, detail="no room on the disk")
            return [*told, Told(after_s + 60, end)]
        ready_s = after_s + _READY_S
        told += [
            Told(after_s + 1, StateChanged(state=RunState.BASELINE)),
            Told(after_s + 90, self._baseline()),
            Told(after_s + 95, SandboxReady(kind="bwrap", version="0.8.0")),
            Told(after_s + 96, StateChanged(state=RunState.RUNNING)),
            Told(ready_s, AgentStarted(pid=100, argv=self.spec.agent.argv)),
        ]
        work = sorted(self._work(), key=lambda each: each.at_s)
        told += [Told(ready_s + each.at_s, each.event) for each in work]
        if self.outline.fate == "running":
            return told
        return [*told, *self._ending(ready_s + self.outline.used_s)]

    def _ending(self, at_s: float) -> Iterator[Told]:
        fate = self.outline.fate
        yield Told(
            at_s,
            AgentExited(
                exit_code=None if fate == "timed_out" else 1 if fate == "agent_error" else 0,
                killed=fate == "timed_out",
                budget_used_s=self.outline.used_s,
                final_event=fate not in {"timed_out", "agent_error"},
            ),
        )
        yield Told(at_s + 1, StateChanged(state=RunState.CLOSING))
        yield from (Told(at_s + 5, event) for event in self._judgements())
        ends = {
            "timed_out": RunEnd.TIMED_OUT,
            "agent_error": RunEnd.AGENT_ERROR,
            "driver_error": RunEnd.DRIVER_ERROR,
            "invalid": RunEnd.INVALID,
        }
        end = ends.get(fate, RunEnd.COMPLETED)
        details = {"invalid": "mode: weights were updated from rewards: grpo"}
        yield Told(at_s + 6, RunFinished(end=end, detail=details.get(fate, "")))

    def _judgements(self) -> Iterator[Event]:
        methods = tuple(
            dict.fromkeys(METHOD_NAMES[training.method] for training in self.outline.trainings)
        )
        invalid = self.outline.fate == "invalid"
        yield ModeAudited(
            verdict=ModeVerdict.BREACH if invalid else ModeVerdict.CLEAN,
            rules_version=RULES,
            summary="weights were updated from rewards: grpo" if invalid else "as the mode allows",
            methods=methods,
            evidence=(Evidence(source="process", quote="python code/train_online.py"),),
        )
        accepted = [r for r in self.outline.requests if r.outcome != "rejected"]
        for number, request in enumerate(accepted, start=1):
            if request.cheats:
                yield FindingMade(
                    rule="test_items_in_training",
                    severity="breach",
                    rules_version=RULES,
                    summary=f"submission {number} was trained on evaluation items",
                    submission_id=number,
                    evidence=(Evidence(source="data", path="output/extra.jsonl", line=3),),
                )
            elif request.outcome == "unchanged":
                yield FindingMade(
                    rule="unchanged_base",
                    severity="info",
                    rules_version=RULES,
                    summary=f"submission {number} is the base model itself",
                    submission_id=number,
                )

    def _baseline(self) -> BaselineGraded:
        evaluations = tuple(
            evaluation(self.spec, task, float(np.mean(scores)), self.rng, repeats=scores)
            for task, scores in self.outline.baselines.items()
        )
        return BaselineGraded(content_hash=digest("base"), evaluations=evaluations)

    def _work(self) -> Iterator[Told]:
        yield from self._look()
        for training in self.outline.trainings:
            yield from self._train(training)
        yield from self._submissions()
        yield from (Told(at_s, call) for at_s, call in calls(self.spec, self.outline, self.rng))
        text = "The best checkpoint is submitted; I stop here."
        if self.outline.fate not in {"timed_out", "agent_error", "running"}:
            at_s = self.outline.used_s - 1
            yield Told(
                at_s, AgentEvent(kind="result", name="success", text=text, budget_used_s=at_s)
            )

    def _look(self) -> Iterator[Told]:
        if 0 in self.revisions:
            yield self._revision(0, 20.0, PROBE_FILE)
        text = "I look at the data and at what the base model does before I train."
        yield Told(5.0, AgentEvent(kind="message", text=text, budget_used_s=5.0))
        yield from self._command(30.0, f"python code/{PROBE_FILE}", "7473 rows; the first: ...")
        yield self._process(("python", f"code/{PROBE_FILE}"), 31.0, 4.0)

    def _revision(self, number: int, at_s: float, path: str) -> Told:
        changed = CodeChanged(
            revision=self.revisions[number],
            cause="change",
            changed=(path,),
            num_changed=1,
            num_files=len({FILES[t.method] for t in self.outline.trainings[:number]}) + 1,
            budget_used_s=at_s,
        )
        return Told(at_s, changed)

    def _train(self, training: Training) -> Iterator[Told]:
        path = FILES[training.method]
        if training.number in self.revisions:
            yield self._revision(training.number, training.written_s, path)
        words = f"I train {training.out} by {training.method} from {training.base}."
        at_s = training.written_s
        yield Told(at_s, AgentEvent(kind="message", text=words, budget_used_s=at_s))
        if self.shows_code:
            yield from self._write(f"code/{path}", text_of(training), at_s - 3)
        command = f"python code/{path} > {training.out}.log 2>&1; tail -n 2 {training.out}.log"
        output = f"{{'train_runtime': {training.ended_s - training.began_s:.1f}}}\nsaved"
        yield from self._command(training.began_s, command, output, until_s=training.ended_s)
        lasted_s = training.ended_s - training.began_s
        yield self._process(("python", f"code/{path}"), training.began_s + 0.5, lasted_s - 1)

    def _write(self, path: str, text: str, at_s: float) -> Iterator[Told]:
        words = json.dumps({"file_path": path, "content": text})
        call_id = digest(self.run_id, "write", at_s)[:12]
        yield Told(
            at_s,
            AgentEvent(
                kind="tool_call", name="Write", text=words, call_id=call_id, budget_used_s=at_s
            ),
        )
        done = AgentEvent(
            kind="tool_result", text="written", call_id=call_id, budget_used_s=at_s + 0.1
        )
        yield Told(at_s + 0.1, done)

    def _command(
        self, at_s: float, text: str, output: str, *, until_s: float | None = None
    ) -> Iterator[Told]:
        call_id = digest(self.run_id, at_s)[:12]
        called = AgentEvent(
            kind="tool_call", name="Bash", text=text, call_id=call_id, budget_used_s=at_s
        )
        yield Told(at_s, called)
        end_s = at_s + 2 if until_s is None else until_s
        result = AgentEvent(kind="tool_result", text=output, call_id=call_id, budget_used_s=end_s)
        yield Told(end_s, result)

    def _process(self, argv: tuple[str, ...], began_s: float, lasted_s: float) -> Told:
        seen = ProcessSeen(
            pid=int(1000 + began_s % 30000),
            parent_pid=100,
            argv=argv,
            began_s=began_s,
            duration_s=lasted_s,
            cpu_s=0.9 * lasted_s,
            max_rss_bytes=2_000_000_000,
        )
        return Told(began_s + lasted_s, seen)

    def _submissions(self) -> Iterator[Told]:
        number = 0
        first_of: dict[int | None, int] = {}
        verdicts: dict[int | None, SubmissionGraded] = {}
        for request in self.outline.requests:
            path = self._path(request)
            if request.outcome == "rejected":
                refused = SubmissionRejected(
                    model_path=path,
                    reason="missing_tokenizer",
                    message=f"{path} has no tokenizer",
                    status=422,
                    budget_used_s=request.at_s,
                )
                yield Told(request.at_s, refused)
                continue
            number += 1
            duplicate = request.outcome == "duplicate"
            yield Told(
                request.at_s,
                SubmissionAccepted(
                    submission_id=number,
                    model_path=path,
                    content_hash=self._content(request),
                    tasks=tuple(task.name for task in self.spec.tasks),
                    budget_used_s=request.at_s,
                    code_revision=self.revisions.get(request.training or 0, ""),
                    duplicate_of=first_of.get(request.training) if duplicate else None,
                    unchanged=request.outcome == "unchanged",
                ),
            )
            first_of.setdefault(request.training, number)
            if request.outcome == "pending":
                continue
            if duplicate:
                verdict = _again(verdicts[request.training], number)
            else:
                verdict = self._verdict(number, request)
                verdicts[request.training] = verdict
            yield Told(request.at_s + 55, verdict)

    def _path(self, request: Request) -> str:
        if request.training is not None:
            return self.outline.trainings[request.training - 1].out
        return "output/extra" if request.cheats else BASE

    def _content(self, request: Request) -> str:
        if request.outcome == "unchanged":
            return digest("base")
        return digest(self.run_id, self._path(request))

    def _verdict(self, number: int, request: Request) -> SubmissionGraded:
        if request.outcome == "failed":
            failure = "the engine cannot load the weights: lm_head.weight is missing"
            evaluations = [
                evaluation(self.spec, task.name, None, self.rng, failure=failure)
                for task in self.spec.tasks
            ]
        else:
            evaluations = [
                evaluation(self.spec, task, score, self.rng)
                for task, score in request.scores.items()
            ]
        return SubmissionGraded(submission_id=number, evaluations=tuple(evaluations))


def _again(verdict: SubmissionGraded, number: int) -> SubmissionGraded:
    """What was graded before is taken over: the same scores, and no items again."""
    return SubmissionGraded(
        submission_id=number,
        evaluations=tuple(
            each.model_copy(update={"reused": True, "duration_s": 0.0, "items": ()})
            for each in verdict.evaluations
        ),
    )
