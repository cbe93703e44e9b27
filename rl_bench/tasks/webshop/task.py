"""WebShop: finding and buying a product that fits an instruction, by searching and clicking.

Published setting (Agent² RL-Bench): the first 100 synthetic goals of the small catalogue, 50 steps,
100 tokens a step, zero-shot (``conf/task/webshop.yaml``); the score is the share of episodes with
a reward of at least 0.5. The original's own measures, mean reward and the share of full rewards,
stand beside it. Source: Yao et al. 2022 (WebShop).

Part of the reward compares the nouns of two titles, as a spaCy model finds them. The evaluator's
version names the model and its version, or the stand-in that is used without one.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from envs.errors import EnvironmentBroken
from envs.protocols import PROTOCOL_FILE, protocol_spec
from envs.webshop_expert import expert_actions
from envs.webshop_goals import Goal
from envs.webshop_nouns import get_tagger, tagger_label
from envs.webshop_session import Session
from envs.webshop_shop import GOALS_FILE, Shop
from rl_bench.checks import check_all
from rl_bench.config import TaskConfig
from rl_bench.errors import PreflightError
from rl_bench.tasks.base import (
    Episode,
    EvalContext,
    EvalResult,
    ItemOutcome,
    ItemStatus,
    aggregate,
)
from rl_bench.tasks.checks import check_protocol, episode_endings, mean_steps
from rl_bench.tasks.webshop.data import KNOWN_REWARD, KNOWN_SESSION, TRAIN_FILE, WebShopData

ENV_ID = "rl_bench/WebShop-v0"
PROTOCOLS = ("webshop_react",)
_FORMAT = "1"
_DESCRIPTION = """\
# {name}: shopping on a website

Train the model to buy what an instruction asks for: search, open a product, choose options, buy.

- Train goals: {num_train}, in `{goals_file}`, with `products.jsonl` and `prices.json`. They run in
  the environment `{env_id}`: `import envs, gymnasium`, then
  `gymnasium.make("{env_id}", data_dir="<data>", max_steps={max_steps})`;
  `reset(options={{"episode": i}})` chooses goal `i`. `info` holds `goal`, `available_actions` and,
  after the purchase, the parts of the reward. Actions are `search[words]` and `click[text]`; any
  other text does nothing and costs a step.
- Demonstrations: `{train_file}`, one JSON object a line with `episode`, `goal`, `asin`, `reward`
  and `turns`, a list of `observation`, `available_actions` and `action`. Each earns a reward of 1.
- Evaluation: {num_eval} goals about other products of the same shop, each played once, greedily,
  at most {max_steps} steps, at most {max_tokens} tokens a step. Train goals about a product that is
  evaluated, or worded like an evaluation goal, were left out.
- Prompt: protocol `{protocol}`; `envs.protocols.get_protocol('{protocol}')` renders it;
  `{protocol_file}` holds its argument.
- Reward: 0 to 1 for the purchase, by attributes, options, price and type of product; 0 without one.
- Score: percentage of episodes with a reward of at least {success_reward}.
- Titles are compared by their nouns, found by: {tagger}.
"""


class WebShopTask:
    """The task; see the module. Constructing it reads nothing.

    Args:
        config: Of kind ``webshop``; ``settings`` as in `WebShopSettings`.
        cache: Folder for the built-in catalogue.

    Raises:
        ConfigError: A setting is wrong.
    """

    def __init__(self, config: TaskConfig, *, cache: Path) -> None:
        self.name = config.name
        self._config = config
        self._data = WebShopData(config, cache=cache)
        settings = self._data.settings
        parts = [
            f"webshop-{_FORMAT}",
            config.protocol,
            f"{settings.goals} goals, prices {settings.price_seed}",
            f"success {settings.success_reward:g}",
            f"nouns by {self._tagger}",
        ]
        self.evaluator_version = "; ".join(parts)

    @property
    def protocol(self) -> str:
        """The protocol and its settings, as `envs.protocols.get_protocol` takes them."""
        name = self._config.protocol
        if name != "webshop_react":
            return name
        return protocol_spec(name, history_steps=str(self._data.settings.history_steps))

    def description(self) -> str:
        """Markdown for the agent's ``description.md``."""
        config = self._config
        return _DESCRIPTION.format(
            name=self.name,
            num_train=len(self._data.train()),
            num_eval=len(self._data.evaluation()),
            max_steps=config.max_steps,
            max_tokens=config.max_tokens,
            protocol=self.protocol,
            success_reward=self._data.settings.success_reward,
            env_id=ENV_ID,
            goals_file=GOALS_FILE,
            train_file=TRAIN_FILE,
            protocol_file=PROTOCOL_FILE,
            tagger=self._tagger,
        )

    def write_train_data(self, folder: Path) -> None:
        """Writes the shop with the train goals, the demonstrations, the protocol and a README.

        Raises:
            PreflightError: Data are missing.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._data.write_train(folder)
        (folder / PROTOCOL_FILE).write_text(self.protocol, encoding="utf-8")
        (folder / "README.md").write_text(self.description(), encoding="utf-8")

    def check_data(self) -> None:
        """Loads the tagger, replays a known session, and buys the first goal's product.

        Raises:
            PreflightError: Something is missing or does not work; names what, where and the cure.
        """
        check_all(
            lambda: check_protocol(self._config, self.protocol, choices=PROTOCOLS),
            self._check_goals,
            self._check_tagger,
        )
        try:
            self._self_test(self._data.known_shop(), KNOWN_SESSION, reward=KNOWN_REWARD)
            shop = self._data.shop("eval")
            self._self_test(shop, expert_actions(shop, self._data.evaluation()[0]))
        except EnvironmentBroken as error:
            raise PreflightError(f"task {self.name}: {error}") from error

    def _check_goals(self) -> None:
        self._data.evaluation()
        if not self._data.train():
            raise PreflightError(
                f"task {self.name}: no train goals",
                cure="Lower task.settings.num_held_out, or use a larger catalogue",
            )

    def _check_tagger(self) -> None:
        try:
            get_tagger(self._data.shop_settings("eval").tagger)
        except EnvironmentBroken as error:
            raise PreflightError(f"task {self.name}: {error}") from error

    async def evaluate(self, context: EvalContext) -> EvalResult:
        """Plays the evaluation goals and aggregates.

        Raises:
            PreflightError: Data are missing.
        """
        started = time.monotonic()
        played = await context.play(self.episodes(), protocol=self.protocol)
        items = [self._judged(item) for item in played]
        return aggregate(
            self.name,
            items,
            evaluator_version=self.evaluator_version,
            max_error_fraction=self._config.max_error_fraction,
            metrics=_metrics(items),
            duration_s=time.monotonic() - started,
        )

    def evaluation_texts(self) -> Iterator[tuple[str, str]]:
        """Pairs of an item's id and one of its texts; see `Task.evaluation_texts`."""
        for index, goal in enumerate(self._data.evaluation()):
            yield _episode_id(index, goal), goal.text
            yield _episode_id(index, goal), goal.wording

    def episodes(self) -> list[Episode]:
        """The evaluation set as episodes, in its fixed order."""
        kwargs = asdict(self._data.shop_settings("eval")) | {
            "data_dir": str(self._data.folder()),
            "max_steps": self._config.max_steps,
        }
        return [
            Episode(
                episode_id=_episode_id(index, goal),
                env_id=ENV_ID,
                env_kwargs=kwargs,
                options={"episode": index},
                seed=index,
            )
            for index, goal in enumerate(self._data.evaluation())
        ]

    @property
    def _tagger(self) -> str:
        return tagger_label(self._data.settings.tagger)

    def _judged(self, item: ItemOutcome) -> ItemOutcome:
        """The outcome with success for its score; the reward moves to the detail."""
        if item.status is not ItemStatus.OK or item.score is None:
            return item
        success = float(item.score >= self._data.settings.success_reward)
        return replace(item, score=success, detail={**item.detail, "reward": item.score})

    def _self_test(
        self, shop: Shop, actions: Sequence[str], *, reward: float | None = None
    ) -> None:
        """Search, pages, options and reward fit together when a goal's own product fits it."""
        session = Session(shop, shop.goals[0])
        for action in actions:
            session.act(action)
        bought = session.purchase
        earned = "nothing was bought" if bought is None else f"bought {bought}"
        if bought is None or bought.reward.r_type != 1.0 or bought.reward.r_att != 1.0:
            fits = False
        else:
            fits = reward is None or bought.reward.total == reward
        if not fits:
            raise PreflightError(
                f"task {self.name}: self-test failed on goal {session.goal.text!r}: {earned}",
                cure="Catalogue and instructions must be of one data set, and the packages nltk, "
                "regex and thefuzz as pinned",
            )


def _episode_id(index: int, goal: Goal) -> str:
    return f"{index:03d}-{goal.asin}"


def _metrics(items: Sequence[ItemOutcome]) -> Mapping[str, float]:
    """Over all items, errors earning nothing, in percent; and mean steps of played episodes."""
    played = [item for item in items if item.status is ItemStatus.OK]
    rewards = [float(item.detail["reward"] or 0.0) for item in played]
    metrics = {
        "mean_reward": 100.0 * sum(rewards) / len(items),
        "success_at_1": 100.0 * sum(reward == 1.0 for reward in rewards) / len(items),
        "bought": 100.0 * sum("bought" in item.detail for item in played) / len(items),
    }
    return metrics | episode_endings(items) | mean_steps(items)
