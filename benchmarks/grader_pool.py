"""The pool's queue, placement and splitting on a trace, in simulated time.

``python -m benchmarks.grader_pool [--json FILE]`` replays ``traces/grader_pool.json``, 200
submissions of 12 runs, through the real pool and the real graders; only engines and episodes are
simulated. The shipped trace was drawn by ``--write-trace`` from seed 7: three kinds of runs (usual,
few and dear, many and cheap in bursts), log-normal gaps and durations; it comes from no ledger.

Makespan is held against a lower bound that no order can beat: the larger of all grading seconds
over the graders, and the longest run if it never had to wait; engine starts are not in it. Where
sets are split a second, stricter bound gives the longest run all graders for each of its sets.

Waits are those from a submission's turn in its own run (it and all before it are submitted, and all
before it have begun) to its grading's begin, averaged a run; fair means that the worst run's mean
is not far above the mean of all runs' means. ``all`` is the same of whole waits: there a run that
submits four at once waits for itself too.
"""

import argparse
import asyncio
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from actors.grader import Grader
from actors.grader_pool import GraderPool
from actors.grading_queue import GradingQueue, Ticket
from actors.shared_requests import Offer
from benchmarks.grader_trace import SEED, TRACE, TraceRun, lower_bound_s, read_trace, write_trace
from benchmarks.simulated_time import run_simulated, simulated_s
from rl_bench.config import DataSource, GraderConfig, JudgeConfig, ModelConfig, TaskConfig
from rl_bench.engine.base import (
    Completion,
    FinishReason,
    GenerationRequest,
    LoadKind,
    LoadReport,
    OnCompletion,
    Sampling,
    ignore_completion,
)
from rl_bench.events import Evaluation
from rl_bench.grading import GradeJob
from rl_bench.grading_status import OnItem
from rl_bench.judges.base import Judge
from rl_bench.rollout import RolloutSpec
from rl_bench.tasks.base import (
    Episode,
    EvalContext,
    EvalResult,
    ItemOutcome,
    ItemStatus,
    aggregate,
)

NUM_GRADERS = 4
NUM_ITEMS = 128
NUM_SEQS = 8
COLD_S = 60.0
WARM_S = 1.0
MODELS = (ModelConfig(name="a", kind="tiny"), ModelConfig(name="b", kind="tiny"))
ASK = GenerationRequest(sampling=Sampling(max_tokens=1), text="")
ANSWER = Completion(text="", num_prompt_tokens=1, num_tokens=1, finish_reason=FinishReason.STOP)


# --- other orders


class FirstCome(GradingQueue):
    """Baselines, then whoever came first."""

    def in_order(self) -> list[Ticket]:
        return sorted(super().in_order(), key=lambda each: (not each.is_baseline, each.number))


class Turns(GradingQueue):
    """Baselines, then one of each run in turn."""

    def __init__(self) -> None:
        super().__init__(clock=simulated_s)
        self._turns = itertools.count()
        self._turn: dict[str, int] = {}

    def put(self, job: GradeJob) -> Ticket:
        if job.run_id not in {ticket.job.run_id for ticket in super().in_order()}:
            self._turn[job.run_id] = next(self._turns)
        return super().put(job)

    def take(self, ticket: Ticket) -> None:
        super().take(ticket)
        self._turn[ticket.job.run_id] = next(self._turns)

    def in_order(self) -> list[Ticket]:
        return sorted(
            super().in_order(),
            key=lambda each: (not each.is_baseline, self._turn[each.job.run_id]),
        )


# --- what is simulated


class SlotEngine:
    """`NUM_SEQS` sequences at a time; how long one takes is the loaded checkpoint's."""

    def __init__(self, durations: dict[str, float]) -> None:
        self._durations = durations
        self._slots = asyncio.Semaphore(NUM_SEQS)
        self.duration_s = 0.0
        self.num_cold = 0

    async def load(self, snapshot: Path, *, content_hash: str) -> LoadReport:
        kind, seconds = (LoadKind.WARM, WARM_S) if self.num_cold else (LoadKind.COLD, COLD_S)
        await asyncio.sleep(seconds)
        self.num_cold = 1
        self.duration_s = self._durations[content_hash]
        return LoadReport(kind=kind, seconds=seconds)

    async def generate(
        self,
        requests: Sequence[GenerationRequest],
        *,
        on_completion: OnCompletion = ignore_completion,
    ) -> list[Completion]:
        async def one(index: int) -> Completion:
            async with self._slots:
                await asyncio.sleep(self.duration_s * NUM_SEQS / NUM_ITEMS)
            on_completion(index, ANSWER)
            return ANSWER

        return await asyncio.gather(*map(one, range(len(requests))))

    async def close(self) -> None:
        """Nothing to end."""


class SimulatedTask:
    """Asks `NUM_ITEMS` questions at once, or plays one episode that lasts as long."""

    evaluator_version = "1"

    def __init__(self, config: TaskConfig) -> None:
        self.name = config.name

    def description(self) -> str:
        return ""

    def write_train_data(self, folder: Path) -> None: ...
    def check_data(self) -> None: ...
    def evaluation_texts(self) -> Iterator[tuple[str, str]]:
        yield from ()

    async def evaluate(self, context: EvalContext) -> EvalResult:
        if self.name == "static":
            await context.generate([ASK] * NUM_ITEMS)
        else:
            await context.play([], protocol="chat")
        outcome = ItemOutcome(item_id="q", status=ItemStatus.OK, score=1.0)
        return aggregate(self.name, [outcome], evaluator_version="1")


class LocalGrader:
    """A real grader on a simulated engine; the pool's link to it."""

    def __init__(
        self,
        name: str,
        config: GraderConfig,
        durations: dict[str, float],
        graders: dict[str, Grader],
    ) -> None:
        self.name = name
        self._durations = durations
        self._graders = graders
        self._engines: list[SlotEngine] = []
        self.grader = graders[name] = Grader(
            name,
            config,
            make_engine=self._make_engine,
            make_task=SimulatedTask,
            make_judge=self._make_judge,
            rollouts=self,
            clock=simulated_s,
        )

    def _make_engine(self, model: ModelConfig) -> SlotEngine:
        self._engine = SlotEngine(self._durations)
        self._engines.append(self._engine)
        return self._engine

    @property
    def num_cold(self) -> int:
        """Engine starts."""
        return sum(engine.num_cold for engine in self._engines)

    def _make_judge(self, config: JudgeConfig) -> Judge:
        raise NotImplementedError("no task here is judged")

    async def play(
        self, episodes: Sequence[Episode], *, spec: RolloutSpec, lease: int, on_episode: OnItem
    ) -> list[ItemOutcome]:
        await asyncio.sleep(self._engine.duration_s)
        return []

    async def grade(self, job: GradeJob) -> tuple[Evaluation, ...]:
        return await self.grader.grade(job)

    async def recover(self) -> None:
        """It never fails."""

    async def offer(self) -> Offer:
        return await self.grader.offer()

    async def help(self, job: GradeJob, owner: str) -> None:
        await self.grader.help(job, self._graders[owner])

    async def recall(self) -> None:
        await self.grader.recall()


# --- a replay


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How the pool works in one replay."""

    order: str = "fair"
    num_models: int = 1
    affinity: bool = True
    splits: bool = True

    def __str__(self) -> str:
        models = "one architecture"
        if self.num_models > 1:
            models = f"two, {'with' if self.affinity else 'without'} affinity"
        return f"{self.order}; {models}; {'split' if self.splits else 'whole'}"

    def queue(self) -> GradingQueue:
        """The order, for the running loop."""
        if self.order == "turns":
            return Turns()
        cls = FirstCome if self.order == "first come" else GradingQueue
        return cls(clock=simulated_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a replay gave.

    Attributes:
        makespan_ratio: Makespan over the lower bound of whole sets.
        split_ratio: Makespan over the bound that counts sets as the variant may split them.
        unfairness: Worst run's mean wait over the mean of runs' mean waits.
        unfairness_all: The same of whole waits.
        mean_wait_s: The mean of runs' mean whole waits.
        mean_latency_s: From submission to verdict.
        num_cold: Engine starts.
    """

    variant: str
    makespan_s: float
    lower_bound_s: float
    makespan_ratio: float
    split_ratio: float
    unfairness: float
    unfairness_all: float
    mean_wait_s: float
    mean_latency_s: float
    num_cold: int
    num_split: int


@dataclass(slots=True)
class _Log:
    """``spans``: when each submission came and began to be graded, by run and number."""

    spans: dict[str, dict[int, tuple[float, float]]]
    latencies: list[float]
    num_split: int = 0


def replay(runs: Sequence[TraceRun], variant: Variant) -> Result:
    """One replay of the trace."""
    log = _Log({run.name: {} for run in runs}, [])
    makespan_s, num_cold = run_simulated(_replay(runs, variant, log))
    spans = [[each for _, each in sorted(run.items())] for run in log.spans.values()]
    means_all = [fmean(begun - came for came, begun in run) for run in spans]
    means = [fmean(_waits_in_turn(run)) for run in spans]
    whole_s = lower_bound_s(runs, num_graders=NUM_GRADERS, splits=False)
    bound_s = lower_bound_s(runs, num_graders=NUM_GRADERS, splits=variant.splits)
    return Result(
        variant=str(variant),
        makespan_s=makespan_s,
        lower_bound_s=whole_s,
        makespan_ratio=makespan_s / whole_s,
        split_ratio=makespan_s / bound_s,
        unfairness=max(means) / fmean(means),
        unfairness_all=max(means_all) / fmean(means_all),
        mean_wait_s=fmean(means_all),
        mean_latency_s=fmean(log.latencies),
        num_cold=num_cold,
        num_split=log.num_split,
    )


def _waits_in_turn(spans: Sequence[tuple[float, float]]) -> Iterator[float]:
    """Waits of one run's submissions, without those for its own earlier ones to begin."""
    before = 0.0
    for came, begun in spans:
        yield begun - min(max(came, before), begun)
        before = max(before, begun)


async def _replay(runs: Sequence[TraceRun], variant: Variant, log: _Log) -> tuple[float, int]:
    config = GraderConfig(
        name="simulated",
        num_graders=NUM_GRADERS,
        max_num_seqs=NUM_SEQS,
        split_items=NUM_SEQS if variant.splits else NUM_ITEMS,
        affinity_wait_s=2 * COLD_S if variant.affinity else 0.0,
        evaluation_timeout_s=1e6,
    )
    durations = {
        f"{run.name}/{i}": each.duration_s
        for run in runs
        for i, each in enumerate(run.submissions, start=1)
    }
    graders: dict[str, Grader] = {}
    names = [f"grader-{i}" for i in range(NUM_GRADERS)]
    links = {name: LocalGrader(name, config, durations, graders) for name in names}
    pool = GraderPool(
        names,
        connect=links.__getitem__,
        config=config,
        clock=simulated_s,
        queue=variant.queue(),
    )
    await asyncio.gather(
        *(
            _play(run, pool, log, model=MODELS[number % variant.num_models])
            for number, run in enumerate(runs)
        )
    )
    return simulated_s(), sum(link.num_cold for link in links.values())


async def _play(run: TraceRun, pool: GraderPool, log: _Log, *, model: ModelConfig) -> None:
    """The run's agent: submits as the trace says."""
    open_: list[asyncio.Task[None]] = []
    await asyncio.sleep(run.start_s)
    for number, each in enumerate(run.submissions, start=1):
        if not each.in_burst:
            await asyncio.gather(*open_)
            open_.clear()
        await asyncio.sleep(each.gap_s)
        job = GradeJob(
            run_id=run.name,
            submission_id=number,
            snapshot=Path("none"),
            content_hash=f"{run.name}/{number}",
            tasks=(STATIC if each.is_static else PLAYED,),
            model=model,
        )
        open_.append(asyncio.ensure_future(_submit(pool, job, log)))
    await asyncio.gather(*open_)


async def _submit(pool: GraderPool, job: GradeJob, log: _Log) -> None:
    began = simulated_s()
    [evaluation] = await pool.grade(job)
    assert job.submission_id is not None
    log.spans[job.run_id][job.submission_id] = began, began + evaluation.queue_s
    log.latencies.append(simulated_s() - began)
    log.num_split += evaluation.num_graders > 1


STATIC, PLAYED = (
    TaskConfig(name=name, kind="k", level="L1", source=DataSource.BUILTIN, max_tokens=1)
    for name in ("static", "played")
)

VARIANTS = (
    *(Variant(order=order, splits=False) for order in ("fair", "turns", "first come")),
    *(Variant(order=order) for order in ("fair", "turns", "first come")),
    Variant(num_models=2, affinity=False, splits=False),
    Variant(num_models=2, splits=False),
    Variant(num_models=2, affinity=False),
    Variant(num_models=2),
)

HEADER = " makespan/bound  split bound  worst/mean   all  wait, s  latency, s  starts  split"


def main(argv: Sequence[str]) -> int:
    """Replays all variants; prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--write-trace", action="store_true", help="draw the trace anew and end")
    parser.add_argument("--json", type=Path, help="write the results here too")
    options = parser.parse_args(argv)
    if options.write_trace:
        write_trace(options.trace, seed=SEED)
        return 0
    runs = read_trace(options.trace)
    say = sys.stdout.write
    say(f"{sum(len(run.submissions) for run in runs)} submissions of {len(runs)} runs\n")
    say(f"{'order; architectures; static sets':42}{HEADER}\n")
    results = []
    for variant in VARIANTS:
        result = replay(runs, variant)
        results.append(asdict(result))
        say(
            f"{result.variant:42} {result.makespan_ratio:14.3f}  {result.split_ratio:11.3f}"
            f"  {result.unfairness:11.2f}  {result.unfairness_all:4.2f}  {result.mean_wait_s:7.0f}"
            f"  {result.mean_latency_s:10.0f}  {result.num_cold:6}  {result.num_split:5}\n"
        )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
