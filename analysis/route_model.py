"""What a route is made of: kinds of segments, segments with their evidence, and the final route.

Times are seconds on the run's clock. A confidence is a number in 0 to 1 that orders how far a
statement is to be trusted; it is no probability:

    0.9  the method stands in parsed code (or in a library's own command) that was seen to run
    0.6  the same, but the program broke off, was short, or a condition on the way is open
    0.5  several programs were seen, the audit names as many methods: joined in their order
    0.4  only the audit's list of methods tells of it, without times
    0.3  only a file's name, or code that was not seen to run, says so

and each loses a fifth where a submission is joined with it by time and not by its path.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from analysis.route_paths import NO_PATHS, Paths
from rl_bench.audit.frameworks import Family, Method, named_method
from rl_bench.events import Evidence

SURE, OPEN, JOINED, TOLD, NAMED = 0.9, 0.6, 0.5, 0.4, 0.3
BY_TIME = 0.8
"""Factor for a submission that is joined with a training by time only."""


class RouteKind(StrEnum):
    """What a run was doing."""

    DIAGNOSE = "diagnose"
    """It worked and trained nothing: looked at data, sampled, evaluated, wrote code."""
    SFT = "sft"
    PREFERENCE = "preference"
    RL_OFFLINE = "rl_offline"
    RL_ONLINE = "rl_online"
    MERGE = "merge"
    DISTILL = "distill"
    OTHER = "other"
    """Training that could not be read, or of a reward model."""
    RESUBMISSION = "resubmission"
    """It submitted what was graded before, or the base model itself."""


TRAINING = frozenset(set(RouteKind) - {RouteKind.DIAGNOSE, RouteKind.RESUBMISSION})
_FAMILIES = {
    Family.SFT: RouteKind.SFT,
    Family.DISTILL: RouteKind.DISTILL,
    Family.PREFERENCE: RouteKind.PREFERENCE,
    Family.MERGE: RouteKind.MERGE,
    Family.REWARD_MODEL: RouteKind.OTHER,
    Family.UNCLEAR: RouteKind.OTHER,
}
_NAMES = {
    "policy_gradient": RouteKind.RL_ONLINE,
    "evolution": RouteKind.RL_ONLINE,
    "offline_rl": RouteKind.RL_OFFLINE,
    "preference": RouteKind.PREFERENCE,
    "merge": RouteKind.MERGE,
    "custom": RouteKind.OTHER,
    "reward_model": RouteKind.OTHER,
}


def kind_of(method: Method) -> RouteKind:
    """The kind of a method that the audit knows."""
    if method.family is Family.RL:
        return RouteKind.RL_ONLINE if method.online else RouteKind.RL_OFFLINE
    return _FAMILIES[method.family]


def kind_of_name(name: str) -> RouteKind:
    """The kind of a method by the audit's name for it, e.g. ``grpo``."""
    method = named_method(name)
    if method is not None:
        return kind_of(method)
    return _NAMES.get(name, RouteKind.OTHER)


def kind_of_file(path: str) -> RouteKind | None:
    """What a script's name alone suggests; None: nothing."""
    stem = PurePosixPath(path).stem.lower().replace("-", "_")
    for word in stem.split("_"):
        method = named_method(word.rstrip("0123456789"))
        if method is not None and method.name != "reward_model":
            return kind_of(method)
        if word in {"merge", "average", "soup"}:
            return RouteKind.MERGE
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One training: a program that was seen, or what stands for one.

    Attributes:
        began_s, ended_s: None: not known.
        method: The audit's name.
        paths: The checkpoints that its words and its code name.
    """

    began_s: float | None
    ended_s: float | None
    kind: RouteKind
    method: str
    confidence: float
    evidence: tuple[Evidence, ...] = ()
    paths: Paths = NO_PATHS


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of one kind.

    Attributes:
        methods: The audit's names, in order.
        num_trainings: Programs in it.
        submissions: Accepted while it lasted, or as its outcome.
    """

    kind: RouteKind
    began_s: float | None
    ended_s: float | None
    methods: tuple[str, ...] = ()
    num_trainings: int = 0
    submissions: tuple[int, ...] = ()
    confidence: float
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalRoute:
    """How the best submission of a task came about.

    Attributes:
        kinds: The kinds that lead to it, each once, in order; empty: not known.
        methods: The same in the audit's names.
        submission_id: The best; None: there is none.
        joined_by: ``path``: what was submitted is named where it was trained; ``time``: it is the
            last training before it; empty: no training was seen.
        reason: In words.
    """

    task: str
    submission_id: int | None
    kinds: tuple[RouteKind, ...] = ()
    methods: tuple[str, ...] = ()
    confidence: float = 0.0
    joined_by: str = ""
    reason: str = ""

    @property
    def label(self) -> str:
        """E.g. ``sft → rl_online``; empty when not known."""
        return " → ".join(self.kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A run's route.

    Attributes:
        basis: The best source that was at hand: ``code``, ``trace``, ``processes``, ``audit`` or
            ``none``.
        written: Methods that the code has and nothing was seen to run.
        problems: What could not be read.
    """

    run_id: str
    basis: str
    segments: tuple[Segment, ...]
    finals: tuple[FinalRoute, ...]
    written: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
