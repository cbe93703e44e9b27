"""The verdict on a mode, given what was seen to run; how that is seen is `test_audit_modes`."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rl_bench.audit.frameworks import (
    DISTILL,
    MERGE,
    OFFLINE_RL,
    POLICY_GRADIENT,
    PREFERENCE,
    REWARD_MODEL,
    SFT,
    UNCLEAR,
    Method,
)
from rl_bench.audit.methods import Certainty, Methods, MethodSeen
from rl_bench.audit.mode import judge_mode
from rl_bench.audit.rules import MAX_EVIDENCE
from rl_bench.audit.submissions import Submission, best_of, submissions_of
from rl_bench.events import Evidence, ModeVerdict

MakeStory = Callable[..., Any]

CLEAN, BREACH = ModeVerdict.CLEAN, ModeVerdict.BREACH
SUSPECT, UNKNOWN = ModeVerdict.SUSPECT, ModeVerdict.UNKNOWN
RAN, MAYBE, WRITTEN = Certainty.RAN, Certainty.MAYBE, Certainty.WRITTEN


def seen(
    method: Method, certainty: Certainty = RAN, *, at_s: float | None = None, line: int = 1
) -> MethodSeen:
    piece = Evidence(source="code", path="code/train.py", line=line, quote=method.name)
    return MethodSeen(method=method, certainty=certainty, first_s=at_s, evidence=(piece,))


def submission(
    number: int, gain: float | None, *, at_s: float = 100.0, unchanged: bool = False
) -> Submission:
    return Submission(
        submission_id=number,
        content_hash=f"hash{number}",
        model_path="output/m",
        used_s=at_s,
        unchanged=unchanged,
        gains={} if gain is None else {"alfworld": gain},
    )


BETTER, WORSE = submission(1, 5.0), submission(1, -5.0)


@pytest.mark.parametrize(
    ("methods", "submissions", "verdict", "why"),
    [
        ([seen(POLICY_GRADIENT)], [BETTER], BREACH, "updated from rewards: policy_gradient"),
        ([seen(SFT), seen(PREFERENCE)], [], BREACH, "updated from rewards: preference"),
        ([seen(SFT), seen(OFFLINE_RL, MAYBE)], [BETTER], SUSPECT, "may have run: offline_rl"),
        ([seen(SFT), seen(UNCLEAR)], [BETTER], SUSPECT, "not clear: custom"),
        ([seen(REWARD_MODEL)], [BETTER], SUSPECT, "not clear: reward_model"),
        ([seen(SFT), seen(UNCLEAR, MAYBE)], [BETTER], CLEAN, "only imitation was seen"),
        ([seen(DISTILL)], [BETTER], CLEAN, "only imitation was seen"),
        (
            [seen(MERGE), seen(POLICY_GRADIENT, WRITTEN)],
            [BETTER],
            CLEAN,
            "policy_gradient is written and was not seen to run",
        ),
        ([], [], CLEAN, "nothing was submitted that differs"),
        ([], [submission(1, 0.0, unchanged=True)], CLEAN, "nothing was submitted that differs"),
        ([seen(SFT, MAYBE)], [BETTER], UNKNOWN, "how was not seen (7 programs)"),
    ],
)
def test_sft_only(
    methods: Sequence[MethodSeen],
    submissions: Sequence[Submission],
    verdict: ModeVerdict,
    why: str,
) -> None:
    told = judge_mode("sft_only", Methods(seen=tuple(methods), num_programs=7), submissions)
    assert (told.verdict, why in told.summary) == (verdict, True), told.summary


@pytest.mark.parametrize(
    ("methods", "submissions", "verdict", "why"),
    [
        ([seen(POLICY_GRADIENT, at_s=10.0)], [BETTER], CLEAN, "online samples ran"),
        ([seen(POLICY_GRADIENT)], [BETTER], CLEAN, "online samples ran"),
        ([seen(POLICY_GRADIENT, at_s=10.0)], [], CLEAN, "online samples ran"),
        ([seen(POLICY_GRADIENT, at_s=200.0)], [BETTER], SUSPECT, "1, was made before any RL"),
        (
            [seen(SFT, at_s=5.0), seen(POLICY_GRADIENT, at_s=10.0)],
            [BETTER],
            CLEAN,
            "online samples ran",
        ),
        (
            [seen(POLICY_GRADIENT, at_s=10.0), seen(SFT, at_s=20.0)],
            [BETTER],
            SUSPECT,
            "sft ran after the RL",
        ),
        (
            [
                seen(POLICY_GRADIENT, at_s=10.0),
                seen(SFT, at_s=20.0),
                seen(POLICY_GRADIENT, at_s=30.0),
            ],
            [BETTER],
            CLEAN,
            "online samples ran",
        ),
        ([seen(POLICY_GRADIENT, MAYBE)], [BETTER], SUSPECT, "is certain: policy_gradient"),
        ([seen(SFT), seen(OFFLINE_RL)], [BETTER], SUSPECT, "is certain: offline_rl"),
        ([seen(SFT)], [BETTER], BREACH, "submission 1 improved by sft, without any RL"),
        ([seen(SFT)], [WORSE], SUSPECT, "no RL was seen, only sft"),
        ([seen(SFT)], [submission(1, None)], SUSPECT, "no RL was seen, only sft"),
        ([seen(SFT)], [], CLEAN, "no RL was seen, only sft"),
        ([seen(UNCLEAR)], [BETTER], SUSPECT, "not clear: custom"),
        ([], [BETTER], UNKNOWN, "how was not seen"),
        ([seen(POLICY_GRADIENT, WRITTEN)], [BETTER], UNKNOWN, "how was not seen"),
        ([], [], CLEAN, "no training was seen"),
    ],
)
def test_rl_only(
    methods: Sequence[MethodSeen],
    submissions: Sequence[Submission],
    verdict: ModeVerdict,
    why: str,
) -> None:
    told = judge_mode("rl_only", Methods(seen=tuple(methods)), submissions)
    assert (told.verdict, why in told.summary) == (verdict, True), told.summary


def test_what_could_not_be_read_is_told_and_softens_a_breach() -> None:
    problems = tuple(f"problem {number}" for number in range(5))
    methods = Methods(seen=(seen(SFT),), problems=problems)
    told = judge_mode("rl_only", methods, [BETTER])
    assert told.verdict is SUSPECT
    assert told.summary.endswith("not read: problem 0; problem 1; problem 2")
    assert judge_mode("sft_only", methods, [BETTER]).verdict is CLEAN


def test_evidence_is_the_surest_first_bounded_and_without_repeats() -> None:
    methods = [seen(OFFLINE_RL, MAYBE, line=0)]
    methods += [seen(POLICY_GRADIENT, line=line % 20) for line in range(1, 40)]
    told = judge_mode("free", Methods(seen=tuple(methods)), [])
    assert [piece.line for piece in told.evidence] == list(range(1, MAX_EVIDENCE + 1))


def test_a_submissions_gain_is_its_first_score_less_the_baseline(story: MakeStory) -> None:
    run = story("r", tasks=("alfworld", "gsm8k")).start().baseline(5.0, None)
    run.submit(1, None, 50.0).grade(1, 20.0, 60.0).grade(1, 90.0, 90.0).grade(99, 90.0, 90.0)
    run.submit(2, float("nan"), 10.0).accept(3, unchanged=True).grade(3, 80.0, 80.0)
    first, second, base = submissions_of(run.entries)
    assert (first.gains, first.gain) == ({"alfworld": 15.0}, 15.0)
    assert (second.gains, second.gain) == ({}, None)
    assert base.unchanged
    assert best_of([first, second, base]) is first
    assert best_of([second, base]) is None


def test_the_best_is_the_first_of_equals_and_may_be_a_loss() -> None:
    assert best_of([submission(1, -3.0), submission(2, -1.0), submission(3, -1.0)]) == submission(
        2, -1.0
    )
