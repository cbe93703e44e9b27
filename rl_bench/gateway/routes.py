"""What is let through: the generating routes of each provider API, and its list of models.

Files, batches, fine-tuning, stored answers and whatever else a key can do are not.

| API | let through below the gateway's URL |
|---|---|
| anthropic | POST /v1/messages, /v1/messages/count_tokens, GET /v1/models |
| openai | POST /v1/responses, /v1/chat/completions, GET /v1/models |
| google | POST /v1beta/models/M:generateContent, :streamGenerateContent, :countTokens, GET |

So clients of Anthropic and Google, which append the version themselves, are given ``{driver_url}``,
and OpenAI's ``{driver_url}/v1``. A driver's ``base_url`` is what its provider tells its clients:
with ``/v1`` for openai, or whatever stands there, and without for the others.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from rl_bench.config import Api
from rl_bench.errors import DriverError

if TYPE_CHECKING:
    import httpx

Headers = list[tuple[bytes, bytes]]
CREDENTIALS = (b"x-api-key", b"authorization", b"x-goog-api-key", b"api-key")
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_NOT_FORWARDED = frozenset(
    {
        *HOP_BY_HOP,
        *CREDENTIALS,
        b"host",
        b"content-length",
        b"accept-encoding",
        b"expect",
        # With these a provider may take a request for another one than its route says.
        b"x-http-method-override",
        b"x-http-method",
        b"x-method-override",
    }
)
_MODEL = r"[\w.:@-]+"


class Dialect(StrEnum):
    """How an answer is written."""

    MESSAGES = "messages"
    RESPONSES = "responses"
    CHAT = "chat"
    GEMINI = "gemini"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A way that is open. ``generates``: it costs tokens."""

    method: str
    path: re.Pattern[str]
    dialect: Dialect
    generates: bool = False


class Target(NamedTuple):
    """A route, and the model that its path names; empty: the body does."""

    route: Route
    model: str


def _route(method: str, path: str, dialect: Dialect, *, generates: bool = False) -> Route:
    return Route(
        method=method, path=re.compile(path, re.ASCII), dialect=dialect, generates=generates
    )


_GEMINI = rf"/v1(?:beta|alpha)?/models/(?P<model>{_MODEL})"
ROUTES: dict[Api, tuple[Route, ...]] = {
    Api.ANTHROPIC: (
        _route("POST", r"/v1/messages", Dialect.MESSAGES, generates=True),
        _route("POST", r"/v1/messages/count_tokens", Dialect.MESSAGES),
        _route("GET", rf"/v1/models(?:/{_MODEL})?", Dialect.MESSAGES),
    ),
    Api.OPENAI: (
        _route("POST", r"/v1/responses", Dialect.RESPONSES, generates=True),
        _route("POST", r"/v1/chat/completions", Dialect.CHAT, generates=True),
        _route("GET", rf"/v1/models(?:/{_MODEL}){{0,3}}", Dialect.CHAT),
    ),
    Api.GOOGLE: (
        _route("POST", rf"{_GEMINI}:(?:streamG|g)enerateContent", Dialect.GEMINI, generates=True),
        _route("POST", rf"{_GEMINI}:countTokens", Dialect.GEMINI),
        _route("GET", rf"/v1(?:beta|alpha)?/models(?:/{_MODEL})?", Dialect.GEMINI),
    ),
}


def find_route(api: Api, *, method: str, path: str) -> Target | None:
    """The route that a request takes; None when there is none for it."""
    if ".." in path:
        return None
    for route in ROUTES[api]:
        found = route.path.fullmatch(path) if route.method == method else None
        if found is not None:
            return Target(route, found.groupdict().get("model") or "")
    return None


def check_base_url(base_url: str) -> "httpx.URL":
    """A driver's base URL, read.

    Raises:
        DriverError: It is no address, or has parts that a base cannot have.
    """
    # Imported here: most plans that are looked at first have no address to be checked.
    import httpx

    try:
        is_url = bool(urlsplit(base_url).hostname)
        url = httpx.URL(base_url)
    except (ValueError, httpx.InvalidURL):
        is_url, url = False, httpx.URL("")
    if not is_url or url.scheme not in ("http", "https"):
        raise DriverError(
            f"base_url '{base_url}' is not an address",
            cure="It looks like https://api.openai.com/v1 or https://api.anthropic.com",
        )
    if not _has_port(base_url):
        raise DriverError(
            f"the base_url at {url.host} has an impossible port",
            cure="Ports are numbers from 1 to 65535",
        )
    if url.query or url.fragment or url.userinfo:
        raise DriverError(
            f"the base_url at {url.host} has a query, a fragment or a user in it",
            cure="Give it without, and the key through driver.key_variable",
        )
    return url


def _has_port(base_url: str) -> bool:
    try:
        return urlsplit(base_url).port != 0
    except ValueError:
        return False


def upstream_url(api: Api, base: "httpx.URL", *, path: str, query: bytes) -> "httpx.URL":
    """Where a request goes: the base, the route's path, its query without a key."""
    inside = path.removeprefix("/v1") if api is Api.OPENAI else path
    raw = base.raw_path.rstrip(b"/") + inside.encode("ascii")
    if api is Api.GOOGLE:
        parts = (part for part in query.split(b"&") if not _is_key(part))
        query = b"&".join(parts)
    return base.copy_with(raw_path=raw + b"?" + query if query else raw)


def _is_key(part: bytes) -> bool:
    return unquote(part.partition(b"=")[0].decode("latin-1")) in {"key", "access_token"}


def upstream_headers(api: Api, sent: Iterable[tuple[bytes, bytes]], *, key: str) -> Headers:
    """A request's headers as they go up: the real key in the place of the agent's own.

    Nothing is asked to be compressed, so that what is read for the record is what is passed on.
    """
    sent = list(sent)
    named = {word.strip().lower() for name, value in sent if name.lower() == b"connection"
             for word in value.split(b",")}  # fmt: skip
    kept = [(n, v) for n, v in sent if n.lower() not in _NOT_FORWARDED | named]
    names = {name.lower() for name, _ in sent}
    return [*kept, (b"Accept-Encoding", b"identity"), *_credential(api, names, key=key)]


def _credential(api: Api, sent: set[bytes], *, key: str) -> Headers:
    if not key:
        return []
    bearer = (b"Authorization", b"Bearer " + key.encode())
    if api is Api.OPENAI:
        return [bearer]
    if api is Api.GOOGLE:
        return [(b"x-goog-api-key", key.encode())]
    # Compatible endpoints may want the token where ANTHROPIC_AUTH_TOKEN puts it.
    wants_bearer = b"authorization" in sent and b"x-api-key" not in sent
    return [bearer] if wants_bearer else [(b"x-api-key", key.encode())]


def downstream_headers(received: Iterable[tuple[bytes, bytes]]) -> Headers:
    """An answer's headers as they go down: all but those of the connection itself."""
    received = list(received)
    dropped = set(HOP_BY_HOP)
    for name, value in received:
        if name.lower() == b"connection":
            dropped |= {word.strip().lower() for word in value.split(b",")}
        elif name.lower() == b"transfer-encoding":
            dropped.add(b"content-length")
    return [(name, value) for name, value in received if name.lower() not in dropped]
