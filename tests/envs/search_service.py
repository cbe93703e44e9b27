"""A search service on this machine for tests: the formats of the real ones, and their faults.

It listens on one address for all services and tells them apart by path and header, as the real ones
are told apart by host. Each query finds three pages whose texts hold the query.
"""

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

KEY = "sk-very-secret-0123456789"
NO_MATCH = "xyzzy"
"""A query without a match."""
Reply = tuple[int, str, dict[str, str]]
"""Status, body, headers."""


class SearchService:
    """The server; a context manager.

    Attributes:
        queries: What was asked, in the order of arrival.
        fault: Called with the number of the request, from 0; what it returns replaces the answer.
            ``hang`` never answers, ``drip`` sends a byte now and then, ``cut`` hangs up.
    """

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.fault: Callable[[int], Reply | str | None] = lambda number: None
        self.over = threading.Event()
        self._server = _Server(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self._server.end()

    def url(self, name: str) -> str:
        """Where the service ``name`` is."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/{name}"

    def answer(self, name: str, text: str, *, wanted: int, key: str) -> Reply:
        """The answer of service ``name``."""
        if name != "duckduckgo" and key != KEY:
            return 401, json.dumps({"error": f"Invalid API key {key}"}), {}
        found = [] if text == NO_MATCH else [_page(text, n) for n in range(max(wanted, 3))]
        if name == "duckduckgo":
            return 200, _html(found), {"Content-Type": "text/html"}
        return 200, json.dumps(_FORMATS[name](text, found)), {"Content-Type": "application/json"}


def _page(text: str, number: int) -> tuple[str, str, str]:
    title = f"{text} {number}"
    return title, f"https://example.org/{number}?a=1&b=2", f"All about {text},\n<b>{number}</b> &c"


def _serpapi(text: str, found: list[tuple[str, str, str]]) -> dict[str, Any]:
    head = {"search_metadata": {"id": "1", "status": "Success"}, "search_parameters": {"q": text}}
    if not found:
        return {**head, "error": "Google hasn't returned any results for this query."}
    return {
        **head,
        "organic_results": [
            {"position": i + 1, "title": t, "link": u, "snippet": s}
            for i, (t, u, s) in enumerate(found)
        ],
    }


def _serper(text: str, found: list[tuple[str, str, str]]) -> dict[str, Any]:
    organic = [{"title": t, "link": u, "snippet": s, "position": 1} for t, u, s in found]
    return {"searchParameters": {"q": text, "type": "search"}, "organic": organic, "credits": 1}


def _tavily(text: str, found: list[tuple[str, str, str]]) -> dict[str, Any]:
    results = [
        {"title": t, "url": u, "content": s, "score": 0.9, "raw_content": None} for t, u, s in found
    ]
    return {"query": text, "answer": None, "images": [], "results": results, "response_time": 1.1}


def _brave(text: str, found: list[tuple[str, str, str]]) -> dict[str, Any]:
    head = {"type": "search", "query": {"original": text}}
    results = [
        {"title": t, "url": u, "description": s, "type": "search_result"} for t, u, s in found
    ]
    return {**head, "web": {"type": "search", "results": results}} if found else head


_FORMATS: dict[str, Callable[[str, list[tuple[str, str, str]]], dict[str, Any]]] = {
    "serpapi": _serpapi,
    "serper": _serper,
    "tavily": _tavily,
    "brave": _brave,
}


def _html(found: list[tuple[str, str, str]]) -> str:
    """The parts of DuckDuckGo's plain page that hold results."""
    results = "".join(
        f'<div class="result results_links"><div class="links_main result__body"><h2><a '
        f'href="{u}">{t}</a></h2><a class="result__snippet" href="{u}">{s}</a></div></div>'
        for t, u, s in found
    )
    return f'<html><body><div id="links" class="results">{results}</div></body></html>'


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, service: SearchService) -> None:
        self.service = service
        super().__init__(("127.0.0.1", 0), _Connection)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, request: object, client_address: object) -> None:
        """Silent: clients that give up are part of the tests."""


class _Connection(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        at = urlsplit(self.path)
        given = {name: values[0] for name, values in parse_qs(at.query).items()}
        key = given.get("api_key") or str(self.headers.get("X-Subscription-Token", ""))
        wanted = int(given.get("num", given.get("count", "0")))
        self._reply(at.path.strip("/"), given["q"], wanted=wanted, key=key)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        name = self.path.strip("/")
        if name == "duckduckgo":
            self._reply(name, parse_qs(body)["q"][0], wanted=10, key="")
            return
        given = json.loads(body)
        bearer = str(self.headers.get("Authorization", "")).removeprefix("Bearer ")
        key = str(self.headers.get("X-API-KEY", bearer))
        text, wanted = (
            given.get("q", given.get("query")),
            given.get("num", given.get("max_results")),
        )
        self._reply(name, text, wanted=wanted, key=key)

    def _reply(self, name: str, text: str, *, wanted: int, key: str) -> None:
        service = self.server.service
        service.queries.append(text)
        fault = service.fault(len(service.queries) - 1)
        if isinstance(fault, str):
            self._misbehave(fault)
            return
        status, body, headers = fault or service.answer(name, text, wanted=wanted, key=key)
        self.send_response(status)
        for header, value in headers.items():
            self.send_header(header, value)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def _misbehave(self, fault: str) -> None:
        if fault == "hang":
            self.server.service.over.wait(10)
        elif fault == "drip":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            ends = time.monotonic() + 10
            while not self.server.service.over.wait(0.05) and time.monotonic() < ends:
                self.wfile.write(b" ")
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""
