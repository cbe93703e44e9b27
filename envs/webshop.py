"""WebShop as a `gymnasium.Env`: shopping by searching and clicking, with text in and text out.

Observations, available actions and rewards are those of the original (Yao et al. 2022), without its
web server, its Java search engine and its downloads; `envs.webshop_session` is the visit itself.
An illegal action changes nothing and uses up a step. Deterministic: the same shop, goal and actions
give the same observations and rewards. Environments of one process share their shop.
"""

from collections.abc import Mapping
from typing import Any, TypedDict

import gymnasium

from envs.errors import EnvironmentBroken
from envs.text_space import AnyText
from envs.webshop_goals import Goal, GoalKind
from envs.webshop_nouns import AUTO
from envs.webshop_session import Session
from envs.webshop_shop import NUM_HELD_OUT, Shop, ShopSettings, Split, find_folder, open_shop

_MAX_OBSERVATION_CHARS = 50_000
_MAX_ACTION_CHARS = 2_000


class WebShopInfo(TypedDict):
    """What `reset` and `step` tell beside the observation.

    After a purchase there are also ``reward``, ``price``, ``bought`` (its asin) and the reward's
    parts, ``r_type``, ``r_att``, ``r_option``, ``r_price``, ``query_match``, ``category_match`` and
    ``title_score``; see `envs.webshop_reward.Reward`.

    Attributes:
        available_actions: ``search[<your query>]`` where there is a search field, then a
            ``click[...]`` for everything that can be clicked.
        goal: The instruction.
        asin: The product that the goal was made of.
        page: Where the player is, one of `envs.webshop_pages.PageKind`.
        num_steps: Steps taken in this episode.
        tagger: What found the titles' nouns, known after a purchase; empty before.
    """

    available_actions: list[str]
    goal: str
    asin: str
    page: str
    num_steps: int
    tagger: str


class WebShopEnv(gymnasium.Env[str, str]):
    """A visit to the shop. Registered as ``rl_bench/WebShop-v0``.

    The reward comes with the purchase, in [0, 1], and ends the episode (``terminated``); after
    ``max_steps`` it is ``truncated`` with no reward. Any text is taken as an action.

    `reset` takes ``{"episode": <index>}`` to choose a goal of the split, in its fixed order.
    Without options the seeded generator draws one, rare attributes more often, as in the original.

    Args:
        data_dir: The catalogue's folder; default: the agent's data folder, ``DATA_PATH``.
        split: ``train`` or ``eval``; ``all`` is both, and what is in neither.
        max_steps: Steps until truncation.
        price_seed: Of the prices and price limits; no effect on a folder that has its own.
        goals: ``synthetic`` goals are made of options, ``human`` ones are what people asked for.
        num_held_out: How many goals the split ``eval`` has.
        tagger: Finds the nouns in titles; see `envs.webshop_nouns.find_tagger`.

    Raises:
        ValueError: An argument is out of range.
        EnvironmentBroken: The catalogue is missing or broken.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  Gymnasium's own declaration

    def __init__(
        self,
        *,
        data_dir: str | None = None,
        split: Split = "train",
        max_steps: int = 50,
        price_seed: int = 0,
        goals: GoalKind = "synthetic",
        num_held_out: int = NUM_HELD_OUT,
        tagger: str = AUTO,
    ) -> None:
        if max_steps < 1:
            raise ValueError(f"max_steps is {max_steps}, must be positive")
        if split not in ("train", "eval", "all"):
            raise ValueError(f"split is {split!r}, must be train, eval or all")
        if goals not in ("synthetic", "human"):
            raise ValueError(f"goals is {goals!r}, must be synthetic or human")
        self.max_steps = max_steps
        settings = ShopSettings(
            split=split,
            price_seed=price_seed,
            goals=goals,
            num_held_out=num_held_out,
            tagger=tagger,
        )
        self._shop = open_shop(find_folder(data_dir), settings)
        self.observation_space = AnyText(_MAX_OBSERVATION_CHARS)
        self.action_space = AnyText(_MAX_ACTION_CHARS)
        self._session: Session | None = None
        self._num_steps = 0
        self._over = True

    @property
    def shop(self) -> Shop:
        """The shop, with the split's goals in order; shared, never changed."""
        return self._shop

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Starts a visit; see the class for ``options``.

        Returns:
            The start page, which states the goal, and a `WebShopInfo`.

        Raises:
            EnvironmentBroken: There is no such goal.
        """
        super().reset(seed=seed)
        goal = self._choose(options or {})
        self._session = Session(self._shop, goal, seed=int(self.np_random.integers(2**31)))
        self._num_steps, self._over = 0, False
        return self._session.page.text, self._info(self._session)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Obeys an action; one that is not available does nothing.

        Raises:
            gymnasium.error.ResetNeeded: The episode is over, or none was begun.
            EnvironmentBroken: The tagger's model is missing.
        """
        session = self._session
        if self._over or session is None:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset first")
        self._num_steps += 1
        reward = session.act(str(action))
        bought = session.purchase is not None
        truncated = not bought and self._num_steps >= self.max_steps
        self._over = bought or truncated
        return session.page.text, reward, bought, truncated, self._info(session)

    def _choose(self, options: Mapping[str, Any]) -> Goal:
        shop = self._shop
        if "episode" not in options:
            return shop.draw_goal(float(self.np_random.random()))
        index = int(options["episode"])
        if not 0 <= index < len(shop.goals):
            raise EnvironmentBroken(f"episode {index}: the split has 0 to {len(shop.goals) - 1}")
        return shop.goals[index]

    def _info(self, session: Session) -> dict[str, Any]:
        page, purchase = session.page, session.purchase
        search = ["search[<your query>]"] if page.has_search_bar else []
        info = WebShopInfo(
            available_actions=[*search, *(f"click[{text}]" for text in page.clickables)],
            goal=session.goal.text,
            asin=session.goal.asin,
            page=page.kind.value,
            num_steps=self._num_steps,
            tagger="" if purchase is None else self._shop.tagger.label,
        )
        if purchase is None:
            return dict(info)
        parts = purchase.reward.parts()
        bought = {"reward": purchase.reward.total, "bought": purchase.asin}
        return {**info, **bought, "price": purchase.price, **parts}
