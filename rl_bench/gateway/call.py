"""One call of the driver while it is under way; in the end a `DriverCall`."""

import time
from dataclasses import dataclass, field

from rl_bench.config import Api, DriverConfig
from rl_bench.events import DriverCall, DriverFailure
from rl_bench.gateway.json_read import plain
from rl_bench.gateway.usage import NO_TOKENS, Tokens, cost_usd

MAX_NAME_CHARS = 200
MAX_DETAIL_CHARS = 300


@dataclass(slots=True, kw_only=True)
class Call:
    """What is known of it so far.

    Attributes:
        number: From 1, in order of arrival.
        generates: It costs tokens; the others (lists of models, counts of tokens) cost nothing.
        was_forwarded: It was let through to the provider.
        has_ended: The answer's last byte has been handed on.
        charged_usd: What the account has counted for it.
    """

    number: int
    api: Api
    route: str
    budget_used_s: float
    model: str = ""
    generates: bool = False
    was_forwarded: bool = False
    has_ended: bool = False
    status: int = 0
    failure: DriverFailure | None = None
    tokens: Tokens = NO_TOKENS
    num_bytes: int = 0
    charged_usd: float = 0.0
    notes: list[str] = field(default_factory=list)
    _started_s: float = field(default_factory=time.monotonic)
    _first_byte_s: float | None = None

    def fail(self, failure: DriverFailure, detail: str = "") -> None:
        """Says why it gave no whole answer; the first reason stands."""
        if self.failure is None:
            self.failure = failure
            self.note(detail)

    def hang_up(self, detail: str = "") -> None:
        """The agent, or the run, left before the answer's end."""
        if not self.has_ended:
            self.fail(DriverFailure.HUNG_UP, detail)

    def note(self, words: str) -> None:
        """Adds to its detail."""
        if words:
            self.notes.append(words)

    def passed_on(self, num_bytes: int) -> None:
        """Bytes of the answer's body have gone down."""
        if num_bytes and self._first_byte_s is None:
            self._first_byte_s = time.monotonic() - self._started_s
        self.num_bytes += num_bytes

    @property
    def lacks_tokens(self) -> bool:
        """It may have cost something that is not known."""
        gave = self.failure is None or self.failure in {DriverFailure.CUT, DriverFailure.HUNG_UP}
        return self.generates and self.was_forwarded and gave and not self.tokens.are_known

    def cost_usd(self, driver: DriverConfig) -> float | None:
        """By the driver's prices; see `rl_bench.gateway.usage`."""
        if self.was_forwarded and not self.generates:
            return 0.0
        return cost_usd(self.tokens, driver=driver)

    def event(self, driver: DriverConfig) -> DriverCall:
        """What the ledger gets."""
        return DriverCall(
            call=self.number,
            api=self.api,
            route=plain(self.route, MAX_NAME_CHARS),
            model=plain(self.model, MAX_NAME_CHARS),
            status=self.status,
            failure=self.failure,
            detail=plain("; ".join(self.notes), MAX_DETAIL_CHARS),
            latency_s=time.monotonic() - self._started_s,
            first_byte_s=self._first_byte_s,
            input_tokens=self.tokens.input,
            output_tokens=self.tokens.output,
            cached_tokens=self.tokens.cached,
            cache_write_tokens=self.tokens.cache_write,
            cost_usd=self.cost_usd(driver),
            num_bytes=self.num_bytes,
            budget_used_s=self.budget_used_s,
        )
