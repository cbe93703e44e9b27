"""The facts of a case study: what one run was asked, tried, reached, cost and left.

This is ``summary.json``: fields in this order, times in seconds on the run's clock, scores 0 to
100, gains in points, costs in USD. `VERSION` grows when a field changes its meaning or goes.
"""

from typing import Literal

from rl_bench.config import Frozen

VERSION = 1


class Asked(Frozen):
    """What the run was asked.

    Attributes:
        max_submissions, max_driver_usd: None: no limit.
    """

    agent: str
    agent_version: str
    driver: str
    driver_model: str
    mode: str
    rules: str
    model: str
    seed: int
    tasks: tuple[str, ...]
    budget_s: float
    max_submissions: int | None
    max_driver_usd: float | None


class Outcome(Frozen):
    """How it ended.

    Attributes:
        end: None while it goes on.
        counts: Its scores may enter a mean; ``why_not``: else why.
        mode_verdict: Of the audit; None: not judged.
    """

    state: str
    end: str | None
    detail: str
    counts: bool
    why_not: str
    num_attempts: int
    sandbox: str
    mode_verdict: str | None


class FinalStep(Frozen):
    """How the best submission came about, see `analysis.route_model.FinalRoute`."""

    route: str
    methods: tuple[str, ...]
    confidence: float
    joined_by: str
    reason: str


class TaskResult(Frozen):
    """One task.

    Attributes:
        baseline: The base model's score; None with ``baseline_failure``.
        noise_floor: Points; None: not measured.
        monotonic_ratio: See `analysis.trajectories.run_figures`, as the times.
        final: None where nothing valid was submitted.
    """

    task: str
    level: str
    num_items: int | None
    baseline: float | None
    baseline_failure: str
    noise_floor: float | None
    first_score: float | None
    best_score: float | None
    best_submission_id: int | None
    gain: float | None
    within_noise: bool | None
    first_valid_s: float | None
    first_improvement_s: float | None
    best_s: float | None
    monotonic_ratio: float | None
    final: FinalStep | None


class Try(Frozen):
    """One submission as it was judged on one task."""

    submission_id: int
    task: str
    at_s: float
    kind: str
    score: float | None
    gain: float | None
    best_after: float | None
    is_new_best: bool
    model_path: str
    code_revision: str
    words: str


class Stage(Frozen):
    """One segment of the route."""

    kind: str
    began_s: float | None
    ended_s: float | None
    methods: tuple[str, ...]
    num_trainings: int
    submissions: tuple[int, ...]
    confidence: float
    evidence: tuple[str, ...]


class TurningPoint(Frozen):
    """A submission after which the run stood differently.

    Attributes:
        kind: ``first_score``; ``above_baseline``: the first gain; ``leap``: the largest rise of the
            best; ``setback``: the largest fall below it; ``best``.
        change: Points: against the baseline, or for ``leap`` and ``setback`` the best before.
        stage: The kind of the segment that it belongs to; empty: none.
    """

    kind: Literal["first_score", "above_baseline", "leap", "setback", "best"]
    task: str
    submission_id: int
    at_s: float
    score: float
    change: float | None
    stage: str


class Failure(Frozen):
    """Something that came to nothing, see `analysis.trajectories.failures`."""

    kind: str
    task: str
    submission_id: int | None
    at_s: float
    model_path: str
    reason: str
    repaired_by: int | None
    repair_s: float | None


class HourCost(Frozen):
    """One hour of the run's clock."""

    hour: int
    calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


class Cost(Frozen):
    """What the driver and the grading took.

    Attributes:
        usd_per_point: Cost over the gain, averaged over tasks; None without a gain or a cost.
        queue_credit_s: Given back to the run's clock for waiting.
    """

    calls: int
    failed_calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    usd_per_point: float | None
    by_hour: tuple[HourCost, ...]
    queue_wait_s: float
    queue_credit_s: float | None
    grading_s: float


class Found(Frozen):
    """A finding of the audit."""

    rule: str
    severity: str
    submission_id: int | None
    summary: str
    evidence: tuple[str, ...]


class Unused(Frozen):
    """What the run left.

    Attributes:
        budget_s, budget_share: Not used; share in 0 to 1.
        after_last_s: From the last submission to the end of the agent's work.
        submissions, driver_usd: Left of the limits; None: there is no limit.
        revisions_after_last: Of the code, that no submission has.
        written_not_run: Methods that the code has and nothing was seen to run.
    """

    budget_s: float
    budget_share: float
    after_last_s: float | None
    submissions: int | None
    driver_usd: float | None
    revisions_after_last: int
    written_not_run: tuple[str, ...]


class CaseStudy(Frozen):
    """One run.

    Attributes:
        route_basis: See `analysis.route_model.Route`.
        unknown: What could not be read.
    """

    version: int = VERSION
    run_id: str
    sweep: str
    asked: Asked
    outcome: Outcome
    results: tuple[TaskResult, ...]
    route_basis: str
    stages: tuple[Stage, ...]
    tries: tuple[Try, ...]
    turning_points: tuple[TurningPoint, ...]
    failures: tuple[Failure, ...]
    cost: Cost
    findings: tuple[Found, ...]
    unused: Unused
    unknown: tuple[str, ...]
