"""Whether an endpoint is worth asking: one gate for all questions that are under way together.

It closes at once when nobody would be answered (a wrong key, no such model), and on an outage: a
question has used up its attempts, nothing at all was answered since it was first asked, and several
requests in a row went unanswered. So time-outs now and then close nothing, however many, while a
dead endpoint costs the patience for one question and not for each. A closed gate stays closed;
what is asked later gets a new one.
"""

import asyncio
import logging
import random
import time

from rl_bench.counts import plural
from rl_bench.endpoint.failures import AskError, FailureKind

LOG = logging.getLogger(__name__)

MIN_UNANSWERED = 10
"""In a row, before they are an outage: a single question with bad luck is none."""
MAX_PAUSE_S = 60.0
"""The most that a ``Retry-After`` is waited for; an endpoint that wants more is out."""
JITTER = 0.25
"""Of a pause: not everyone should come back at once."""


class Gate:
    """Lets questions through until there is a reason not to.

    Args:
        name: Of whoever is asked, for the log.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._failure: AskError | None = None
        self._closed = asyncio.Event()
        self._last_answer = time.monotonic()
        self._num_unanswered = 0
        self._to_tell = {1, MIN_UNANSWERED}
        self._pause_until = 0.0

    @property
    def is_closed(self) -> bool:
        """Whether nobody is let through any more."""
        return self._failure is not None

    async def enter(self) -> None:
        """Waits while the endpoint has asked for a pause.

        Raises:
            AskError: The gate is closed.
        """
        while self._failure is None and (left := self._pause_until - time.monotonic()) > 0:
            await self.sleep(left * (1 + JITTER * random.random()))  # noqa: S311  no secret
        if (failure := self._failure) is not None:
            # Each question its own exception: one that is raised again and again grows.
            raise AskError(failure.message, cure=failure.cure, kind=failure.kind)

    async def sleep(self, seconds: float) -> None:
        """Sleeps, but not longer than until the gate closes."""
        try:
            await asyncio.wait_for(self._closed.wait(), seconds)
        except TimeoutError:
            return

    def answered(self) -> None:
        """A request was answered, whatever the answer is good for."""
        self._num_unanswered = 0
        self._last_answer = time.monotonic()

    def failed(self, failure: AskError, *, asked_since: float, is_last: bool) -> None:
        """A request failed.

        Args:
            failure: How.
            asked_since: When its question was first asked, on the monotonic clock.
            is_last: Its question is given up.
        """
        if failure.kind is FailureKind.CLOSED:
            self._close(failure)
        elif failure.kind is FailureKind.UNANSWERED:
            self._count(failure)
            if is_last and self._is_outage(asked_since):
                silent_s = time.monotonic() - self._last_answer
                asked = plural(self._num_unanswered, "request")
                reason = f"outage: {asked} in {silent_s:.1f} s had no answer"
                self._close(
                    AskError(f"{reason}, the last: {failure.message}", kind=FailureKind.CLOSED)
                )
        else:
            self.answered()

    def _count(self, failure: AskError) -> None:
        self._num_unanswered += 1
        if self._num_unanswered in self._to_tell:  # soon, and not at each time-out
            self._to_tell.remove(self._num_unanswered)
            LOG.warning("%s: %s (%d in a row)", self._name, failure.message, self._num_unanswered)
        if failure.retry_after_s is not None:
            pause = min(failure.retry_after_s, MAX_PAUSE_S)
            self._pause_until = max(self._pause_until, time.monotonic() + pause)

    def _is_outage(self, asked_since: float) -> bool:
        return self._num_unanswered >= MIN_UNANSWERED and self._last_answer <= asked_since

    def _close(self, failure: AskError) -> None:
        if self._failure is None:
            LOG.error("%s is not asked any more: %s", self._name, failure)
            self._failure = failure
            self._closed.set()
