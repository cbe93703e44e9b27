"""A shopper who knows what to buy: plays goals the way a demonstration should look.

It searches with the goal's own words (then with the product's title), turns pages until it sees the
product, chooses the wanted options and buys. It knows the product, which a player must infer.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from envs.errors import EnvironmentBroken
from envs.webshop import WebShopEnv
from envs.webshop_goals import Goal
from envs.webshop_pages import NEXT
from envs.webshop_session import NUM_HITS, Session
from envs.webshop_shop import Shop

_NUM_PAGES = NUM_HITS // 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTurn:
    """An observation, what could be done, and what was done."""

    observation: str
    available_actions: tuple[str, ...]
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """An episode that the expert played to its end."""

    goal: str
    asin: str
    reward: float
    turns: tuple[ShownTurn, ...]

    def row(self, episode: int) -> dict[str, object]:
        """The demonstration of goal ``episode`` as a JSON object."""
        return {"episode": episode, **asdict(self)}


def expert_actions(shop: Shop, goal: Goal) -> tuple[str, ...]:
    """A plan that buys the goal's product with its options.

    Raises:
        EnvironmentBroken: No search finds the product.
    """
    title = shop.product(goal.asin).title
    for query in (goal.wording, title):
        plan = list(_until_seen(Session(shop, goal), query, goal.asin))
        if plan:
            options = (f"click[{value}]" for value in goal.option_values)
            return (*plan, f"click[{goal.asin.lower()}]", *options, "click[buy now]")
    raise EnvironmentBroken(f"no search finds product {goal.asin} of goal {goal.text!r}")


def play(env: WebShopEnv, episode: int) -> Demonstration:
    """Plays a goal of the environment's split.

    Raises:
        EnvironmentBroken: There is no such goal, or no plan for it.
    """
    observation, info = env.reset(options={"episode": episode})
    goal = env.shop.goals[episode]
    turns, reward = [], 0.0
    for action in expert_actions(env.shop, goal):
        available = tuple(info["available_actions"])
        turns.append(ShownTurn(observation=observation, available_actions=available, action=action))
        observation, reward, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
    return Demonstration(goal=goal.text, asin=goal.asin, reward=reward, turns=tuple(turns))


def _until_seen(session: Session, query: str, asin: str) -> Iterator[str]:
    """The actions up to the results page that shows ``asin``; none if no page does."""
    actions = [f"search[{query}]", *[f"click[{NEXT}]"] * (_NUM_PAGES - 1)]
    for number, action in enumerate(actions, start=1):
        session.act(action)
        if asin.lower() in session.page.links:
            yield from actions[:number]
            return
