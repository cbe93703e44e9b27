"""Tokens of a call, and what they cost by the driver's prices."""

from dataclasses import dataclass

from rl_bench.config import DriverConfig

MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Token counts as the provider told them; None: it did not.

    Attributes:
        input: All input, ``cached`` and ``cache_write`` included.
        output: Thoughts included.
        cached: Read from the provider's cache.
        cache_write: Written to it.
    """

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    cache_write: int | None = None

    @property
    def are_known(self) -> bool:
        """Whether input and output were told."""
        return self.input is not None and self.output is not None


NO_TOKENS = Tokens()


def cost_usd(tokens: Tokens, *, driver: DriverConfig) -> float | None:
    """US dollars; what was told of an answer that broke off is a lower bound; None: nothing was."""
    if tokens.input is None and tokens.output is None:
        return None
    plain_price = driver.usd_per_million_input
    cached = tokens.cached or 0
    written = tokens.cache_write or 0
    plain = max(0, (tokens.input or 0) - cached - written)
    cost = plain * plain_price + (tokens.output or 0) * driver.usd_per_million_output
    cost += cached * _price(driver.usd_per_million_cached_input, plain_price)
    cost += written * _price(driver.usd_per_million_cache_write, plain_price)
    return cost / MILLION


def _price(price: float | None, plain: float) -> float:
    return plain if price is None else price
