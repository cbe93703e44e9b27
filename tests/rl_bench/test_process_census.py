"""The census of an agent's processes: what ran, for how long, and nothing of anyone else."""

import sys
import time
from pathlib import Path
from typing import get_args

import pytest

from rl_bench.events import ProcessSeen
from rl_bench.process import census
from rl_bench.process.census import Census
from tests.rl_bench.cage import Cage, Kind, finish, make_cage

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(params=get_args(Kind))
def cage(request: pytest.FixtureRequest, tmp_path: Path) -> Cage:
    return make_cage(tmp_path, request.param)


def test_what_ran_for_a_while_is_told(cage: Cage) -> None:
    script = f"true; sleep 0.1; sleep 3 & {sys.executable} -c '{BURN}' train {'x' * 1000}; wait"
    seen: list[ProcessSeen] = []
    begin = time.monotonic()
    agent = cage.start("sh", "-c", script)
    with Census(
        agent.supervisor_pid,
        ignore=agent.wrapper_pids,
        used_s=lambda: time.monotonic() - begin,
        on_seen=seen.append,
    ):
        assert finish(agent).exit_code == 0
    by_program = {Path(process.argv[0]).name: process for process in seen}
    assert set(by_program) == {"sh", "sleep", Path(sys.executable).name}
    assert len(seen) == 3
    burning = by_program[Path(sys.executable).name]
    assert burning.argv[-2] == "train"
    assert len(burning.argv[-1]) == census.MAX_WORD_CHARS + 1
    assert burning.cpu_s > 0.3
    assert burning.max_rss_bytes > 50_000_000
    assert 1.0 <= burning.duration_s < 60
    assert 0 <= burning.began_s < 60
    shell = by_program["sh"]
    assert shell.pid == agent.pid
    assert by_program["sleep"].parent_pid == shell.pid
    assert by_program["sleep"].duration_s >= 1


BURN = """
import time
held = bytearray(60_000_000)
end = time.monotonic() + 2.6
while time.monotonic() < end: pass
"""


def test_those_that_live_to_the_end_and_too_many(
    cage: Cage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(census, "MIN_AGE_S", 0.0)
    seen: list[ProcessSeen] = []
    agent = cage.start("sh", "-c", "for i in 1 2 3 4 5; do sleep 60 & done; wait")
    counted = Census(
        agent.supervisor_pid,
        ignore=agent.wrapper_pids,
        used_s=lambda: 5.0,
        on_seen=seen.append,
        max_records=4,
    )
    deadline = time.monotonic() + 10
    while len(counted._living) < 6 and time.monotonic() < deadline:
        counted.look()
    assert seen == []
    agent.stop(grace_s=0.0)
    counted.close()
    assert len(seen) == 4
    assert counted.num_left_out == 2
    counted.close()
    assert len(seen) == 4


def test_a_shell_that_becomes_a_program_is_that_program(cage: Cage) -> None:
    seen: list[ProcessSeen] = []
    agent = cage.start("sh", "-c", "sleep 0.2; exec sleep 2")
    with Census(
        agent.supervisor_pid,
        ignore=agent.wrapper_pids,
        used_s=lambda: 0.0,
        on_seen=seen.append,
    ):
        finish(agent)
    assert [process.argv for process in seen] == [("sleep", "2")]


def test_without_an_agent_there_is_nothing() -> None:
    seen: list[ProcessSeen] = []
    with Census(0, used_s=lambda: 0.0, on_seen=seen.append) as counted:
        counted.look()
    assert seen == []
