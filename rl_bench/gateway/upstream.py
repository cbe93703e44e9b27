"""The way to the provider: the key, the connections, and what can go wrong before an answer."""

import logging
from dataclasses import dataclass
from typing import NamedTuple

import httpx

from rl_bench.config import Api
from rl_bench.events import DriverFailure
from rl_bench.gateway.refusals import Refusal
from rl_bench.gateway.request_body import RequestBody
from rl_bench.gateway.routes import Headers, check_base_url, upstream_headers, upstream_url
from rl_bench.gateway.secret import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds until a connection stands, and without a byte in either direction."""

    connect_s: float = 15.0
    idle_s: float = 600.0


class Trouble(NamedTuple):
    """Why no answer came: the kind, what the agent gets, and words for the record."""

    failure: DriverFailure
    refusal: Refusal
    detail: str


class Upstream:
    """A provider, for use on one event loop.

    Proxies and certificates are the environment's (``HTTPS_PROXY``, ``SSL_CERT_FILE``).

    Raises:
        DriverError: The base URL or the key cannot be used.
    """

    def __init__(self, api: Api, base_url: str, *, key: str, timeouts: Timeouts) -> None:
        self.secret = Secret(key)
        # At DEBUG it writes an answer's headers, before the key in them is masked.
        logging.getLogger("httpcore").setLevel(logging.INFO)
        self._api = api
        self._base = check_base_url(base_url)
        self._timeouts = timeouts
        self._client: httpx.AsyncClient | None = None

    async def send(
        self, *, method: str, path: str, query: bytes, headers: Headers, body: RequestBody
    ) -> httpx.Response:
        """Sends a request; the answer's body is yet to be read.

        Raises:
            httpx.TransportError: See `trouble`.
        """
        url = upstream_url(self._api, self._base, path=path, query=query)
        sent = upstream_headers(self._api, headers, key=self.secret.reveal())
        length = str(body.num_bytes).encode()
        sent = [(b"Host", url.netloc), *sent]
        if method != "GET":
            sent.append((b"Content-Length", length))
        timeout = httpx.Timeout(self._timeouts.idle_s, connect=self._timeouts.connect_s)
        # Made directly, so that the client adds none of its own headers.
        request = httpx.Request(
            method, url, headers=sent, stream=body, extensions={"timeout": timeout.as_dict()}
        )
        return await self._connected().send(request, stream=True)

    def trouble(self, error: httpx.TransportError) -> Trouble:
        """What an error of the transport means."""
        words = self.secret.mask_text(str(error)) or type(error).__name__
        match error:
            case httpx.ConnectTimeout():
                detail = f"no connection within {self._timeouts.connect_s:g} s"
                return Trouble(DriverFailure.UNREACHABLE, Refusal.TIMEOUT, detail)
            case httpx.TimeoutException():
                detail = f"no byte for {self._timeouts.idle_s:g} s"
                return Trouble(DriverFailure.TIMEOUT, Refusal.TIMEOUT, detail)
            case httpx.RemoteProtocolError() | httpx.ReadError() | httpx.WriteError():
                return Trouble(DriverFailure.CUT, Refusal.BAD_GATEWAY, words)
            case _:
                return Trouble(DriverFailure.UNREACHABLE, Refusal.BAD_GATEWAY, words)

    async def close(self) -> None:
        """Closes all connections."""
        if self._client is not None:
            await self._client.aclose()

    def _connected(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
                follow_redirects=False,
            )
        return self._client
