"""Brings one answer down, as it comes.

Status, headers (but those of the connection) and body go on piece by piece, the next one asked for
when the agent has taken the last. An answer that breaks off upstream breaks off here: the
connection is closed without an end. What an answer cost is counted before the agent has its end, so
that the agent's next call meets a cap that this one reached.
"""

import httpx
from starlette.types import Message, Send

from rl_bench.events import DriverFailure
from rl_bench.gateway.account import Account
from rl_bench.gateway.answer import AnswerReader, Reading
from rl_bench.gateway.call import Call
from rl_bench.gateway.failures import classify
from rl_bench.gateway.routes import Dialect, Headers, downstream_headers
from rl_bench.gateway.secret import KeyFilter
from rl_bench.gateway.upstream import Upstream


class Relay:
    """One answer on its way to the agent.

    Args:
        call: Gets what becomes known.
        answer: The provider's, its body yet to be read.
        dialect: How it is written.
        upstream: Knows the key, and what errors mean.
        account: Is charged.
    """

    def __init__(
        self,
        call: Call,
        answer: httpx.Response,
        dialect: Dialect,
        *,
        upstream: Upstream,
        account: Account,
    ) -> None:
        secret = upstream.secret
        self._call = call
        self._answer = answer
        self._upstream = upstream
        self._account = account
        self._headers = [
            (secret.mask(name), secret.mask_error(value))
            for name, value in downstream_headers(answer.headers.raw)
        ]
        self._length = _header(self._headers, b"content-length")
        self._filter = KeyFilter(secret, is_error=answer.status_code >= 400)
        self._reader = AnswerReader(
            dialect,
            status=answer.status_code,
            headers=self._headers,
            generates=call.generates,
        )
        self._is_read = False

    async def run(self, send: Send) -> None:
        """Passes everything on, until one side ends it."""
        self._call.status = self._answer.status_code
        try:
            await send(start(self._call.status, self._headers))
            await self._pass_body(send)
        finally:
            self._conclude()
            await self._answer.aclose()

    async def _pass_body(self, send: Send) -> None:
        try:
            async for data in self._answer.aiter_raw():
                await self._hand_on(send, self._filter.feed(data))
        except httpx.TransportError as error:
            trouble = self._upstream.trouble(error)
            self._call.fail(trouble.failure, trouble.detail)
            await self._hand_on(send, self._filter.end())
        else:
            await self._hand_on(send, self._filter.end(), is_last=True)

    async def _hand_on(self, send: Send, data: bytes, *, is_last: bool = False) -> None:
        call = self._call
        self._reader.feed(data)
        call.passed_on(len(data))
        if is_last or str(call.num_bytes) == self._length:
            # With a length the agent knows the end, and may leave, before the last message.
            call.has_ended = True
            self._conclude()
        elif self._reader.is_ended:
            call.tokens = self._reader.tokens
            self._account.charge(call)
        if data or is_last:
            await send(piece(data, more=not is_last))

    def _conclude(self) -> None:
        """What the answer came to, however it ended; once."""
        if self._is_read:
            return
        self._is_read = True
        _judge(self._call, self._reader.finish(), _header(self._headers, b"location"))
        self._account.charge(self._call)


def _judge(call: Call, reading: Reading, location: str) -> None:
    call.tokens = reading.tokens
    problem = reading.problem
    if call.status >= 300 or problem is not None:
        broke_off, call.failure = call.failure, classify(call.status, problem)
        call.note(f"{problem.kind} {problem.message}" if problem else "")
        call.note(f"to {location}" if location else "")
        call.note(f"then {broke_off}" if broke_off else "")
    elif call.failure in {DriverFailure.CUT, DriverFailure.HUNG_UP} and reading.has_end:
        # Some clients leave, and some servers, when the stream's own end has come.
        call.failure = None
        call.notes.clear()
    elif call.failure is None and reading.has_end is False:
        call.fail(DriverFailure.CUT, "the stream ended before the answer did")
    if call.lacks_tokens:
        call.note("its tokens are not known")


def start(status: int, headers: Headers) -> Message:
    """The message that begins an answer."""
    return {"type": "http.response.start", "status": status, "headers": headers}


def piece(data: bytes, *, more: bool) -> Message:
    """The message with a piece of its body."""
    return {"type": "http.response.body", "body": data, "more_body": more}


def _header(headers: Headers, wanted: bytes) -> str:
    found = (value.decode("latin-1") for name, value in headers if name.lower() == wanted)
    return next(found, "")
