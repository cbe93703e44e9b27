"""Where a judge is asked: an address on the network, or a server of this machine."""

import os
from typing import Protocol

from rl_bench.config import JudgeConfig
from rl_bench.endpoint.client import Address
from rl_bench.endpoint.failures import AskError, FailureKind


class Endpoint(Protocol):
    """Says where to ask, and makes sure that somebody listens there."""

    async def identity(self) -> str:
        """What tells its answers apart from those of others of the same model name.

        Raises:
            AskError: It cannot be known.
        """
        ...

    async def address(self) -> Address:
        """Where to ask; starts a server first if there is one to start.

        Raises:
            AskError: Nobody can be asked.
        """
        ...

    async def close(self) -> None:
        """Ends the server, if there is one; safe to call twice."""
        ...


class RemoteEndpoint:
    """An address that somebody else serves."""

    def __init__(self, config: JudgeConfig) -> None:
        self._config = config

    async def identity(self) -> str:
        return self._config.base_url.rstrip("/")

    async def address(self) -> Address:
        variable = self._config.key_variable
        if not variable:
            return Address(base_url=self._config.base_url)
        key = os.environ.get(variable, "").strip()
        if not key:
            raise AskError(
                f"{variable} is not set in the environment",
                cure=f"Export {variable}",
                kind=FailureKind.CLOSED,
            )
        return Address(base_url=self._config.base_url, key=key)

    async def close(self) -> None:
        return None
