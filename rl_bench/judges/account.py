"""What judging takes: requests, tokens, dollars; and when an evaluation has taken enough.

Each call of a judge has an account of its own. Calls under way together, which an evaluation makes
that asks in several ways, spend from one budget: the limit is the evaluation's.
"""

from dataclasses import dataclass

from rl_bench.config import JudgeConfig
from rl_bench.endpoint.failures import AskError, FailureKind
from rl_bench.judges.base import JudgeUsage

MILLION = 1e6


@dataclass(slots=True)
class Budget:
    """What the accounts of one evaluation have spent together."""

    config: JudgeConfig
    num_prompt_tokens: int = 0
    num_tokens: int = 0

    def add(self, num_prompt_tokens: int, num_tokens: int) -> None:
        """An answer was received on one of the accounts."""
        self.num_prompt_tokens += num_prompt_tokens
        self.num_tokens += num_tokens

    def check(self) -> None:
        """Called before each request; those in flight when the limit is reached are still paid.

        Raises:
            AskError: The evaluation has cost as much as it may.
        """
        limit = self.config.max_cost_usd
        spent = _cost_usd(self.config, self.num_prompt_tokens, self.num_tokens)
        if limit is not None and spent >= limit:
            raise AskError(
                f"cost limit: judging may cost ${limit:g} an evaluation",
                cure="Raise max_cost_usd of the judge",
                kind=FailureKind.CLOSED,
            )


@dataclass(slots=True)
class Account:
    """Counts of one call while its questions are asked; they are paid from ``budget``."""

    budget: Budget
    num_requests: int = 0
    num_retries: int = 0
    num_cached: int = 0
    num_prompt_tokens: int = 0
    num_tokens: int = 0

    @property
    def cost_usd(self) -> float:
        """What was answered so far, by the config's prices."""
        return _cost_usd(self.budget.config, self.num_prompt_tokens, self.num_tokens)

    def count_request(self) -> None:
        """A request is sent."""
        self.num_requests += 1

    def add(self, num_prompt_tokens: int, num_tokens: int) -> None:
        """An answer was received, readable or not: it is paid for either way."""
        self.num_prompt_tokens += num_prompt_tokens
        self.num_tokens += num_tokens
        self.budget.add(num_prompt_tokens, num_tokens)

    def usage(self) -> JudgeUsage:
        """The counts as they are now."""
        return JudgeUsage(
            num_requests=self.num_requests,
            num_retries=self.num_retries,
            num_cached=self.num_cached,
            num_prompt_tokens=self.num_prompt_tokens,
            num_tokens=self.num_tokens,
            cost_usd=self.cost_usd,
        )


def _cost_usd(config: JudgeConfig, num_prompt_tokens: int, num_tokens: int) -> float:
    return (
        num_prompt_tokens * config.usd_per_million_input
        + num_tokens * config.usd_per_million_output
    ) / MILLION
