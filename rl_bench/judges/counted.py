"""A judge whose votes are counted while they come in."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

from rl_bench.grading_status import OnItem
from rl_bench.judges.base import Judge, Judged, JudgeReply, JudgeRequest

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedJudge:
    """Another judge, with each readable vote told at once; implements `judges.base.Judge`.

    Attributes:
        num_votes: That ``judge`` is asked for on each request.
        stage: Entered with the number of votes wanted; gives what to call for each.
    """

    judge: Judge
    num_votes: int
    stage: Callable[[int], AbstractContextManager[OnItem]]

    async def ask(
        self,
        requests: Sequence[JudgeRequest],
        *,
        parse: Callable[[JudgeReply], T],
        repeat: int = 0,
    ) -> Judged[T]:
        """As `Judge.ask`; a vote is counted when it is read, once, also one out of the cache."""
        with self.stage(len(requests) * self.num_votes) as on_vote:

            def read(reply: JudgeReply) -> T:
                value = parse(reply)
                on_vote()
                return value

            return await self.judge.ask(requests, parse=read, repeat=repeat)

    async def close(self) -> None:
        """Closes the judge itself."""
        await self.judge.close()
