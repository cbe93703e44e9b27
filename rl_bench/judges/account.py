"""What one evaluation's judging takes: requests, tokens, dollars; and when it has taken enough."""

from dataclasses import dataclass

from rl_bench.config import JudgeConfig
from rl_bench.judges.base import JudgeUsage
from rl_bench.judges.failures import AskError, FailureKind

MILLION = 1e6


@dataclass(slots=True)
class Account:
    """Counts while questions are asked."""

    config: JudgeConfig
    num_requests: int = 0
    num_retries: int = 0
    num_cached: int = 0
    num_prompt_tokens: int = 0
    num_tokens: int = 0

    @property
    def cost_usd(self) -> float:
        """What was answered so far, by the config's prices."""
        return (
            self.num_prompt_tokens * self.config.usd_per_million_input
            + self.num_tokens * self.config.usd_per_million_output
        ) / MILLION

    def add(self, num_prompt_tokens: int, num_tokens: int) -> None:
        """An answer was received, readable or not: it is paid for either way."""
        self.num_prompt_tokens += num_prompt_tokens
        self.num_tokens += num_tokens

    def check(self) -> None:
        """Called before each request; those in flight when the limit is reached are still paid.

        Raises:
            AskError: The evaluation has cost as much as it may.
        """
        limit = self.config.max_cost_usd
        if limit is not None and self.cost_usd >= limit:
            raise AskError(
                f"cost limit: judging may cost ${limit:g} an evaluation",
                cure="Raise max_cost_usd of the judge",
                kind=FailureKind.CLOSED,
            )

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
