"""What a task asks of a judge: a language model that decides about answers.

A judge is asked for votes on items. What is asked, and how an answer is read, is the task's; how
requests are sent, retried, cached and paid for is the judge's. An item without a readable answer
has no vote: it is unjudged, never right or wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from envs.protocol import ChatMessage

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSpec:
    """A function that the judge must call: its name, and its arguments as a JSON schema."""

    name: str
    description: str = ""
    parameters: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRequest:
    """One question to the judge about one item.

    Attributes:
        item_id: For logs and errors.
        max_tokens: Of the answer, unless the judge's config says otherwise.
        temperature: Likewise.
        top_logprobs: Alternatives wanted for each token of the answer; 0: none.
        function: The judge must answer by calling it.
        json_object: The answer must be a JSON object.
    """

    item_id: str
    messages: tuple[ChatMessage, ...]
    max_tokens: int
    temperature: float = 0.0
    top_logprobs: int = 0
    function: FunctionSpec | None = None
    json_object: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReply:
    """The judge's answer.

    Attributes:
        text: The message; empty when a function was called.
        arguments: The called function's arguments as JSON text, ``None`` without a call.
        top_logprobs: For each token, alternative to log-probability in nats; empty if not asked.
        finish_reason: As the endpoint says: ``stop``, ``length`` for an answer that was cut, …
        num_prompt_tokens: As the endpoint counts.
        num_tokens: Of the answer, as the endpoint counts.
    """

    text: str
    arguments: str | None = None
    top_logprobs: tuple[Mapping[str, float], ...] = ()
    finish_reason: str = ""
    num_prompt_tokens: int = 0
    num_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Votes(Generic[T]):
    """The judge's votes on one item: those that could be read, and why others could not."""

    values: tuple[T, ...]
    failures: tuple[str, ...] = ()

    @property
    def is_judged(self) -> bool:
        """Whether there is any vote."""
        return bool(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeUsage:
    """What an evaluation's judging took. Requests exclude what the cache answered."""

    num_requests: int = 0
    num_retries: int = 0
    num_cached: int = 0
    num_prompt_tokens: int = 0
    num_tokens: int = 0
    cost_usd: float = 0.0

    def metrics(self) -> dict[str, float]:
        """As an evaluation's metrics, under ``judge/``."""
        return {f"judge/{name}": float(getattr(self, name)) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged(Generic[U]):
    """Votes in the order of the requests, and what they took.

    ``notes`` tell what was changed to suit the endpoint, e.g. that it takes no temperature.
    """

    votes: tuple[Votes[U], ...]
    usage: JudgeUsage = field(default_factory=JudgeUsage)
    notes: tuple[str, ...] = ()


class Judge(Protocol):
    """Votes on items; safe for concurrent use within one event loop."""

    async def ask(
        self,
        requests: Sequence[JudgeRequest],
        *,
        parse: Callable[[JudgeReply], T],
        repeat: int = 0,
    ) -> Judged[T]:
        """Asks for the configured number of votes on each request.

        Args:
            requests: One an item.
            parse: Reads a vote; raises `ValueError` if the answer holds none, and the judge is
                asked again.
            repeat: Gradings of one checkpoint beyond the first are judged anew.

        Returns:
            Always as many `Votes` as requests. A judge that answers nobody (a wrong key, no such
            model, an outage) leaves all of them unjudged within a bounded time, and says why.
        """
        ...

    async def close(self) -> None:
        """Ends connections and, if there is one, the server; safe to call twice."""
        ...
