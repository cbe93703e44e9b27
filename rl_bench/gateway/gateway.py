"""What a run opens between its agent and its driver."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from rl_bench.config import Api, DriverConfig
from rl_bench.events import DriverCall
from rl_bench.gateway.account import Account, Summary
from rl_bench.gateway.proxy import Proxy
from rl_bench.gateway.upstream import Timeouts, Upstream
from rl_bench.local_server import LocalServer

STOP_LIMIT_S = 5.0


def _ignore(reason: str) -> None:
    """Nobody wants to know."""


class Gateway:
    """One run's way to its language model. Use as a context manager, or `open` and `close`.

    The callbacks are called one after the other from a thread of the gateway's; `close` returns
    when the last call has been handed to them.

    Args:
        driver: Its model, its prices, what becomes of other models.
        api: What agent and driver speak; see `DriverConfig.api_for`.
        base_url: Where the driver is.
        key: Its key (`rl_bench.gateway.check.find_key`); empty: none is needed.
        max_calls: Calls that are let through; None: no limit.
        max_usd: What they may cost; None: no limit.
        used_s: The run's clock, seconds.
        on_call: Gets each call at its end.
        on_capped: Called once, with the reason, when the first call is refused for a cap.
        socket_path: A unix socket to answer on as well.
        timeouts: Of the provider.

    Attributes:
        url: What agents know as ``{driver_url}``, without a slash at its end; it names the run by
            a token. Clients of OpenAI's API add ``/v1``. Known before the start.
        port: The port on loopback.

    Raises:
        DriverError: The address or the key cannot be used.
        WorkspaceError: No port or no socket could be had.
    """

    def __init__(
        self,
        driver: DriverConfig,
        *,
        api: Api,
        base_url: str,
        key: str,
        max_calls: int | None = None,
        max_usd: float | None = None,
        used_s: Callable[[], float],
        on_call: Callable[[DriverCall], object],
        on_capped: Callable[[str], None] = _ignore,
        socket_path: Path | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        upstream = Upstream(api, base_url, key=key, timeouts=timeouts or Timeouts())
        self._account = Account(
            driver, max_calls=max_calls, max_usd=max_usd, on_call=on_call, on_capped=on_capped
        )
        self._server = LocalServer("driver gateway", socket_path=socket_path)
        self._proxy = Proxy(
            driver,
            api=api,
            token=self._server.token,
            upstream=upstream,
            account=self._account,
            used_s=used_s,
        )
        self._is_open = False
        self.url = self._server.url
        self.port = self._server.port

    def open(self) -> Self:
        """Starts to answer; returns when it does.

        Raises:
            WorkspaceError: It did not come up.
        """
        self._server.start(self._proxy)
        self._is_open = True
        return self

    def close(self) -> None:
        """Ends calls under way, stops answering, records the rest; safe to call twice."""
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(TimeoutError):
                self._server.run(asyncio.wait_for(self._proxy.stop(), STOP_LIMIT_S))
        self._server.close()
        self._account.close()

    def summary(self) -> Summary:
        """The counts so far; from any thread, also after the close."""
        return self._account.summary()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
