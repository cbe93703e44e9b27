"""The ledger keeps every acknowledged event, whatever kills its writer."""

import errno
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_bench.errors import LedgerError
from rl_bench.events import Evaluation, Event, Item, Note, RunEnd, RunFinished, SubmissionGraded
from rl_bench.ledger import TORN_TOPIC, Ledger, read_ledger, read_ledger_part

WRITER = """
import sys
from pathlib import Path
from rl_bench.events import Note
from rl_bench.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]))
while True:
    entry = ledger.append(Note(level="info", topic="t", message="x" * 20_000))
    print(entry.seq, flush=True)
"""


def note(message: str = "hello") -> Note:
    return Note(level="info", topic="t", message=message)


def messages(path: Path) -> list[str]:
    return [e.event.message for e in read_ledger(path) if isinstance(e.event, Note)]


def test_entries_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "r" / "ledger.jsonl"
    with Ledger(path) as ledger:
        written = [ledger.append(note(f"line {i}\nnext\r\u2028")) for i in range(5)]
    assert read_ledger(path) == written
    assert [e.seq for e in written] == [0, 1, 2, 3, 4]
    assert all(e.time_utc.endswith("+00:00") for e in written)


def test_elapsed_counts_from_opening(tmp_path: Path) -> None:
    now = [100.0]
    with Ledger(tmp_path / "l.jsonl", clock=lambda: now[0]) as ledger:
        now[0] = 102.5
        assert ledger.append(note()).elapsed_s == 2.5


def test_sequence_goes_on_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    for _ in range(3):
        with Ledger(path) as ledger:
            ledger.append(note())
    assert [e.seq for e in read_ledger(path)] == [0, 1, 2]


@pytest.mark.parametrize("torn", [b'{"seq":2,"time', b"\x00" * 30, b'{"seq": \n', b"\xff\xfe\n"])
def test_torn_last_line_is_cut_off_and_noted(
    tmp_path: Path, torn: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "l.jsonl"
    with Ledger(path) as ledger:
        ledger.append(note("a"))
        ledger.append(note("b"))
    with path.open("ab") as file:
        file.write(torn)
    assert messages(path) == ["a", "b"]
    assert "torn last line" in caplog.text
    with Ledger(path) as ledger:
        ledger.append(note("c"))
    entries = read_ledger(path)
    assert [e.seq for e in entries] == [0, 1, 2, 3]
    assert isinstance(entries[2].event, Note)
    assert entries[2].event.topic == TORN_TOPIC


def test_a_last_line_that_lacks_its_newline_was_never_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    with Ledger(path) as ledger:
        ledger.append(note("a"))
        ledger.append(note("b"))
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    assert messages(path) == ["a"]
    with Ledger(path) as ledger:
        ledger.append(note("c"))
    told, last = read_ledger(path)[1:]
    assert isinstance(told.event, Note)
    assert told.event.topic == TORN_TOPIC
    assert last.event == note("c")


def test_a_ledger_of_one_torn_line_opens_empty(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    path.write_bytes(b'{"seq":0,')
    assert read_ledger(path) == []
    with Ledger(path) as ledger:
        assert ledger.next_seq == 1
    assert len(read_ledger(path)) == 1


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (lambda lines: [lines[0], b"{oops\n", lines[2]], "line 2 is damaged"),
        (lambda lines: [lines[0], lines[2]], "line 2 has seq 2 where 1 belongs"),
        (lambda lines: [lines[0], lines[1].replace(b'"note"', b'"nte"'), lines[2]], "line 2"),
    ],
)
def test_damage_in_the_middle_is_refused(
    tmp_path: Path, broken: Callable[[list[bytes]], list[bytes]], says: str
) -> None:
    path = tmp_path / "l.jsonl"
    with Ledger(path) as ledger:
        for i in range(3):
            ledger.append(note(str(i)))
    path.write_bytes(b"".join(broken(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(LedgerError, match=says):
        read_ledger(path)


def test_a_last_line_of_another_version_is_refused_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    path.write_bytes(b'{"seq":0,"from":"the future"}\n')
    with pytest.raises(LedgerError, match="line 1"):
        Ledger(path)
    assert path.read_bytes() == b'{"seq":0,"from":"the future"}\n'


def test_missing_ledger_is_a_ledger_error(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="No such file"):
        read_ledger(tmp_path / "none.jsonl")


def test_second_writer_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    with Ledger(path), pytest.raises(LedgerError, match="has a writer already"):
        Ledger(path)
    Ledger(path).close()


def test_a_writer_that_is_about_to_end_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    first = Ledger(path)
    threading.Timer(0.3, first.close).start()
    with Ledger(path, wait_s=20) as second:
        assert second.append(note()).seq == 0


def test_reading_neither_needs_nor_frees_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    with Ledger(path) as ledger:
        ledger.append(note())
        read_ledger(path)
        with pytest.raises(LedgerError):
            Ledger(path)


def test_closed_ledger_refuses(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.jsonl")
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        ledger.append(note())


def test_threads_share_one_ledger(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    with Ledger(path) as ledger:

        def write(name: int) -> None:
            for i in range(25):
                ledger.append(note(f"{name}/{i}" + "y" * 5000))

        threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    entries = read_ledger(path)
    assert [e.seq for e in entries] == list(range(200))
    assert len(set(messages(path))) == 200


def test_reading_on_from_an_offset(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    with Ledger(path) as ledger:
        ledger.append(note("a"))
        first = read_ledger_part(path)
        ledger.append(note("b"))
        rest = read_ledger_part(path, offset=first.offset, next_seq=1)
    assert [e.seq for e in rest.entries] == [1]
    assert rest.offset == path.stat().st_size


def test_odd_numbers_and_strings_can_be_read_back(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    item = Item(
        item_id="a",
        status="ok",
        score=1.0,
        num_steps=1,
        num_tokens=1,
        duration_s=0.1,
        detail={"text": "bad \udc80 byte", "loss": math.nan},
    )
    evaluation = Evaluation(
        task="t",
        score=math.nan,
        num_items=1,
        num_errors=0,
        evaluator_version="1",
        metrics={"a": math.inf},
        items=(item,),
    )
    with Ledger(path) as ledger:
        ledger.append(SubmissionGraded(submission_id=1, evaluations=(evaluation,)))
    event = read_ledger(path)[0].event
    assert isinstance(event, SubmissionGraded)
    back = event.evaluations[0]
    assert back.score is not None
    assert math.isnan(back.score)
    assert back.metrics["a"] == math.inf
    assert back.items[0].detail["text"] == "bad ? byte"


def test_a_full_disk_leaves_the_ledger_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "l.jsonl"
    real_write = os.write

    def half_then_full(fd: int, data: bytes) -> int:
        if len(data) > 10_000:
            return real_write(fd, data[:4_000])
        if len(data) > 1_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(fd, data)

    with Ledger(path) as ledger:
        ledger.append(note("before"))
        monkeypatch.setattr("rl_bench.ledger.os.write", half_then_full)
        with pytest.raises(LedgerError, match="No space left"):
            ledger.append(note("z" * 12_000))
        ledger.append(note("after"))
    assert messages(path) == ["before", "after"]


def test_half_a_line_that_cannot_be_taken_back_stops_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int, rest: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    path = tmp_path / "l.jsonl"
    with Ledger(path) as ledger:
        ledger.append(note("before"))
        monkeypatch.setattr("rl_bench.ledger.os.write", fail)
        monkeypatch.setattr("rl_bench.ledger.os.ftruncate", fail)
        with pytest.raises(LedgerError, match="cannot write"):
            ledger.append(note("lost"))
        monkeypatch.undo()
        with pytest.raises(LedgerError, match="a line is half written"):
            ledger.append(note("after"))
    assert messages(path) == ["before"]


def test_without_its_reserve_a_full_disk_takes_not_even_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "l.jsonl"
    with Ledger(path) as ledger:
        path.with_suffix(".reserve").unlink()
        monkeypatch.setattr("rl_bench.ledger.os.write", full)
        with pytest.raises(LedgerError, match="No space left"):
            ledger.append(RunFinished(end=RunEnd.INFRA_ERROR))
    assert read_ledger(path) == []


def test_a_ledger_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where a folder belongs")
    with pytest.raises(LedgerError, match=r"cannot open ledger .*runs/r/ledger\.jsonl"):
        Ledger(tmp_path / "runs" / "r" / "ledger.jsonl")


def in_the_way(path: Path, what: str) -> None:
    path.parent.parent.mkdir(parents=True)
    if what == "a file as the run's folder":
        path.parent.touch()
        return
    path.parent.mkdir()
    if what == "a loop":
        path.symlink_to(path.name)
    elif what == "a folder":
        path.mkdir()
    elif what == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "what", ["a file as the run's folder", "a loop", "a folder", "a pipe", "a device"]
)
def test_what_is_in_a_ledgers_place_is_told_with_a_cure(tmp_path: Path, what: str) -> None:
    path = tmp_path / "runs" / "r" / "ledger.jsonl"
    in_the_way(path, what)
    for act, use in (("open", Ledger), ("read", read_ledger)):
        with pytest.raises(LedgerError, match=f"cannot {act} ledger {path}: ") as refused:
            use(path)
        assert "move the run's folder away" in refused.value.cure


@pytest.mark.parametrize("call", ["fsync", "ftruncate"])
def test_a_disk_that_refuses_at_the_opening_is_a_ledgers_error_and_holds_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*args: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    path = tmp_path / "r" / "l.jsonl"
    if call == "ftruncate":
        path.parent.mkdir()
        path.write_bytes(b"torn")
    monkeypatch.setattr(f"rl_bench.ledger.os.{call}", fail)
    with pytest.raises(LedgerError, match=r"cannot open ledger .*Input/output"):
        Ledger(path)
    monkeypatch.undo()
    Ledger(path).close()


def test_a_failed_fsync_stops_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with Ledger(tmp_path / "l.jsonl") as ledger:
        monkeypatch.setattr("rl_bench.ledger.os.fsync", fail)
        with pytest.raises(LedgerError, match="cannot sync"):
            ledger.append(note())
        monkeypatch.undo()
        with pytest.raises(LedgerError, match="takes no more events"):
            ledger.append(note())


def test_kill_9_at_any_moment_loses_no_acknowledged_event(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    rng = random.Random(0)
    acknowledged: list[int] = []
    for _ in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2])),
        )
        assert process.stdout is not None
        acknowledged.append(int(process.stdout.readline()))
        time.sleep(rng.uniform(0.0, 0.05))
        process.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in process.stdout.read().splitlines()]
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL
        assert {e.seq for e in read_ledger(path)} >= set(acknowledged)
    assert acknowledged == sorted(set(acknowledged))
    assert len(acknowledged) >= 8


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"time_utc":"2', b'"time_utc":"x2'),
        (b"+00:00", b""),
        (b'"type":"note"', b'"type":"of_another_version"'),
        (b'"level"', b'"of_another_version"'),
        (b'{"type"', b'{"a":' * 100_000 + b'{"type"'),
    ],
)
@pytest.mark.parametrize("line", [0, -1])
def test_lines_that_another_version_or_a_bad_disk_wrote_are_named(
    tmp_path: Path, old: bytes, new: bytes, line: int
) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        for topic in ("one", "two"):
            ledger.append(Note(level="info", topic=topic, message="m"))
    lines = path.read_bytes().splitlines(keepends=True)
    assert old in lines[line]
    lines[line] = lines[line].replace(old, new)
    path.write_bytes(b"".join(lines))

    with pytest.raises(LedgerError, match=f"line {line % 2 + 1} .*Move the run's folder away"):
        read_ledger(path)


def test_entries_read_without_items_differ_in_nothing_else(tmp_path: Path) -> None:
    marks = 'a "items":[ in words, an end ],"queue_s": and \\"items\\":[{'
    item = Item(
        item_id=marks,
        status="ok",
        score=1.0,
        num_steps=1,
        num_tokens=2,
        duration_s=0.5,
        detail={"items": marks, "],": "]"},
    )
    verdicts = [
        Evaluation(
            task=task,
            score=1.0,
            failure=marks,
            num_items=num,
            num_errors=0,
            evaluator_version="1",
            items=(item,) * num,
            queue_s=3.0,
        )
        for task, num in (("a", 2), ("b", 0), ("c", 1))
    ]
    events: list[Event] = [
        note(marks),
        SubmissionGraded(submission_id=1, evaluations=tuple(verdicts)),
    ]
    path = tmp_path / "l.jsonl"
    with Ledger(path) as ledger:
        written = [ledger.append(event) for event in events]
    bare = tuple(verdict.model_copy(update={"items": ()}) for verdict in verdicts)
    graded = written[1].model_copy(
        update={"event": SubmissionGraded(submission_id=1, evaluations=bare)}
    )
    assert read_ledger(path, with_items=False) == [written[0], graded]
    assert read_ledger_part(path, with_items=False).offset == path.stat().st_size
    assert read_ledger(path) == written
