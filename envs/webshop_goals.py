"""WebShop's goals: drawing prices, making goals of products, and splitting them.

As in the original, the prices of ranges and then the goals' price limits come from one stream of
random numbers, and the goals are shuffled with a seed of their own. The original leaves that stream
unseeded, so its prices differ from process to process; here a seed fixes them. Sources: Yao et al.
2022 (WebShop); the evaluation on goals 0-99 is that of Agent² RL-Bench.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from envs.webshop_catalogue import HumanInstruction, Product

GoalKind: TypeAlias = Literal["synthetic", "human"]
SHUFFLE_SEED: Final = 233
DEFAULT_PRICE: Final = 100.0
NO_LIMIT: Final = 1_000_000.0
"""The limit of a goal that names none, in dollars."""
_STEPS: Final = tuple(10.0 * i for i in range(1, 100))
_NUM_STEPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What to buy. The reward compares a purchase with it; see `envs.webshop_reward`.

    Attributes:
        asin: The product that the goal was made of.
        text: The instruction that the player reads.
        wording: The instruction without its price limit.
        options: Wanted options: names to values (synthetic goals), or values (human goals).
        price_upper: The most that may be paid, in dollars.
        weight: How often the original draws the goal, relative to the others.
    """

    asin: str
    text: str
    wording: str
    attributes: tuple[str, ...]
    options: Mapping[str, str] | tuple[str, ...]
    price_upper: float
    weight: float = 1.0

    @property
    def option_values(self) -> tuple[str, ...]:
        """The wanted values, whatever their names."""
        return tuple(self.options.values() if isinstance(self.options, Mapping) else self.options)


def draw_prices(products: Sequence[Product], rng: random.Random) -> dict[str, float]:
    """What each product costs, in dollars: a range's price is drawn within it."""
    prices = {}
    for product in products:
        if len(product.pricing) > 1:
            prices[product.asin] = rng.uniform(*product.pricing[:2])
        else:
            prices[product.asin] = product.pricing[0] if product.pricing else DEFAULT_PRICE
    return prices


def make_goals(
    products: Sequence[Product],
    prices: Mapping[str, float],
    rng: random.Random,
    *,
    kind: GoalKind = "synthetic",
) -> tuple[Goal, ...]:
    """All goals of a catalogue, shuffled.

    Args:
        products: In catalogue order, which the draws depend on.
        prices: Of every product.
        rng: In the state that `draw_prices` left it in.
        kind: Goals made of options, or what people asked for.
    """
    if kind == "human":
        goals = list(_human_goals(products, prices, rng))
    else:
        goals = _weighted(list(_synthetic_goals(products, prices, rng)))
    random.Random(SHUFFLE_SEED).shuffle(goals)  # noqa: S311  the original's order
    return tuple(goals)


def split_goals(
    goals: Sequence[Goal], *, num_held_out: int
) -> tuple[tuple[Goal, ...], tuple[Goal, ...]]:
    """The evaluation goals, the first ``num_held_out``, and the train goals.

    A train goal is about a product that no evaluation goal is about, and is worded otherwise than
    each of them: goals of one product differ in a colour or a size only.
    """
    held_out = tuple(goals[:num_held_out])
    asins = {goal.asin for goal in held_out}
    wordings = {goal.wording for goal in held_out}
    train = (g for g in goals[num_held_out:] if g.asin not in asins and g.wording not in wordings)
    return held_out, tuple(train)


def _synthetic_goals(
    products: Sequence[Product], prices: Mapping[str, float], rng: random.Random
) -> Iterator[Goal]:
    """One goal for each combination of a product's options."""
    for product in products:
        if product.instruction is None or not product.instruction_attributes:
            continue
        price_upper, price_text = _limit(prices[product.asin], rng)
        names = sorted(product.options)
        for values in itertools.product(*(product.options[name] for name in names)):
            options = dict(zip(names, values, strict=True))
            wanted = ", and ".join(f"{name}: {value}" for name, value in options.items())
            wording = f"{product.instruction} with {wanted}" if wanted else product.instruction
            yield Goal(
                asin=product.asin,
                text=wording + price_text,
                wording=wording,
                attributes=product.instruction_attributes,
                options=options,
                price_upper=price_upper,
            )


def _human_goals(
    products: Sequence[Product], prices: Mapping[str, float], rng: random.Random
) -> Iterator[Goal]:
    for product in products:
        for instruction in product.human_instructions:
            if instruction.attributes:
                yield _human_goal(product, instruction, _limit(prices[product.asin], rng))


def _human_goal(product: Product, instruction: HumanInstruction, limit: tuple[float, str]) -> Goal:
    wording = instruction.text.strip(".")
    return Goal(
        asin=product.asin,
        text=wording + limit[1],
        wording=wording,
        attributes=instruction.attributes,
        options=instruction.options,
        price_upper=limit[0],
    )


def _limit(price: float, rng: random.Random) -> tuple[float, str]:
    """A price limit in dollars above ``price``, and its words."""
    above = [step for step in _STEPS if step > price][:_NUM_STEPS]
    if len(above) < 2:
        return NO_LIMIT, ""
    upper = max(rng.sample(above, 2))
    return upper, f", and price lower than {upper:.2f} dollars"


def _weighted(goals: Sequence[Goal]) -> list[Goal]:
    """The goals, each weighing the mean of 1 / (goals with the attribute) over its attributes."""
    counts = Counter(attribute for goal in goals for attribute in goal.attributes)
    return [
        replace(goal, weight=sum(1.0 / counts[a] for a in goal.attributes) / len(goal.attributes))
        for goal in goals
    ]
