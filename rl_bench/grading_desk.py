"""Accepts submissions, has them graded, answers with scores: the grading API without the HTTP.

Order of events is what makes it safe: snapshot, `SubmissionAccepted` on disk, only then the grader;
`SubmissionGraded` on disk, only then the answer. Identical content for the same tasks is one
submission, however often and from how many connections it is sent. A grader that fails leaves no
score behind: the submission keeps its id and is graded when it is asked for again, or at the end by
`drain`. One event loop owns a desk (`rl_bench.grading_api.GradingServer` runs it).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rl_bench.clock import RunClock
from rl_bench.config import RunSpec, TaskConfig
from rl_bench.counts import plural
from rl_bench.errors import GraderError, LedgerError, SubmissionError, WorkspaceError
from rl_bench.events import (
    BaselineGraded,
    Entry,
    Evaluation,
    Event,
    Note,
    SubmissionAccepted,
    SubmissionGraded,
    SubmissionRejected,
)
from rl_bench.grading import Grade, GradeJob
from rl_bench.ledger import EventLog
from rl_bench.lineage.retention import Retention
from rl_bench.scoreboard import INVALID, Scoreboard, Submission, failures, score_of
from rl_bench.submission import SubmissionStore
from rl_bench.wire import (
    RETRY_AFTER_S,
    Reply,
    SubmissionStatus,
    SubmitRequest,
    Times,
    refusal,
)

log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_RECORDED = 1000
"""Rejections and notes that one run's ledger takes of what an agent can send without end."""

MAX_MESSAGE_CHARS = 2000


class GradingDesk:
    """The submissions of one attempt at a run.

    Args:
        spec: The run.
        run_id: Its id.
        store: Takes submitted folders in.
        ledger: Takes events; must be thread-safe.
        clock: The run's clock.
        grade: Grades a checkpoint.
        code_revision: Records the agent's code and names its revision.
        on_scores: Told the scores after each change; what it returns is noted as tampering.
        retention: Removes snapshots that a verdict made superfluous; None: all stay.
    """

    def __init__(
        self,
        spec: RunSpec,
        *,
        run_id: str,
        store: SubmissionStore,
        ledger: EventLog,
        clock: RunClock,
        grade: Grade,
        code_revision: Callable[[], str] = lambda: "",
        on_scores: Callable[[Mapping[str, object]], Sequence[str]] = lambda scores: (),
        retention: Retention | None = None,
    ) -> None:
        self._spec = spec
        self._run_id = run_id
        self._store = store
        self._ledger = ledger
        self._clock = clock
        self._grade = grade
        self._code_revision = code_revision
        self._on_scores = on_scores
        self._retention = retention
        self._board = Scoreboard(spec)
        self._grading: dict[int, asyncio.Task[None]] = {}
        self._grading_since: dict[int, float] = {}
        self._intake = asyncio.Lock()
        self._running: set[asyncio.Task[object]] = set()
        self._is_closed = False
        self._num_recorded = 0

    # What a run asks of it

    @property
    def num_submissions(self) -> int:
        """Accepted so far."""
        return len(self._board.submissions)

    def restore(self, entries: Iterable[Entry]) -> None:
        """Takes over what a killed process had recorded of its last attempt; call it first."""
        self._board.restore(entries)

    def pending(self) -> list[Submission]:
        """Accepted, but without a final verdict; `drain` grades them."""
        return self._board.pending()

    async def grade_baseline(self) -> tuple[Evaluation, ...]:
        """Grades the base model and records it.

        Raises:
            GraderError: It has no score on some task, so that no improvement could be told.
            SubmissionError: The base model itself cannot be graded.
        """
        digest = self._store.base_hash
        job = self._job(None, self._store.base_model, digest, self._spec.tasks)
        evaluations = await self._grade(job)
        await self._append(BaselineGraded(content_hash=digest, evaluations=evaluations))
        failed = [verdict for verdict in evaluations if score_of(verdict) is None]
        if failed:
            raise GraderError(f"no baseline on {failed[0].task}: {failed[0].failure}")
        self._board.baseline = {verdict.task: verdict for verdict in evaluations}
        await self._publish()
        return evaluations

    def close(self) -> None:
        """From now on nothing is accepted: the agent is gone, or its time is over."""
        self._is_closed = True

    async def drain(self) -> list[Submission]:
        """Lets everything accepted be graded to the end; failed ones get one more attempt.

        Returns:
            Submissions that still have no final verdict.
        """
        await self._idle()
        await asyncio.gather(*(self._graded(submission) for submission in self.pending()))
        await self._idle()
        return self.pending()

    async def _idle(self) -> None:
        while self._running:
            await asyncio.wait(self._running)

    def note(self, topic: str, message: str) -> None:
        """Records something odd about a request, up to a limit. Thread-safe, never raises."""
        self._num_recorded += 1
        if self._num_recorded <= MAX_RECORDED:
            self._record_quietly(Note(level="warning", topic=topic, message=message[:500]))

    # What the agent asks of it

    async def submit(self, request: SubmitRequest, *, status_url: str) -> Reply:
        """Answers ``POST /submit``; ``status_url`` holds ``{submission_id}``."""
        arrived, used_s = self._clock.now(), self._clock.used_s
        if self._is_late():
            return await self._reject(request.model_path, _too_late(), used_s=used_s)
        try:
            # Shielded: an agent that hangs up after acceptance must not undo it.
            submission = await self._shielded(self._accept(request, used_s=used_s))
        except SubmissionError as error:
            return await self._reject(request.model_path, error, used_s=used_s)
        except (GraderError, LedgerError, OSError) as error:
            log.warning("run %s: a submission could not be stored: %s", self._run_id, error)
            return _unavailable(str(error))
        if not request.wait and not submission.is_final:
            self._start_grading(submission)
            url = status_url.format(submission_id=submission.submission_id)
            return Reply(202, {**self._board.body(submission), "status_url": url})
        await self._graded(submission)
        self._credit(submission, arrived=arrived)
        return self._answer(submission)

    async def refuse_malformed(self, message: str) -> Reply:
        """Answers a ``POST /submit`` whose body could not be read."""
        error = SubmissionError(
            message,
            cure='send JSON such as {"model_path": "output/my_model"}',
            reason="malformed_request",
            status=400,
        )
        return await self._reject("", error, used_s=self._clock.used_s)

    def status(self, submission_id: int) -> Reply:
        """Answers ``GET /submissions/{id}``."""
        submission = self._board.find(submission_id)
        if submission is None:
            return refusal(404, "unknown_submission", f"there is no submission {submission_id}")
        return Reply(200, self._board.body(submission))

    def scores(self) -> dict[str, object]:
        """Answers ``GET /scores``."""
        return self._board.scores()

    def times(self) -> Times:
        """Answers ``GET /time``."""
        used_s = self._clock.used_s
        budget_s = self._clock.budget_s
        return Times(
            remaining_s=round(max(0.0, budget_s - used_s), 3),
            used_s=round(used_s, 3),
            budget_s=budget_s,
            queue_credit_s=round(self._clock.queue_credit_s, 3),
        )

    # Acceptance

    def _is_late(self) -> bool:
        return self._is_closed or self._clock.expired

    async def _accept(self, request: SubmitRequest, *, used_s: float) -> Submission:
        tasks = self._tasks(request.task)
        async with self._intake:
            snapshot = await asyncio.to_thread(self._store.take, request.model_path)
            known = [
                sub for sub in self._board.submissions if sub.content_hash == snapshot.content_hash
            ]
            for submission in known:
                if submission.tasks == tasks:
                    return submission
            self._check_limit()
            submission = Submission(
                submission_id=self.num_submissions + 1,
                model_path=snapshot.model_path,
                content_hash=snapshot.content_hash,
                tasks=tasks,
                unchanged=snapshot.unchanged,
            )
            await self._append(
                SubmissionAccepted(
                    submission_id=submission.submission_id,
                    model_path=submission.model_path,
                    content_hash=submission.content_hash,
                    tasks=tasks,
                    budget_used_s=used_s,
                    code_revision=await asyncio.to_thread(self._revision),
                    duplicate_of=known[0].submission_id if known else None,
                    unchanged=submission.unchanged,
                )
            )
            self._board.submissions.append(submission)
            return submission

    def _tasks(self, task: str | None) -> tuple[str, ...]:
        names = tuple(config.name for config in self._spec.tasks)
        if task is None:
            return names
        if task not in names:
            raise SubmissionError(
                f"this run has no task {task[:100]!r}",
                cure=f"use one of {', '.join(names)}, or leave task out for all of them",
                reason="unknown_task",
                status=400,
            )
        return (task,)

    def _check_limit(self) -> None:
        limit = self._spec.budget.max_submissions
        if limit is not None and self.num_submissions >= limit:
            raise SubmissionError(
                f"this run was given {plural(limit, 'submission')}, and no more",
                cure="submit content that was submitted before, to read its score again",
                reason="max_submissions",
                status=429,
            )

    def _revision(self) -> str:
        try:
            return self._code_revision()
        except (OSError, WorkspaceError) as error:
            self.note("code_history", f"the code could not be recorded: {error}")
            return ""

    # Grading

    async def _graded(self, submission: Submission) -> None:
        """Returns when the submission has a verdict or its grading failed."""
        self._start_grading(submission)
        running = self._grading.get(submission.submission_id)
        if running is not None:
            await asyncio.shield(running)

    def _start_grading(self, submission: Submission) -> None:
        if submission.is_grading or submission.is_final:
            return
        submission.is_grading = True
        self._grading_since[submission.submission_id] = self._clock.now()
        self._grading[submission.submission_id] = self._track(self._evaluate(submission))

    async def _evaluate(self, submission: Submission) -> None:
        try:
            evaluations = await self._verdicts(submission)
            await self._append(
                SubmissionGraded(submission_id=submission.submission_id, evaluations=evaluations)
            )
            submission.take(evaluations)
        except LedgerError as error:
            log.error("run %s: a verdict could not be recorded: %s", self._run_id, error)
        finally:
            submission.is_grading = False
        await self._publish()
        if self._retention is not None:
            self._track(self._tidy(self._retention))

    async def _tidy(self, retention: Retention) -> None:
        # Between acceptances: what is being accepted is not on the board yet.
        async with self._intake:
            superfluous = retention.superfluous(self._board)
            note = await asyncio.to_thread(retention.remove, superfluous)
        if note is not None:
            await asyncio.to_thread(self._record_quietly, note)

    async def _verdicts(self, submission: Submission) -> tuple[Evaluation, ...]:
        known = self._board.known(submission, base_hash=self._store.base_hash)
        done = {verdict.task for verdict in known}
        missing = tuple(
            task
            for task in self._spec.tasks
            if task.name in submission.tasks and task.name not in done
        )
        if not missing:
            return known
        digest = submission.content_hash
        job = self._job(submission.submission_id, self._store.folder(digest), digest, missing)
        try:
            return (*known, *await self._grade(job))
        except SubmissionError as error:
            message = _shortened(f"{INVALID} ({error.reason}): {error}")
            return (*known, *failures(missing, message))
        except GraderError as error:
            return (*known, *failures(missing, _shortened(str(error))))
        except Exception as error:
            # The boundary to whatever grades: a fault there must not take the run down, nor
            # become a score.
            log.exception("run %s: grading broke", self._run_id)
            message = _shortened(f"{type(error).__name__}: {error}")
            return (*known, *failures(missing, message))

    def _job(
        self,
        submission_id: int | None,
        snapshot: Path,
        digest: str,
        tasks: tuple[TaskConfig, ...],
    ) -> GradeJob:
        return GradeJob(
            run_id=self._run_id,
            submission_id=submission_id,
            snapshot=snapshot,
            content_hash=digest,
            tasks=tasks,
            model=self._spec.model,
        )

    def _credit(self, submission: Submission, *, arrived: float) -> None:
        """Gives a blocking request's time in the queue back, from when it began to wait."""
        waits = [verdict.queue_s for verdict in submission.verdicts.values() if not verdict.reused]
        begin = self._grading_since.get(submission.submission_id, arrived)
        end = begin + max(waits, default=0.0)
        since = max(begin, arrived)
        if end > since:
            self._clock.credit(end - since, since=since)

    # Answers

    def _answer(self, submission: Submission) -> Reply:
        status, message = submission.status, submission.message
        if status is SubmissionStatus.GRADED:
            return Reply(200, self._board.body(submission))
        if status is SubmissionStatus.INVALID:
            return refusal(
                422,
                "invalid_model",
                message,
                cure="repair the checkpoint and submit it again",
                submission_id=submission.submission_id,
            )
        return _unavailable(message, submission_id=submission.submission_id)

    # Records

    async def _reject(self, model_path: str, error: SubmissionError, *, used_s: float) -> Reply:
        message = _shortened(error.message)
        self._num_recorded += 1
        if self._num_recorded <= MAX_RECORDED:
            event = SubmissionRejected(
                model_path=model_path[:200],
                reason=error.reason,
                message=message,
                status=error.status,
                budget_used_s=used_s,
            )
            await asyncio.to_thread(self._record_quietly, event)
        return refusal(error.status, error.reason, message, cure=error.cure, file=error.file)

    async def _append(self, event: Event) -> None:
        await asyncio.to_thread(self._ledger.append, event)

    def _record_quietly(self, event: Event) -> None:
        try:
            self._ledger.append(event)
        except LedgerError as error:
            log.warning("run %s: %s", self._run_id, error)

    async def _publish(self) -> None:
        for message in await asyncio.to_thread(self._on_scores, self.scores()):
            self.note("tampering", message)

    def _track(self, work: "Awaitable[T]") -> "asyncio.Task[T]":
        task: asyncio.Task[T] = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _shielded(self, work: Awaitable[T]) -> T:
        return await asyncio.shield(self._track(work))


def _shortened(message: str) -> str:
    """A message may quote what an agent wrote, of any length; ledgers and answers take so much."""
    return message if len(message) <= MAX_MESSAGE_CHARS else message[:MAX_MESSAGE_CHARS] + "…"


def _too_late() -> SubmissionError:
    return SubmissionError(
        "the deadline has passed",
        cure="nothing can be submitted any more; what was accepted before is graded",
        reason="too_late",
        status=410,
    )


def _unavailable(message: str, *, submission_id: int | None = None) -> Reply:
    return refusal(
        503,
        "grading_unavailable",
        message or "grading is down",
        cure="send the same request again later; it is the same submission",
        submission_id=submission_id,
        retry_after_s=RETRY_AFTER_S,
    )
