"""Downloads: resumed from where they broke off, repeated when busy, refused when wrong."""

import hashlib
import random
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from rl_bench.data import room
from rl_bench.data.catalogue import Download
from rl_bench.data.fetch import Limits, fetch, make_client, partial_of
from rl_bench.errors import DataError
from tests.rl_bench.data.file_server import Fault, FileServer

CONTENT = random.Random(0).randbytes(200_000)
HALF = 100_000
LIMITS = Limits(connect_s=1.0, read_s=0.3, num_tries=3, backoff_s=0.01, max_wait_s=0.05)
Get = Callable[..., None]


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with make_client(LIMITS) as made:
        yield made


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "data" / "file.bin"


@pytest.fixture
def get(server: FileServer, client: httpx.Client, target: Path) -> Get:
    """Fetches ``/file.bin``, pinned unless told otherwise."""

    def act(*, sha256: str = digest(CONTENT), num_bytes: int | None = None) -> None:
        url = f"{server.url}/file.bin"
        download = Download(name="file.bin", url=url, sha256=sha256, num_bytes=num_bytes)
        fetch(
            download,
            target,
            url=url,
            client=client,
            limits=LIMITS,
            report=lambda _size, _total: None,
        )

    return act


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def leave_part(target: Path, content: bytes) -> None:
    target.parent.mkdir()
    partial_of(target).write_bytes(content)


def test_a_file_gets_its_name_when_it_is_complete(
    server: FileServer, get: Get, target: Path
) -> None:
    server.add("/file.bin", CONTENT)

    get()

    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("pin", [digest(CONTENT), ""])
def test_a_broken_connection_goes_on_and_no_byte_comes_twice(
    server: FileServer, get: Get, target: Path, pin: str
) -> None:
    server.add("/file.bin", CONTENT, Fault(drop_after=HALF), Fault(drop_after=1000))

    get(sha256=pin)

    assert target.read_bytes() == CONTENT
    assert [each.range for each in server.seen] == [None, "bytes=100000-", "bytes=101000-"]
    assert sum(each.num_bytes for each in server.seen) == len(CONTENT)
    assert server.seen[1].if_range is not None


def test_many_breaks_are_no_failure_while_each_brings_something(
    server: FileServer, get: Get, target: Path
) -> None:
    server.add("/file.bin", CONTENT, *[Fault(drop_after=20_000)] * 9)

    get()

    assert target.read_bytes() == CONTENT
    assert len(server.seen) == 10


def test_a_file_that_changed_meanwhile_is_begun_anew(
    server: FileServer, get: Get, target: Path
) -> None:
    server.add("/file.bin", CONTENT, *[Fault(drop_after=HALF), *[Fault(status=503)] * 3])
    with pytest.raises(DataError, match="HTTP 503"):
        get(sha256="")
    newer = CONTENT[::-1]
    server.add("/file.bin", newer)

    get(sha256="")

    assert server.seen[-1].if_range is not None
    assert target.read_bytes() == newer


def test_a_part_that_nothing_vouches_for_is_begun_anew(
    server: FileServer, get: Get, target: Path
) -> None:
    server.has_etags = False
    server.add("/file.bin", CONTENT, Fault(drop_after=HALF))

    get(sha256="")

    assert [each.range for each in server.seen] == [None, None]
    assert target.read_bytes() == CONTENT


def test_a_server_that_ignores_ranges_is_taken_as_it_is(
    server: FileServer, get: Get, target: Path
) -> None:
    server.add("/file.bin", CONTENT, Fault(drop_after=HALF), Fault(ignores_range=True))

    get()

    assert server.seen[1].num_bytes == len(CONTENT)
    assert target.read_bytes() == CONTENT


def test_another_range_than_asked_for_is_not_appended(
    server: FileServer, get: Get, target: Path
) -> None:
    wrong = {"Content-Range": f"bytes 5-{len(CONTENT) - 1}/{len(CONTENT)}"}
    server.add("/file.bin", CONTENT, Fault(drop_after=HALF), Fault(headers=wrong))

    get()

    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize(
    "faults",
    [
        (Fault(status=500), Fault(status=502)),
        (Fault(status=429, headers={"Retry-After": "3600"}),),
        (Fault(drop_after=0),),
    ],
)
def test_a_busy_server_is_asked_again(
    server: FileServer, get: Get, target: Path, faults: tuple[Fault, ...]
) -> None:
    server.add("/file.bin", CONTENT, *faults)

    get()

    assert target.read_bytes() == CONTENT
    assert len(server.seen) == len(faults) + 1


def test_a_part_whose_origin_cannot_be_read_is_fetched_anew(
    server: FileServer, get: Get, target: Path
) -> None:
    server.add("/file.bin", CONTENT)
    leave_part(target, CONTENT[:HALF])
    Path(f"{partial_of(target)}.json").write_text("[" * 100_000)
    get()
    assert target.read_bytes() == CONTENT


def test_a_server_that_stays_busy_is_given_up_and_the_part_kept(
    server: FileServer, get: Get, target: Path
) -> None:
    server.add("/file.bin", CONTENT, Fault(drop_after=HALF), *[Fault(status=503)] * 3)

    with pytest.raises(DataError, match="HTTP 503, 3 times in a row") as caught:
        get()

    assert f"{server.url}/file.bin" in caught.value.message
    assert "goes on from there" in caught.value.cure
    assert partial_of(target).stat().st_size == HALF
    server.seen.clear()
    get()
    assert [(each.range, each.num_bytes) for each in server.seen] == [("bytes=100000-", HALF)]
    assert target.read_bytes() == CONTENT


def test_a_server_that_falls_silent_is_given_up_in_time(server: FileServer, get: Get) -> None:
    server.add("/file.bin", CONTENT, *[Fault(wait_after=0)] * 3)

    started = time.monotonic()
    with pytest.raises(DataError, match="ReadTimeout"):
        get()

    assert time.monotonic() - started < 30


def test_a_truncated_file_is_not_taken_for_the_whole(
    server: FileServer, get: Get, target: Path
) -> None:
    server.add("/file.bin", CONTENT[:HALF])

    with pytest.raises(DataError, match=r"100000 bytes, 200000 expected"):
        get(num_bytes=len(CONTENT))

    assert not target.exists()
    assert not partial_of(target).exists()


def test_a_missing_file_is_asked_for_once(server: FileServer, get: Get) -> None:
    with pytest.raises(DataError, match="HTTP 404"):
        get()

    assert len(server.seen) == 1


def test_another_content_is_refused_with_both_digests(
    server: FileServer, get: Get, target: Path
) -> None:
    wrong = bytes(len(CONTENT))
    server.add("/file.bin", wrong)

    with pytest.raises(DataError, match="is another file") as caught:
        get()

    assert digest(wrong) in caught.value.message
    assert digest(CONTENT) in caught.value.message
    assert "mirror=" in caught.value.cure
    assert list(target.parent.iterdir()) == []


def test_a_spoilt_part_costs_one_more_download(server: FileServer, get: Get, target: Path) -> None:
    server.add("/file.bin", CONTENT)
    leave_part(target, b"x" * HALF)

    get()

    assert [each.range for each in server.seen] == ["bytes=100000-", None]
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize(("extra", "num_requests"), [(b"", 1), (b"x", 2)])
def test_a_part_that_is_all_or_more(
    server: FileServer, get: Get, target: Path, extra: bytes, num_requests: int
) -> None:
    server.add("/file.bin", CONTENT)
    leave_part(target, CONTENT + extra)

    get()

    assert len(server.seen) == num_requests
    assert target.read_bytes() == CONTENT


def test_a_web_page_is_not_the_file(server: FileServer, get: Get, target: Path) -> None:
    page = b"<html><head><title>Quota\n exceeded</title></head></html>"
    server.add("/file.bin", page, Fault(headers={"Content-Type": "text/html; charset=utf-8"}))

    with pytest.raises(DataError, match="a web page, 'Quota exceeded'"):
        get(sha256="")

    assert not target.exists()


def test_the_form_of_a_page_that_asks_to_confirm_is_followed(
    server: FileServer, get: Get, target: Path
) -> None:
    page = (
        b'<form id="download-form" action="/download" method="get">'
        b'<input type="hidden" name="id" value="a&amp;b"><input type="submit" value="Go">'
        b'<input type="hidden" name="confirm" value="t"></form><input name="other" value="x">'
    )
    html = {"Content-Type": "text/html"}
    server.add("/file.bin", page, Fault(headers=html), Fault(headers=html, ignores_range=True))
    server.add("/download?id=a%26b&confirm=t", CONTENT, Fault(drop_after=HALF))

    get()

    assert target.read_bytes() == CONTENT
    assert server.seen[-1].range == "bytes=100000-"


def test_a_full_disk_is_told_before_anything_is_fetched(
    server: FileServer, get: Get, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "SPARE_BYTES", 1 << 60)
    server.add("/file.bin", CONTENT)

    with pytest.raises(DataError, match="MiB free") as caught:
        get()

    assert "paths.data=" in caught.value.cure
    assert not target.exists()


def test_a_disk_that_fills_up_keeps_what_has_come(
    server: FileServer, get: Get, target: Path
) -> None:
    server.add("/file.bin", CONTENT)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (HALF, before[1]))
    try:
        with pytest.raises(DataError, match="File too large") as caught:
            get()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert "free some space" in caught.value.cure
    assert partial_of(target).stat().st_size == HALF
    server.seen.clear()
    get()
    assert server.seen[0].range == "bytes=100000-"
    assert target.read_bytes() == CONTENT
