"""What each run did with its time: submissions, the best so far, spending, failures and repairs.

Pure functions from `analysis.results.Results` to polars frames. Scores are 0 to 100, gains points,
times seconds on the run's clock (``at_s``), costs USD. Everything is of the last attempt. A figure
that does not exist is null; a failure is never a score.

Order is that of acceptance (``submission_id``), not of verdicts. Results that were loaded with
``every_attempt`` are refused: submissions of two attempts are no trajectory.
"""

import polars as pl

from analysis.errors import ResultsError
from analysis.results import Results

KINDS = ("pending", "failed", "invalid", "unchanged", "duplicate", "valid")
"""What a submission is, the first that applies: not graded yet; no score; a rule was broken; the
base model itself; the content of an earlier one; none of these."""
SCORED = ("valid", "duplicate", "unchanged")
"""Kinds whose score counts for the best."""
HOUR_S = 3600.0
_KEY = ["run_id", "task"]


def trajectory(results: Results) -> pl.DataFrame:
    """One row a submission and task.

    Columns:
        run_id, task, submission_id.
        at_s: When it was accepted.
        kind: See `KINDS`. ``status`` and ``failure`` as recorded.
        score, gain: As recorded, of invalid ones too; gain is against the run's baseline.
        within_noise: The gain lies within the noise floor of the baseline.
        best_before, best_after: The best score that counts, without and with this one.
        is_new_best: It raised the best so far, or is the first that has a score which counts.
        not_below: Its score is not below ``best_before``; null unless it is ``valid``, has a score
            and is not the first.
        since_previous_s: After the submission before it; the first: after the agent's start.
        queue_s, load_s, grading_s: Waiting for a grader, loading weights, evaluating.
        code_revision, model_path, content_hash, duplicate_of, invalid_reason: As recorded.

    Raises:
        ResultsError: ``results`` hold every attempt.
    """
    if results.every_attempt:
        raise ResultsError("trajectories are of the last attempt: load without every_attempt")
    counted = pl.when(pl.col("kind").is_in(SCORED)).then(pl.col("score"))
    best_after = pl.col("counted").cum_max().forward_fill().over(_KEY)
    return (
        results.submissions.sort(*_KEY, "submission_id")
        .with_columns(kind=_kind(), at_s=pl.col("budget_used_s"), gain=pl.col("improvement"))
        .with_columns(counted=counted)
        .with_columns(best_after=best_after)
        .with_columns(
            best_before=pl.col("best_after").shift(1).over(_KEY),
            since_previous_s=pl.col("at_s") - pl.col("at_s").shift(1, fill_value=0.0).over(_KEY),
        )
        .with_columns(
            is_new_best=(pl.col("counted") > pl.col("best_before").fill_null(-1.0)).fill_null(
                False
            ),
            not_below=pl.when(pl.col("kind") == "valid").then(
                pl.col("score") >= pl.col("best_before")
            ),
        )
        .select(
            *_KEY,
            "submission_id",
            "at_s",
            "kind",
            "status",
            "failure",
            "score",
            "gain",
            "within_noise",
            "best_before",
            "best_after",
            "is_new_best",
            "not_below",
            "since_previous_s",
            "queue_s",
            "load_s",
            pl.col("duration_s").alias("grading_s"),
            "code_revision",
            "model_path",
            "content_hash",
            "duplicate_of",
            "invalid_reason",
        )
    )


def _kind() -> pl.Expr:
    return (
        pl.when(pl.col("status") == "pending")
        .then(pl.lit("pending"))
        .when(pl.col("status") == "failed")
        .then(pl.lit("failed"))
        .when("is_invalid")
        .then(pl.lit("invalid"))
        .when("unchanged")
        .then(pl.lit("unchanged"))
        .when(pl.col("duplicate_of").is_not_null())
        .then(pl.lit("duplicate"))
        .otherwise(pl.lit("valid"))
    )


def run_figures(results: Results) -> pl.DataFrame:
    """One row a run and task, in the order of ``results.runs``: what its trajectory amounts to.

    Columns beyond ``run_id`` and ``task``:
        num_valid, num_invalid, num_failed, num_pending, num_duplicate, num_unchanged: By kind.
        num_rejected: Requests of the whole run that were refused.
        first_valid_s: When the first submission that counts and has a score was accepted.
        first_improvement_s: The first with a score above the baseline; ``first_clear_s``: above it
            by more than the noise floor (0 where none is known).
        best_s: The first that reached the best score.
        num_new_bests: Times that the best was raised, the first score included.
        monotonic_ratio: Of the ``valid`` submissions with a score, less the first score, the share
            whose score is not below the best before them, 0 to 1; null when there are none.
        last_s: The last submission. ``gap_after_last_s``: from it to the end of the agent's work;
            ``gap_after_best_s`` likewise. Null while the run goes on.
        budget_s, budget_used_s, budget_share: The share is 0 to 1.
        queue_wait_s: Waited for graders over this task's evaluations; ``queue_credit_s``: given
            back to the whole run: wall-clock time of the agent less time on the run's clock.
        num_revisions: Of the code.
        num_failures, num_repaired: Failed, invalid and refused submissions, and those that a later
            ``valid`` one with a score followed; see `failures`.
        calls, input_tokens, output_tokens, cost_usd: Of the driver's calls of the whole run.
    """
    runs = results.runs.select(
        *_KEY,
        pl.col("num_rejected"),
        "budget_s",
        "budget_used_s",
        pl.col("queue_s").alias("queue_wait_s"),
        "num_revisions",
        pl.col("driver_calls").alias("calls"),
        "input_tokens",
        "output_tokens",
        "cost_usd",
        pl.col("ended_at").is_not_null().alias("is_over"),
    )
    counts = ("valid", "invalid", "failed", "pending", "duplicate", "unchanged")
    return (
        runs.join(_of_trajectory(results), on=_KEY, how="left", maintain_order="left")
        .join(_of_failures(results), on=_KEY, how="left", maintain_order="left")
        .join(queue_credit(results), on="run_id", how="left", maintain_order="left")
        .with_columns(
            *(pl.col(f"num_{kind}").fill_null(0) for kind in counts),
            pl.col("num_new_bests", "num_failures", "num_repaired").fill_null(0),
            budget_share=pl.col("budget_used_s") / pl.col("budget_s"),
            gap_after_last_s=_after("last_s"),
            gap_after_best_s=_after("best_s"),
        )
        .drop("is_over")
    )


def _after(column: str) -> pl.Expr:
    left = (pl.col("budget_used_s") - pl.col(column)).clip(lower_bound=0.0)
    return pl.when("is_over").then(left)


def _of_trajectory(results: Results) -> pl.DataFrame:
    floor = results.runs.select(*_KEY, "noise_floor")
    at_s, counts = pl.col("at_s"), pl.col("kind").is_in(SCORED)
    scored = counts & pl.col("score").is_not_null()
    clear = pl.col("gain") > pl.col("noise_floor").fill_null(0.0)
    kinds = {f"num_{kind}": (pl.col("kind") == kind).sum().cast(pl.Int64) for kind in KINDS}
    return (
        trajectory(results)
        .join(floor, on=_KEY, how="left", maintain_order="left")
        .group_by(_KEY, maintain_order=True)
        .agg(
            **kinds,
            first_valid_s=at_s.filter(scored).first(),
            first_improvement_s=at_s.filter(counts & (pl.col("gain") > 0)).first(),
            first_clear_s=at_s.filter(counts & clear).first(),
            best_s=at_s.filter("is_new_best").last(),
            num_new_bests=pl.col("is_new_best").sum().cast(pl.Int64),
            monotonic_ratio=pl.col("not_below").mean(),
            last_s=at_s.last(),
        )
    )


def failures(results: Results) -> pl.DataFrame:
    """One row a submission that came to nothing, and what repaired it.

    Columns:
        run_id, task: A refused request is about every task of its run.
        at_s, model_path.
        kind: ``failed`` (no score), ``invalid`` (a rule was broken) or ``rejected`` (refused).
        submission_id: Null for ``rejected``.
        reason: In words.
        repaired_by, repair_s: The next ``valid`` submission with a score, and the time until it was
            accepted; null: none came.
    """
    tried = trajectory(results)
    came_to_nothing = tried.filter(pl.col("kind").is_in(["failed", "invalid"])).select(
        *_KEY,
        "at_s",
        "model_path",
        "kind",
        "submission_id",
        reason=pl.when(pl.col("kind") == "failed").then("failure").otherwise("invalid_reason"),
    )
    good = tried.filter((pl.col("kind") == "valid") & pl.col("score").is_not_null()).select(
        *_KEY, "at_s", repaired_by="submission_id", repaired_s="at_s"
    )
    return (
        pl.concat([came_to_nothing, _rejections(results)])
        .sort("at_s")
        .join_asof(
            good.sort("at_s"),
            on="at_s",
            by=_KEY,
            strategy="forward",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        .with_columns(repair_s=pl.col("repaired_s") - pl.col("at_s"))
        .drop("repaired_s")
        .sort(*_KEY, "at_s")
    )


def _rejections(results: Results) -> pl.DataFrame:
    def field(name: str) -> pl.Expr:
        return pl.col("payload").str.json_path_match(f"$.{name}")

    refused = results.agent_events.filter(pl.col("type") == "submission_rejected").select(
        "run_id",
        at_s=field("budget_used_s").cast(pl.Float64),
        model_path=field("model_path"),
        kind=pl.lit("rejected"),
        submission_id=pl.lit(None, dtype=pl.Int64),
        reason=pl.concat_str(
            field("reason").fill_null(""), field("message").fill_null(""), separator=": "
        ),
    )
    return (
        results.runs.select(_KEY)
        .join(refused, on="run_id")
        .select(*_KEY, "at_s", "model_path", "kind", "submission_id", "reason")
    )


def _of_failures(results: Results) -> pl.DataFrame:
    return (
        failures(results)
        .group_by(_KEY)
        .agg(
            num_failures=pl.len().cast(pl.Int64),
            num_repaired=pl.col("repaired_by").is_not_null().sum().cast(pl.Int64),
        )
    )


def spending(results: Results) -> pl.DataFrame:
    """One row a run and hour of its clock in which the driver was called.

    Columns:
        run_id.
        hour: From 0.
        calls, failed_calls.
        input_tokens, output_tokens, cached_tokens: Input includes cached; null: none was told.
        cost_usd: By the driver's prices; null: not known.
    """
    sums = ("input_tokens", "output_tokens", "cached_tokens", "cost_usd")
    return (
        results.driver_calls.group_by(
            "run_id", (pl.col("budget_used_s") // HOUR_S).cast(pl.Int64).alias("hour")
        )
        .agg(
            calls=pl.len().cast(pl.Int64),
            failed_calls=pl.col("failure").is_not_null().sum().cast(pl.Int64),
            **{
                name: pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum())
                for name in sums
            },
        )
        # Files are summed in any order: the last digits would differ from time to time.
        .with_columns(pl.col("cost_usd").round(9))
        .sort("run_id", "hour")
    )


def queue_credit(results: Results) -> pl.DataFrame:
    """One row a run whose agent worked and ended.

    Columns:
        run_id.
        queue_credit_s: Wall-clock seconds of the agent less seconds on the run's clock, which is
            what was given back for waiting; never negative.
    """
    used = pl.col("payload").str.json_path_match("$.budget_used_s").cast(pl.Float64)
    began, ended = pl.col("type") == "agent_started", pl.col("type") == "agent_exited"
    return (
        results.agent_events.filter(began | ended)
        .with_columns(used_s=used)
        .group_by("run_id")
        .agg(
            began_s=pl.col("elapsed_s").filter(began).min(),
            ended_s=pl.col("elapsed_s").filter(ended).max(),
            used_s=pl.col("used_s").filter(ended).max(),
        )
        .select(
            "run_id",
            queue_credit_s=(pl.col("ended_s") - pl.col("began_s") - pl.col("used_s"))
            .clip(lower_bound=0.0)
            .round(3),
        )
        .drop_nulls()
        .sort("run_id")
    )


def score_at(results: Results, at_s: float) -> pl.DataFrame:
    """The best score that each run and task had by a time, for curves and truncations.

    Args:
        results: The runs.
        at_s: Seconds on the run's clock.

    Columns:
        run_id, task.
        best_score: Points; null: nothing that counts was accepted by then.
    """
    reached = (
        trajectory(results)
        .filter(pl.col("at_s") <= at_s)
        .group_by(_KEY)
        .agg(best_score=pl.col("best_after").last())
    )
    return results.runs.select(_KEY).join(reached, on=_KEY, how="left", maintain_order="left")
