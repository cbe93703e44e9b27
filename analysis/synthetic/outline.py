"""What one synthetic run is going to do, decided before any event is written.

A run is a list of phases, each a method tried once or more; every try writes a script, trains, and
submits. One try is planted as the best. Its expected score is the cell's (see `conditions`); every
other one stays below it, so that the best of many is not biased by being chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from analysis.synthetic.conditions import BUDGET_S, TASKS, mean_gain, skill, stack_of
from analysis.synthetic.scripts import Kind
from rl_bench.config import RunSpec

Fate = Literal[
    "completed",
    "timed_out",
    "agent_error",
    "nothing",
    "infra_error",
    "driver_error",
    "invalid",
    "invalid_submission",
    "retried",
    "running",
]
Outcome = Literal["graded", "failed", "rejected", "duplicate", "unchanged", "pending"]
BASE = "models/base"
MIN_DROP = 4.0
"""Points that other tries stay below the best, at least."""
_PLANTED_EARLY: dict[int, Fate] = {
    4: "invalid_submission",
    6: "infra_error",
    8: "invalid",
    10: "retried",
    13: "nothing",
    15: "running",
    17: "agent_error",
    19: "driver_error",
}
"""Few runs have one of everything."""
_FATES: dict[Fate, float] = {
    "timed_out": 0.25,
    "agent_error": 0.03,
    "nothing": 0.02,
    "infra_error": 0.02,
    "driver_error": 0.02,
    "invalid": 0.02,
    "invalid_submission": 0.03,
    "retried": 0.02,
    "running": 0.005,
}
_ROUTES: dict[str, tuple[tuple[Kind, ...], ...]] = {
    "sft_only": (("sft",), ("sft", "merge"), ("sft", "distill")),
    "rl_only": (("sft", "rl_online"), ("rl_online",)),
    "static": (("sft",), ("sft", "preference"), ("sft", "rl_online"), ("rl_online",)),
    "interactive": (
        ("sft", "rl_online"),
        ("sft",),
        ("rl_offline",),
        ("sft", "rl_offline", "rl_online"),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One try. Times are seconds on the run's clock; ``base`` and ``out`` are checkpoints."""

    number: int
    method: Kind
    written_s: float
    began_s: float
    ended_s: float
    base: str
    out: str
    rate: float
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request to be graded.

    Attributes:
        training: Whose checkpoint it is; None: the base model's.
        scores: By task, as far as it is graded.
        cheats: The audit finds that it broke a rule.
    """

    at_s: float
    outcome: Outcome
    training: int | None
    scores: dict[str, float] = field(default_factory=dict)
    cheats: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A run.

    Attributes:
        fate: How it ends.
        used_s: Of its budget.
        baselines: By task, one score a grading of the base model.
        best: The number of the try that is planted as the best; None: nothing is submitted.
    """

    fate: Fate
    used_s: float
    baselines: dict[str, tuple[float, ...]]
    trainings: tuple[Training, ...]
    requests: tuple[Request, ...]
    best: int | None

    def lineage(self, number: int) -> list[Training]:
        """The tries that lead to the checkpoint of one, in order."""
        chain = [self.trainings[number - 1]]
        made = {training.out: training for training in self.trainings}
        while chain[0].base in made:
            chain.insert(0, made[chain[0].base])
        return chain


def outline(spec: RunSpec, number: int, rng: np.random.Generator) -> Outline:
    """Decides on a run.

    Args:
        spec: Its conditions.
        number: Its place in the plan.
        rng: Its own randomness.
    """
    fate = _fate(number, rng)
    used_s = BUDGET_S if fate == "timed_out" else float(rng.uniform(0.5, 0.97)) * BUDGET_S
    if fate == "running":
        used_s = 0.6 * BUDGET_S
    trainings = _trainings(_route(spec, fate, rng), used_s, rng)
    best = int(rng.integers(max(len(trainings) - 2, 1), len(trainings) + 1))
    baselines = {task.name: _baselines(task.name, rng) for task in spec.tasks}
    requests: list[Request] = []
    if fate != "nothing":
        requests = _requests(spec, trainings, best, used_s, baselines, rng)
        if fate == "invalid_submission":
            requests = _with_cheat(requests, used_s)
        if fate == "running":
            last = Request(at_s=used_s - 30, outcome="pending", training=len(trainings))
            requests.append(last)
    return Outline(
        fate=fate,
        used_s=used_s,
        baselines=baselines,
        trainings=tuple(trainings),
        requests=tuple(requests),
        best=best if requests else None,
    )


def _fate(number: int, rng: np.random.Generator) -> Fate:
    names: list[Fate] = [*_FATES, "completed"]
    shares = [*_FATES.values(), 1 - sum(_FATES.values())]
    drawn = names[int(rng.choice(len(names), p=shares))]
    return _PLANTED_EARLY.get(number, "completed") if number < 20 else drawn


def _route(spec: RunSpec, fate: Fate, rng: np.random.Generator) -> tuple[Kind, ...]:
    mode = spec.mode.name
    interactive = spec.tasks[0].level == "L3"
    key = mode if mode in _ROUTES else "interactive" if interactive else "static"
    routes = _ROUTES[key]
    route = routes[int(rng.integers(len(routes)))]
    breaks = fate == "invalid" and mode == "sft_only"
    return (*route, "rl_online") if breaks and "rl_online" not in route else route


def _trainings(route: Sequence[Kind], used_s: float, rng: np.random.Generator) -> list[Training]:
    tries = [kind for kind in route for _ in range(int(rng.integers(1, 4)))]
    marks = np.linspace(0.06 * used_s, 0.96 * used_s, len(tries) + 1)
    restarts = {kind: rng.random() < 0.25 for kind in route}
    made: list[Training] = []
    base = BASE
    for place, kind in enumerate(tries):
        if place and kind != tries[place - 1]:
            needs_one = kind in {"merge", "distill"}
            base = BASE if restarts[kind] and not needs_one else made[-1].out
        start, end = float(marks[place]), float(marks[place + 1])
        made.append(
            Training(
                number=place + 1,
                method=kind,
                written_s=start,
                began_s=start + 40,
                ended_s=end - 200 - float(rng.uniform(0, 0.2)) * (end - start),
                base=base,
                out=f"output/v{place + 1}_{kind}",
                rate=float(rng.choice([1e-6, 5e-6, 1e-5, 2e-5])),
                steps=int(rng.integers(2, 20)) * 50,
            )
        )
    return made


def _baselines(task: str, rng: np.random.Generator) -> tuple[float, ...]:
    planted = TASKS[task]
    if not planted.noise_sd:
        return (planted.baseline,)
    return tuple(planted.baseline + planted.noise_sd * rng.standard_normal(3))


def _requests(
    spec: RunSpec,
    trainings: Sequence[Training],
    best: int,
    used_s: float,
    baselines: dict[str, tuple[float, ...]],
    rng: np.random.Generator,
) -> list[Request]:
    top = {task.name: _best_score(spec, task.name, rng) for task in spec.tasks}
    made: list[Request] = []
    if rng.random() < 0.15:
        same = {task: float(np.mean(scores)) for task, scores in baselines.items()}
        at_s = 0.03 * used_s
        made.append(Request(at_s=at_s, outcome="unchanged", training=None, scores=same))
    for training in trainings:
        at_s = training.ended_s + 60
        trouble = rng.random()
        if trouble < 0.06:
            made.append(Request(at_s=at_s - 30, outcome="rejected", training=training.number))
        if trouble > 0.94 and training.number != best:
            made.append(Request(at_s=at_s, outcome="failed", training=training.number))
            continue
        scores = top if training.number == best else _below(spec, top, rng)
        request = Request(
            at_s=at_s, outcome="graded", training=training.number, scores=dict(scores)
        )
        made.append(request)
        if trouble > 0.88 and trouble <= 0.94:
            again = Request(
                at_s=at_s + 80, outcome="duplicate", training=training.number, scores=dict(scores)
            )
            made.append(again)
    return made


def _best_score(spec: RunSpec, task: str, rng: np.random.Generator) -> float:
    planted, stack = TASKS[task], stack_of(spec)
    spread = planted.run_sd * (0.3 + 0.7 * skill(stack)) * rng.standard_normal()
    noise = planted.noise_sd * rng.standard_normal()
    gain = mean_gain(stack, task, spec.mode.name) + spread + noise
    return float(np.clip(planted.baseline + gain, 0, 100))


def _below(spec: RunSpec, top: dict[str, float], rng: np.random.Generator) -> dict[str, float]:
    """Scores of a try that is not the best: by the same part lower on every task."""
    part = rng.uniform(0.05, 0.6)
    drops = {}
    for task in spec.tasks:
        # Two items at least, so that rounding to whole items changes no order.
        least = max(MIN_DROP, 200 / (task.num_eval or 1))
        drops[task.name] = max(part * TASKS[task.name].headroom * skill(stack_of(spec)), least)
    return {task: max(score - drops[task], 0.0) for task, score in top.items()}


def _with_cheat(requests: Sequence[Request], used_s: float) -> list[Request]:
    """Adds a last submission that scores above all and breaks a rule."""
    scored = [r for r in requests if r.scores]
    scores = {
        task: min(max(r.scores[task] for r in scored) + 8, 100.0) for task in scored[0].scores
    }
    cheat = Request(at_s=0.98 * used_s, outcome="graded", training=None, scores=scores, cheats=True)
    return [*requests, cheat]
