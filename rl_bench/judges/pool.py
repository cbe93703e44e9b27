"""The judge as tasks know it: votes on items, asked concurrently, retried, cached and paid for.

A vote has a slot from its first attempt to its last, so requests in flight never exceed the
config's ``max_concurrency``. An attempt that failed is repeated with growing, jittered waits; an
answer that cannot be read is asked for again at once, out of the same number of attempts. When the
endpoint is closed to everyone (`rl_bench.endpoint.gate`), what is left is unjudged and says why.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Self, TypeVar

from envs.text_store import TextStore
from rl_bench.config import JudgeConfig
from rl_bench.endpoint.client import FIRST_WAIT_S
from rl_bench.endpoint.failures import AskError, FailureKind
from rl_bench.endpoint.gate import Gate
from rl_bench.endpoint.persist import persist
from rl_bench.judges.account import Account, Budget
from rl_bench.judges.base import Judged, JudgeReply, JudgeRequest, Votes
from rl_bench.judges.client import ChatClient
from rl_bench.judges.endpoint import Endpoint, RemoteEndpoint
from rl_bench.judges.reply_cache import ReplyCache, reply_key

T = TypeVar("T")

CACHE_FILE = Path("judges", "replies.sqlite")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session(Generic[T]):
    """What the votes of one `JudgePool.ask` share."""

    parse: Callable[[JudgeReply], T]
    repeat: int
    account: Account
    gate: Gate
    identity: str


class JudgePool:
    """Votes of one judge; implements `rl_bench.judges.base.Judge`.

    Args:
        config: Which judge, and how patiently it is asked.
        endpoint: Where.
        cache: Replies of earlier evaluations.
        first_wait_s: Before the second attempt at a vote.
    """

    def __init__(
        self,
        config: JudgeConfig,
        endpoint: Endpoint,
        *,
        cache: ReplyCache,
        first_wait_s: float = FIRST_WAIT_S,
    ) -> None:
        self._config = config
        self._endpoint = endpoint
        self._client = ChatClient(config, endpoint)
        self._cache = cache
        self._first_wait_s = first_wait_s
        self._slots = asyncio.Semaphore(config.max_concurrency)
        self._gate = Gate(f"judge {config.name}")
        self._budget = Budget(config)
        self._num_asks = 0

    @classmethod
    def from_config(
        cls,
        config: JudgeConfig,
        *,
        cache: Path,
        log_folder: Path,
        first_wait_s: float = FIRST_WAIT_S,
    ) -> Self:
        """A judge that has asked and started nothing yet.

        Args:
            config: Which judge.
            cache: The cache's root; replies are kept below it.
            log_folder: Gets the log of a server that has to be started.
            first_wait_s: Before the second attempt at a vote.
        """
        replies = ReplyCache(TextStore(cache / CACHE_FILE))
        return cls(config, _endpoint(config, log_folder), cache=replies, first_wait_s=first_wait_s)

    async def ask(
        self,
        requests: Sequence[JudgeRequest],
        *,
        parse: Callable[[JudgeReply], T],
        repeat: int = 0,
    ) -> Judged[T]:
        """Asks for the configured number of votes on each request; see `Judge.ask`.

        Calls that overlap are one evaluation's: they share what they learn of the endpoint, and
        what they may cost. The usage is each call's own.
        """
        if self._num_asks == 0:
            self._gate, self._budget = Gate(f"judge {self._config.name}"), Budget(self._config)
        account = Account(self._budget)
        self._num_asks += 1
        try:
            session = _Session(
                parse=parse,
                repeat=repeat,
                account=account,
                gate=self._gate,
                identity=await self._endpoint.identity(),
            )
            votes = await self._collect(requests, session)
        except AskError as error:  # the endpoint has no identity, so it can have no answers
            votes = [Votes(values=(), failures=(str(error),)) for _ in requests]
        finally:
            self._num_asks -= 1
        return Judged(votes=tuple(votes), usage=account.usage(), notes=self._client.notes)

    async def close(self) -> None:
        """Ends connections, the server if there is one, and the cache; safe to call twice."""
        await self._client.close()
        await self._endpoint.close()
        self._cache.close()

    async def _collect(
        self, requests: Sequence[JudgeRequest], session: _Session[T]
    ) -> list[Votes[T]]:
        async with asyncio.TaskGroup() as group:
            votes = [
                [
                    group.create_task(self._vote(request, number, session))
                    for number in range(self._config.num_votes)
                ]
                for request in requests
            ]
        return [_joined([vote.result() for vote in of_item]) for of_item in votes]

    async def _vote(self, request: JudgeRequest, number: int, session: _Session[T]) -> Votes[T]:
        """One vote, or why there is none."""
        seed = session.repeat * self._config.num_votes + number
        body = self._client.body(request, seed=seed)
        key = reply_key(body, identity=session.identity, vote=number, repeat=session.repeat)
        if (kept := self._cache.get(key)) is not None:
            try:
                value = _vote_in(kept, session.parse)
            except AskError:
                pass  # it was readable when it was kept: the task reads otherwise now
            else:
                session.account.num_cached += 1
                return Votes(values=(value,))
        try:
            async with self._slots:
                reply, value = await self._persist(request, seed, session)
        except AskError as error:
            return Votes(values=(), failures=(str(error),))
        self._cache.put(key, reply)
        return Votes(values=(value,))

    async def _persist(
        self, request: JudgeRequest, seed: int, session: _Session[T]
    ) -> tuple[JudgeReply, T]:
        """Asks until there is a readable answer, as often as the config says."""

        async def attempt(number: int) -> tuple[JudgeReply, T]:
            session.account.budget.check()
            session.account.num_retries += number > 0
            return await self._attempt(request, seed, session)

        return await persist(
            attempt,
            gate=session.gate,
            num_retries=self._config.num_retries,
            first_wait_s=self._first_wait_s,
        )

    async def _attempt(
        self, request: JudgeRequest, seed: int, session: _Session[T]
    ) -> tuple[JudgeReply, T]:
        reply = await self._client.ask(request, seed=seed, account=session.account)
        session.gate.answered()
        return reply, _vote_in(reply, session.parse)


def _vote_in(reply: JudgeReply, parse: Callable[[JudgeReply], T]) -> T:
    try:
        value = parse(reply)
    except ValueError as error:
        raise AskError(f"no verdict: {error}", kind=FailureKind.UNREADABLE) from error
    except Exception as error:  # a boundary: the reader met what its writer did not think of
        why = f"no verdict: {type(error).__name__}: {error}"
        raise AskError(why, kind=FailureKind.UNREADABLE) from error
    if isinstance(value, float) and not math.isfinite(value):
        raise AskError(f"no verdict: {value} is no vote", kind=FailureKind.UNREADABLE)
    return value


def _joined(votes: Sequence[Votes[T]]) -> Votes[T]:
    return Votes(
        values=tuple(value for vote in votes for value in vote.values),
        failures=tuple(failure for vote in votes for failure in vote.failures),
    )


def _endpoint(config: JudgeConfig, log_folder: Path) -> Endpoint:
    if config.kind == "openai":
        return RemoteEndpoint(config)
    from rl_bench.judges.vllm_server import VllmServer  # only where there is one to start

    return VllmServer(config, log_folder=log_folder)
