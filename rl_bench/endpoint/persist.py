"""Asks again what may be answered later, as often as there are attempts."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rl_bench.counts import plural
from rl_bench.endpoint.client import FIRST_WAIT_S, wait_s
from rl_bench.endpoint.failures import AskError, FailureKind
from rl_bench.endpoint.gate import Gate

T = TypeVar("T")


async def persist(
    attempt: Callable[[int], Awaitable[T]],
    *,
    gate: Gate,
    num_retries: int,
    first_wait_s: float = FIRST_WAIT_S,
) -> T:
    """The first answer to one question.

    Args:
        attempt: Asks, given how many attempts went before; tells ``gate`` of an answer by itself.
        gate: Of all questions that are under way together.
        num_retries: Attempts after the first.
        first_wait_s: Before the second attempt, where waiting helps.

    Raises:
        AskError: All attempts failed, or there is no sense in another one.
    """
    begin = time.monotonic()
    for number in range(num_retries + 1):
        await gate.enter()
        try:
            return await attempt(number)
        except AskError as error:
            failure = error
        is_last = number == num_retries
        gate.failed(failure, asked_since=begin, is_last=is_last)
        if failure.kind in (FailureKind.REFUSED, FailureKind.CLOSED):
            raise failure
        if failure.kind is FailureKind.UNANSWERED and not is_last:
            await gate.sleep(wait_s(number, first_wait_s=first_wait_s))
    raise AskError(
        f"after {plural(num_retries + 1, 'attempt')}: {failure.message}",
        cure=failure.cure,
        kind=failure.kind,
        status=failure.status,
    )
