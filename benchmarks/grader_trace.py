"""Submissions of a sweep's runs as a trace: drawn from a seed, kept in a file, and its bound."""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

TRACE = Path(__file__).parent / "traces" / "grader_pool.json"
SEED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """``gap_s`` after the verdict before it, or, ``in_burst``, after the submission before it.

    ``duration_s``: grading by one grader, weights loaded. ``is_static``: it can be split.
    """

    gap_s: float
    duration_s: float
    is_static: bool
    in_burst: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRun:
    """One run: it starts ``start_s`` into the sweep."""

    name: str
    start_s: float
    submissions: tuple[Submission, ...]


class Kind(NamedTuple):
    """Runs of a kind: how many, submissions of each, medians in seconds, submissions a burst."""

    num_runs: int
    num_submissions: int
    gap_s: float
    duration_s: float
    burst: int


KINDS = {
    "usual": Kind(6, 16, 420.0, 180.0, 1),
    "dear": Kind(3, 8, 900.0, 480.0, 1),
    "cheap": Kind(3, 27, 300.0, 60.0, 4),
}
"""6·16 + 3·8 + 3·27 = 201, of which the last is left out."""


def draw_trace(seed: int, *, num_submissions: int = 200) -> list[TraceRun]:
    """The runs that ``seed`` gives."""
    rng = random.Random(seed)
    left = num_submissions
    runs = []
    for kind, (num_runs, num, gap_s, duration_s, burst) in KINDS.items():
        for number in range(num_runs):
            submissions = tuple(
                Submission(
                    gap_s=0.0 if i % burst else round(rng.lognormvariate(0, 0.7) * gap_s, 1),
                    duration_s=round(rng.lognormvariate(0, 0.5) * duration_s, 1),
                    is_static=rng.random() < 0.6,
                    in_burst=i % burst > 0,
                )
                for i in range(min(num, left))
            )
            left -= len(submissions)
            start_s = round(rng.uniform(0, 600), 1)
            runs.append(TraceRun(name=f"{kind}{number}", start_s=start_s, submissions=submissions))
    return runs


def read_trace(path: Path) -> list[TraceRun]:
    """The runs in a trace's file."""
    return [
        TraceRun(
            name=run["name"],
            start_s=run["start_s"],
            submissions=tuple(Submission(**each) for each in run["submissions"]),
        )
        for run in json.loads(path.read_text())["runs"]
    ]


def write_trace(path: Path, *, seed: int) -> None:
    """Draws the trace anew."""
    runs = [asdict(run) for run in draw_trace(seed)]
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"seed": seed, "runs": runs}, indent=1) + "\n")


def undisturbed_s(run: TraceRun, *, speed: float = 1.0) -> float:
    """When the run would end if it never waited; ``speed``: graders for each static set."""
    sent = done = run.start_s
    for each in run.submissions:
        sent = (sent if each.in_burst else done) + each.gap_s
        done = max(done, sent + each.duration_s / (speed if each.is_static else 1.0))
    return done


def lower_bound_s(runs: Sequence[TraceRun], *, num_graders: int, splits: bool) -> float:
    """What no order of the submissions can go below."""
    work = sum(each.duration_s for run in runs for each in run.submissions)
    speed = num_graders if splits else 1
    return max(work / num_graders, max(undisturbed_s(run, speed=speed) for run in runs))
