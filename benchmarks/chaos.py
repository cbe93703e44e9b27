"""Sweeps that are harmed at random, and what they lost by it: nothing, or this exits with 1.

    python -m benchmarks.chaos --seconds 600 --seed 0 [--runs 24]

First a sweep that nobody disturbs, the reference. Then, for so many seconds, the same sweep under
other names, each started, harmed by a seeded random schedule of `ACTIONS`, started again whenever
its command has ended before its runs, and checked by `benchmarks.invariants` once it has finished.
No engine, agent, process or file is a stand-in; the checkpoints are of the tiny model. The schedule
is a seed's, the moments at which it strikes are the machine's.

The folder is removed at the end, unless something was breached.
"""

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.chaos_cluster import LocalCluster
from benchmarks.chaos_sweep import KINDS, Census, LiveSweep, agent_overrides
from benchmarks.chaos_world import FilledDisk, SilentServer, small_disk
from benchmarks.invariants import Counts, Figures, breaches, count, figures

ON_A_CLUSTER = 3
"""Each third sweep joins a cluster of several raylets, which loses nodes."""
FINISH_S = 900.0
"""A sweep that is left alone ends within this."""
MAX_STARTS = 60
SETTLED_SHARE = 0.7
"""So often it is waited for a sweep to be under way before it is harmed again."""
OUTLIVED = (0, 1, 130, -signal.SIGKILL)
"""Exit codes that a harmed command may have: the next one goes on."""


class Action(NamedTuple):
    """Something that may happen to a sweep; ``do`` says what it did, empty for nothing."""

    weight: int
    do: Callable[["Chaos", LiveSweep], str]


class Chaos:
    """All sweeps of one chaos run.

    Args:
        root: Everything lies below it.
        seed: Of the schedule.
        num_runs: Of each sweep.
    """

    def __init__(self, root: Path, *, seed: int, num_runs: int) -> None:
        self.root = root
        self.random = random.Random(seed)
        self.census = Census(root)
        self.cluster: LocalCluster | None = None
        self.done: Counter[str] = Counter()
        self.counts: list[Counts] = []
        self.breaches: dict[str, list[str]] = {"orphans": [], "resume": [], "exit codes": []}
        self.num_sweeps = self.num_starts = 0
        self._overrides = [*agent_overrides(num_runs=num_runs), "cluster.num_cpus=4"]
        self._began = time.monotonic()

    def say(self, words: str) -> None:
        """Prints a line with the seconds since the start."""
        sys.stdout.write(f"{time.monotonic() - self._began:7.1f}  {words}\n")
        sys.stdout.flush()

    def sweep(
        self, name: str, *more: str, environment: Mapping[str, str] | None = None
    ) -> LiveSweep:
        """The sweep under a name of its own."""
        words = [*self._overrides, *more]
        return LiveSweep(
            self.root, name, census=self.census, overrides=words, environment=environment
        )

    def reference(self) -> Figures:
        """What the runs give when nobody disturbs them.

        Raises:
            RuntimeError: They gave nothing, so that nothing could be compared.
        """
        sweep = self.sweep("reference", "sink=no_wandb")
        sweep.start()
        if sweep.wait(limit_s=FINISH_S) != 0:
            raise RuntimeError(f"the reference sweep failed: {sweep.tail()}")
        self._judge(sweep, {})
        return figures(sweep.paths, sweep.run_ids())

    def round(self, reference: Figures, *, until: float) -> None:
        """One sweep: harmed, finished and checked."""
        name = f"chaos{self.num_sweeps}"
        if self.num_sweeps % ON_A_CLUSTER == ON_A_CLUSTER - 1:
            with LocalCluster(self.root / name) as self.cluster:
                self.cluster.add_node("a")
                self.cluster.add_node("b")
                words, environment = self.cluster.overrides(), self.cluster.environment
                self.harm(self.sweep(name, *words, environment=environment), until=until)
                held = self.cluster.held()
            self.cluster = None
            self.breaches.setdefault("leases", [])
            if held:
                self.breach("leases", f"{name}: somebody still holds {held}")
        else:
            self.harm(self.sweep(name), until=until)
        self.check(self.sweep(name), reference)

    def harm(self, sweep: LiveSweep, *, until: float) -> None:
        """Starts it, harms it until then, and sees it to its end."""
        self.num_sweeps += 1
        sweep.start()
        last = sweep.lines()
        give_up = max(until, time.monotonic()) + FINISH_S
        while sweep.is_running or sweep.exit_code != 0:
            if not sweep.is_running:
                self._start_again(sweep)
            if sweep.num_starts > MAX_STARTS or time.monotonic() > give_up:
                self.breach("resume", f"{sweep.name} does not finish: {sweep.tail()}")
                sweep.signal_driver(signal.SIGKILL)
                break
            self.pass_time(sweep, self.random.uniform(0.5, 5.0))
            if time.monotonic() >= until or not sweep.is_running:
                continue
            if self.random.random() < SETTLED_SHARE and sweep.lines() == last:
                continue
            self._act(sweep)
            last = sweep.lines()
        self.num_starts += sweep.num_starts

    def check(self, sweep: LiveSweep, reference: Figures) -> None:
        """Holds what a finished sweep left against what must hold."""
        before = sweep.lines()
        sweep.start()
        if sweep.wait(limit_s=120) != 0 or sweep.lines() != before:
            self.breach("resume", f"{sweep.name}, finished, was not left alone: {sweep.tail(500)}")
        self._judge(sweep, reference)

    def _judge(self, sweep: LiveSweep, reference: Figures) -> None:
        for left in self.census.left_after():
            self.breach("orphans", f"{sweep.name}: {left}")
        ids = sweep.run_ids()
        found = breaches(
            sweep.paths, answers=sweep.answers, run_ids=ids, reference=reference or None
        )
        for name, lines in found.items():
            self.breaches.setdefault(name, [])
            for line in lines:
                self.breach(name, f"{sweep.name}: {line}")
        self.counts.append(count(sweep.paths, answers=sweep.answers, run_ids=ids))
        self.say(f"{sweep.name}: {self.counts[-1]}")

    def breach(self, name: str, line: str) -> None:
        """Takes note of something that must not be."""
        self.breaches.setdefault(name, []).append(line)
        self.say(f"BREACH of {name}: {line}")

    def _start_again(self, sweep: LiveSweep) -> None:
        if sweep.exit_code not in OUTLIVED:
            self.breach("exit codes", f"{sweep.name}: {sweep.exit_code}: {sweep.tail(1500)}")
        self.say(f"{sweep.name}: exit code {sweep.exit_code}, {sweep.share_done():.0%}; again")
        sweep.start()

    def pass_time(self, sweep: LiveSweep, seconds: float) -> None:
        """Waits, watching, and no longer than the sweep's command runs."""
        end = time.monotonic() + seconds
        while sweep.is_running and time.monotonic() < end:
            sweep.look()
            time.sleep(0.3)

    def victim(self, sweep: LiveSweep, kind: str) -> psutil.Process | None:
        """One of the sweep's processes of a kind; a cluster's own are no part of it."""
        if self.cluster is not None and kind in ("raylet", "gcs"):
            return None
        sweep.look()
        victims = sorted(self.census.alive(kind), key=lambda process: process.pid)
        return self.random.choice(victims) if victims else None

    def _act(self, sweep: LiveSweep) -> None:
        names = list(ACTIONS)
        weights = [action.weight for action in ACTIONS.values()]
        [name] = self.random.choices(names, weights)
        words = ACTIONS[name].do(self, sweep)
        if words:
            self.done[name] += 1
            self.say(f"{sweep.name} at {sweep.share_done():.0%}: {name}: {words}")


def _killer(kind: str) -> Callable[[Chaos, LiveSweep], str]:
    def kill(chaos: Chaos, sweep: LiveSweep) -> str:
        victim = chaos.victim(sweep, kind)
        if victim is None:
            return ""
        with suppress(psutil.Error):
            victim.kill()
        return f"killed {victim.pid}"

    return kill


def _kill_driver(chaos: Chaos, sweep: LiveSweep) -> str:
    sweep.signal_driver(signal.SIGKILL)
    return "killed"


def _kill_driver_twice(chaos: Chaos, sweep: LiveSweep) -> str:
    """Again while what the first one left is still ending, and its heir is only coming up."""
    sweep.signal_driver(signal.SIGKILL)
    while sweep.is_running:
        time.sleep(0.01)
    sweep.start()
    seconds = chaos.random.uniform(0.5, 20.0)
    chaos.pass_time(sweep, seconds)
    sweep.signal_driver(signal.SIGKILL)
    return f"killed, started, and killed after {seconds:.1f} s"


def _ask_driver(chaos: Chaos, sweep: LiveSweep) -> str:
    number = chaos.random.choice([signal.SIGINT, signal.SIGTERM])
    sweep.signal_driver(number)
    return number.name


def _pause(chaos: Chaos, sweep: LiveSweep) -> str:
    kind = chaos.random.choice([*KINDS])
    victim = chaos.victim(sweep, kind)
    if victim is None:
        return ""
    seconds = chaos.random.uniform(1.0, 8.0)
    with suppress(psutil.Error):
        victim.suspend()
    try:
        chaos.pass_time(sweep, seconds)
    finally:
        with suppress(psutil.Error):
            victim.resume()
    return f"{kind} {victim.pid} stood still for {seconds:.1f} s"


def _kill_node(chaos: Chaos, sweep: LiveSweep) -> str:
    """One of two nodes goes, with all that runs there; another comes."""
    if chaos.cluster is None:
        return ""
    lost = chaos.random.choice([name for name in chaos.cluster.nodes if name != "head"])
    num = chaos.cluster.kill_node(lost)
    del chaos.cluster.nodes[lost]
    chaos.cluster.add_node(f"after-{lost}"[-20:])
    return f"{num} processes"


def _second_driver(chaos: Chaos, sweep: LiveSweep) -> str:
    if not chaos.census.alive("run"):
        return ""  # the first one may not have the name yet
    try:
        done = sweep.second_driver()
    except subprocess.TimeoutExpired:
        return "it took the place of one that had just ended"
    if sweep.is_running and (done.returncode != 2 or "another process" not in done.stderr):
        words = f"{sweep.name}: exit code {done.returncode}: {(done.stdout + done.stderr)[-500:]}"
        chaos.breach("one driver", words)
    return f"exit code {done.returncode}"


def _fill_disk(chaos: Chaos, sweep: LiveSweep) -> str:
    """Nearly full, so that runs stop themselves, or to the last byte."""
    if not (chaos.root / "results").is_mount():
        return ""
    left, seconds = chaos.random.choice([0, 8 * 2**20]), chaos.random.uniform(2.0, 10.0)
    with FilledDisk(chaos.root / "results", left_bytes=left):
        chaos.pass_time(sweep, seconds)
    return f"{left} bytes free for {seconds:.1f} s"


def _silence_wandb(chaos: Chaos, sweep: LiveSweep) -> str:
    """The driver ends, and the next start finds a W&B that takes connections and never answers."""
    if chaos.cluster is not None:
        return ""
    sweep.signal_driver(signal.SIGTERM)
    chaos.pass_time(sweep, 60)
    if sweep.is_running:
        return "its driver did not end"
    with SilentServer() as server:
        account = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": "0" * 40}
        silent = chaos.sweep(sweep.name, "sink.wandb.mode=online", environment=account)
        started = time.monotonic()
        silent.start()
        chaos.pass_time(silent, 240)
        seconds = time.monotonic() - started
        if silent.exit_code not in (1, 2) or "sink=no_wandb" not in silent.tail():
            chaos.breach("silent W&B", f"exit code {silent.exit_code}: {silent.tail()}")
            silent.signal_driver(signal.SIGKILL)
    return f"refused with its cure after {seconds:.0f} s"


ACTIONS: Mapping[str, Action] = {
    "driver": Action(4, _kill_driver),
    "driver twice": Action(1, _kill_driver_twice),
    "driver asked": Action(1, _ask_driver),
    "grader": Action(3, _killer("grader")),
    "engine": Action(3, _killer("engine")),
    "worker": Action(3, _killer("worker")),
    "run": Action(3, _killer("run")),
    "supervisor": Action(2, _killer("supervisor")),
    "recorder": Action(3, _killer("recorder")),
    "pool": Action(3, _killer("pool")),
    "raylet": Action(1, _killer("raylet")),
    "gcs": Action(1, _killer("gcs")),
    "node": Action(12, _kill_node),
    "pause": Action(3, _pause),
    "second driver": Action(1, _second_driver),
    "disk full": Action(2, _fill_disk),
    "silent W&B": Action(1, _silence_wandb),
}


def main() -> int:
    """Runs it; 0 if every invariant held."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=24)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="rb-chaos-"))
    chaos = Chaos(root, seed=arguments.seed, num_runs=arguments.runs)
    with ExitStack() as stack:
        is_small = stack.enter_context(small_disk(root / "results"))
        stack.callback(chaos.census.end_all)
        chaos.say(f"in {root}, " + ("a disk of its own" if is_small else "no disk of its own"))
        reference = chaos.reference()
        until = time.monotonic() + arguments.seconds
        while time.monotonic() < until:
            chaos.round(reference, until=until)
        is_whole = _report(chaos)
        if not is_whole and is_small:
            shutil.copytree(root / "results", root / "kept", symlinks=True)
    if is_whole:
        shutil.rmtree(root, ignore_errors=True)
    else:
        sys.stdout.write(f"kept: {root}\n")
    return 0 if is_whole else 1


def _report(chaos: Chaos) -> bool:
    """Prints the counts and each invariant's verdict; whether all held."""
    chaos.say(f"{chaos.num_sweeps} sweeps, {chaos.num_starts} starts of the command")
    chaos.say("done: " + ", ".join(f"{name} {num}" for name, num in chaos.done.items()))
    for name in Counts.__slots__:
        total = sum(getattr(counts, name) for counts in chaos.counts)
        chaos.say(f"{name.removeprefix('num_')}: {total}")
    for name, lines in chaos.breaches.items():
        chaos.say(f"{name}: {'held' if not lines else f'{len(lines)} BREACHES'}")
    return not any(chaos.breaches.values())


if __name__ == "__main__":
    sys.exit(main())
