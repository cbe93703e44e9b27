"""Where ALFWorld's games come from: a local copy of the public data, or the built-in generator.

Both end as a folder in the public layout, ``<root>/<split>/<task>/<trial>/game.tw-pddl``. What has
to be made (generated games, unpacked archives, expert trajectories) is made once in a cache folder,
aside and then renamed into place under a lock, so that concurrent runs share it.
"""

import hashlib
import json
import lzma
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import NonNegativeInt

from envs.alfworld_dialect import Dialect, dialect_of
from envs.alfworld_games import (
    GENERATOR_VERSION,
    ROOT,
    Split,
    collect_games,
    game_digest,
    generate_games,
    load_game,
)
from envs.alfworld_layout import LayoutSettings, TaskType
from envs.errors import EnvironmentBroken
from rl_bench.config import DataSource, Frozen, TaskConfig
from rl_bench.errors import ConfigError, MissingDataError, PreflightError
from rl_bench.tasks.checks import check_count, read_settings, wrong_settings
from rl_bench.tasks.made_once import make_once

EVAL_SPLIT: Split = "valid_unseen"
TRAIN_SPLIT: Split = "train"
NUM_GAMES = {TRAIN_SPLIT: 3553, EVAL_SPLIT: 134}
"""What the public splits have."""
_BLOCK_BYTES = 1 << 20
_SOURCE_CURE = (
    "Run `alfworld-download` (it comes with the package alfworld), or copy the data, and set "
    "task.data_path to the folder that holds json_2.1.1/{split}"
)


class AlfworldSettings(Frozen):
    """The ``settings`` of an ALFWorld task.

    Attributes:
        expert: Who plays the demonstrations: ``explorer`` acts on what it sees, ``walkthrough``
            knows where things are.
        num_expert_games: Train games that get a demonstration; ``None``: all.
        react_prompts: The few-shot file of the ``react`` protocols; see `envs.protocol_react`.
        react_header: First lines of a ``react`` prompt; empty: this project's own.
        seed: Seed of generated games.
        dialect: Dialect of generated games; others state their own.
        task_types: Task types of generated games.
        rooms: Rooms of generated games; empty: all.
        num_receptacles: Receptacles in a generated room.
        num_objects: Objects in a generated room.
        closed: Whether generated rooms have receptacles that start closed.
    """

    expert: Literal["explorer", "walkthrough"] = "explorer"
    num_expert_games: NonNegativeInt | None = None
    react_prompts: str = ""
    react_header: str = ""
    seed: int = 0
    dialect: Dialect = Dialect.MOVE
    task_types: tuple[TaskType, ...] = tuple(TaskType)
    rooms: tuple[str, ...] = ()
    num_receptacles: int = 6
    num_objects: int = 6
    closed: bool = True

    @classmethod
    def of(cls, config: TaskConfig) -> "AlfworldSettings":
        """The settings of ``config``.

        Raises:
            ConfigError: A key is unknown or a value is wrong.
        """
        settings = read_settings(cls, config)
        try:
            settings.layout()
        except ValueError as error:
            raise wrong_settings(cls, config, f": {error}") from error
        return settings

    def layout(self) -> LayoutSettings:
        """The generator's part; raises ``ValueError`` when it is out of range."""
        layout = LayoutSettings(
            task_types=self.task_types,
            num_receptacles=self.num_receptacles,
            num_objects=self.num_objects,
            closed=self.closed,
        )
        return replace(layout, rooms=self.rooms) if self.rooms else layout


class AlfworldGames:
    """The train and evaluation games of one task config.

    Args:
        config: The task.
        cache: Folder for whatever has to be made.
    """

    def __init__(self, config: TaskConfig, *, cache: Path) -> None:
        self._config = config
        self._cache = cache.expanduser() / "alfworld"
        self.settings = AlfworldSettings.of(config)
        if config.source is DataSource.BUILTIN:
            self._require_sizes()
        elif config.data_path is None:
            raise ConfigError(
                f"task {config.name}: source=path needs task.data_path",
                cure=_SOURCE_CURE.format(split=EVAL_SPLIT),
            )

    @property
    def translations(self) -> Path:
        """Folder where processes share translated games."""
        return self._cache / "translations"

    def evaluation(self) -> list[Path]:
        """The evaluation games, the first ``num_eval`` in sorted order.

        Raises:
            PreflightError: None, or fewer than ``num_eval``, are found.
        """
        return self._first(EVAL_SPLIT, self._config.num_eval)

    def train(self) -> list[Path]:
        """The train games, the first ``num_train``; never one that is evaluated, by content.

        Raises:
            PreflightError: None, or fewer than ``num_train``, are found.
        """
        held_out = {
            game_digest(game) for game in collect_games(self._folder(EVAL_SPLIT), EVAL_SPLIT)
        }
        games = self._first(TRAIN_SPLIT, self._config.num_train)
        return [game for game in games if game_digest(game) not in held_out]

    def count_train(self) -> int:
        """The number of train games, without reading them."""
        return len(self._first(TRAIN_SPLIT, self._config.num_train))

    def dialects(self) -> list[Dialect]:
        """The dialects of the evaluation games, as a rule one.

        Raises:
            PreflightError: Games are missing or broken.
        """
        try:
            return sorted({_dialect_of_file(game) for game in self.evaluation()})
        except EnvironmentBroken as error:
            raise PreflightError(
                f"task {self._config.name}: {error}", cure=_SOURCE_CURE.format(split=EVAL_SPLIT)
            ) from error

    def _first(self, split: Split, number: int | None) -> list[Path]:
        folder = self._folder(split)
        games = collect_games(folder, split)
        check_count(
            self._config.name,
            split="train" if split == TRAIN_SPLIT else "eval",
            found=len(games),
            wanted=number,
            complete=0 if self._config.source is DataSource.BUILTIN else NUM_GAMES.get(split, 0),
            what="games",
            cure=f"Solvable games are looked for in {folder / split}. "
            + _SOURCE_CURE.format(split=split),
        )
        return games[:number]

    def _folder(self, split: Split) -> Path:
        """The root that holds ``split``."""
        if self._config.source is DataSource.BUILTIN:
            return self._generated()
        assert self._config.data_path is not None
        data = self._config.data_path.expanduser()
        if not data.is_dir():
            raise MissingDataError(
                f"task {self._config.name}: no folder {data}",
                cure=_SOURCE_CURE.format(split=EVAL_SPLIT),
            )
        for root in (data / ROOT, data):
            if (root / split).is_dir():
                return root
        archives = sorted(data.glob(f"*{split}*.tar.xz"))
        if not archives:
            raise MissingDataError(
                f"task {self._config.name}: neither {ROOT}/{split} nor an archive of it in {data}",
                cure=_SOURCE_CURE.format(split=split),
            )
        return self._unpacked(archives[0]) / ROOT

    def _unpacked(self, archive: Path) -> Path:
        stat = archive.stat()
        key = _digest([str(archive.resolve()), stat.st_size, stat.st_mtime_ns])

        def unpack(folder: Path) -> None:
            try:
                with lzma.open(archive) as content:
                    with tarfile.open(fileobj=content, mode="r|") as tar:
                        tar.extractall(folder, filter="data")
                    # Tar takes damaged data for its own end; the checksums come after it.
                    while content.read(_BLOCK_BYTES):
                        pass
            except (tarfile.TarError, lzma.LZMAError, OSError, EOFError) as error:
                raise PreflightError(
                    f"task {self._config.name}: archive {archive} cannot be unpacked: {error}",
                    cure="Copy it again",
                ) from error

        return make_once(self._cache / f"unpacked-{key}", unpack)

    def _generated(self) -> Path:
        config, settings = self._config, self.settings
        assert config.num_train is not None
        assert config.num_eval is not None
        sizes: tuple[tuple[Split, int], ...] = (
            (TRAIN_SPLIT, config.num_train),
            (EVAL_SPLIT, config.num_eval),
        )
        layout = settings.layout()
        key = _digest([GENERATOR_VERSION, sizes, settings.seed, settings.dialect, repr(layout)])

        def generate(folder: Path) -> None:
            try:
                for split, num_games in sizes:
                    generate_games(
                        folder,
                        split=split,
                        num_games=num_games,
                        seed=settings.seed,
                        settings=layout,
                        dialect=settings.dialect,
                    )
            except EnvironmentBroken as error:
                raise PreflightError(
                    f"task {config.name}: games cannot be generated: {error}",
                    cure="Change task.num_train, task.num_eval or task.settings",
                ) from error

        return make_once(self._cache / f"generated-{key}" / ROOT, generate)

    def _require_sizes(self) -> None:
        if self._config.num_train is None or self._config.num_eval is None:
            raise ConfigError(
                f"task {self._config.name}: source=builtin needs task.num_train and task.num_eval",
                cure="Generated games have no natural number: say how many",
            )


@lru_cache(maxsize=4096)
def _dialect_of_file(game: Path) -> Dialect:
    return dialect_of(load_game(game)["grammar"], name=str(game))


def _digest(parts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:16]
