"""What the driver gateway adds to a call: the same calls with and without it, in turns, in one run.

``python -m benchmarks.gateway_overhead [--calls 200] [--streams 50] [--megabytes 64]`` asks a local
provider that answers at once, so that all that differs is the gateway. Provider, gateway and client
are a process each. A language model takes seconds where this one takes none: the milliseconds are
what matters, the ratios are the worst case.
"""

import argparse
import asyncio
import http.client
import json
import multiprocessing
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.types import Receive, Scope, Send

from rl_bench.config import Api, DriverConfig
from rl_bench.gateway.gateway import Gateway
from rl_bench.local_server import LocalServer

PIECES = 200
DELTA = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "word " * 4}}
USAGE = {"input_tokens": 9, "output_tokens": 9}
SSE = [(b"content-type", b"text/event-stream")]


def event(item: Mapping[str, object]) -> bytes:
    """One server-sent event."""
    return f"event: {item['type']}\ndata: {json.dumps(item)}\n\n".encode()


class Provider:
    """Answers as its request's ``kind`` asks: ``short``, ``stream`` or ``large``."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Plays one answer."""
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        asked = json.loads(body)
        await send({"type": "http.response.start", "status": 200, "headers": SSE})
        for data in self._pieces(asked["kind"], asked.get("megabytes", 0)):
            await send({"type": "http.response.body", "body": data, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _pieces(self, kind: str, megabytes: int) -> list[bytes]:
        first = event({"type": "message_start", "message": {"usage": USAGE}})
        middle = {"short": [], "stream": [event(DELTA)] * PIECES, "large": []}[kind]
        if kind == "large":
            middle = [b": " + b"x" * (1024 * 1024 - 4) + b"\n\n"] * megabytes
        last = event({"type": "message_delta", "usage": USAGE}), event({"type": "message_stop"})
        return [first, *middle, *last]


def serve_provider(pipe: Connection) -> None:
    """A process's work: serves until told to end."""
    with LocalServer("provider") as server:
        server.start(Provider())
        pipe.send(server.url)
        pipe.recv()


def serve_gateway(pipe: Connection, base_url: str) -> None:
    """A process's work: a gateway before ``base_url`` until told to end."""
    driver = DriverConfig(name="d", api=Api.ANTHROPIC, model_id="m", base_url=base_url)
    gateway = Gateway(
        driver,
        api=Api.ANTHROPIC,
        base_url=base_url,
        key="sk-benchmark-0123456789",
        used_s=time.monotonic,
        on_call=lambda call: None,
    )
    with gateway:
        pipe.send(gateway.url)
        pipe.recv()


class Took(NamedTuple):
    """Of one call: seconds to the first byte of the body and to the last, and its length."""

    first_s: float
    total_s: float
    num_bytes: int


class Client:
    """Calls one base URL over one connection."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._path = f"{parts.path}/v1/messages"
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port)

    def call(self, kind: str, **fields: int) -> Took:
        """Asks once and reads to the end."""
        body = json.dumps({"model": "m", "kind": kind, **fields})
        began = time.perf_counter()
        self._connection.request("POST", self._path, body, {"x-api-key": "dummy"})
        answer = self._connection.getresponse()
        num_bytes = len(answer.read1(65536))
        first_s = time.perf_counter() - began
        while data := answer.read1(1 << 20):
            num_bytes += len(data)
        return Took(first_s, time.perf_counter() - began, num_bytes)

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()


def in_turns(urls: list[str], rounds: int, ask: Callable[[Client], Took]) -> list[list[Took]]:
    """The same calls to each URL, one round after the other, so that noise meets all alike."""
    clients = [Client(url) for url in urls]
    for client in clients:
        ask(client)  # connections stand, code is loaded
    took = [[ask(client) for client in clients] for _ in range(rounds)]
    for client in clients:
        client.close()
    return [list(column) for column in zip(*took, strict=True)]


def show(what: str, direct: list[float], through: list[float], *, unit: str = "ms") -> None:
    """One line: medians, their difference and ratio."""
    a, b = statistics.median(direct), statistics.median(through)
    sys.stdout.write(
        f"{what:42s} direct {a:9.2f} {unit}   gateway {b:9.2f} {unit}   "
        f"difference {b - a:+8.2f}   ratio {b / a:5.2f}\n"
    )


def streams_at_once(url: str, number: int) -> float:
    """Seconds until as many streams have ended, all begun together."""
    ready = threading.Barrier(number + 1)

    def one() -> None:
        client = Client(url)
        ready.wait()
        client.call("stream")
        client.close()

    with ThreadPoolExecutor(number) as pool:
        running = [pool.submit(one) for _ in range(number)]
        ready.wait()
        began = time.perf_counter()
        for each in running:
            each.result()
        return time.perf_counter() - began


def measure(urls: list[str], words: argparse.Namespace) -> None:
    """Prints all measures; ``urls`` are the provider's and the gateway's."""
    short = in_turns(urls, words.calls, lambda client: client.call("short"))
    show("a short answer, to the first byte", *([t.first_s * 1e3 for t in each] for each in short))
    show("a short answer, to the last byte", *([t.total_s * 1e3 for t in each] for each in short))
    stream = in_turns(urls, max(3, words.calls // 10), lambda client: client.call("stream"))
    show(
        f"a piece of a stream of {PIECES}",
        *([(t.total_s - t.first_s) * 1e3 / PIECES for t in each] for each in stream),
    )
    size = words.megabytes
    large = in_turns(urls, 3, lambda client: client.call("large", megabytes=size))
    rates = ([t.num_bytes / t.total_s / 1e6 for t in each] for each in large)
    show(f"an answer of {size} MiB", *rates, unit="MB/s")
    both = [[streams_at_once(url, words.streams) for url in urls] for _ in range(3)]
    pieces = words.streams * PIECES
    rates = ([pieces / took for took in each] for each in zip(*both, strict=True))
    show(f"{words.streams} streams at once", *rates, unit="pieces/s")


def main() -> int:
    """Starts provider and gateway, and measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--megabytes", type=int, default=64)
    words = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    urls: list[str] = []
    started = []
    for work in (serve_provider, serve_gateway):
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs, *urls), daemon=True)
        process.start()
        urls.append(ours.recv())
        started.append((process, ours))
    measure(urls, words)
    for process, pipe in reversed(started):
        pipe.send(None)
        process.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
