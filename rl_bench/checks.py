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


def attempt(name: str, act: Callable[[], str]) -> Check:
    """A check that passes with what ``act`` says, or fails with what it raises."""
    try:
        found = act()
    except RlBenchError as error:
        detail = error.message.removeprefix(f"{name}: ")
        return Check(name=name, verdict=Verdict.FAILED, detail=detail, cure=error.cure)
    except OSError as error:  # an unreadable folder is the user's to mend, not a crash
        return Check(name=name, verdict=Verdict.FAILED, detail=str(error))
    return Check(name=name, verdict=Verdict.OK, detail=found)


def failed(name: str, detail: str, *, cure: str = "") -> Check:
    """A check that failed."""
    return Check(name=name, verdict=Verdict.FAILED, detail=detail, cure=cure)


def warning(name: str, detail: str, *, cure: str = "") -> Check:
    """A check that found something to look at, which hinders no start."""
    return Check(name=name, verdict=Verdict.WARNING, detail=detail, cure=cure)
