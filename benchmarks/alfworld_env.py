"""ALFWorld's engine as shipped against the fast one: the same answers, and how much sooner.

    RL_BENCH_DATA=... python -m benchmarks.alfworld_env                # the 134 valid_unseen games
    python -m benchmarks.alfworld_env --generated 60                   # generated games, no data

Every game is played on both engines: its whole walkthrough, with a harmless command (look, examine,
inventory) now and then, after it seeded random commands of all kinds, and some nonsense. Feedback,
admissible commands and the verdict are compared at every step. Exit code 1 if anything differs.
Times are medians of wall time on this machine, both engines in turn: read the ratios.
"""

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from envs.alfworld_engine import Engine, FastEngine, GameStore, Observed, StockEngine
from envs.alfworld_games import collect_games, generate_games, load_game
from rl_bench.config import DataSource, TaskConfig
from rl_bench.tasks.alfworld.data import EVAL_SPLIT, AlfworldGames

T = TypeVar("T")
NONSENSE = ("", "dance", "put apple 1 in/on desk 1", "think: hm", "go to nowhere 1", "LOOK")
_PROBES = ("look", "inventory", "examine")


@dataclass(slots=True)
class Report:
    """What was compared and how long each engine took, in seconds."""

    num_games: int = 0
    num_won: int = 0
    num_compared: int = 0
    differences: list[str] = field(default_factory=list)
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def timed(self, name: str, call: Callable[[], T]) -> T:
        """Runs ``call`` and keeps its time under ``name``."""
        started = time.perf_counter()
        result = call()
        self.seconds[name].append(time.perf_counter() - started)
        return result

    def compare(self, game: Path, command: str, *, stock: Observed, fast: Observed) -> None:
        """Counts one comparison."""
        self.num_compared += 1
        if stock != fast:
            self.differences.append(f"{game.parent.name} on {command!r}:\n  {stock}\n  {fast}")


def play_both(
    game: Path, report: Report, *, stock: Engine, fast: Engine, seed: int, num_random: int
) -> None:
    """Plays one game on both engines and compares every answer."""
    report.timed("stock load", lambda: stock.load(game))
    report.timed("fast load", lambda: fast.load(game))
    seen = report.timed("stock reset", stock.reset)
    report.compare(game, "", stock=seen, fast=report.timed("fast reset", fast.reset))
    rng = random.Random(f"{seed} {game.name}")

    def step(command: str) -> Observed:
        expected = report.timed("stock step", lambda: stock.step(command))
        got = report.timed("fast step", lambda: fast.step(command))
        report.compare(game, command, stock=expected, fast=got)
        return expected

    for command in load_game(game)["walkthrough"]:
        if rng.random() < 1 / 3:
            step(rng.choice([c for c in seen.admissible if c.startswith(_PROBES)]))
        seen = step(command)
    report.num_games += 1
    report.num_won += seen.won
    for index in range(num_random):
        seen = step(rng.choice(NONSENSE if index % 8 == 7 else seen.admissible))


def time_again(games: Sequence[Path], report: Report, *, cache_dir: Path) -> None:
    """Times the fast engine with translations on disk, then with everything in memory."""
    from_disk = FastEngine(GameStore(cache_dir))
    for game in games:
        report.timed("fast load, disk cache", partial(from_disk.load, game))
        report.timed("fast reset, disk cache", from_disk.reset)
    for game in games:
        report.timed("fast load, played before", partial(from_disk.load, game))
        report.timed("fast reset, played before", from_disk.reset)


def find_games(args: argparse.Namespace, scratch: Path) -> list[Path]:
    """The games to compare on."""
    if args.generated:
        folder = scratch / "generated"
        generate_games(folder, split=EVAL_SPLIT, num_games=args.generated, seed=0)
        return collect_games(folder, EVAL_SPLIT)
    data = args.data or os.environ.get("RL_BENCH_DATA")
    if not data:
        sys.exit("set RL_BENCH_DATA or --data to real task data, or try --generated 60")
    config = TaskConfig(
        name="alfworld",
        kind="alfworld",
        level="L3",
        source=DataSource.PATH,
        data_path=Path(data) / "alfworld",
        max_tokens=1,
    )
    return AlfworldGames(config, cache=scratch).evaluation()


def write_report(report: Report) -> None:
    """Prints counts, times and ratios."""
    lines = [
        f"{report.num_games} games, {report.num_won} won by their walkthrough, "
        f"{report.num_compared} answers compared (feedback, admissible commands, verdict), "
        f"{len(report.differences)} differ",
        *report.differences[:5],
        f"{'median, ms':28}{'stock':>10}{'fast':>10}{'ratio':>10}",
    ]
    medians = {name: 1e3 * statistics.median(v) for name, v in report.seconds.items()}
    for name, value in medians.items():
        if name.startswith("fast "):
            what = name.removeprefix("fast ")
            stock = medians[f"stock {what.partition(',')[0]}"]
            lines.append(f"{what:28}{stock:10.2f}{value:10.2f}{stock / value:9.1f}x")
    sys.stdout.write("\n".join(lines) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the comparison; 0 if nothing differs and every walkthrough won."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", help="real task data; default: RL_BENCH_DATA")
    parser.add_argument(
        "--generated", type=int, default=0, help="compare on so many generated games"
    )
    parser.add_argument("--first", type=int, default=0, help="skip the games before this one")
    parser.add_argument("--games", type=int, default=None, help="at most so many games")
    parser.add_argument("--random-steps", type=int, default=16, help="random commands a game")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    report = Report()
    with tempfile.TemporaryDirectory() as scratch:
        last = None if args.games is None else args.first + args.games
        games = find_games(args, Path(scratch))[args.first : last]
        cache_dir = Path(scratch) / "translations"
        stock, fast = StockEngine(), FastEngine(GameStore(cache_dir))
        for index, game in enumerate(games, start=1):
            play_both(
                game,
                report,
                stock=stock,
                fast=fast,
                seed=args.seed,
                num_random=args.random_steps,
            )
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{index}/{len(games)}")
        time_again(games, report, cache_dir=cache_dir)
    write_report(report)
    return int(bool(report.differences) or report.num_won < report.num_games)


if __name__ == "__main__":
    sys.exit(main())
