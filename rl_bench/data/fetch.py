"""One download over HTTP: resumed where it broke off, repeated a bounded number of times, verified.

Bytes go to ``<file>.partial`` as they arrive, so that whatever ends the process leaves a download
that the next one continues; ``<file>.partial.json`` remembers what they are a part of. A part is
continued only if the server says that it still has the same file (``If-Range``), or if the digest
of the whole is pinned. The file gets its name only when it is complete and its digest is right.
"""

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from rl_bench import __version__
from rl_bench.data.catalogue import Download
from rl_bench.data.records import file_digest
from rl_bench.data.room import disk_errors, require_room
from rl_bench.data.web_page import follow_form, title_of
from rl_bench.errors import DataError

_BUSY = frozenset({408, 425, 429})
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")
Report = Callable[[int, int | None], None]
"""Told the bytes there, and the whole when it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a download may take without getting on. All in seconds but ``num_tries``.

    Attributes:
        connect_s: To connect.
        read_s: Without a byte.
        num_tries: Requests in a row that bring no new byte.
        backoff_s: Wait after the first of them; it doubles with each.
        max_wait_s: The longest wait, also when a server asks for more.
    """

    connect_s: float = 3.0
    read_s: float = 20.0
    num_tries: int = 5
    backoff_s: float = 1.0
    max_wait_s: float = 30.0


def make_client(limits: Limits) -> httpx.Client:
    """A client with these limits; it takes proxies from the environment."""
    return httpx.Client(
        timeout=httpx.Timeout(limits.read_s, connect=limits.connect_s),
        follow_redirects=True,
        headers={"User-Agent": f"rl_bench/{__version__}", "Accept-Encoding": "identity"},
    )


def partial_of(target: Path) -> Path:
    """Where the bytes of an unfinished download lie."""
    return target.with_name(target.name + ".partial")


def fetch(
    download: Download,
    target: Path,
    *,
    url: str,
    client: httpx.Client,
    limits: Limits,
    report: Report,
) -> None:
    """Fetches a file, or the rest of it.

    Args:
        download: What is fetched, with its digest if one is pinned.
        target: Its place; the folder is made.
        url: Where from: the home, a copy, or a mirror of them.
        client: See `make_client`.
        limits: When to give up.
        report: Told of every piece.

    Raises:
        HostLostError: The host stopped answering; what has come is kept for the next time.
        DataError: It cannot be had, or is another file.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    transfer = _Transfer(download, target, url=url, client=client, report=report)
    with disk_errors(target):
        _until_complete(transfer, limits)
        if not transfer.is_right() and transfer.has_resumed:
            transfer.discard()
            _until_complete(transfer, limits)
        transfer.finish()


class HostLostError(DataError):
    """A host stopped answering; its other files need not be asked for."""


class _AgainError(Exception):
    """This request failed, the next may not."""

    def __init__(self, reason: str, *, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


def _until_complete(transfer: "_Transfer", limits: Limits) -> None:
    most, tries = transfer.size, 0
    while True:
        try:
            transfer.request()
            return
        except _AgainError as error:
            tries = 0 if transfer.size > most else tries + 1
            most = max(most, transfer.size)
            if tries >= limits.num_tries:
                is_lost = isinstance(error.__cause__, httpx.TransportError)
                raise (HostLostError if is_lost else DataError)(
                    f"{transfer.url}: {error}, {tries} times in a row",
                    cure="What has come is kept: the same command goes on from there",
                ) from error
            backoff = limits.backoff_s * 2.0 ** max(0, tries - 1)
            time.sleep(min(error.wait_s or backoff, limits.max_wait_s))


class _Transfer:
    """A download's bytes on the disk, and the requests that add to them."""

    def __init__(
        self,
        download: Download,
        target: Path,
        *,
        url: str,
        client: httpx.Client,
        report: Report,
    ) -> None:
        self.url = url
        self.has_resumed = False
        self._download = download
        self._target = target
        self._client = client
        self._report = report
        self._partial = partial_of(target)
        self._about = self._partial.with_name(self._partial.name + ".json")

    @property
    def size(self) -> int:
        """Bytes there."""
        return self._partial.stat().st_size if self._partial.exists() else 0

    def discard(self) -> None:
        """Forgets what is there."""
        self._partial.unlink(missing_ok=True)
        self._about.unlink(missing_ok=True)
        self.has_resumed = False

    def request(self) -> None:
        """Asks for the file, or the rest of it, and takes what comes.

        Raises:
            _AgainError: It broke off, or the server is busy.
            DataError: Asking again would not help.
        """
        headers = self._range()
        try:
            with self._client.stream("GET", self.url, headers=headers) as response:
                if not _is_page(response):
                    self._take(response, is_rest="Range" in headers)
                    return
                form = follow_form(response.read().decode(errors="replace"), str(response.url))
            if form is None:
                raise DataError(f"{self.url} answers with a web page, '{title_of(response.text)}'")
            with self._client.stream("GET", form, headers=headers) as response:
                if _is_page(response):
                    raise DataError(f"{self.url} answers with a web page even when confirmed")
                self._take(response, is_rest="Range" in headers)
        except httpx.TransportError as error:
            raise _AgainError(_told(error)) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise DataError(f"{self.url}: {_told(error)}") from error

    def is_right(self) -> bool:
        """Whether the bytes have the pinned digest, if there is one."""
        pinned = self._download.sha256
        return not pinned or file_digest(self._partial) == pinned

    def finish(self) -> None:
        """Gives the complete file its name.

        Raises:
            DataError: It has another digest than the pinned one; it is not kept.
        """
        if not self.is_right():
            found, num_bytes = file_digest(self._partial), self.size
            self.discard()
            raise DataError(
                f"{self._download.name} from {self.url} is another file: {num_bytes} bytes with "
                f"SHA-256 {found}, {self._download.sha256} is pinned",
                cure="It was changed at its source or on the way: try again, or another mirror=",
            )
        with self._partial.open("rb") as stream:
            os.fsync(stream.fileno())
        self._partial.replace(self._target)
        self._about.unlink(missing_ok=True)

    def _range(self) -> dict[str, str]:
        """Headers that ask for the rest, if what is there can be trusted to be its beginning."""
        about = self._read_about()
        validator = about.get("validator", "") if about.get("url") == self.url else ""
        if not self.size or not (validator or self._download.sha256):
            return {}
        rest = {"Range": f"bytes={self.size}-"}
        return rest | {"If-Range": validator} if validator else rest

    def _read_about(self) -> dict[str, str]:
        try:
            return {str(k): str(v) for k, v in json.loads(self._about.read_bytes()).items()}
        except (OSError, ValueError, AttributeError, RecursionError):
            return {}

    def _take(self, response: httpx.Response, *, is_rest: bool) -> None:
        status = response.status_code
        if status == 416 and is_rest:
            if response.headers.get("Content-Range", "").endswith(f"*/{self.size}"):
                return  # nothing was missing but the end of the answer
            self.discard()
            raise _AgainError("the part on the disk is longer than the file")
        if status in _BUSY or status >= 500:
            raise _AgainError(f"HTTP {status}", wait_s=_retry_after(response))
        if status not in {200, 206}:
            raise DataError(f"{self.url}: HTTP {status} {response.reason_phrase}")
        total = self._place(response) if status == 206 else self._restart(response)
        self._check_size(total)
        self._append(response, total=total)

    def _place(self, response: httpx.Response) -> int:
        """Checks that the answer begins where the part ends; returns the whole size."""
        found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != self.size:
            self.discard()
            raise _AgainError("the answer is another range than was asked for")
        self.has_resumed = True
        return int(found[2])

    def _restart(self, response: httpx.Response) -> int | None:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise DataError(f"{self.url} is sent compressed although asked not to be")
        self.discard()
        validator = response.headers.get("ETag", "")
        if not validator or validator.startswith("W/"):  # a weak one says nothing of the bytes
            validator = response.headers.get("Last-Modified", "")
        self._about.write_text(json.dumps({"url": self.url, "validator": validator}))
        length = response.headers.get("Content-Length")
        return int(length) if length and length.isdecimal() else None

    def _check_size(self, total: int | None) -> None:
        wanted = self._download.num_bytes
        if total is not None and wanted is not None and total != wanted:
            self.discard()
            raise DataError(
                f"{self._download.name} from {self.url} is another file: {total} bytes, "
                f"{wanted} expected",
                cure="It was changed at its source or on the way: try again, or another mirror=",
            )
        require_room(self._target.parent, max(0, (total or wanted or 0) - self.size))

    def _append(self, response: httpx.Response, *, total: int | None) -> None:
        size = self.size
        self._report(size, total)
        # Unbuffered: what has arrived outlives this process, however it ends.
        with self._partial.open("ab", buffering=0) as out:
            for chunk in response.iter_raw():
                out.write(chunk)
                size += len(chunk)
                self._report(size, total)
        if total is not None and size != total:
            raise _AgainError(f"it broke off after {size} of {total} bytes")


def _is_page(response: httpx.Response) -> bool:
    """A page where a file was asked for: a question, a login, a quota; never the file."""
    return response.is_success and response.headers.get("Content-Type", "").startswith("text/html")


def _retry_after(response: httpx.Response) -> float | None:
    asked = response.headers.get("Retry-After", "")
    return float(asked) if asked.isdecimal() else None


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
