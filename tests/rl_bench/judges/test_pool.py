"""The judge pool against an endpoint that answers by a rule and fails in every way real ones do."""

import asyncio
import time
from pathlib import Path

import pytest

from envs.text_store import TextStore
from rl_bench.judges.base import JudgeReply, JudgeRequest, Votes
from rl_bench.judges.pool import CACHE_FILE
from tests.rl_bench.judges.scene import (
    is_odd,
    opened,
    reasons,
    request,
    requests,
    yes_or_no,
)
from tests.rl_bench.judges.stand_in import PASSING, Answer, Asked, Fault, StandInJudge


def patience(fault: Fault) -> float:
    """A time-out in seconds that only those faults meet which are to meet it."""
    return 0.4 if fault in (Fault.HANG, Fault.TRICKLE) else 10.0


async def test_votes_come_in_order_and_within_the_bound(
    judge: StandInJudge, tmp_path: Path
) -> None:
    judge.rule = lambda asked: Answer(text=is_odd(asked).text, delay_s=0.01)
    prices = {"usd_per_million_input": 2.0, "usd_per_million_output": 10.0}
    async with opened(judge.config(max_concurrency=8, timeout_s=20, **prices), tmp_path) as pool:
        judged = await pool.ask(requests(200), parse=yes_or_no)
    assert [vote.values for vote in judged.votes] == [(float(i % 2),) for i in range(200)]
    assert 4 < judge.max_in_flight <= 8
    usage = judged.usage
    assert (usage.num_requests, usage.num_retries, usage.num_cached) == (200, 0, 0)
    assert (usage.num_prompt_tokens, usage.num_tokens) == (20_000, 2_000)
    assert usage.cost_usd == pytest.approx(0.04 + 0.02)
    assert usage.metrics()["judge/num_requests"] == 200.0


async def test_nothing_is_asked_for_nothing(judge: StandInJudge, tmp_path: Path) -> None:
    async with opened(judge.config(), tmp_path) as pool:
        judged = await pool.ask([], parse=yes_or_no)
    assert judged.votes == ()
    assert judge.num_requests == 0


PASSING_VERDICTS = [
    *PASSING,
    Fault.MALFORMED_VERDICT,
    Fault.EMPTY,
    Fault.NULL,
    Fault.REFUSAL,
    Fault.CONTENT_FILTER,
    Fault.LENGTH,
]
"""What may be better at the next attempt."""


@pytest.mark.parametrize("fault", PASSING_VERDICTS, ids=lambda fault: fault.name)
async def test_a_passing_fault_costs_an_attempt(
    judge: StandInJudge, tmp_path: Path, fault: Fault
) -> None:
    judge.retry_after_s = 0.02
    judge.spoil = lambda asked: fault if asked.number < 3 else None
    async with opened(judge.config(timeout_s=patience(fault), num_retries=3), tmp_path) as pool:
        judged = await pool.ask(requests(6), parse=yes_or_no)
    assert [vote.values for vote in judged.votes] == [(float(i % 2),) for i in range(6)]
    assert (judged.usage.num_requests, judged.usage.num_retries) == (9, 3)


LASTING = {
    Fault.HANG: "after 2 attempts: no answer within 0.4 s",
    Fault.RESET: "after 2 attempts: the connection failed: ",
    Fault.MALFORMED_JSON: "after 2 attempts: the body is no chat completion",
    Fault.HTML: "after 2 attempts: the body is no chat completion: '<html>",
    Fault.MALFORMED_VERDICT: "after 2 attempts: no verdict: neither yes nor no: 'That is",
    Fault.EMPTY: "after 2 attempts: empty answer",
    Fault.NULL: "after 2 attempts: empty answer",
    Fault.REFUSAL: "after 2 attempts: the judge refuses: I cannot help",
    Fault.CONTENT_FILTER: "after 2 attempts: empty answer (content_filter)",
    Fault.LENGTH: "after 2 attempts: empty answer, cut by its limit of tokens",
    Fault.BAD_REQUEST: "400: the prompt is too long",
}


@pytest.mark.parametrize("fault", LASTING, ids=lambda fault: fault.name)
async def test_a_lasting_fault_of_one_item_leaves_it_unjudged(
    judge: StandInJudge, tmp_path: Path, fault: Fault
) -> None:
    judge.spoil = lambda asked: fault if asked.text.endswith(" 1") else None
    async with opened(judge.config(timeout_s=patience(fault), num_retries=1), tmp_path) as pool:
        judged = await pool.ask(requests(4), parse=yes_or_no)
    assert [vote.is_judged for vote in judged.votes] == [True, False, True, True]
    (reason,) = reasons(judged.votes)
    assert reason.startswith(LASTING[fault])
    assert judge.num_requests == (4 if fault is Fault.BAD_REQUEST else 5)


CLOSING = {
    Fault.UNAUTHORIZED: "401: Incorrect API key provided: ***",
    Fault.NO_CREDIT: "402: no credit is left",
    Fault.FORBIDDEN: "403: your country is not served",
    Fault.NO_MODEL: "404: the model has been withdrawn",
    Fault.NO_QUOTA: "429: you exceeded your quota",
}


@pytest.mark.parametrize("fault", CLOSING, ids=lambda fault: fault.name)
async def test_what_would_answer_nobody_stops_everyone(
    judge: StandInJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "secret-key")
    judge.spoil = lambda asked: fault if asked.number >= 20 else None
    config = judge.config(max_concurrency=4, key_variable="JUDGE_KEY")
    async with opened(config, tmp_path) as pool:
        judged = await pool.ask(requests(200), parse=yes_or_no)
        assert sum(vote.is_judged for vote in judged.votes) == 20
        assert reasons(judged.votes) == {CLOSING[fault]}
        assert judge.num_requests <= 20 + 4
        assert judge.asked[0].headers["authorization"] == "Bearer secret-key"
        judge.spoil = lambda asked: None
        again = await pool.ask(requests(200), parse=yes_or_no)
    assert all(vote.is_judged for vote in again.votes)
    assert again.usage.num_cached == 20


async def test_a_key_that_is_not_set_is_asked_for(judge: StandInJudge, tmp_path: Path) -> None:
    async with opened(judge.config(key_variable="RL_BENCH_NO_SUCH_KEY"), tmp_path) as pool:
        judged = await pool.ask(requests(3), parse=yes_or_no)
    (reason,) = reasons(judged.votes)
    assert "RL_BENCH_NO_SUCH_KEY is not set" in reason
    assert judge.num_requests == 0


async def test_the_users_openai_key_goes_nowhere_else(
    judge: StandInJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-private")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with opened(judge.config(), tmp_path) as pool:
        judged = await pool.ask(requests(1), parse=yes_or_no)
    assert judged.votes[0].is_judged
    assert "sk-private" not in str(judge.asked[0].headers)


async def test_timeouts_now_and_then_and_then_an_outage(
    judge: StandInJudge, tmp_path: Path
) -> None:
    judge.spoil = lambda asked: (
        Fault.HANG if asked.number >= 150 or asked.number % 10 in (1, 4, 8) else None
    )
    async with opened(judge.config(timeout_s=0.8, max_concurrency=16), tmp_path) as pool:
        begin = time.monotonic()
        judged = await pool.ask(requests(400), parse=yes_or_no)
        assert time.monotonic() - begin < 90
        num_judged = sum(vote.is_judged for vote in judged.votes)
        assert 90 <= num_judged <= 105
        for number, vote in enumerate(judged.votes):
            assert vote.values in ((), (float(number % 2),))
        outages = {reason for reason in reasons(judged.votes) if reason.startswith("outage: ")}
        assert len(outages) == 1
        assert "no answer within 0.8 s" in outages.pop()
        judge.spoil = lambda asked: None
        again = await pool.ask(requests(400), parse=yes_or_no)
    assert all(vote.is_judged for vote in again.votes)
    assert again.usage.num_cached == num_judged


async def test_timeouts_alone_are_no_outage(
    judge: StandInJudge, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    judge.spoil = lambda asked: Fault.HANG if asked.number % 10 in (1, 4, 8) else None
    async with opened(judge.config(timeout_s=0.8), tmp_path) as pool:
        judged = await pool.ask(requests(150), parse=yes_or_no)
    assert sum(vote.is_judged for vote in judged.votes) >= 145
    assert judged.usage.num_retries >= 45
    assert 1 <= len([line for line in caplog.messages if "no answer within" in line]) <= 2


async def test_a_dead_port_ends_soon_and_lives_again(judge: StandInJudge, tmp_path: Path) -> None:
    judge.go_down()
    async with opened(judge.config(num_retries=2), tmp_path) as pool:
        begin = time.monotonic()
        judged = await pool.ask(requests(500), parse=yes_or_no)
        assert time.monotonic() - begin < 60
        assert not any(vote.is_judged for vote in judged.votes)
        assert judged.usage.num_requests < 100
        judge.come_up()
        again = await pool.ask(requests(50), parse=yes_or_no)
    assert all(vote.is_judged for vote in again.votes)


async def test_questions_under_way_together_share_an_outage(
    judge: StandInJudge, tmp_path: Path
) -> None:
    judge.go_down()
    async with opened(judge.config(num_retries=2), tmp_path) as pool:
        asks = [pool.ask([request(number)], parse=yes_or_no) for number in range(300)]
        many = await asyncio.gather(*asks)
        assert not any(judged.votes[0].is_judged for judged in many)
        assert sum(judged.usage.num_requests for judged in many) < 100
        judge.come_up()
        assert (await pool.ask([request(1)], parse=yes_or_no)).votes[0].is_judged


async def test_a_pause_is_everyones(judge: StandInJudge, tmp_path: Path) -> None:
    limited: list[int] = []

    def limit_some_once(asked: Asked) -> Fault | None:
        if asked.number < 20 or len(limited) == 10 or asked.body["messages"] in seen:
            return None
        seen.append(asked.body["messages"])
        limited.append(asked.number)
        return Fault.RATE_LIMIT

    seen: list[object] = []
    judge.retry_after_s = 0.3
    judge.spoil = limit_some_once
    async with opened(judge.config(num_retries=1), tmp_path) as pool:
        begin = time.monotonic()
        judged = await pool.ask(requests(60), parse=yes_or_no)
        took = time.monotonic() - begin
    assert all(vote.is_judged for vote in judged.votes)
    assert judged.usage.num_retries == len(limited) == 10
    assert took >= 0.3


async def test_what_may_be_spent_is_the_limit(judge: StandInJudge, tmp_path: Path) -> None:
    config = judge.config(usd_per_million_input=10.0, max_cost_usd=0.02, max_concurrency=2)
    async with opened(config, tmp_path) as pool:
        judged = await pool.ask(requests(50), parse=yes_or_no)
        assert 20 <= sum(vote.is_judged for vote in judged.votes) <= 21
        (reason,) = reasons(judged.votes)
        assert reason.startswith("cost limit: judging may cost $0.02 an evaluation")
        again = await pool.ask(requests(50), parse=yes_or_no)
    assert sum(vote.is_judged for vote in again.votes) >= 40  # the next evaluation's own budget


async def test_calls_under_way_together_spend_one_budget(
    judge: StandInJudge, tmp_path: Path
) -> None:
    config = judge.config(usd_per_million_input=10.0, max_cost_usd=0.02, max_concurrency=2)
    async with opened(config, tmp_path) as pool:
        asks = [pool.ask(requests(30, start=start), parse=yes_or_no) for start in (0, 30)]
        both = await asyncio.gather(*asks)
    assert 20 <= judge.num_requests <= 21
    for judged in both:
        num_judged = sum(vote.is_judged for vote in judged.votes)
        assert judged.usage.num_requests == num_judged
        assert judged.usage.cost_usd == pytest.approx(0.001 * num_judged)
    assert sum(judged.usage.num_requests for judged in both) == judge.num_requests


async def test_a_count_beyond_all_bounds_is_estimated(judge: StandInJudge, tmp_path: Path) -> None:
    judge.rule = lambda asked: Answer(text="yes", num_prompt_tokens=10**400, num_tokens=10**12)
    config = judge.config(usd_per_million_input=10.0, max_cost_usd=1.0)
    async with opened(config, tmp_path) as pool:
        judged = await pool.ask(requests(3), parse=yes_or_no)
    assert [vote.values for vote in judged.votes] == [(1.0,)] * 3
    assert 0 < judged.usage.num_prompt_tokens < 100
    assert 0 < judged.usage.num_tokens < 200


@pytest.mark.parametrize("fault", [Fault.WRONG_USAGE, Fault.NO_USAGE], ids=lambda f: f.name)
async def test_tokens_that_nobody_counts_are_estimated(
    judge: StandInJudge, tmp_path: Path, fault: Fault
) -> None:
    judge.spoil = lambda asked: fault
    long = JudgeRequest(
        item_id="long", messages=({"role": "user", "content": "odd? " * 800 + "3"},), max_tokens=5
    )
    async with opened(judge.config(), tmp_path) as pool:
        judged = await pool.ask([long], parse=yes_or_no)
    assert judged.votes[0].values == (1.0,)
    assert judged.usage.num_prompt_tokens == 1000
    assert judged.usage.num_tokens > 0


async def test_votes_are_asked_each_and_repeats_anew(judge: StandInJudge, tmp_path: Path) -> None:
    judge.rule = lambda asked: Answer(text="yes" if asked.number % 3 else "no")
    async with opened(judge.config(num_votes=3), tmp_path) as pool:
        first = await pool.ask(requests(5), parse=yes_or_no)
        assert all(sorted(vote.values) != [1.0] for vote in first.votes)
        assert sum(len(vote.values) for vote in first.votes) == 15
        assert await pool.ask(requests(5), parse=yes_or_no, repeat=1) is not None
        assert judge.num_requests == 30
        same = await pool.ask(requests(5), parse=yes_or_no)
    assert judge.num_requests == 30
    assert same.votes == first.votes
    assert (same.usage.num_cached, same.usage.num_requests, same.usage.cost_usd) == (15, 0, 0.0)


async def test_a_lost_vote_is_told_beside_the_others(judge: StandInJudge, tmp_path: Path) -> None:
    judge.spoil = lambda asked: Fault.EMPTY if asked.number == 1 else None
    config = judge.config(num_votes=3, num_retries=0, max_concurrency=1)
    async with opened(config, tmp_path) as pool:
        judged = await pool.ask([request(3)], parse=yes_or_no)
    assert judged.votes == (Votes(values=(1.0, 1.0), failures=("after 1 attempt: empty answer",)),)


async def test_the_cache_outlives_the_pool_and_tells_judges_apart(
    judge: StandInJudge, tmp_path: Path
) -> None:
    for fields, expected in (
        ({}, 10),
        ({}, 10),
        ({"max_concurrency": 3}, 10),
        ({"model_id": "judge-2"}, 20),
        ({"temperature": 0.7}, 30),
        ({"max_tokens": 9}, 40),
    ):
        async with opened(judge.config(**fields), tmp_path) as pool:
            judged = await pool.ask(requests(10), parse=yes_or_no)
        assert all(vote.is_judged for vote in judged.votes)
        assert judge.num_requests == expected


async def test_only_readable_answers_are_kept(judge: StandInJudge, tmp_path: Path) -> None:
    judge.spoil = lambda asked: Fault.MALFORMED_VERDICT
    async with opened(judge.config(num_retries=0), tmp_path) as pool:
        await pool.ask(requests(3), parse=yes_or_no)
        judge.spoil = lambda asked: None
        await pool.ask(requests(3), parse=yes_or_no)
        assert judge.num_requests == 6
        # A task that reads otherwise now does not take an answer that it cannot read.
        judge.rule = lambda asked: Answer(text="YES")
        judged = await pool.ask(requests(3), parse=_shouted)
    assert [vote.values for vote in judged.votes] == [("YES",)] * 3


def _shouted(reply: JudgeReply) -> str:
    if not reply.text.isupper():
        raise ValueError("not shouted")
    return reply.text


async def test_a_damaged_cache_costs_the_cache_alone(judge: StandInJudge, tmp_path: Path) -> None:
    (tmp_path / CACHE_FILE).parent.mkdir()
    (tmp_path / CACHE_FILE).write_bytes(b"nothing that SQLite knows" * 100)
    async with opened(judge.config(), tmp_path) as pool:
        judged = await pool.ask(requests(3), parse=yes_or_no)
        assert all(vote.is_judged for vote in judged.votes)
    store = TextStore(tmp_path / CACHE_FILE)
    assert len(store) == 3
    store.close()
