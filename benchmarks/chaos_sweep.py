"""A live sweep to do harm to: its driver, its processes by what they are, and what is left of them.

Every process of a sweep carries the path of its root folder: in its environment, since results lie
below, or on its command line. Processes are also remembered as they appear below the driver, since
Ray's change their titles and may overwrite both. Only these are ever signalled.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from rl_bench.paths import SweepPaths

CHECKOUT = Path(__file__).resolve().parents[1]
AGENT = Path(__file__).with_name("chaos_agent.py")
KINDS: Mapping[str, str] = {
    "grader": r"ray::Grader(\.|$| )",
    "engine": r"VLLM::",
    "worker": r"ray::RolloutWorker\b",
    "run": r"ray::RunActor\b",
    "recorder": r"ray::Recorder\b",
    "pool": r"ray::GraderPool\b",
    "raylet": r"\S*/raylet ",
    "gcs": r"\S*/gcs_server ",
    "supervisor": r"\S*python\S* .*rl_bench[/.]process[/.]supervisor",
    "agent": rf"\S*python\S* {re.escape(str(AGENT))}",
}
"""What a process is, by how its command line begins."""
LOOK_S = 0.5
"""A look costs a tenth of a second of CPU."""
GONE_S = 60.0
"""Processes of a sweep that has ended are gone by then."""


@dataclass(slots=True)
class Census:
    """The processes of all sweeps below ``root``, present and past.

    Attributes:
        sockets: Inodes of the sockets on which they listened.
    """

    root: Path
    seen: dict[int, psutil.Process] = field(default_factory=dict)
    sockets: set[int] = field(default_factory=set)

    def look(self, *drivers: int) -> None:
        """Takes note of what runs now; ``drivers`` have children that may carry no mark."""
        found = self._marked()
        for pid in drivers:
            with suppress(psutil.Error):
                found += psutil.Process(pid).children(recursive=True)
        for process in found:
            self.seen.setdefault(hash(process), process)
        listening = _listening()
        for process in self.alive():
            self.sockets |= _sockets(process.pid) & listening

    def alive(self, kind: str = "") -> list[psutil.Process]:
        """Those that live, of one of `KINDS` or all."""
        living = [process for process in self.seen.values() if lives(process)]
        return [p for p in living if re.match(KINDS[kind], title(p))] if kind else living

    def left_after(self, limit_s: float = GONE_S) -> list[str]:
        """What still runs or listens ``limit_s`` after the end; returns sooner when all is gone."""
        deadline = time.monotonic() + limit_s
        while True:
            self.look()
            left = [f"process {p.pid}: {title(p)[:150]}" for p in self.alive()]
            left += [f"listening socket {inode}" for inode in self.sockets & _listening()]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.3)

    def end_all(self) -> None:
        """Kills whatever is left."""
        self.look()
        for process in self.alive():
            with suppress(psutil.Error):
                process.kill()

    def _marked(self) -> list[psutil.Process]:
        mark, found = str(self.root).encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            pid = int(folder.name)
            with suppress(OSError, psutil.Error):
                text = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
                if mark in text and pid != os.getpid():
                    found.append(psutil.Process(pid))
        return found


def lives(process: psutil.Process) -> bool:
    """Whether it runs: no zombie, and no other process of its number."""
    with suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def title(process: psutil.Process) -> str:
    """Its command line; empty once it is gone."""
    with suppress(psutil.Error):
        return " ".join(process.cmdline()).strip()
    return ""


def _sockets(pid: int) -> set[int]:
    inodes = set()
    with suppress(OSError):
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError, ValueError):
                target = str(fd.readlink())
                if target.startswith("socket:["):
                    inodes.add(int(target[8:-1]))
    return inodes


def _listening() -> set[int]:
    """Inodes of this machine's listening TCP sockets."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A":
                    inodes.add(int(words[9]))
    return inodes


class LiveSweep:
    """One sweep's command, started as often as it takes.

    Args:
        root: The folder of results, answers and logs; short, for sockets may lie below.
        name: The sweep's.
        overrides: More of them.
        environment: Of the command, beside this process's own.
        module: The command's.

    Attributes:
        census: Shared by all sweeps below ``root``.
        num_starts: How often the command was given.
    """

    def __init__(
        self,
        root: Path,
        name: str,
        *,
        census: Census,
        overrides: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        module: str = "rl_bench.sweep",
    ) -> None:
        self.root, self.name, self.census = root, name, census
        self.paths = SweepPaths(root / "results" / name)
        self.answers = root / "answers" / name
        self.log = root / f"{name}.log"
        self.num_starts = 0
        self._module = module
        self._overrides = tuple(overrides)
        self._environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "RL_BENCH_RESULTS": str(root / "results"),
            **(environment or {}),
        }
        self._driver: subprocess.Popen[bytes] | None = None

    def command(self, *more: str) -> list[str]:
        """What a user would type."""
        return [
            *(sys.executable, "-m", self._module),
            *self._overrides,
            *(f"sweep.name={self.name}", f"paths.results={self.root / 'results'}"),
            *more,
        ]

    def start(self, *more: str) -> None:
        """Gives the command, with the log appended."""
        assert self.exit_code is not None or self._driver is None, "it runs"
        self.num_starts += 1
        with self.log.open("ab") as log:
            self._driver = subprocess.Popen(
                self.command(*more),
                cwd=CHECKOUT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def second_driver(
        self, *more: str, limit_s: float = 120.0
    ) -> "subprocess.CompletedProcess[str]":
        """Gives the command beside the one that runs; waits for its end."""
        return subprocess.run(
            self.command(*more),
            cwd=CHECKOUT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )

    @property
    def exit_code(self) -> int | None:
        """Of the last command; None while it runs, or before the first."""
        return None if self._driver is None else self._driver.poll()

    @property
    def is_running(self) -> bool:
        """Whether a driver is at work."""
        return self._driver is not None and self._driver.poll() is None

    def look(self) -> None:
        """Has the census take note of this sweep's processes."""
        self.census.look(*([self._driver.pid] if self._driver and self.is_running else []))

    def signal_driver(self, number: signal.Signals) -> None:
        """Sends the driver a signal; it, and nothing of what it started."""
        self.look()
        if self._driver is not None and self.is_running:
            self._driver.send_signal(number)

    def wait(self, *, limit_s: float) -> int:
        """The exit code of the command; it is killed when it takes longer.

        Raises:
            TimeoutError: It did not end.
        """
        assert self._driver is not None
        deadline = time.monotonic() + limit_s
        while self.is_running:
            self.look()
            if time.monotonic() > deadline:
                self._driver.kill()
                self._driver.wait()
                raise TimeoutError(f"{self.name} did not end within {limit_s:.0f} s: {self.tail()}")
            with suppress(subprocess.TimeoutExpired):
                self._driver.wait(timeout=0.5)
        return self._driver.returncode

    def wait_until(self, condition: Callable[[], bool], *, limit_s: float) -> None:
        """Returns once ``condition`` holds, which is looked at while the command runs.

        Raises:
            RuntimeError: The command ended before.
            TimeoutError: It did not hold in time.
        """
        began = looked = time.monotonic()
        while not condition():
            if not self.is_running:
                raise RuntimeError(f"{self.name} ended with {self.exit_code}: {self.tail()}")
            now = time.monotonic()
            if now > began + limit_s:
                raise TimeoutError(f"{self.name}, after {limit_s:.0f} s: {self.tail()}")
            if now > looked + LOOK_S:
                self.look()
                looked = time.monotonic()
            time.sleep(0.1)

    def tail(self, num_bytes: int = 3000) -> str:
        """The end of what it printed."""
        return (
            self.log.read_bytes()[-num_bytes:].decode(errors="replace") if self.log.exists() else ""
        )

    def run_ids(self) -> list[str]:
        """The plan's runs."""
        ids: list[str] = json.loads(self.paths.config.read_text())["run_ids"]
        return ids

    def lines(self) -> dict[str, int]:
        """How many bytes each ledger has: equal before and after a command that did nothing."""
        return {p.parent.name: p.stat().st_size for p in self.paths.runs.glob("*/ledger.jsonl")}

    def share_done(self) -> float:
        """The share of the runs that have ended for good."""
        try:
            ids = self.run_ids()
        except OSError:
            return 0.0
        done = 0
        for run_id in ids:
            with suppress(OSError):
                end = self.paths.run(run_id).ledger.read_bytes()[-4000:]
                done += b'"type":"run_finished"' in end and b'"final":true' in end
        return done / len(ids)


def agent_overrides(*, num_runs: int, num_items: int = 6, alike: bool = False) -> list[str]:
    """A sweep of quick runs: half of a static task, half of an interactive one.

    Args:
        num_runs: At least two.
        num_items: Of each evaluation.
        alike: Every run submits the same weights, under content hashes of its own.
    """
    words = f"{sys.executable},{AGENT},'2'" + (",alike" if alike else "")
    return [
        *("agent=command", f"agent.argv=[{words}]", "sandbox=none"),
        "sweep.blocks=[{tasks: [gsm8k_mini, alfworld_mini]}]",
        f"sweep.seeds=[{','.join(map(str, range(max(1, num_runs // 2))))}]",
        *(f"options.task.gsm8k_mini.num_eval={num_items}", "options.task.gsm8k_mini.num_train=20"),
        *(f"task.num_eval={num_items}", "task.num_train=20", "task.max_steps=8"),
        *("budget.wall_clock_s=240", "cluster.num_run_retries=3"),
    ]
