"""One attempt at one question: sends it with the client of the package openai, and reads the reply.

The client's own retries are off. They would not cover answers that arrive and cannot be read, nor
count towards an outage or the account; `rl_bench.judges.pool` retries instead.
"""

import asyncio
import email.utils
import ipaddress
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rl_bench.config import JudgeConfig
from rl_bench.judges.account import Account
from rl_bench.judges.base import JudgeReply, JudgeRequest
from rl_bench.judges.dialect import Dialect
from rl_bench.judges.endpoint import Address, Endpoint
from rl_bench.judges.failures import AskError, FailureKind
from rl_bench.judges.wire import count_tokens, read_reply, read_response, request_body

if TYPE_CHECKING:
    import openai

MAX_DIALECT_TRIES = 5
"""As many as there are parameters to learn about, and one more."""
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


class ChatClient:
    """Asks one model at one endpoint; safe for concurrent use within one event loop."""

    def __init__(self, config: JudgeConfig, endpoint: Endpoint) -> None:
        self._config = config
        self._endpoint = endpoint
        self._dialect = Dialect(config.name)
        self._address: Address | None = None
        self._client: openai.AsyncOpenAI | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What was changed to suit the endpoint."""
        return self._dialect.notes

    def body(self, request: JudgeRequest, *, seed: int) -> dict[str, Any]:
        """The JSON body that asks ``request``, before the endpoint's dialect."""
        config = self._config
        return request_body(
            request,
            model=config.model_id,
            max_tokens=config.max_tokens or request.max_tokens,
            temperature=request.temperature if config.temperature is None else config.temperature,
            # Other endpoints do not promise much for a seed, and newer ones refuse it.
            seed=seed if config.kind == "vllm" else None,
        )

    async def ask(self, request: JudgeRequest, *, seed: int, account: Account) -> JudgeReply:
        """The reply to ``request``, within the config's ``timeout_s``; the server's start apart.

        Raises:
            AskError: There is none, or not of the kind that was asked for.
        """
        client = await self._connected()
        body = self.body(request, seed=seed)
        content = await self._send(client, body, account)
        try:
            return _read(content, request, body, account)
        except AskError:
            raise
        except Exception as error:  # a boundary: no answer may end an evaluation
            why = f"the answer cannot be read: {type(error).__name__}: {error}"
            raise AskError(why, kind=FailureKind.UNREADABLE) from error

    async def close(self) -> None:
        """Ends the connections; safe to call twice."""
        client, self._client, self._address = self._client, None, None
        if client is not None:
            await client.close()

    async def _connected(self) -> "openai.AsyncOpenAI":
        address = await self._endpoint.address()
        if self._client is None or address != self._address:
            stale, self._client = self._client, _make_client(address)
            self._address = address
            if stale is not None:
                await stale.close()
        return self._client

    async def _send(
        self, client: "openai.AsyncOpenAI", body: dict[str, Any], account: Account
    ) -> bytes:
        import openai

        create: Any = client.chat.completions.with_raw_response.create
        for _ in range(MAX_DIALECT_TRIES):
            spoken = self._dialect.spoken(body)
            account.num_requests += 1
            try:
                async with asyncio.timeout(self._config.timeout_s):
                    response = await create(**spoken)
                return bytes(response.content)
            except (openai.APITimeoutError, TimeoutError) as error:
                limit = f"{self._config.timeout_s:g} s"
                raise AskError(f"no answer within {limit}") from error
            except openai.APIStatusError as error:
                if not self._learns(error, spoken):
                    raise self._failure(error) from error
            except openai.APIConnectionError as error:
                cause = error.__cause__ or error
                why = str(cause) or type(cause).__name__
                raise AskError(f"the connection failed: {why}") from error
        raise AskError("the endpoint refuses every way to ask", kind=FailureKind.REFUSED)

    def _learns(self, error: "openai.APIStatusError", spoken: Mapping[str, Any]) -> bool:
        return error.status_code in (400, 422) and self._dialect.learn(
            spoken, param=error.param or "", code=error.code or "", message=error.message
        )

    def _failure(self, error: "openai.APIStatusError") -> AskError:
        status, codes = error.status_code, {error.code, error.type}
        message = f"{status}: {_message(error)}"
        if self._address is not None:
            message = message.replace(self._address.key, "***")
        if status in _CLOSED_STATUSES or codes & _CLOSED_CODES:
            return AskError(message, kind=FailureKind.CLOSED)
        if status in _TRANSIENT_STATUSES or status >= 500:
            return AskError(message, retry_after_s=_retry_after_s(error.response.headers))
        return AskError(message, kind=FailureKind.REFUSED)


def _read(
    content: bytes, request: JudgeRequest, body: Mapping[str, Any], account: Account
) -> JudgeReply:
    response = read_response(content)
    num_prompt_tokens, num_tokens = count_tokens(response, body)
    account.add(num_prompt_tokens, num_tokens)
    return read_reply(response, request, num_prompt_tokens=num_prompt_tokens, num_tokens=num_tokens)


def _make_client(address: Address) -> "openai.AsyncOpenAI":
    import openai

    # A proxy of the user's has no business with a server on this machine.
    local = _is_loopback(address.base_url)
    return openai.AsyncOpenAI(
        base_url=address.base_url,
        api_key=address.key,
        max_retries=0,
        timeout=None,  # the whole request is limited, not each wait for a byte
        http_client=openai.DefaultAsyncHttpxClient(trust_env=False) if local else None,
    )


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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
