"""A small HTTP server that serves files from memory, and misbehaves on request, as real ones do."""

import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """How one GET is answered.

    Attributes:
        status: An error instead of the file.
        headers: Added to the answer's, or in place of them.
        drop_after: Body bytes after which the connection breaks.
        wait_after: Body bytes after which nothing more comes until the server is released.
        ignores_range: Sends the whole, whatever was asked for.
        body: Sent instead of the file.
    """

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    drop_after: int | None = None
    wait_after: int | None = None
    ignores_range: bool = False
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A GET that was answered: what was asked for, and the body bytes that were sent."""

    path: str
    range: str | None
    if_range: str | None
    num_bytes: int


class FileServer:
    """Serves ``files`` by path; each path's ``faults`` are used up in order."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self.seen: list[Seen] = []
        self.has_etags = True
        self.waits = threading.Event()
        """Set once an answer waits."""
        self.released = threading.Event()
        self.url = ""

    def add(self, path: str, content: bytes, *faults: Fault) -> str:
        """Serves ``content``; returns its address."""
        self.files[path] = content
        self.faults[path].extend(faults)
        return self.url + path


def _handler(server: FileServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.send_response(200 if self.path in server.files else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            queue = server.faults[self.path]
            fault = queue.popleft() if queue else Fault()
            content = server.files.get(self.path) if fault.body is None else fault.body
            if content is None or fault.status is not None:
                self._note(0)
                self._answer(fault.status or 404, b"", {"Content-Length": "0"} | fault.headers)
                return
            status, start, headers = self._place(content, fault)
            if status == 416:
                self._note(0)
                self._answer(status, b"", headers)
                return
            self._send(status, content[start:], headers | fault.headers, fault)

        def _place(self, content: bytes, fault: Fault) -> tuple[int, int, dict[str, str]]:
            etag = f'"{sha256(content).hexdigest()[:16]}"'
            headers = {"ETag": etag} if server.has_etags else {}
            asked = self.headers.get("Range")
            is_same = self.headers.get("If-Range") in {None, etag}
            if asked is None or fault.ignores_range or not is_same:
                return 200, 0, headers | {"Content-Length": str(len(content))}
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                return 416, 0, {"Content-Range": f"bytes */{len(content)}", "Content-Length": "0"}
            place = f"bytes {start}-{len(content) - 1}/{len(content)}"
            length = str(len(content) - start)
            return 206, start, headers | {"Content-Range": place, "Content-Length": length}

        def _send(self, status: int, body: bytes, headers: dict[str, str], fault: Fault) -> None:
            stop = fault.drop_after if fault.wait_after is None else fault.wait_after
            self._note(len(body[:stop]))  # first: a test looks as soon as it has the answer
            self._answer(status, body[:stop], headers)
            if fault.wait_after is not None:
                server.waits.set()
                server.released.wait(PATIENCE_S)
            if stop is not None:
                self.close_connection = True

        def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def _note(self, num_bytes: int) -> None:
            asked = {"range": self.headers.get("Range"), "if_range": self.headers.get("If-Range")}
            server.seen.append(Seen(path=self.path, num_bytes=num_bytes, **asked))

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the test looks at ``seen``."""

    return Handler


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: clients that go away are what the tests are about."""


@contextmanager
def serving() -> Iterator[FileServer]:
    """A server on a free port of this machine, for as long as the context lasts."""
    server = FileServer()
    http = _Quiet(("127.0.0.1", 0), _handler(server))
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        http.shutdown()
        thread.join()
        http.server_close()
