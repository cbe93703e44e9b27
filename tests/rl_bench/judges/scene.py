"""A judge pool to be opened on a stand-in that answers by a rule, and what to ask it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rl_bench.config import JudgeConfig
from rl_bench.judges.base import Judge, JudgeReply, JudgeRequest, Votes
from rl_bench.judges.pool import JudgePool
from tests.rl_bench.judges.stand_in import Answer, Asked

FIRST_WAIT_S = 0.01


def is_odd(asked: Asked) -> Answer:
    number = int(asked.text.split()[-1])
    return Answer(text="yes" if number % 2 else "no")


def request(number: int, **fields: Any) -> JudgeRequest:
    return JudgeRequest(
        item_id=f"item{number}",
        messages=({"role": "user", "content": f"Is this odd: {number}"},),
        max_tokens=5,
        **fields,
    )


def requests(num: int, *, start: int = 0) -> list[JudgeRequest]:
    return [request(number) for number in range(start, start + num)]


def yes_or_no(reply: JudgeReply) -> float:
    if reply.text not in ("yes", "no"):
        raise ValueError(f"neither yes nor no: {reply.text!r}")
    return float(reply.text == "yes")


@asynccontextmanager
async def opened(config: JudgeConfig, folder: Path) -> AsyncIterator[Judge]:
    pool = JudgePool.from_config(config, cache=folder, log_folder=folder, first_wait_s=FIRST_WAIT_S)
    try:
        yield pool
    finally:
        await pool.close()
        await pool.close()


def reasons(votes: tuple[Votes[float], ...]) -> set[str]:
    return {failure for vote in votes for failure in vote.failures}
