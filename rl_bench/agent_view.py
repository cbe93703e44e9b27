"""What an attempt's agent used and did, and what was found out about it, folded event by event.

`DriverUse` is what the gateway saw, `AgentUse` what the agent's own output told, `Audit` what the
rules say. Folding costs the same for every event and keeps none. A figure that nobody told is
None, never 0.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import TypeVar

from rl_bench.events import (
    AgentEvent,
    DriverCall,
    DriverFailure,
    FindingMade,
    ModeAudited,
    ModeVerdict,
)

BREACH = "breach"
"""The severity of a finding that makes a run invalid, or the submission that it names."""
_MAY_COST = {None, DriverFailure.CUT, DriverFailure.HUNG_UP}
"""Calls that a provider may charge for: without usage their cost is unknown, not zero."""
_NOT_THE_DRIVERS = {DriverFailure.HUNG_UP, DriverFailure.REFUSED}
"""Failures that say nothing about the driver."""
MAX_COUNT = 2**50
"""Beyond it a count of tokens is an agent's joke, and no table could hold a sum of such."""
_N = TypeVar("_N", int, float)


def credible(value: _N | None) -> _N | None:
    """The count, price or number of bytes; None if it cannot be one, like NaN or 10**30."""
    return value if value is not None and 0 <= value <= MAX_COUNT else None


def plus(total: _N | None, more: _N | None) -> _N | None:
    """The sum of what is known and credible; None while nothing is."""
    more = credible(more)
    return total if more is None else more if total is None else total + more


@dataclass(slots=True, kw_only=True)
class DriverUse:
    """The driver's calls in one attempt, as the gateway saw them.

    Attributes:
        num_calls: All of them; ``num_failed`` gave no whole answer.
        num_failed_in_a_row: Calls that failed through the driver since its latest answer.
        num_unknown: Calls that may have cost something and told no usage, or half of it: cost and
            tokens here are at least what is stated.
        input_tokens: Includes ``cached_tokens``; None while no call told its usage.
        cost_usd: By the driver's prices.
        last_failure: Of the latest failed call; that the CLI hung up, or asked for what is not
            let through, counts only where nothing else failed. Empty: none failed.
        last_failure_detail: Its status and words.
    """

    num_calls: int = 0
    num_failed: int = 0
    num_failed_in_a_row: int = 0
    num_unknown: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    last_failure: str = ""
    last_failure_detail: str = ""

    def fold(self, call: DriverCall) -> None:
        """Takes a call that is over."""
        self.num_calls += 1
        self.input_tokens = plus(self.input_tokens, call.input_tokens)
        self.output_tokens = plus(self.output_tokens, call.output_tokens)
        self.cached_tokens = plus(self.cached_tokens, call.cached_tokens)
        self.cost_usd = plus(self.cost_usd, call.cost_usd)
        half = (call.input_tokens is None) != (call.output_tokens is None)
        if call.failure in _MAY_COST and (call.cost_usd is None or half):
            self.num_unknown += 1
        if call.failure is None:
            # A list of models is no answer: it costs nothing and tells no tokens.
            if call.cost_usd is None or call.output_tokens is not None:
                self.num_failed_in_a_row = 0
            return
        self.num_failed += 1
        weak = call.failure in _NOT_THE_DRIVERS
        self.num_failed_in_a_row += not weak
        if not weak or not self.last_failure:
            status = f"HTTP {call.status}" if call.status else ""
            self.last_failure = call.failure.value
            self.last_failure_detail = " ".join(filter(None, (status, call.detail)))


@dataclass(slots=True, kw_only=True)
class OwnAccount:
    """Turns, tokens and US dollars by the agent's own account; None: not told."""

    num_turns: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None

    def add(self, other: "OwnAccount") -> None:
        """Adds what ``other`` tells."""
        self.num_turns = plus(self.num_turns, other.num_turns)
        self.input_tokens = plus(self.input_tokens, other.input_tokens)
        self.output_tokens = plus(self.output_tokens, other.output_tokens)
        self.cached_tokens = plus(self.cached_tokens, other.cached_tokens)
        self.cost_usd = plus(self.cost_usd, other.cost_usd)

    def overlay(self, other: "OwnAccount") -> None:
        """Replaces what ``other`` tells."""
        for name in self.__slots__:
            value = credible(getattr(other, name))
            if value is not None:
                setattr(self, name, value)


@dataclass(slots=True, kw_only=True)
class AgentUse:
    """What the agent's own output told in one attempt.

    Attributes:
        num_sessions: Times that it was started; 0 before the first.
        num_events: Read from its output; 0: it tells nothing, or nothing of it is read.
        num_tool_errors: Tool calls that failed; ``num_errors`` are the agent's own.
        num_live_children: Processes that it left running when it exited, in all sessions.
        children_wait_s: How long they were waited for.
    """

    num_sessions: int = 0
    num_events: int = 0
    num_tool_calls: int = 0
    num_tool_errors: int = 0
    num_errors: int = 0
    last_error: str = ""
    num_live_children: int = 0
    children_wait_s: float = 0.0
    _before: OwnAccount = field(default_factory=OwnAccount)
    _added: OwnAccount = field(default_factory=OwnAccount)
    _totals: OwnAccount = field(default_factory=OwnAccount)

    @property
    def told(self) -> OwnAccount:
        """Its own account of all sessions.

        Totals that a session told stand before the sum of its turns; where it does not number
        them, a turn is what tells its tokens.
        """
        session, whole = OwnAccount(), OwnAccount()
        session.overlay(self._added)
        session.overlay(self._totals)
        whole.add(self._before)
        whole.add(session)
        return whole

    def start_session(self) -> None:
        """Takes that the agent was started, for the first time or again."""
        self._before = self.told
        self._added, self._totals = OwnAccount(), OwnAccount()
        self.num_sessions += 1

    def fold(self, event: AgentEvent) -> None:
        """Takes one thing that its output told."""
        self.num_events += 1
        match event.kind:
            case "tool_call":
                self.num_tool_calls += 1
            case "tool_result" if event.is_error:
                self.num_tool_errors += 1
            case "error":
                self.num_errors += 1
                self.last_error = ": ".join(filter(None, (event.name, event.text)))
        self._account(event)

    def _account(self, event: AgentEvent) -> None:
        tokens = (event.input_tokens, event.output_tokens)
        if tokens == (None, None) and event.cost_usd is None and event.num_turns is None:
            return
        told = OwnAccount(
            input_tokens=event.input_tokens,
            output_tokens=event.output_tokens,
            cached_tokens=event.cached_tokens,
            cost_usd=event.cost_usd,
        )
        if event.totals:
            self._totals.overlay(told)
        else:
            told.num_turns = int(event.kind == "usage")
            self._added.add(told)
        self._totals.overlay(OwnAccount(num_turns=event.num_turns))


@dataclass(slots=True, kw_only=True)
class Audit:
    """What the rules found in one attempt.

    Attributes:
        verdict: On the mode; None until it is judged. ``mode_summary``: its words.
        methods: Post-training methods that were seen to run.
        rules_version: Of the mode's judgement, or before it of the latest finding.
        num_by_severity: Findings that are ``info``, ``warning``, ``breach``.
        last_by_severity: The latest of each in words.
        last_run_breach: The latest breach that names no submission: it is the whole run's.
    """

    verdict: ModeVerdict | None = None
    mode_summary: str = ""
    methods: tuple[str, ...] = ()
    rules_version: str = ""
    num_by_severity: Counter[str] = field(default_factory=Counter)
    last_by_severity: dict[str, str] = field(default_factory=dict)
    last_run_breach: str = ""

    @property
    def num_findings(self) -> int:
        """All findings; the judgement on the mode is none."""
        return self.num_by_severity.total()

    @property
    def num_breaches(self) -> int:
        """Findings that break a rule."""
        return self.num_by_severity[BREACH]

    @property
    def run_breach(self) -> str:
        """What makes the whole run invalid, in words; empty: nothing."""
        return self.mode_summary if self.verdict is ModeVerdict.BREACH else self.last_run_breach

    def fold_mode(self, event: ModeAudited) -> None:
        """Takes the judgement on the mode; a later one replaces it."""
        self.verdict = event.verdict
        self.mode_summary = event.summary
        self.methods = event.methods
        self.rules_version = event.rules_version

    def fold_finding(self, event: FindingMade) -> None:
        """Takes a finding."""
        self.num_by_severity[event.severity] += 1
        words = f"{event.rule}: {event.summary}"
        self.last_by_severity[event.severity] = words
        if event.severity == BREACH and event.submission_id is None:
            self.last_run_breach = words
        if self.verdict is None:
            self.rules_version = event.rules_version
