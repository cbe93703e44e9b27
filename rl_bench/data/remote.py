"""Data from their public homes: which hosts answer, and what is had from them.

Each host is asked once, all at the same time and in threads of their own, because a name that does
not resolve can block for longer than any timeout of a client. What lies on a host that does not
answer is given up at once; the rest is fetched.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from rl_bench.data.catalogue import DataFile, Download
from rl_bench.data.fetch import (
    HostLostError,
    Limits,
    Report,
    fetch,
    make_client,
    partial_of,
)
from rl_bench.data.inventory import check_kind, new_record
from rl_bench.data.making import make
from rl_bench.data.records import Record, content_digest
from rl_bench.data.room import require_room
from rl_bench.errors import DataError

DOWNLOADS = "downloads"
"""Below the data folder: what other files are made from; gone when they are."""
PROBE_S = 4.0
USUAL_LIMITS = Limits()
_HUB = "https://huggingface.co"


def places(download: Download, *, mirror: str = "") -> list[str]:
    """The addresses of a download, its home first.

    Args:
        download: Which.
        mirror: Asked instead of all hosts; the path there is ``host/path``.
    """
    return [_mirrored(url, mirror) for url in (download.url, *download.copies)]


def _mirrored(url: str, mirror: str) -> str:
    if mirror:
        return f"{mirror.rstrip('/')}/{url.split('://', 1)[1]}"
    hub = os.environ.get("HF_ENDPOINT", "").rstrip("/")  # the variable that the hub's client reads
    return url.replace(_HUB, hub, 1) if hub else url


class Remote:
    """The public homes of a session's files.

    Args:
        downloads: All that may be wanted: their hosts are asked.
        mirror: See `places`.
    """

    def __init__(self, downloads: Iterable[Download], *, mirror: str = "") -> None:
        self._limits = USUAL_LIMITS
        self._mirror = mirror
        self._client = make_client(self._limits)
        urls = [url for each in downloads for url in places(each, mirror=mirror)]
        self.unreachable = unreachable_hosts(urls, client=self._client)

    def close(self) -> None:
        """Ends connections."""
        self._client.close()

    def get(
        self, file: DataFile, *, data: Path, progress: Callable[[str], Report]
    ) -> tuple[str, Record]:
        """Fetches a file, or makes it from what it fetches.

        Returns:
            The path below ``data`` and the record.

        Raises:
            DataError: It cannot be had; tells every place that was tried.
        """
        target = data / file.path
        if file.make is None:
            if target.is_dir():  # a reader's own folder, perhaps: not ours to remove
                check_kind(file, target)
            url = self._fetch(file.downloads[0], target, report=progress(file.path))
            return file.path, new_record(file, target, source=url)
        originals = {each.name: data / DOWNLOADS / each.name for each in file.downloads}
        urls = [
            self._fetch(each, originals[each.name], report=progress(each.name))
            for each in file.downloads
        ]
        make(file, originals, target)
        return file.path, new_record(file, target, source=" ".join(urls))

    def _fetch(self, download: Download, target: Path, *, report: Report) -> str:
        if _is_there(download, target):
            return places(download, mirror=self._mirror)[0]
        failures: list[DataError] = []
        for url in places(download, mirror=self._mirror):
            host = urlsplit(url).netloc
            if host in self.unreachable:
                failures.append(DataError(f"{host} does not answer ({self.unreachable[host]})"))
                continue
            try:
                fetch(
                    download,
                    target,
                    url=url,
                    client=self._client,
                    limits=self._limits,
                    report=report,
                )
                return url
            except HostLostError as error:
                self.unreachable[host] = "any more"
                failures.append(error)
            except DataError as error:
                failures.append(error)
        raise DataError(
            "; ".join(dict.fromkeys(error.message for error in failures)),
            cure=next((error.cure for error in failures if error.cure), ""),
        )


def _is_there(download: Download, target: Path) -> bool:
    """A download that other files are made from, and that an earlier one of them left."""
    return bool(target.is_file() and download.sha256 and content_digest(target) == download.sha256)


def unreachable_hosts(urls: Sequence[str], *, client: httpx.Client) -> dict[str, str]:
    """The hosts that do not answer within a few seconds, each with the reason.

    Any answer counts, an error's too: what a server says of a file is told when it is fetched.
    """
    first = {urlsplit(url).netloc: url for url in reversed(urls)}
    outcomes: dict[str, str] = {}
    threads = [
        threading.Thread(target=_probe, args=(url, host, client, outcomes), daemon=True)
        for host, url in first.items()
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + PROBE_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    answers = {host: outcomes.get(host, f"nothing within {PROBE_S:.0f} s") for host in first}
    return {host: reason for host, reason in answers.items() if reason}


def _probe(url: str, host: str, client: httpx.Client, outcomes: dict[str, str]) -> None:
    try:
        client.head(url, timeout=PROBE_S - 0.5)
        outcomes[host] = ""
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        outcomes[host] = str(error) or type(error).__name__
    except RuntimeError:  # the client was closed before the name resolved: nobody waits any more
        return


def room_wanted(files: Sequence[DataFile], *, data: Path) -> int:
    """Bytes that are still to be downloaded and made, as far as sizes are known."""
    wanted: Mapping[str, int] = {
        each.name: max(0, (each.num_bytes or 0) - _size(partial_of(_place(file, each, data))))
        for file in files
        for each in file.downloads
    }
    return sum(wanted.values()) + sum(file.made_bytes for file in files)


def _place(file: DataFile, download: Download, data: Path) -> Path:
    return data / file.path if file.make is None else data / DOWNLOADS / download.name


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def check_room(files: Sequence[DataFile], *, data: Path) -> None:
    """Raises `DataError` unless the disk holds what is to be downloaded and made."""
    require_room(data, room_wanted(files, data=data))
