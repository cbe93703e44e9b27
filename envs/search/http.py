"""Search services over HTTP: one request a query, in bounded time, tried again where it helps.

Owns connections, time-outs, retries and keys; what a service is asked and how it answers is a
`Service`, one file each. Worth another attempt are: no connection, a time-out, 408, 425, 429 and
5xx, and an answer that is not the service's (a proxy's HTML page). A wrong key or a refused query
is not. A key comes from the environment when it is first needed; it stands in no error, log, cache
or result.
"""

import json
import logging
import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import httpx

from envs.search.base import SearchFailed, SearchResult, plain

T = TypeVar("T")
SNIPPET_CHARS = 500
TITLE_CHARS = 150
URL_CHARS = 200
MAX_BODY_BYTES = 4 * 1024 * 1024
CONNECT_TIMEOUT_S = 3.0
"""A host may have several addresses, tried in turn with this time each."""
_TOLD_CHARS = 200
_RETRIED = frozenset({408, 425, 429, *range(500, 600)})


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Bounds in seconds. All attempts at one query end within ``total_s`` plus one ``timeout_s``.

    The defaults stay below the 30 s after which a rollout worker gives a step up.
    """

    timeout_s: float = 7.0
    total_s: float = 20.0
    num_retries: int = 5
    first_pause_s: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a service is asked: a GET without ``body``, else a POST of JSON."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    params: Mapping[str, str | int] = field(default_factory=dict, repr=False)
    body: Mapping[str, str | int | bool] | None = None


class Service(Protocol):
    """The wire format of one service."""

    @property
    def name(self) -> str: ...

    @property
    def url(self) -> str:
        """The public endpoint."""
        ...

    @property
    def key_variable(self) -> str:
        """The environment variable that holds the user's key."""
        ...

    def query(self, text: str, *, key: str, num_results: int) -> Query:
        """The request for ``text``."""
        ...

    def results(self, answer: Mapping[str, Any]) -> list[SearchResult]:
        """The results in a successful answer.

        Raises:
            ValueError: It is no answer of this service, or tells of a failure.
        """
        ...


class RetryLater(Exception):  # noqa: N818  a signal between an attempt and `with_retries`
    """This attempt failed, and another may not; ``after_s`` is the service's own wish."""

    def __init__(self, reason: str, *, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s


def with_retries(attempt: Callable[[float], T], *, limits: HttpLimits, name: str) -> T:
    """Calls ``attempt`` with the seconds it may take, until it succeeds or the limits are reached.

    Raises:
        SearchFailed: The last attempt's reason.
    """
    deadline = time.monotonic() + limits.total_s
    num_tried = 0
    while True:
        num_tried += 1
        left = max(0.1, deadline - time.monotonic())
        try:
            return attempt(min(limits.timeout_s, left))
        except RetryLater as error:
            # Jitter: episodes that were refused together must not come back together.
            spread = random.uniform(0.7, 1.3)  # noqa: S311  no secret
            pause = limits.first_pause_s * 2 ** (num_tried - 1) * spread
            pause = pause if error.after_s is None else max(error.after_s, 0.0)
            is_last = num_tried > limits.num_retries
            if is_last or time.monotonic() + pause >= deadline:
                raise SearchFailed(f"{name}: {error} (attempt {num_tried})") from error
            time.sleep(pause)


class HttpSearch:
    """A search service.

    Args:
        service: Its wire format.
        num_results: Results wanted for a query.
        url: Where to ask instead of the public endpoint, e.g. a gateway.
        limits: Time-outs and retries.
    """

    def __init__(
        self,
        service: Service,
        *,
        num_results: int,
        url: str = "",
        limits: HttpLimits | None = None,
    ) -> None:
        self._service = service
        self._num_results = num_results
        self._url = url or service.url
        self._limits = limits or HttpLimits()
        self._client: httpx.Client | None = None

    @property
    def name(self) -> str:
        """The service's name."""
        return self._service.name

    @property
    def parameters(self) -> Mapping[str, str | int]:
        """The number of results, and the address unless it is the public one."""
        own = {} if self._url == self._service.url else {"url": self._url}
        return {"num_results": self._num_results, **own}

    def search(self, query: str) -> list[SearchResult]:
        """See `SearchBackend.search`."""
        key = self._key()
        sent = self._service.query(query, key=key, num_results=self._num_results)
        found = with_retries(
            lambda timeout_s: self._attempt(sent, key=key, timeout_s=timeout_s),
            limits=self._limits,
            name=self.name,
        )
        return found[: self._num_results]

    def close(self) -> None:
        """Ends the connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _key(self) -> str:
        variable = self._service.key_variable
        key = os.environ.get(variable, "").strip()
        if not key:
            raise SearchFailed(f"{self.name}: the environment variable {variable} holds no key")
        return key

    def _attempt(self, sent: Query, *, key: str, timeout_s: float) -> list[SearchResult]:
        try:
            status, headers, body = self._ask(sent, timeout_s=timeout_s)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise RetryLater(f"no answer ({type(error).__name__})") from error
        told = _without(key, body.decode("utf-8", "replace"))
        if status in _RETRIED:
            raise RetryLater(f"answered {status}: {told}", after_s=_retry_after(headers))
        if status != httpx.codes.OK:
            raise SearchFailed(f"{self.name}: answered {status}: {told}")
        try:
            answer = json.loads(body)
            if not isinstance(answer, dict):
                raise ValueError("not a JSON object")
            return self._service.results(answer)
        except (ValueError, RecursionError) as error:
            reason = _without(key, str(error))
            raise RetryLater(f"answered what cannot be read ({reason})") from error

    def _ask(self, sent: Query, *, timeout_s: float) -> tuple[int, httpx.Headers, bytes]:
        """Reads the whole answer within ``timeout_s``, however slowly it drips."""
        if self._client is None:
            _hide_addresses()
            self._client = httpx.Client()
        ends = time.monotonic() + timeout_s
        with self._client.stream(
            "GET" if sent.body is None else "POST",
            self._url,
            params=dict(sent.params) or None,
            headers={"Accept": "application/json", **sent.headers},
            json=None if sent.body is None else dict(sent.body),
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S)),
        ) as response:
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_BODY_BYTES or time.monotonic() > ends:
                    raise httpx.ReadTimeout("too slow or too long")
            return response.status_code, response.headers, bytes(body)


def items_of(answer: Mapping[str, Any], *path: str) -> list[Mapping[str, Any]]:
    """The objects of the list at ``path``; none where a part of the path is missing or null.

    Raises:
        ValueError: Something else stands there.
    """
    place: Any = answer
    for part in path:
        if not isinstance(place, Mapping):
            raise ValueError(f"{part!r} is not within an object")
        place = place.get(part)
        if place is None:
            return []
    if not isinstance(place, list):
        raise ValueError(f"{path[-1]!r} is not a list")
    return [item for item in place if isinstance(item, Mapping)]


def result_of(item: Mapping[str, Any], *, url: str, snippet: str) -> SearchResult:
    """A result whose address and passage stand under the given names, clipped."""
    return SearchResult(
        title=plain(item.get("title"), max_chars=TITLE_CHARS),
        url=plain(item.get(url), max_chars=URL_CHARS),
        snippet=plain(item.get(snippet), max_chars=SNIPPET_CHARS),
    )


def _without(key: str, text: str) -> str:
    """What a service said, short; its key goes before anything is cut, so that no part is left."""
    return plain(text.replace(key, "***"), max_chars=_TOLD_CHARS)


def _retry_after(headers: httpx.Headers) -> float | None:
    """Seconds of a ``Retry-After`` header; its form with a date is not worth reading."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None


class _WithoutQuery(logging.Filter):
    """Cuts the query string off addresses: that is where some services want their key."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                a.copy_with(query=None) if isinstance(a, httpx.URL) else a for a in record.args
            )
        return True


def _hide_addresses() -> None:
    """The client logs each request's address; from now on without its query string."""
    logger = logging.getLogger("httpx")
    if not any(isinstance(each, _WithoutQuery) for each in logger.filters):
        logger.addFilter(_WithoutQuery())
