"""What a check before a start is: its name, its verdict, its cure."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from rl_bench.errors import RlBenchError


class Verdict(StrEnum):
    """What a check found."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check: ``detail`` says what was found, ``cure`` what to do about it."""

    name: str
    verdict: Verdict
    detail: str
    cure: str = ""


def attempt(name: str, act: Callable[[], str]) -> list[Check]:
    """A check that passes with what ``act`` says, or fails with what it raises.

    Of several things that it raises each is a check; those of one cure are one.
    """
    try:
        found = act()
    except RlBenchError as error:
        by_cure: dict[str, dict[str, None]] = {}
        for each in (error, *error.others):
            by_cure.setdefault(each.cure, {})[each.message.removeprefix(f"{name}: ")] = None
        return [failed(name, "; ".join(told), cure=cure) for cure, told in by_cure.items()]
    except OSError as error:  # an unreadable folder is the user's to mend, not a crash
        return [failed(name, str(error))]
    return [Check(name=name, verdict=Verdict.OK, detail=found)]


def check_all(*acts: Callable[[], object]) -> None:
    """Does each of these checks, whatever others find: all that is missing is told at once.

    Raises:
        RlBenchError: What the first one raised that did, with what others raised in `others`.
    """
    found: dict[str, RlBenchError] = {}
    for act in acts:
        try:
            act()
        except RlBenchError as error:
            others, error.others = error.others, ()
            # Two checks may trip over one thing.
            found |= {str(each): each for each in (error, *others)}
    if found:
        first, *rest = found.values()
        first.others = tuple(rest)
        raise first


def failed(name: str, detail: str, *, cure: str = "") -> Check:
    """A check that failed."""
    return Check(name=name, verdict=Verdict.FAILED, detail=detail, cure=cure)


def warning(name: str, detail: str, *, cure: str = "") -> Check:
    """A check that found something to look at, which hinders no start."""
    return Check(name=name, verdict=Verdict.WARNING, detail=detail, cure=cure)
