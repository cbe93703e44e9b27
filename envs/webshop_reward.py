"""WebShop's reward: how well a purchase answers a goal.

The reward is the share of the goal's attributes, options and price limit that the purchase meets,
times a factor for being the right type of product. Rules and numbers are those of Yao et al. 2022
(WebShop), princeton-nlp/WebShop at 64fa2a5, with what is odd about them: a synthetic goal's option
is compared together with its name, and a wrong option can match. Fuzzy matching is thefuzz's; the
installed release decides like the original's 0.19.0 on every pair of option or attribute that the
small catalogue's synthetic goals compare with their own product's options and with all attributes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from thefuzz.fuzz import token_set_ratio

from envs.webshop_catalogue import Product
from envs.webshop_goals import Goal
from envs.webshop_nouns import NounTagger

_COLOURS = (
    "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze "
    "brown burgundy camel camo caramel champagne charcoal cheetah chestnut chocolate christmas "
    "coffee cognac copper coral cranberry cream crystal dark denim eggplant elephant espresso "
    "fuchsia gold granite grape graphite grass gray green grey heather indigo ivory ivy khaki "
    "lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha "
    "multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple "
    "rainbow red rose royal rust sand sapphire seashell silver skull slate steel stone "
    "stonewash sunflower tan taupe teal tiger turquoise violet walnut wheat white wine yellow"
)
COLOURS: Final = tuple(_COLOURS.split())
"""The original's colour words; the first that an option contains stands for it."""
_MATCH = 85
_TITLE_WITHOUT_NOUNS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """A purchase's reward and its parts.

    Attributes:
        total: In [0, 1].
        r_type: Factor for the product's type: 1, 0.5, 0.1 or 0.
        r_att: Share of the goal's attributes that are met.
        r_option: Share of its options; ``None`` when it wants none.
        r_price: Whether the price is within the limit.
        query_match: Whether the same search finds both products.
        category_match: Whether their category paths share two names.
        title_score: Share of the wanted title's nouns that the bought title has.
    """

    total: float
    r_type: float
    r_att: float
    r_option: float | None
    r_price: bool
    query_match: bool
    category_match: bool
    title_score: float
    num_attr_matches: int
    num_option_matches: int

    def parts(self) -> dict[str, float | bool]:
        """The parts under the original's names; ``r_option`` only when there is one."""
        parts = {
            "r_type": self.r_type,
            "r_att": self.r_att,
            "r_price": self.r_price,
            "query_match": self.query_match,
            "category_match": self.category_match,
            "title_score": self.title_score,
        }
        return parts if self.r_option is None else parts | {"r_option": self.r_option}


def reward_of(
    bought: Product,
    *,
    options: Mapping[str, str],
    price: float,
    goal: Goal,
    wanted: Product,
    tagger: NounTagger,
) -> Reward:
    """The reward for a purchase.

    Args:
        bought: The product bought.
        options: The options chosen, by name.
        price: What it cost, in dollars.
        goal: What was asked for.
        wanted: The product that the goal was made of.
        tagger: Finds the titles' nouns.
    """
    r_price = price <= goal.price_upper
    num_attributes = _count_attributes(bought, goal.attributes)
    num_options = _count_options(options.values(), goal.options)
    num_wanted = len(goal.attributes) + len(goal.options) + 1
    query_match = bought.query == wanted.query
    category_match = len(_categories(bought) & _categories(wanted)) >= 2
    title_score = score_title(tagger.nouns(bought.title), wanted=tagger.nouns(wanted.title))
    r_type = type_factor(title_score, matches=query_match or category_match)
    return Reward(
        total=(num_attributes + num_options + r_price) / num_wanted * r_type,
        r_type=r_type,
        r_att=num_attributes / len(goal.attributes),
        r_option=num_options / len(goal.options) if goal.options else None,
        r_price=r_price,
        query_match=query_match,
        category_match=category_match,
        title_score=title_score,
        num_attr_matches=num_attributes,
        num_option_matches=num_options,
    )


def score_title(bought: Sequence[str], *, wanted: Sequence[str]) -> float:
    """Distinct nouns in common, over the wanted title's nouns with repetitions."""
    if not wanted:
        return _TITLE_WITHOUT_NOUNS
    return len(set(bought) & set(wanted)) / len(wanted)


def type_factor(title_score: float, *, matches: bool) -> float:
    """How far the product is of the right type; ``matches``: by search or by category."""
    if title_score == 0.0:
        return 0.0
    if title_score < 0.1:
        return 0.1
    return 1.0 if matches or title_score > 0.2 else 0.5


def _categories(product: Product) -> set[str]:
    return {name.strip() for name in product.product_category.split("›")}


def _count_attributes(bought: Product, wanted: Sequence[str]) -> int:
    return sum(_has_attribute(bought, attribute) for attribute in wanted)


def _has_attribute(bought: Product, wanted: str) -> bool:
    """By a similar attribute, or by the words anywhere on the product's pages."""
    return any(token_set_ratio(has, wanted) > _MATCH for has in bought.attributes) or any(
        wanted in text.lower()
        for text in (bought.title, " ".join(bought.bullets), bought.description)
    )


def _count_options(chosen: Iterable[str], wanted: Mapping[str, str] | Sequence[str]) -> int:
    """How many of the wanted options any chosen one is like."""
    colours = [_to_colour(value) for value in chosen]
    pairs = wanted.items() if isinstance(wanted, Mapping) else wanted
    goals = [_to_colour(option) for option in pairs]
    return sum(any(token_set_ratio(has, goal) > _MATCH for has in colours) for goal in goals)


def _to_colour(option: str | tuple[str, str]) -> str:
    """The first colour word in the option, else the option as text.

    A name with its value, as synthetic goals have it, contains a colour only if it equals one.
    """
    return next((colour for colour in COLOURS if colour in option), str(option))
