"""Whether anything listens at a driver's address: a connection is opened and closed at once.

Nothing is sent, so neither a key nor anything else can be read from it.
"""

import socket
import threading
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from time import monotonic
from urllib.parse import urlsplit

REACH_LIMIT_S = 1.0
_PORTS = {"http": 80, "https": 443}


def is_loopback(base_url: str) -> bool:
    """Whether an address is on this machine whichever machine that is."""
    host = urlsplit(base_url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def find_silent(base_urls: Iterable[str], *, limit_s: float = REACH_LIMIT_S) -> Mapping[str, str]:
    """Tries all addresses at the same time.

    Args:
        base_urls: Valid ones (`rl_bench.gateway.routes.check_base_url`). One behind a proxy of the
            environment is passed over: only the proxy can tell.
        limit_s: For all of them together.

    Returns:
        Why there was no connection, for each address where there was none.
    """
    urls = [url for url in dict.fromkeys(base_urls) if not _has_proxy(url)]
    # A look-up of a name has no time limit of its own, so the threads are left to themselves.
    found: dict[str, str] = {}
    threads = [
        threading.Thread(target=_try, args=(url, found, limit_s), name="reach", daemon=True)
        for url in urls
    ]
    deadline = monotonic() + limit_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - monotonic()))
    told = dict(found)
    silent = {url: told.get(url, f"nothing within {limit_s:g} s") for url in urls}
    return {url: why for url, why in silent.items() if why}


def _try(base_url: str, found: dict[str, str], limit_s: float) -> None:
    """Puts down why there is no connection; nothing when there is one."""
    parts = urlsplit(base_url)
    place = (parts.hostname or "", parts.port or _PORTS[parts.scheme])
    try:
        socket.create_connection(place, timeout=limit_s).close()
    except (OSError, UnicodeError) as error:
        found[base_url] = getattr(error, "strerror", None) or str(error) or type(error).__name__
    else:
        found[base_url] = ""


def _has_proxy(base_url: str) -> bool:
    # Imported here: it loads TLS, which no plan without an address needs.
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(base_url)
    proxies = getproxies()
    is_named = parts.scheme in proxies or "all" in proxies
    return is_named and not proxy_bypass(parts.netloc)
