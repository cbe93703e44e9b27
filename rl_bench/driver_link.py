"""The way of one run's agent to its driver: a gateway, before it the scripted driver if chosen."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rl_bench.clock import RunClock
from rl_bench.config import Api, RunSpec
from rl_bench.events import DriverCall
from rl_bench.sandbox.base import Forward

if TYPE_CHECKING:
    from rl_bench.gateway.account import Summary


@dataclass(slots=True, kw_only=True)
class DriverLink:
    """An open gateway, or nothing for an agent that has no driver.

    Attributes:
        url: What the agent gets as base URL of its API; empty without a driver.
        forwards: How a sandbox reaches it.
        capped: Why calls are no longer let through; empty while they are.
    """

    url: str = ""
    forwards: tuple[Forward, ...] = ()
    capped: str = ""
    _capped_at: float | None = None
    _summary: "Callable[[], Summary] | None" = field(default=None, repr=False)

    def cap(self, reason: str) -> None:
        """From now on no call is let through."""
        self.capped, self._capped_at = reason, time.monotonic()

    def is_capped_for(self, seconds: float) -> bool:
        """Whether that was at least ``seconds`` ago."""
        return self._capped_at is not None and time.monotonic() - self._capped_at >= seconds

    def summary(self) -> "Summary | None":
        """The calls so far; None without a driver."""
        return None if self._summary is None else self._summary()


@contextmanager
def open_driver(
    spec: RunSpec, *, sockets: Path, clock: RunClock, on_call: Callable[[DriverCall], object]
) -> Iterator[DriverLink]:
    """The run's driver behind its gateway, until the end of the block.

    Args:
        spec: The run.
        sockets: A folder for the gateway's socket.
        clock: The run's clock.
        on_call: Told of each call at its end.

    Raises:
        PreflightError: The driver's key is not there.
        DriverError: Its address cannot be used.
        ConfigError: A scripted session cannot be read.
    """
    api = spec.driver.api_for(spec.agent)
    link = DriverLink()
    if api is None:
        yield link
        return
    # Imported here: an HTTP client and its likes, which a run without a driver does without.
    from rl_bench.gateway.gateway import Gateway

    with ExitStack() as stack:
        base_url, key = _upstream(spec, api, stack)
        socket_path = sockets / "driver.sock"
        gateway = Gateway(
            spec.driver,
            api=api,
            base_url=base_url,
            key=key,
            max_calls=spec.budget.max_driver_calls,
            max_usd=spec.budget.max_driver_usd,
            used_s=lambda: clock.used_s,
            on_call=on_call,
            on_capped=link.cap,
            socket_path=socket_path,
        )
        stack.enter_context(gateway)
        link.url = gateway.url
        link.forwards = (Forward(gateway.port, socket_path),)
        link._summary = gateway.summary
        yield link


def _upstream(spec: RunSpec, api: Api, stack: ExitStack) -> tuple[str, str]:
    """Where the driver is, and its key."""
    from rl_bench.drivers.scripted import ScriptedDriver
    from rl_bench.drivers.session import load_session
    from rl_bench.gateway.check import find_key

    if spec.driver.kind == "scripted":
        session = load_session(spec.driver.session)
        scripted = stack.enter_context(ScriptedDriver(session, model_id=spec.driver.model_id))
        return scripted.url_for(api), scripted.key
    return spec.driver.base_url, find_key(spec.driver)
