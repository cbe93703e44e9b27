"""Events of an agent's work with defaults, for the tests of what reads ledgers."""

from typing import Literal

from rl_bench.config import Api
from rl_bench.events import (
    AgentEvent,
    CodeChanged,
    DriverCall,
    DriverFailure,
    Event,
    Evidence,
    FindingMade,
    ModeAudited,
    ModeVerdict,
    ProcessSeen,
    SandboxReady,
)

BWRAP = SandboxReady(kind="bwrap", version="0.8.0")
NO_SANDBOX = SandboxReady(kind="none", warnings=("it reads every file", "it reaches the network"))
SEEN = Evidence(source="code", path="code/train.py", revision="c1", line=7, quote='x = "GRPO"')


def call(
    number: int = 1,
    *,
    tokens: tuple[int | None, int | None] = (100, 10),
    cached: int | None = 60,
    cost_usd: float | None = 0.5,
    failure: DriverFailure | None = None,
    status: int = 200,
    detail: str = "",
    at_s: float = 10.0,
) -> DriverCall:
    return DriverCall(
        call=number,
        api=Api.ANTHROPIC,
        route="/v1/messages",
        model="m",
        status=status,
        failure=failure,
        detail=detail,
        latency_s=2.0,
        first_byte_s=0.5,
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        cached_tokens=cached,
        cost_usd=cost_usd,
        num_bytes=2000,
        budget_used_s=at_s,
    )


def failed_call(
    failure: DriverFailure, *, status: int = 0, detail: str = "", at_s: float = 10.0
) -> DriverCall:
    """A call that cost nothing and told nothing."""
    return call(
        tokens=(None, None),
        cached=None,
        cost_usd=None,
        failure=failure,
        status=status,
        detail=detail,
        at_s=at_s,
    )


def usage(
    given: int,
    made: int,
    *,
    totals: bool = False,
    cost_usd: float | None = None,
    num_turns: int | None = None,
    at_s: float = 10.0,
) -> AgentEvent:
    return AgentEvent(
        kind="result" if totals else "usage",
        budget_used_s=at_s,
        totals=totals,
        input_tokens=given,
        output_tokens=made,
        cost_usd=cost_usd,
        num_turns=num_turns,
    )


def tool_call(text: str = "ls", *, at_s: float = 10.0) -> AgentEvent:
    return AgentEvent(kind="tool_call", name="bash", text=text, call_id="t1", budget_used_s=at_s)


def revision(name: str, *, cause: Literal["change", "submission", "end"] = "change") -> CodeChanged:
    return CodeChanged(
        revision=name,
        cause=cause,
        changed=("train.py",),
        num_changed=1,
        num_files=2,
        budget_used_s=10.0,
    )


def process(pid: int = 7) -> ProcessSeen:
    return ProcessSeen(
        pid=pid,
        parent_pid=1,
        argv=("python", "train.py"),
        began_s=3.0,
        duration_s=20.0,
        cpu_s=18.5,
        max_rss_bytes=2**30,
    )


def finding(
    severity: Literal["info", "warning", "breach"],
    *,
    summary: str = "s",
    submission_id: int | None = None,
) -> FindingMade:
    return FindingMade(
        rule="known_model",
        severity=severity,
        rules_version="7",
        summary=summary,
        submission_id=submission_id,
        evidence=(SEEN,),
    )


def audited(verdict: ModeVerdict, *, summary: str = "why") -> ModeAudited:
    return ModeAudited(
        verdict=verdict, rules_version="3", summary=summary, methods=("sft",), evidence=(SEEN,)
    )


def one_of_each() -> list[Event]:
    """Every kind of event of an agent's work."""
    return [
        BWRAP,
        call(1),
        tool_call(),
        usage(50, 5),
        revision("c1"),
        process(),
        finding("warning"),
        audited(ModeVerdict.CLEAN),
    ]
