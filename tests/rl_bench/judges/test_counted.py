"""Votes are counted as they are read, each once, on the real pool."""

from pathlib import Path

from rl_bench.grading_status import Phase, Tally
from rl_bench.judges.base import JudgeReply, JudgeRequest
from rl_bench.judges.counted import CountedJudge
from rl_bench.judges.pool import JudgePool
from tests.rl_bench.judges.stand_in import Answer, Asked, Fault, StandInJudge

REQUESTS = [
    JudgeRequest(
        item_id=f"item{n}", messages=({"role": "user", "content": f"Item {n}"},), max_tokens=5
    )
    for n in range(4)
]


def spoiled(asked: Asked) -> Fault | None:
    """The third item never gets a verdict, and the first answer of all cannot be read."""
    is_bad = asked.number == 0 or asked.text.endswith(" 2")
    return Fault.MALFORMED_VERDICT if is_bad else None


async def test_each_vote_is_counted_once_and_one_that_is_lost_never(tmp_path: Path) -> None:
    tally = Tally("r", task="t")
    told: list[str] = []

    def read(reply: JudgeReply) -> str:
        told.append(str(tally.status()))
        if reply.text != "yes":
            raise ValueError("no yes")
        return reply.text

    with StandInJudge(lambda asked: Answer(text="yes")) as stand_in:
        stand_in.spoil = spoiled
        config = stand_in.config(num_votes=2, num_retries=1, max_concurrency=1)
        pool = JudgePool.from_config(config, cache=tmp_path, log_folder=tmp_path, first_wait_s=0.01)
        judge = CountedJudge(
            judge=pool, num_votes=2, stage=lambda total: tally.stage(Phase.JUDGING, total)
        )
        try:
            judged = await judge.ask(REQUESTS, parse=read)
            assert [len(vote.values) for vote in judged.votes] == [2, 2, 0, 2]
            assert len(told) == 6 + 1 + 4  # readable, the first of all, the third item's
            assert told[0] == told[1] == "judging 0 of 8"
            assert told[-1] == "judging 5 of 8"
            assert str(tally.status()) == "scoring"

            told.clear()
            await judge.ask(REQUESTS[3:], parse=read)
            assert stand_in.num_requests == 11
            assert told == ["judging 0 of 2", "judging 1 of 2"]
        finally:
            await judge.close()
