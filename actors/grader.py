"""A grader: one warm engine, and the evaluation of one checkpoint at a time on it.

A plain class; `actors.factory` makes it a Ray actor pinned to its GPUs. It owns the engine and the
lease: rollout workers ask for actions under the lease of the evaluation they belong to, so that a
straggler of an earlier evaluation can never be answered by another checkpoint.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any, Protocol

from actors.exchange import AnswerDesk, Answered, Asked
from actors.shared_requests import NOTHING, Offer, Part, SharedRequests
from rl_bench.config import GraderConfig, JudgeConfig, ModelConfig, TaskConfig
from rl_bench.engine.base import (
    Completion,
    Engine,
    GenerationRequest,
    LoadKind,
    LoadReport,
    OnCompletion,
    ignore_completion,
)
from rl_bench.errors import GraderError, RlBenchError, fault_of
from rl_bench.events import Evaluation, Item
from rl_bench.grading import GradeJob
from rl_bench.grading_status import GradingStatus, OnItem, Phase, Tally
from rl_bench.judges.base import Judge
from rl_bench.judges.counted import CountedJudge
from rl_bench.noise import repeatability_limit
from rl_bench.plugins import stamp
from rl_bench.rollout import RolloutSpec
from rl_bench.tasks.base import Episode, EvalResult, ItemOutcome, Task

LOG = logging.getLogger(__name__)


class Rollouts(Protocol):
    """Plays episodes, each action asked of the grader under ``lease``."""

    async def play(
        self, episodes: Sequence[Episode], *, spec: RolloutSpec, lease: int, on_episode: OnItem
    ) -> list[ItemOutcome]:
        """Outcomes in the order of ``episodes``; one that was lost twice has status ``lost``.

        ``on_episode`` is called for each that was played to its end.
        """
        ...


class EngineFactory(Protocol):
    """Makes the engine for a base model's dtype and context length."""

    def __call__(self, model: ModelConfig) -> Engine:
        """A new engine that holds nothing yet."""
        ...


class Owner(Protocol):
    """A grader that is helped; see the methods of `Grader`. All raise `GraderError`."""

    async def claim(self) -> Part | None: ...

    async def answer(self, part: Part, completions: list[Completion], *, helper: str) -> None: ...

    async def settled(self, part: Part) -> None: ...


TaskFactory = Callable[[TaskConfig], Task]
JudgeFactory = Callable[[JudgeConfig], Judge]


@dataclass(frozen=True, slots=True)
class _Context:
    """The `EvalContext` of one task's evaluation under one lease."""

    grader: "Grader"
    task: TaskConfig
    lease: int
    repeat: int
    tally: Tally
    helpers: set[str] = field(default_factory=set)

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        with self.tally.stage(Phase.GENERATING, len(requests)) as on_item:
            return await self.grader.generate_shared(
                self.lease,
                requests,
                on_completion=lambda _index, _completion: on_item(),
                helpers=self.helpers,
            )

    async def play(self, episodes: Sequence[Episode], *, protocol: str) -> list[ItemOutcome]:
        spec = RolloutSpec.of(self.task, protocol=protocol)
        with self.tally.stage(Phase.PLAYING, len(episodes)) as on_item:
            return await self.grader.rollouts.play(
                episodes, spec=spec, lease=self.lease, on_episode=on_item
            )

    def judge(self, config: JudgeConfig) -> Judge:
        return CountedJudge(
            judge=self.grader.judge(config),
            num_votes=config.num_votes,
            stage=partial(self.tally.stage, Phase.JUDGING),
        )


class Grader:
    """Grades one job at a time on a warm engine."""

    def __init__(
        self,
        name: str,
        config: GraderConfig,
        *,
        make_engine: EngineFactory,
        make_task: TaskFactory,
        make_judge: JudgeFactory,
        rollouts: Rollouts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.rollouts = rollouts
        self._config = config
        self._make_engine = make_engine
        self._make_task = make_task
        self._make_judge = make_judge
        self._judges: dict[JudgeConfig, Judge] = {}
        self._engine: Engine | None = None
        self._engine_model: ModelConfig | None = None
        self._busy = asyncio.Lock()
        self._leases = itertools.count(1)
        self._lease: int | None = None
        self._desk: AnswerDesk | None = None
        self._tally: Tally | None = None
        self._clock = clock
        self._window = 2 * config.max_num_seqs
        self._shares: dict[int, SharedRequests] = {}
        self._share_numbers = itertools.count()
        self._is_recalled = False

    def __repr__(self) -> str:
        return f"Grader({self.name})"

    async def grade(self, job: GradeJob) -> tuple[Evaluation, ...]:
        """Loads the job's snapshot and evaluates it on each of its tasks.

        Raises:
            SubmissionError: The checkpoint is at fault.
            GraderError: The engine is at fault, or the evaluation took longer than
                ``evaluation_timeout_s``.
        """
        async with self._busy:
            self._lease = lease = next(self._leases)
            self._desk = AnswerDesk(partial(self.generate, lease))
            try:
                async with asyncio.timeout(self._config.evaluation_timeout_s):
                    return await self._grade(job, lease=lease)
            except TimeoutError as error:
                await self._drop_engine()
                raise GraderError(
                    f"grading {job.run_id} took longer than {self._config.evaluation_timeout_s} s",
                    cure="raise grader.evaluation_timeout_s",
                ) from error
            except GraderError:
                await self._drop_engine()
                raise
            finally:
                self._desk.close()
                self._lease = self._tally = self._desk = None

    async def status(self) -> GradingStatus | None:
        """How far the present evaluation is, ``None`` between evaluations; never waits for it."""
        return self._tally.status() if self._tally else None

    async def generate(
        self,
        lease: int,
        requests: Sequence[GenerationRequest],
        *,
        on_completion: OnCompletion = ignore_completion,
    ) -> list[Completion]:
        """Completions of the checkpoint that ``lease`` was given for.

        Raises:
            GraderError: The lease is over, or the engine failed.
        """
        if lease != self._lease or self._engine is None:
            raise GraderError(f"lease {lease} is over")
        return await self._engine.generate(requests, on_completion=on_completion)

    async def generate_shared(
        self,
        lease: int,
        requests: Sequence[GenerationRequest],
        *,
        on_completion: OnCompletion,
        helpers: set[str],
    ) -> list[Completion]:
        """Like `generate`; of more requests than the engine needs, other graders may take some.

        ``helpers`` gets the names of those whose answers counted. A grader that is alone in its
        pool asks its engine directly.
        """
        num_needed = self._window + self._config.split_items
        if self._config.most_graders == 1 or len(requests) < num_needed:
            return await self.generate(lease, requests, on_completion=on_completion)
        number = next(self._share_numbers)
        share = self._shares[number] = SharedRequests(
            requests,
            share=number,
            generate=partial(self.generate, lease),
            on_completion=on_completion,
            part_size=self._config.split_items,
            window=self._window,
            clock=self._clock,
        )
        try:
            return await share.run()
        finally:
            del self._shares[number]
            helpers |= share.helpers

    async def offer(self) -> Offer:
        """What this grader could give away of what it generates now."""
        offers = [share.offer() for share in self._shares.values()]
        return max(offers, key=lambda offer: offer.num_items, default=NOTHING)

    async def claim(self) -> Part | None:
        """A part for a helper; ``None`` when nothing is left to give."""
        parts = (share.claim() for share in self._shares.values())
        return next((part for part in parts if part is not None), None)

    async def answer(self, part: Part, completions: list[Completion], *, helper: str) -> None:
        """Takes a helper's answers; too late ones are ignored."""
        share = self._shares.get(part.share)
        if share is not None:
            share.answer(part.number, completions, helper=helper)

    async def settled(self, part: Part) -> None:
        """Returns when nobody needs the answers to ``part`` any more."""
        share = self._shares.get(part.share)
        if share is not None:
            await share.settled(part.number)

    async def help(self, job: GradeJob, owner: Owner) -> None:
        """Answers parts of what ``owner`` generates for ``job``, until none is left or `recall`.

        A lost owner ends it without an error.

        Raises:
            SubmissionError: The checkpoint cannot be loaded.
            GraderError: This grader's engine failed.
        """
        async with self._busy:
            self._is_recalled = False
            try:
                async with asyncio.timeout(self._config.evaluation_timeout_s):
                    engine = await self._engine_for(job.model)
                    await engine.load(job.snapshot, content_hash=job.content_hash)
                    while not self._is_recalled and await self._help_once(engine, owner):
                        pass
            except TimeoutError as error:
                await self._drop_engine()
                raise GraderError(f"helping with {job.run_id} took too long") from error
            except GraderError:
                await self._drop_engine()
                raise

    async def recall(self) -> None:
        """Ends `help` after its present part."""
        self._is_recalled = True

    async def exchange(self, lease: int, asker: str, asked: Asked) -> Answered:
        """Takes a worker's requests and returns what has been answered to it; see `AnswerDesk`.

        Raises:
            GraderError: The lease is over.
        """
        if lease != self._lease or self._desk is None:
            raise GraderError(f"lease {lease} is over")
        return await self._desk.exchange(asker, asked)

    def judge(self, config: JudgeConfig) -> Judge:
        """The judge for ``config``, made once and kept."""
        if config not in self._judges:
            self._judges[config] = self._make_judge(config)
        return self._judges[config]

    async def close(self) -> None:
        """Ends the processes of the engine and of judges."""
        await self._drop_engine()
        for judge in self._judges.values():
            await judge.close()
        self._judges.clear()

    async def _grade(self, job: GradeJob, *, lease: int) -> tuple[Evaluation, ...]:
        new_tally = partial(Tally, job.run_id, submission_id=job.submission_id)
        self._tally = new_tally(task=job.tasks[0].name)
        engine = await self._engine_for(job.model)
        load = await engine.load(job.snapshot, content_hash=job.content_hash)
        LOG.info("%s: %s load of %s in %.2f s", self.name, load.kind, job.run_id, load.seconds)
        evaluations = []
        for config in job.tasks:
            started = self._clock()
            helpers: set[str] = set()
            task = self._make_task(config)
            # Noise is a task's, so it is measured once a run, on the base model.
            num_repeats = config.num_repeats if job.submission_id is None else 1
            results = []
            for repeat in range(num_repeats):
                self._tally = tally = new_tally(
                    task=config.name, repeat=repeat, num_repeats=num_repeats
                )
                context = _Context(self, config, lease, repeat, tally, helpers)
                results.append(await _evaluated(task, context))
            version = stamp(results[0].evaluator_version, config)
            duration_s = self._clock() - started
            evaluations.append(
                _evaluation(results, version, load, duration_s, num_graders=1 + len(helpers))
            )
            load = LoadReport(kind=LoadKind.RESIDENT, seconds=0.0)
        return tuple(evaluations)

    async def _help_once(self, engine: Engine, owner: Owner) -> bool:
        """Answers one part; ``False``: there is none, or the owner is lost."""
        try:
            part = await owner.claim()
        except GraderError:
            return False
        if part is None:
            return False
        answering = asyncio.ensure_future(engine.generate(part.requests))
        settled = asyncio.ensure_future(owner.settled(part))
        try:
            await asyncio.wait({answering, settled}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():  # somebody else was faster, or the owner is lost
                return settled.exception() is None
            completions = answering.result()
        finally:
            await _cancelled(answering, settled)
        try:
            await owner.answer(part, completions, helper=self.name)
        except GraderError:
            return False
        return True

    async def _engine_for(self, model: ModelConfig) -> Engine:
        if self._engine is None or self._engine_model != model:
            await self._drop_engine()
            self._engine = self._make_engine(model)
            self._engine_model = model
        return self._engine

    async def _drop_engine(self) -> None:
        engine, self._engine, self._engine_model = self._engine, None, None
        if engine is not None:
            await engine.close()


async def _cancelled(*futures: "asyncio.Future[Any]") -> None:
    """Ends what is still going on, and leaves no error unasked for."""
    for future in futures:
        future.cancel()
    await asyncio.gather(*futures, return_exceptions=True)


async def _evaluated(task: Task, context: "_Context") -> EvalResult:
    """The task's verdict.

    Raises:
        GraderError: The task's code broke: nobody's score, and told with the place.
    """
    try:
        return await task.evaluate(context)
    except RlBenchError:
        raise
    except Exception as error:
        LOG.exception("task %s broke", task.name)
        raise GraderError(
            f"task {task.name}: its evaluation broke: {fault_of(error)}",
            cure="Its traceback is in the grader's log",
        ) from error


def _evaluation(
    results: Sequence[EvalResult],
    version: str,
    load: LoadReport,
    duration_s: float,
    *,
    num_graders: int,
) -> Evaluation:
    """The record of a task's gradings: the first one's items, and the mean of all scores."""
    first = results[0]
    scores = [result.score for result in results if result.score is not None]
    return Evaluation(
        task=first.task,
        score=None if first.score is None else fmean(scores),
        failure=first.failure,
        num_items=first.num_items,
        num_errors=first.num_errors,
        evaluator_version=version,
        metrics=first.metrics,
        items=tuple(_item(item) for item in first.items),
        repeat_scores=tuple(scores) if len(results) > 1 else (),
        noise_floor=repeatability_limit(scores),
        load_s=load.seconds,
        load_kind=load.kind.value,
        duration_s=duration_s,
        num_graders=num_graders,
    )


def _item(outcome: ItemOutcome) -> Item:
    return Item(
        item_id=outcome.item_id,
        status=outcome.status.value,
        score=outcome.score,
        num_steps=outcome.num_steps,
        num_tokens=outcome.num_tokens,
        duration_s=outcome.duration_s,
        detail=outcome.detail,
    )
