"""A growing output file is followed to its end, through cuts of its middle, and never for ever."""

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_bench.agents import stream_watch
from rl_bench.agents.stream_watch import CUT_MARK, StreamWatch
from rl_bench.config import StreamRule
from rl_bench.events import AgentEvent
from rl_bench.process import supervisor
from rl_bench.process.agent_process import AgentProcess

RULES = (
    StreamRule(kind="message", when={"t": "m"}, text=("text",)),
    StreamRule(kind="result", when={"t": "r"}, text=("text",)),
)


def line(text: object, kind: str = "m") -> bytes:
    return json.dumps({"t": kind, "text": str(text)}).encode() + b"\n"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


class Told(list[AgentEvent]):
    """Receives events."""

    def texts(self) -> list[str]:
        return [event.text for event in self]


def watch(path: Path, told: Told, clock: Callable[[], float] = lambda: 0.0) -> StreamWatch:
    return StreamWatch(path, rules=RULES, budget_used_s=clock, on_event=told.append)


def test_events_are_told_in_order_with_their_time(tmp_path: Path) -> None:
    path, told, now = tmp_path / "out", Told(), [1.0]
    with watch(path, told, lambda: now[0]) as watching:
        watching.poll()  # not there yet
        append(path, line("a") + line("b")[:5])
        watching.poll()
        now[0] = 2.0
        append(path, line("b")[5:] + line("end", "r").rstrip())
        watching.poll()
        assert not watching.saw_result
    assert told.texts() == ["a", "b", "end"]
    assert [event.budget_used_s for event in told] == [1.0, 2.0, 2.0]
    assert watching.saw_result


def test_the_thread_reads_what_a_process_writes(tmp_path: Path) -> None:
    path, told = tmp_path / "out", Told()
    script = 'for i in $(seq 50); do echo "{\\"t\\": \\"m\\", \\"text\\": \\"$i\\"}"; done'
    with watch(path, told):
        agent = AgentProcess.start(
            ("bash", "-c", script),
            env={"PATH": "/usr/bin:/bin"},
            cwd=tmp_path,
            stdout=path,
            stderr=tmp_path / "err",
        )
        assert agent.wait(remaining_s=lambda: 30.0, grace_s=1.0).exit_code == 0
    assert told.texts() == [str(i) for i in range(1, 51)]


def test_the_output_of_an_earlier_attempt_is_not_told(tmp_path: Path) -> None:
    path, told = tmp_path / "out", Told()
    append(path, line("old") * 1000)
    with watch(path, told):
        append(path, line("new"))
    assert told.texts() == ["new"]


def test_the_final_event_counts_while_it_is_the_last_word(tmp_path: Path) -> None:
    path, told = tmp_path / "out", Told()
    watching = watch(path, told)
    append(path, line("done", "r"))
    watching.poll()
    assert watching.since_result_s is not None
    time.sleep(0.05)
    assert watching.since_result_s >= 0.05
    append(path, line("and on"))
    watching.poll()
    assert watching.since_result_s is None
    append(path, line("done again", "r"))
    watching.poll()
    watching.forget_result()
    assert watching.since_result_s is None
    assert watching.saw_result
    watching.close()


@pytest.mark.parametrize("num_read", [0, 1, 250, 900, 1000])
def test_a_cut_in_the_middle_loses_only_what_was_cut(tmp_path: Path, num_read: int) -> None:
    path, told = tmp_path / "out", Told()
    watching = watch(path, told)
    size = len(line("0000"))
    append(path, b"".join(line(f"{i:04}") for i in range(num_read)))
    watching.poll()
    append(path, b"".join(line(f"{i:04}") for i in range(num_read, 1000)))

    supervisor._cut(str(path), 800 * size)  # keeps 400 of the head and the newest 200
    append(path, line("after"))
    watching.close()

    head = [f"{i:04}" for i in range(max(400, num_read) if num_read < 400 else num_read)]
    tail = [f"{i:04}" for i in range(max(800, num_read), 1000)]
    assert [text for text in told.texts() if text != "after"] == head + tail
    assert told.texts()[-1] == "after"


def test_the_mark_of_a_cut_is_the_supervisors(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"x" * 1000)
    supervisor._cut(str(path), 800)
    assert CUT_MARK in path.read_bytes()


def test_a_cut_that_leaves_nothing_known_is_passed_over(tmp_path: Path) -> None:
    path, told = tmp_path / "out", Told()
    watching = watch(path, told)
    append(path, line("a") * 100)
    watching.poll()
    path.write_bytes(line("other") * 3)
    for _ in range(stream_watch.MAX_LOST_POLLS + 1):
        watching.poll()
    append(path, line("later"))
    watching.close()
    assert told.texts() == ["a"] * 100 + ["later"]


def test_cuts_while_it_grows(tmp_path: Path) -> None:
    path, told = tmp_path / "out", Told()
    limit = 200_000
    stop = threading.Event()

    def cut_often() -> None:
        while not stop.wait(0.002):
            if path.exists() and path.stat().st_size > limit:
                supervisor._cut(str(path), limit)

    cutting = threading.Thread(target=cut_often)
    watching = watch(path, told)
    cutting.start()
    for i in range(20_000):
        append(path, line(f"{i:06}"))
        if i % 50 == 0:
            watching.poll()
    stop.set()
    cutting.join()
    append(path, line("end", "r"))
    watching.close()

    assert watching.saw_result
    assert told.texts()[-1] == "end"
    numbers = [int(text) for text in told.texts() if text.isdigit()]
    assert numbers == sorted(set(numbers))
    assert watching.num_events + watching.num_dropped > 2_000


def test_a_flood_is_told_up_to_a_limit_and_its_end_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_watch, "MAX_EVENTS", 10)
    monkeypatch.setattr(stream_watch, "MAX_LATE_RESULTS", 2)
    path, told = tmp_path / "out", Told()
    with watch(path, told) as watching:
        append(path, line("m") * 100 + line("r", "r") * 5)
    assert told.texts() == ["m"] * 10 + ["r"] * 2
    assert watching.num_dropped == 93


def test_a_link_or_a_pipe_in_its_place_is_not_read(tmp_path: Path) -> None:
    told = Told()
    (tmp_path / "secret").write_bytes(line("secret"))
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with watch(tmp_path / name, told) as watching:
            watching.poll()
    assert told == []


def test_without_rules_nothing_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"")
    with StreamWatch(path, rules=(), budget_used_s=lambda: 0.0, on_event=print) as watching:
        append(path, line("a"))
    assert watching.num_events == 0


class LedgerFull(Exception):  # noqa: N818  as the ledger names it
    """Stands for a ledger that cannot be written."""


def test_what_the_receiver_raises_is_raised_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out"

    def refuse(event: AgentEvent) -> None:
        raise LedgerFull

    watching = StreamWatch(path, rules=RULES, budget_used_s=lambda: 0.0, on_event=refuse)
    watching.start()
    append(path, line("a"))
    time.sleep(3 * stream_watch.POLL_S)
    with pytest.raises(LedgerFull):
        watching.close()
    watching.close()


def test_a_flood_of_events_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once all events are told only the last word matters, however much stands before it."""
    monkeypatch.setattr(stream_watch, "MAX_EVENTS", 10)
    monkeypatch.setattr(stream_watch, "MAX_BACKLOG_BYTES", 100_000)
    path, told = tmp_path / "out", Told()
    with watch(path, told) as watching:
        append(path, line("x") * 20)
        watching.poll()
        append(path, line("x") * 300_000 + line("end", "r"))
    assert told.texts() == [*["x"] * 10, "end"]
    assert watching.num_dropped < 100_000  # of as many bytes, and what one read may hold
    assert watching.since_result_s is not None


def test_an_output_that_takes_too_long_at_the_end_is_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_watch, "CLOSE_S", 0.0)
    monkeypatch.setattr(stream_watch, "MAX_BACKLOG_BYTES", 1000)
    path, told = tmp_path / "out", Told()
    watching = watch(path, told)
    append(path, b"{}\n" * 2_000_000 + line("end", "r"))
    began = time.monotonic()
    watching.close()
    assert time.monotonic() - began < 30
    assert told.texts() == ["end"]
