"""WebShop's settings, where its catalogue comes from, and what of it an agent is given.

An agent gets the products without the instructions that goals are made of, all prices, the train
goals, and demonstrations on some of them. No train goal is about a product that is evaluated, or
worded like an evaluation goal: goals of one product differ in a colour or a size only.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, NonNegativeInt, PositiveInt

from envs.errors import EnvironmentBroken
from envs.webshop import WebShopEnv
from envs.webshop_builtin import BUILTIN_VERSION, MAX_PRODUCTS, write_catalogue
from envs.webshop_expert import play
from envs.webshop_goals import Goal, GoalKind
from envs.webshop_nouns import AUTO, find_tagger
from envs.webshop_shop import Shop, ShopSettings, Split, open_shop, write_shop
from rl_bench.config import DataSource, Frozen, TaskConfig
from rl_bench.counts import plural
from rl_bench.errors import ConfigError, MissingDataError, PreflightError
from rl_bench.tasks.checks import check_count, read_settings
from rl_bench.tasks.made_once import make_once

TRAIN_FILE = "train.jsonl"
KNOWN_SESSION = (
    "search[double sided machine washable throw pillows]",
    "click[rb00000005]",
    "click[teal]",
    "click[20x20 inch]",
    "click[buy now]",
)
"""The first goal's product in a wrong colour."""
KNOWN_REWARD = 4 / 5
_NUM_KNOWN = 6
_CURE = (
    "Set task.data_path to a folder with products_1000.jsonl (or .jsonl.xz) and "
    "items_ins_v2_1000.json"
)


class WebShopSettings(Frozen):
    """The ``settings`` of a WebShop task.

    Attributes:
        success_reward: An episode with at least this reward is a success. Agent² RL-Bench takes
            0.5; the original calls only a reward of 1 a success.
        history_steps: Past steps in a prompt of protocol ``webshop_react``.
        goals: ``synthetic`` as in Agent² RL-Bench, or ``human``.
        num_held_out: Goals kept for evaluation, the first in the fixed order.
        price_seed: Of prices and price limits, which the original draws anew in every process.
        tagger: Finds nouns in titles; see `envs.webshop_nouns.find_tagger`.
        num_demonstrations: Train goals that get a demonstration; ``None``: all.
        num_products: Products of the built-in catalogue.
        seed: Of the built-in catalogue.
    """

    success_reward: float = Field(default=0.5, gt=0, le=1)
    history_steps: NonNegativeInt = 5
    goals: GoalKind = "synthetic"
    num_held_out: PositiveInt = 100
    price_seed: int = 0
    tagger: str = AUTO
    num_demonstrations: NonNegativeInt | None = 400
    num_products: int = Field(default=60, ge=1, le=MAX_PRODUCTS)
    seed: int = 0

    @classmethod
    def of(cls, config: TaskConfig) -> "WebShopSettings":
        """The settings of ``config``.

        Raises:
            ConfigError: A key is unknown or a value is wrong.
        """
        return read_settings(cls, config)


class WebShopData:
    """The catalogue and the goals of one task config.

    Args:
        config: The task.
        cache: Folder for the built-in catalogue.

    Raises:
        ConfigError: A setting is wrong, or the data's folder is not named.
    """

    def __init__(self, config: TaskConfig, *, cache: Path) -> None:
        self._config = config
        self._cache = cache.expanduser() / "webshop"
        self.settings = WebShopSettings.of(config)
        if config.source is DataSource.PATH and config.data_path is None:
            raise ConfigError(f"task {config.name}: source=path needs task.data_path", cure=_CURE)
        held_out = self.settings.num_held_out
        if config.num_eval is not None and config.num_eval > held_out:
            raise ConfigError(
                f"task {config.name}: num_eval is {config.num_eval}, more than the "
                f"{plural(held_out, 'goal')} held out",
                cure="Raise task.settings.num_held_out, or lower task.num_eval",
            )

    def folder(self) -> Path:
        """The catalogue's folder; the built-in one is made once."""
        if self._config.data_path is not None:
            return self._config.data_path.expanduser()
        return self._builtin(self.settings.num_products, self.settings.seed)

    def shop_settings(self, split: Split) -> ShopSettings:
        """What opens the shop of a split, with the tagger that ``auto`` means here."""
        return ShopSettings(
            split=split,
            price_seed=self.settings.price_seed,
            goals=self.settings.goals,
            num_held_out=self.settings.num_held_out,
            tagger=find_tagger(self.settings.tagger),
        )

    def shop(self, split: Split) -> Shop:
        """The shop with the goals of a split.

        Raises:
            PreflightError: The catalogue is missing, broken or without such goals.
        """
        try:
            return open_shop(self.folder(), self.shop_settings(split))
        except EnvironmentBroken as error:
            is_there = any(self.folder().glob("products*"))
            kind = PreflightError if is_there else MissingDataError
            raise kind(f"task {self._config.name}: {error}", cure=_CURE) from error

    def known_shop(self) -> Shop:
        """The shop of `KNOWN_SESSION`: a few built-in products, with every goal about them."""
        settings = ShopSettings(split="all", tagger=find_tagger(self.settings.tagger))
        return open_shop(self._builtin(_NUM_KNOWN, 0), settings)

    def evaluation(self) -> Sequence[Goal]:
        """The evaluation goals, the first ``num_eval``.

        Raises:
            PreflightError: There are fewer.
        """
        return self._first("eval", self._config.num_eval)

    def train(self) -> Sequence[Goal]:
        """The train goals, the first ``num_train``.

        Raises:
            PreflightError: There are fewer.
        """
        return self._first("train", self._config.num_train)

    def write_train(self, folder: Path) -> None:
        """Writes the agent's shop and the demonstrations.

        Raises:
            PreflightError: Data are missing, or no demonstration could be played.
        """
        goals = self.train()
        write_shop(folder, self.shop("train"), goals)
        number = self.settings.num_demonstrations
        write_demonstrations(
            folder,
            _spread(len(goals), number),
            max_steps=self._config.max_steps,
            tagger=self.settings.tagger,
        )

    def _builtin(self, num_products: int, seed: int) -> Path:
        def write(folder: Path) -> None:
            write_catalogue(folder, num_products=num_products, seed=seed)

        name = f"builtin-{BUILTIN_VERSION}-{num_products}-{seed}"
        return make_once(self._cache / name, write)

    def _first(self, split: Split, number: int | None) -> Sequence[Goal]:
        goals = self.shop(split).goals
        if number is not None:
            check_count(
                self._config.name,
                split=split,
                found=len(goals),
                wanted=number,
                what="goals",
                cure=_CURE,
            )
        return goals[:number]


def write_demonstrations(
    folder: Path, episodes: Sequence[int], *, max_steps: int, tagger: str = AUTO
) -> None:
    """Plays train goals of an agent's folder and writes those that earn the full reward.

    A line of ``train.jsonl`` has ``episode`` (the goal's place in ``goals.jsonl``), ``goal``,
    ``asin``, ``reward`` and ``turns``, a list of ``{"observation", "available_actions",
    "action"}``.

    Raises:
        PreflightError: Not one goal could be played.
    """
    env = WebShopEnv(data_dir=str(folder), max_steps=max_steps, tagger=tagger)
    lines, failed = [], ""
    for episode in episodes:
        try:
            played = play(env, episode)
        except EnvironmentBroken as error:
            failed = str(error)
            continue
        if played.reward == 1.0:
            lines.append(json.dumps(played.row(episode), ensure_ascii=False))
    if failed and not lines:
        raise PreflightError(f"no demonstration could be played, e.g.: {failed}")
    (folder / TRAIN_FILE).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _spread(available: int, number: int | None) -> Sequence[int]:
    """``number`` indices at even distances."""
    if number is None or number >= available:
        return range(available)
    return [index * available // number for index in range(number)]
