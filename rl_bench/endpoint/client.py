"""One request to an OpenAI-compatible API, sent with the client of the package openai.

The client's own retries are off. They would not cover answers that arrive and cannot be read, nor
count towards an outage or an account; who asks retries instead, with the waits of `wait_s` and the
pauses of `rl_bench.endpoint.gate`.
"""

import asyncio
import email.utils
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from rl_bench.endpoint.dialect import Dialect
from rl_bench.endpoint.failures import AskError, FailureKind
from rl_bench.gateway.reach import is_loopback

if TYPE_CHECKING:
    import openai

NO_KEY = "none"
"""Sent where no key is needed; without any, the client would take the user's OpenAI key."""
FIRST_WAIT_S = 2.0
"""Before the second attempt; doubled before each further one."""
MAX_WAIT_S = 30.0
_CLOSED_STATUSES = frozenset({401, 402, 403, 404})
_TRANSIENT_STATUSES = frozenset({408, 409, 425, 429})
_CLOSED_CODES = frozenset(
    {
        "account_deactivated",
        "billing_hard_limit_reached",
        "billing_not_active",
        "insufficient_quota",
        "invalid_api_key",
        "model_not_found",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An OpenAI-compatible API's base URL, and the key that it wants."""

    base_url: str
    key: str = field(default=NO_KEY, repr=False)


def wait_s(attempt: int, *, first_wait_s: float = FIRST_WAIT_S) -> float:
    """Seconds to wait after the failure of an attempt, which count from 0.

    Half of it is random, so that those who failed together do not come back together.
    """
    longest: float = min(MAX_WAIT_S, first_wait_s * 2.0**attempt)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  no secret


class ApiClient:
    """Sends requests to an API; safe for concurrent use within one event loop.

    Args:
        timeout_s: Of a whole request, not of each wait for a byte.
    """

    def __init__(self, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._address: Address | None = None
        self._client: openai.AsyncOpenAI | None = None

    async def send(
        self,
        address: Address,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        method: Literal["GET", "POST"] = "POST",
    ) -> bytes:
        """The body of the response, of a status that means success.

        Args:
            address: Where; another one than before ends the connections to that.
            path: Below the base URL, e.g. ``/chat/completions``.
            body: The JSON body of a ``POST``.
            method: Of HTTP.

        Raises:
            AskError: There is none.
        """
        import httpx
        import openai

        client = await self._connected(address)
        try:
            async with asyncio.timeout(self._timeout_s):
                if method == "GET":
                    response = await client.get(path, cast_to=httpx.Response)
                else:
                    response = await client.post(
                        path, cast_to=httpx.Response, body=dict(body or {})
                    )
            return response.content
        except (openai.APITimeoutError, TimeoutError) as error:
            raise AskError(f"no answer within {self._timeout_s:g} s") from error
        except openai.APIStatusError as error:
            raise _failure(error, address) from error
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            why = str(cause) or type(cause).__name__
            raise AskError(f"the connection failed: {why}") from error

    async def converse(
        self,
        address: Address,
        path: str,
        body: Mapping[str, Any],
        *,
        dialect: Dialect,
        on_request: Callable[[], None] = lambda: None,
    ) -> bytes:
        """Like `send`; a parameter that the endpoint refuses is said otherwise, and sent again.

        Args:
            address: Where.
            path: Below the base URL.
            body: The JSON body before ``dialect``.
            dialect: What the endpoint takes; learns from its refusals.
            on_request: Called before each request.

        Raises:
            AskError: There is no answer.
        """
        for _ in range(dialect.max_tries):
            spoken = dialect.spoken(body)
            on_request()
            try:
                return await self.send(address, path, body=spoken)
            except AskError as error:
                if not _learns(dialect, spoken, error):
                    raise
        raise AskError("the endpoint refuses every way to ask", kind=FailureKind.REFUSED)

    async def close(self) -> None:
        """Ends the connections; safe to call twice."""
        client, self._client, self._address = self._client, None, None
        if client is not None:
            await client.close()

    async def _connected(self, address: Address) -> "openai.AsyncOpenAI":
        if self._client is None or address != self._address:
            stale, self._client = self._client, _make_client(address)
            self._address = address
            if stale is not None:
                await stale.close()
        return self._client


def _learns(dialect: Dialect, spoken: Mapping[str, Any], error: AskError) -> bool:
    return error.status in (400, 422) and dialect.learn(
        spoken, param=error.param, code=error.code, message=error.said
    )


def _make_client(address: Address) -> "openai.AsyncOpenAI":
    import openai

    # A proxy of the user's has no business with a server on this machine.
    local = is_loopback(address.base_url)
    return openai.AsyncOpenAI(
        base_url=address.base_url,
        api_key=address.key,
        max_retries=0,
        timeout=None,  # the whole request is limited, not each wait for a byte
        http_client=openai.DefaultAsyncHttpxClient(trust_env=False) if local else None,
    )


def _failure(error: "openai.APIStatusError", address: Address) -> AskError:
    status, codes = error.status_code, {error.code, error.type}
    said = _message(error)
    if address.key != NO_KEY:
        said = said.replace(address.key, "***")
    kind, retry_after_s = FailureKind.REFUSED, None
    if status in _CLOSED_STATUSES or codes & _CLOSED_CODES:
        kind = FailureKind.CLOSED
    elif status in _TRANSIENT_STATUSES or status >= 500:
        kind = FailureKind.UNANSWERED
        retry_after_s = _retry_after_s(error.response.headers)
    return AskError(
        f"{status}: {said}",
        kind=kind,
        retry_after_s=retry_after_s,
        status=status,
        # Gateways write numbers and nothing at all where names are meant.
        code=str(error.code or error.type or ""),
        param=str(error.param or ""),
        said=said,
    )


def _message(error: "openai.APIStatusError") -> str:
    """The endpoint's own words, without the wrapping that the client puts around them."""
    body = error.body
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        return str(body["message"])
    return error.message


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that the endpoint asks for (RFC 9110, 10.2.3), as a number or a date."""
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        date = email.utils.parsedate_tz(value)
        if date is None:
            return None
        seconds = email.utils.mktime_tz(date) - time.time()
    return seconds if 0 < seconds < float("inf") else None
