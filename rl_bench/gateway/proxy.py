"""Forwards one run's calls: the ASGI app of the gateway.

Decides what is let through, refuses the rest in the provider's own words, and ends a call upstream
when the agent leaves. `relay` brings the answers down.
"""

import asyncio
import hmac
import logging
import traceback
from collections.abc import Callable

import httpx
from starlette.types import Receive, Scope, Send

from rl_bench.config import Api, DriverConfig
from rl_bench.events import DriverFailure
from rl_bench.gateway.account import Account
from rl_bench.gateway.call import Call
from rl_bench.gateway.refusals import Refusal
from rl_bench.gateway.relay import Relay, piece, start
from rl_bench.gateway.request_body import (
    MAX_BODY_BYTES,
    MAX_LARGE,
    HungUpError,
    RequestBody,
    TooLargeError,
)
from rl_bench.gateway.routes import Target, find_route
from rl_bench.gateway.upstream import Upstream
from rl_bench.local_server import BrokenOffError

log = logging.getLogger(__name__)

RUN_ENDED = "the run ended"


class Proxy:
    """The app.

    Args:
        driver: Whose model may be asked, at what prices.
        api: What it speaks.
        token: The first part of every path.
        upstream: The provider.
        account: Counts, caps and records.
        used_s: The run's clock.
    """

    def __init__(
        self,
        driver: DriverConfig,
        *,
        api: Api,
        token: str,
        upstream: Upstream,
        account: Account,
        used_s: Callable[[], float],
    ) -> None:
        self._driver = driver
        self._api = api
        self._token = token.encode()
        self._upstream = upstream
        self._account = account
        self._used_s = used_s
        self._room = asyncio.Semaphore(MAX_LARGE)
        self._under_way: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request.

        Raises:
            BrokenOffError: The answer has no end; the server closes the connection.
        """
        given, _, path = scope["raw_path"].decode("latin-1").removeprefix("/").partition("/")
        is_ours = hmac.compare_digest(given.encode("latin-1"), self._token)
        # Claude Code opens its connection by a HEAD of the base URL, and asks for nothing by it.
        is_greeting = is_ours and scope["method"] == "HEAD" and not path
        if not is_ours or is_greeting:
            log.info("a request %s was refused", "for nothing" if is_ours else "with another token")
            await self._answer(send, Refusal.NOT_FOUND, "there is nothing here")
            return
        call = self._account.arrive(self._api, route=f"/{path}", budget_used_s=self._used_s())
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            if self._is_stopping:
                call.hang_up(RUN_ENDED)
            else:
                await self._serve(call, scope, receive, send)
        except HungUpError:
            call.hang_up()
        except asyncio.CancelledError:
            # By `stop`; nothing else cancels it. Raised on, it would be shown as an error.
            call.hang_up(RUN_ENDED)
        except Exception as error:  # noqa: BLE001  the boundary: words of unknown errors stay here
            log.error("the driver gateway failed: %s", _place(error))
            call.fail(DriverFailure.SERVER_ERROR, f"gateway: {type(error).__name__}")
            if not call.status:
                await self._refuse(call, send, Refusal.BAD_GATEWAY, "the driver gateway failed")
        finally:
            self._under_way.discard(task)
            self._account.end(call)
        if not call.has_ended:
            raise BrokenOffError

    async def stop(self) -> None:
        """Ends every call under way, and the connections; on the server's loop."""
        self._is_stopping = True
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._upstream.close()

    async def _serve(self, call: Call, scope: Scope, receive: Receive, send: Send) -> None:
        target = find_route(self._api, method=scope["method"], path=call.route)
        if target is None:
            call.fail(DriverFailure.REFUSED, f"{scope['method']}: no route that is let through")
            message = "the driver gateway forwards calls of the language model only"
            await self._refuse(call, send, Refusal.NOT_FOUND, message)
            return
        call.generates = target.route.generates
        body = RequestBody(self._room)
        try:
            await body.read(receive, scope["headers"])
            call.model = target.model or body.model()
            if await self._admit(call, target, send):
                await self._forward(call, target, body, scope, receive, send)
        except TooLargeError:
            message = f"the request is larger than {MAX_BODY_BYTES} bytes"
            call.fail(DriverFailure.BAD_REQUEST, message)
            await self._refuse(call, send, Refusal.TOO_LARGE, message)
        finally:
            body.release()

    async def _admit(self, call: Call, target: Target, send: Send) -> bool:
        wanted = self._driver.model_id
        is_other = target.route.method == "POST" and bool(wanted) and call.model != wanted
        if is_other and self._driver.other_models == "refuse":
            call.fail(DriverFailure.REFUSED, f"another model than {wanted}")
            message = f"this run may use the model {wanted} only"
            await self._refuse(call, send, Refusal.OTHER_MODEL, message)
            return False
        reason = self._account.admit(call)
        if reason:
            call.fail(DriverFailure.CAPPED, reason)
            message = f"The run's budget for the language model is used up: {reason}."
            await self._refuse(call, send, Refusal.CAPPED, message)
            return False
        if is_other and call.generates:
            call.note(f"another model than {wanted}, reckoned at its prices")
        return True

    async def _forward(
        self,
        call: Call,
        target: Target,
        body: RequestBody,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Relays an answer unless the agent leaves."""
        relay = asyncio.create_task(self._relay(call, target, body, scope, send))
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({relay, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not relay.done() and not call.has_ended:
                call.hang_up()
                relay.cancel()
            await asyncio.wait({relay})
        except asyncio.CancelledError:
            call.hang_up(RUN_ENDED)
            raise
        finally:
            relay.cancel()
            gone.cancel()
            done = await asyncio.gather(relay, gone, return_exceptions=True)
        if isinstance(done[0], Exception):
            raise done[0]

    async def _relay(
        self, call: Call, target: Target, body: RequestBody, scope: Scope, send: Send
    ) -> None:
        try:
            answer = await self._upstream.send(
                method=target.route.method,
                path=call.route,
                query=scope["query_string"],
                headers=scope["headers"],
                body=body,
            )
        except httpx.TransportError as error:
            trouble = self._upstream.trouble(error)
            call.fail(trouble.failure, trouble.detail)
            await self._refuse(call, send, trouble.refusal, f"the driver: {trouble.detail}")
            return
        relay = Relay(
            call, answer, target.route.dialect, upstream=self._upstream, account=self._account
        )
        await relay.run(send)

    async def _refuse(self, call: Call, send: Send, refusal: Refusal, message: str) -> None:
        call.status = refusal.status
        call.has_ended = True
        await self._answer(send, refusal, message)

    async def _answer(self, send: Send, refusal: Refusal, message: str) -> None:
        body = refusal.body(self._api, message)
        await send(start(refusal.status, refusal.headers(body)))
        await send(piece(body, more=False))


def _place(error: Exception) -> str:
    """Kind and place of an error, without its words."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {last.filename}:{last.lineno}"


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
