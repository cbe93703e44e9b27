"""Counts a run's calls, tokens and dollars, holds its caps, and hands every call on to be recorded.

The cap of calls is exact. The cap of cost is looked at before each call: calls already under way
may carry the sum beyond it, and what a provider does not tell cannot be counted.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from rl_bench.config import Api, DriverConfig
from rl_bench.counts import plural
from rl_bench.events import DriverCall, DriverFailure
from rl_bench.gateway.call import Call

log = logging.getLogger(__name__)

MAX_RECORDED_FREE = 1000
"""Calls that can cost nothing (not let through, broken off while they were sent, lists of models,
counts of tokens) are recorded up to here, each kind of failure for itself, then only counted: an
agent that asks in a loop must not fill the ledger."""
MAX_RECORDED = 200_000
"""The same for all calls: one every second for two days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run's calls so far.

    Attributes:
        num_calls: All that arrived with the run's token.
        num_forwarded: Let through to the provider.
        num_whole: Whole answers with what a model wrote; lists of models do not count.
        failures: How many there were of each kind.
        last_failure: Of the latest call for a model's answer that ended: None when it was whole.
            Calls that the agent hung up on, that were not let through, or that failed for another
            model than the driver's, do not move it.
        last_detail: Its words.
        num_failed_in_a_row: Such calls that failed since the last whole answer.
        num_without_tokens: Answers whose tokens were not told, all or in part: ``cost_usd`` is too
            low by them.
        num_unrecorded: Not taken by the ledger.
        is_capped: A call was not let through because of a cap.
    """

    num_calls: int = 0
    num_forwarded: int = 0
    num_whole: int = 0
    failures: Mapping[DriverFailure, int] = field(default_factory=dict)
    last_failure: DriverFailure | None = None
    last_detail: str = ""
    num_failed_in_a_row: int = 0
    num_without_tokens: int = 0
    num_unrecorded: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float = 0.0
    is_capped: bool = False


class Account:
    """Thread-safe. The callbacks are called in order, from a thread of its own.

    Args:
        driver: Prices.
        max_calls: Calls that are let through; None: no limit.
        max_usd: What they may cost; None: no limit.
        on_call: Gets each call at its end.
        on_capped: Called once, with the reason, when a call is refused because of a cap.
    """

    def __init__(
        self,
        driver: DriverConfig,
        *,
        max_calls: int | None,
        max_usd: float | None,
        on_call: Callable[[DriverCall], object],
        on_capped: Callable[[str], None],
    ) -> None:
        self._driver = driver
        self._max_calls = max_calls
        self._max_usd = max_usd
        self._on_call = on_call
        self._on_capped = on_capped
        self._mutex = threading.Lock()
        self._sums = Counter[str]()
        self._failures = Counter[DriverFailure]()
        self._cost_usd = 0.0
        self._last: tuple[DriverFailure | None, str] = (None, "")
        self._is_capped = False
        self._recorder = ThreadPoolExecutor(max_workers=1, thread_name_prefix="driver calls")

    def arrive(self, api: Api, *, route: str, budget_used_s: float) -> Call:
        """A call that has just come in."""
        with self._mutex:
            self._sums["calls"] += 1
            number = self._sums["calls"]
        return Call(number=number, api=api, route=route, budget_used_s=budget_used_s)

    def admit(self, call: Call) -> str:
        """Lets a call through (empty), or says which cap is reached."""
        with self._mutex:
            reason = self._cap_reached()
            if not reason:
                self._sums["forwarded"] += 1
                call.was_forwarded = True
                return ""
            is_first, self._is_capped = not self._is_capped, True
        if is_first:
            self._recorder.submit(self._tell_capped, reason)
        return reason

    def charge(self, call: Call) -> None:
        """Counts what a call has cost so far; what was counted for it before is replaced."""
        cost = call.cost_usd(self._driver) or 0.0
        with self._mutex:
            self._cost_usd += cost - call.charged_usd
            call.charged_usd = cost

    def end(self, call: Call) -> None:
        """Counts a call that is over, and hands it on."""
        self.charge(call)
        event = call.event(self._driver)
        with self._mutex:
            self._count(call, event)
            is_told = self._is_told(call, event)
        if is_told:
            self._recorder.submit(self._record, event)

    def summary(self) -> Summary:
        """The counts so far."""
        with self._mutex:
            sums = self._sums
            return Summary(
                num_calls=sums["calls"],
                num_forwarded=sums["forwarded"],
                num_whole=sums["whole"],
                failures=dict(self._failures),
                last_failure=self._last[0],
                last_detail=self._last[1],
                num_failed_in_a_row=sums["failed_in_a_row"],
                num_without_tokens=sums["without_tokens"],
                num_unrecorded=sums["unrecorded"],
                input_tokens=sums["input"],
                output_tokens=sums["output"],
                cached_tokens=sums["cached"],
                cache_write_tokens=sums["cache_write"],
                cost_usd=self._cost_usd,
                is_capped=self._is_capped,
            )

    def close(self) -> None:
        """Returns when every call has been handed on."""
        self._recorder.shutdown(wait=True)

    def _is_of_another_model(self, call: Call) -> bool:
        return bool(self._driver.model_id) and call.model != self._driver.model_id

    def _is_told(self, call: Call, event: DriverCall) -> bool:
        is_free = not (call.generates and call.was_forwarded)
        kind = f"told free {event.failure}" if is_free else "told"
        self._sums[kind] += 1
        return self._sums[kind] <= (MAX_RECORDED_FREE if is_free else MAX_RECORDED)

    def _cap_reached(self) -> str:
        if self._max_calls is not None and self._sums["forwarded"] >= self._max_calls:
            cap = plural(self._max_calls, "call")
            return f"the cap of {cap} of the language model is reached (max_driver_calls)"
        if self._max_usd is not None and self._cost_usd >= self._max_usd:
            return f"{self._max_usd} US dollars were spent on the language model (max_driver_usd)"
        return ""

    def _count(self, call: Call, event: DriverCall) -> None:
        self._sums["input"] += event.input_tokens or 0
        self._sums["output"] += event.output_tokens or 0
        self._sums["cached"] += event.cached_tokens or 0
        self._sums["cache_write"] += event.cache_write_tokens or 0
        self._sums["without_tokens"] += call.lacks_tokens
        if event.failure is not None:
            self._failures[event.failure] += 1
        if not (call.generates and call.was_forwarded) or event.failure is DriverFailure.HUNG_UP:
            return
        if event.failure is not None and self._is_of_another_model(call):
            return  # an agent can ask for what its key may not have: that is no outage
        self._last = (event.failure, event.detail if event.failure else "")
        if event.failure is None:
            self._sums["whole"] += 1
            self._sums["failed_in_a_row"] = 0
        else:
            self._sums["failed_in_a_row"] += 1

    def _record(self, event: DriverCall) -> None:
        try:
            self._on_call(event)
        except Exception as error:  # noqa: BLE001  a full disk must not stop the agent's calls
            log.error("a call of the driver was not recorded: %s", error)
            with self._mutex:
                self._sums["unrecorded"] += 1

    def _tell_capped(self, reason: str) -> None:
        try:
            self._on_capped(reason)
        except Exception as error:  # noqa: BLE001  as in `_record`
            log.error("a reached cap could not be told: %s", error)
