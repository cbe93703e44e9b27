"""Whether a run kept to its mode: a verdict on the methods that were seen.

``free`` and ``multi`` allow everything. ``sft_only`` allows imitation, of filtered samples too, and
no update from rewards or preferences. ``rl_only`` allows a supervised warm-up and wants updates
from rewards of the model's own samples after it. A breach needs a clear method that certainly ran;
whatever falls short of that is suspect, and where next to nothing was seen it is unknown.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rl_bench.audit.frameworks import Family
from rl_bench.audit.methods import Certainty, Methods, MethodSeen
from rl_bench.audit.rules import MAX_EVIDENCE, RULES_VERSION
from rl_bench.audit.submissions import Submission, best_of
from rl_bench.counts import plural
from rl_bench.events import Evidence, ModeAudited, ModeVerdict

_REWARDED = (Family.RL, Family.PREFERENCE)
_IMITATED = (Family.SFT, Family.DISTILL)
_TRAINS = (*_REWARDED, *_IMITATED, Family.MERGE, Family.UNCLEAR)


class _Judgement(NamedTuple):
    verdict: ModeVerdict
    summary: str
    because: Sequence[MethodSeen] = ()


def judge_mode(mode: str, methods: Methods, submissions: Sequence[Submission]) -> ModeAudited:
    """The verdict.

    Args:
        mode: The run's mode by name.
        methods: What was seen.
        submissions: What came of it.
    """
    changed = [s for s in submissions if not s.unchanged]
    if mode == "sft_only":
        judgement = _sft_only(methods, changed)
    elif mode == "rl_only":
        judgement = _rl_only(methods, changed)
    else:
        judgement = _Judgement(ModeVerdict.CLEAN, f"mode {mode} allows every method")
    names = methods.names()
    summary = judgement.summary
    if names:
        summary += f"; seen to run: {', '.join(names)}"
    if methods.problems:
        summary += f"; not read: {'; '.join(methods.problems[:3])}"
    return ModeAudited(
        verdict=judgement.verdict,
        rules_version=RULES_VERSION,
        summary=summary,
        methods=names,
        evidence=_evidence(judgement.because or methods.of(*_TRAINS)),
    )


def _sft_only(methods: Methods, changed: Sequence[Submission]) -> _Judgement:
    ran = methods.of(*_REWARDED)
    if ran:
        what = _named(ran)
        return _Judgement(ModeVerdict.BREACH, f"weights were updated from rewards: {what}", ran)
    maybe = methods.of(*_REWARDED, at_least=Certainty.MAYBE)
    if maybe:
        why = f"an update from rewards may have run: {_named(maybe)}"
        return _Judgement(ModeVerdict.SUSPECT, why, maybe)
    unclear = methods.of(Family.UNCLEAR, Family.REWARD_MODEL)
    if unclear:
        why = f"what was trained is not clear: {_named(unclear)}"
        return _Judgement(ModeVerdict.SUSPECT, why, unclear)
    if methods.of(*_IMITATED, Family.MERGE):
        written = methods.of(*_REWARDED, at_least=Certainty.WRITTEN)
        also = f"; {_named(written)} is written and was not seen to run" if written else ""
        return _Judgement(ModeVerdict.CLEAN, f"only imitation was seen{also}")
    return _nothing_seen(methods, changed)


def _rl_only(methods: Methods, changed: Sequence[Submission]) -> _Judgement:
    online = [seen for seen in methods.of(Family.RL) if seen.method.online]
    if online:
        return _after_rl(methods, online, changed)
    weaker = [
        seen
        for seen in methods.of(*_REWARDED, at_least=Certainty.MAYBE)
        if seen.certainty is Certainty.MAYBE or not seen.method.online
    ]
    if weaker:
        why = f"no update from rewards of the model's own samples is certain: {_named(weaker)}"
        return _Judgement(ModeVerdict.SUSPECT, why, weaker)
    imitated = methods.of(*_IMITATED, Family.MERGE)
    if not imitated:
        unclear = methods.of(Family.UNCLEAR)
        if unclear:
            why = f"what was trained is not clear: {_named(unclear)}"
            return _Judgement(ModeVerdict.SUSPECT, why, unclear)
        return _nothing_seen(methods, changed)
    best = best_of(changed)
    if best is not None and (best.gain or 0.0) > 0:
        if methods.problems:
            why = f"submission {best.submission_id} improved, and only {_named(imitated)} was seen"
            return _Judgement(ModeVerdict.SUSPECT, why, imitated)
        why = f"submission {best.submission_id} improved by {_named(imitated)}, without any RL"
        return _Judgement(ModeVerdict.BREACH, why, imitated)
    why = f"no RL was seen, only {_named(imitated)}"
    return _Judgement(ModeVerdict.SUSPECT if changed else ModeVerdict.CLEAN, why, imitated)


def _after_rl(
    methods: Methods, online: Sequence[MethodSeen], changed: Sequence[Submission]
) -> _Judgement:
    """With RL: was it what made the best submission, and did imitation come back after it."""
    started = [seen.first_s for seen in online if seen.first_s is not None]
    first_s = min(started, default=None)
    best = best_of(changed)
    if first_s is not None and best is not None and best.used_s < first_s:
        why = f"the best submission, {best.submission_id}, was made before any RL ran"
        return _Judgement(ModeVerdict.SUSPECT, why, online)
    last_s = max(started, default=None)
    later = [
        seen
        for seen in methods.of(*_IMITATED)
        if last_s is not None and seen.first_s is not None and seen.first_s > last_s
    ]
    if later:
        return _Judgement(ModeVerdict.SUSPECT, f"{_named(later)} ran after the RL", later)
    return _Judgement(ModeVerdict.CLEAN, f"RL with online samples ran: {_named(online)}", online)


def _nothing_seen(methods: Methods, changed: Sequence[Submission]) -> _Judgement:
    if not changed:
        why = "no training was seen, and nothing was submitted that differs from the base"
        return _Judgement(ModeVerdict.CLEAN, why)
    maybe = methods.of(*_TRAINS, at_least=Certainty.MAYBE)
    seen = plural(methods.num_programs, "program")
    why = f"submissions changed the model, and how was not seen ({seen})"
    return _Judgement(ModeVerdict.UNKNOWN, why, maybe)


def _named(seen: Sequence[MethodSeen]) -> str:
    return ", ".join(dict.fromkeys(each.method.name for each in seen))


def _evidence(seen: Sequence[MethodSeen]) -> tuple[Evidence, ...]:
    """The surest first, without repeats."""
    ordered = sorted(seen, key=lambda each: -each.certainty)
    pieces = [piece for each in ordered for piece in each.evidence]
    return tuple(dict.fromkeys(pieces))[:MAX_EVIDENCE]
