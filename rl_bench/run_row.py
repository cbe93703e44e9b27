"""Table ``runs``: what a run's view says, one row a task; see `rl_bench.records`."""

from dataclasses import dataclass
from datetime import datetime

from rl_bench.config import RunSpec, TaskConfig
from rl_bench.record_schema import schema_of
from rl_bench.run_view import RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """Table ``runs``: one row a run and task (a run in mode ``multi`` has several).

    Attributes:
        tasks: All tasks of the run; ``task`` is this row's.
        plugins: Distributions beside this project that the run is made with, name and version.
        state, end: See `rl_bench.events`; ``end`` is null while the run goes on.
        is_final: Ended and not to be tried again.
        is_infrastructure: Ended by the runner: leave the row out of every mean.
        is_invalid: A rule was broken: scores are kept, and stay out of every mean.
        counts: Final and neither of these: the row may enter a mean.
        attempt, num_attempts: The last attempt (from 0), which this row tells of, and their number.
        baseline_score: The base model's; null with ``baseline_failure``.
        baseline_scores: When it was graded more than once, the scores whose mean that is.
        baseline_num_errors: Its items without a verdict; null until it is graded.
        noise_floor: What two gradings of one checkpoint differ by, points, see `rl_bench.noise`;
            null when the base model was graded once.
        first_score: Of the earliest valid submission that has a score.
        best_score, best_submission_id: The highest score of a valid submission, and the first that
            had it.
        best_unchanged: That submission was the base model itself.
        improvement: ``best_score - baseline_score``, points.
        within_noise: It lies within ``noise_floor``; null when either is.
        num_submissions: Accepted for this task = graded + failed + pending.
        num_invalid: Of these, submissions that broke a rule.
        num_rejected: Requests of the whole run that were answered 4xx.
        sandbox: ``bwrap`` or ``none``; empty while it is not known.
        num_sessions: Times that the agent was started.
        driver_calls, driver_failed_calls: See table ``driver_calls``. ``driver_unknown_calls``:
            may have cost something and told no usage, so that tokens and cost are at least these.
        input_tokens, output_tokens, cached_tokens, cost_usd: Of the driver's calls, at the gateway;
            null while none told them. ``input_tokens`` includes ``cached_tokens``.
        total_cost_usd: The same for all attempts.
        driver_failure: Kind of the latest failed call; empty: none.
        agent_input_tokens, agent_output_tokens, agent_cost_usd: By the agent's own account.
        num_turns: As the agent counts them; ``num_tool_calls``, ``num_agent_errors``: that its
            output told. Null: it tells nothing.
        num_live_children: Processes that it left running when it exited.
        num_revisions: Of its code.
        mode_verdict: ``clean``, ``breach``, ``suspect``, ``unknown``; null until it is judged.
        mode_methods: Post-training methods that were seen to run.
        audit_rules_version: Of the rules that judged.
        num_findings, num_breaches: Findings about the run or its submissions, and those that break
            a rule; the mode's judgement is counted in neither.
        budget_used_s: On the run's clock, as last recorded.
        started_at, ended_at: UTC, of the last attempt; ``duration_s`` is monotonic.
        queue_s, load_s, grading_s: Summed over this task's evaluations, the baseline's included.
        spec: The whole `RunSpec` as JSON.
    """

    run_id: str
    sweep: str
    task: str
    tasks: tuple[str, ...]
    level: str
    source: str
    protocol: str
    agent: str
    agent_version: str
    driver: str
    driver_model: str
    mode: str
    model: str
    seed: int
    plugins: str
    state: str
    end: str | None
    end_detail: str
    is_final: bool
    is_infrastructure: bool
    is_invalid: bool
    counts: bool
    attempt: int
    num_attempts: int
    baseline_score: float | None
    baseline_failure: str
    baseline_scores: tuple[float, ...]
    baseline_num_errors: int | None
    noise_floor: float | None
    first_score: float | None
    best_score: float | None
    best_submission_id: int | None
    best_unchanged: bool
    improvement: float | None
    within_noise: bool | None
    num_submissions: int
    num_graded: int
    num_failed: int
    num_pending: int
    num_invalid: int
    num_rejected: int
    num_items: int | None
    evaluator_version: str
    sandbox: str
    num_sessions: int
    driver_calls: int
    driver_failed_calls: int
    driver_unknown_calls: int
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cost_usd: float | None
    total_cost_usd: float | None
    driver_failure: str
    agent_input_tokens: int | None
    agent_output_tokens: int | None
    agent_cost_usd: float | None
    num_turns: int | None
    num_tool_calls: int | None
    num_agent_errors: int | None
    num_live_children: int
    num_revisions: int
    mode_verdict: str | None
    mode_methods: tuple[str, ...]
    audit_rules_version: str
    num_findings: int
    num_breaches: int
    budget: str
    budget_s: float
    budget_used_s: float
    exit_code: int | None
    killed: bool
    num_warnings: int
    started_at: datetime | None
    ended_at: datetime | None
    duration_s: float
    queue_s: float
    load_s: float
    grading_s: float
    spec: str


RUNS = schema_of("runs", RunRow)


def run_rows(view: RunView, spec: RunSpec) -> list[RunRow]:
    """The rows of table ``runs`` that a view and its spec make: one a task."""
    configs: dict[str, TaskConfig] = {task.name: task for task in spec.tasks}
    spec_json = spec.model_dump_json()
    agent, driver, audit = view.agent_use, view.driver_use, view.audit
    return [
        RunRow(
            run_id=view.run_id,
            sweep=view.sweep,
            task=name,
            tasks=tuple(configs),
            level=config.level,
            source=config.source.value,
            protocol=config.protocol,
            agent=view.agent,
            agent_version=spec.agent.version,
            driver=view.driver,
            driver_model=spec.driver.model_id,
            mode=view.mode,
            model=view.model,
            seed=view.seed,
            plugins=view.plugins,
            state=view.state.value,
            end=None if view.end is None else view.end.value,
            end_detail=view.end_detail,
            is_final=view.is_final,
            is_infrastructure=view.is_infrastructure,
            is_invalid=view.is_invalid,
            counts=view.counts,
            attempt=view.attempt,
            num_attempts=view.num_attempts,
            baseline_score=view.tasks[name].baseline,
            baseline_failure=view.tasks[name].baseline_failure,
            baseline_scores=view.tasks[name].baseline_scores,
            baseline_num_errors=view.tasks[name].baseline_num_errors,
            noise_floor=view.tasks[name].noise_floor,
            first_score=view.tasks[name].first,
            best_score=view.tasks[name].best,
            best_submission_id=view.tasks[name].best_submission_id,
            best_unchanged=view.tasks[name].best_unchanged,
            improvement=view.tasks[name].improvement,
            within_noise=view.tasks[name].within_noise,
            num_submissions=view.tasks[name].num_submissions,
            num_graded=view.tasks[name].num_graded,
            num_failed=view.tasks[name].num_failed,
            num_pending=view.tasks[name].num_pending,
            num_invalid=view.tasks[name].num_invalid,
            num_rejected=view.num_rejected,
            num_items=view.tasks[name].num_items,
            evaluator_version=view.tasks[name].evaluator_version,
            sandbox=view.sandbox,
            num_sessions=agent.num_sessions,
            driver_calls=driver.num_calls,
            driver_failed_calls=driver.num_failed,
            driver_unknown_calls=driver.num_unknown,
            input_tokens=driver.input_tokens,
            output_tokens=driver.output_tokens,
            cached_tokens=driver.cached_tokens,
            cost_usd=driver.cost_usd,
            total_cost_usd=view.total_cost_usd,
            driver_failure=driver.last_failure,
            agent_input_tokens=agent.told.input_tokens,
            agent_output_tokens=agent.told.output_tokens,
            agent_cost_usd=agent.told.cost_usd,
            num_turns=agent.told.num_turns,
            num_tool_calls=agent.num_tool_calls if agent.num_events else None,
            num_agent_errors=agent.num_errors if agent.num_events else None,
            num_live_children=agent.num_live_children,
            num_revisions=view.num_revisions,
            mode_verdict=None if audit.verdict is None else audit.verdict.value,
            mode_methods=audit.methods,
            audit_rules_version=audit.rules_version,
            num_findings=audit.num_findings,
            num_breaches=audit.num_breaches,
            budget=spec.budget.name,
            budget_s=view.budget_s,
            budget_used_s=view.budget_used_s,
            exit_code=view.exit_code,
            killed=view.killed,
            num_warnings=view.num_warnings,
            started_at=view.started_utc,
            ended_at=view.ended_utc,
            duration_s=view.duration_s,
            queue_s=view.tasks[name].queue_s,
            load_s=view.tasks[name].load_s,
            grading_s=view.tasks[name].grading_s,
            spec=spec_json,
        )
        for name, config in configs.items()
    ]
