"""The judge pool against an endpoint that answers by a rule and fails in every way real ones do."""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from envs.text_store import TextStore
from rl_bench.config import JudgeConfig
from rl_bench.judges import client
from rl_bench.judges.base import FunctionSpec, Judge, JudgeReply, JudgeRequest, Votes
from rl_bench.judges.pool import CACHE_FILE, JudgePool
from tests.rl_bench.judges.stand_in import Answer, Asked, Fault, StandInJudge

FIRST_WAIT_S = 0.01
RANK = FunctionSpec(
    name="rank",
    parameters={"type": "object", "properties": {"best": {"type": "string", "enum": ["m", "M"]}}},
)
TOP = ({"m": -0.2, "M": -1.7},)


def is_odd(asked: Asked) -> Answer:
    number = int(asked.text.split()[-1])
    return Answer(text="yes" if number % 2 else "no")


def request(number: int, **fields: object) -> JudgeRequest:
    return JudgeRequest(
        item_id=f"item{number}",
        messages=({"role": "user", "content": f"Is this odd: {number}"},),
        max_tokens=5,
        **fields,  # type: ignore[arg-type]
    )


def requests(num: int, *, start: int = 0) -> list[JudgeRequest]:
    return [request(number) for number in range(start, start + num)]


def patience(fault: Fault) -> float:
    """A time-out in seconds that only those faults meet which are to meet it."""
    return 0.4 if fault in (Fault.HANG, Fault.TRICKLE) else 10.0


def yes_or_no(reply: JudgeReply) -> float:
    if reply.text not in ("yes", "no"):
        raise ValueError(f"neither yes nor no: {reply.text!r}")
    return float(reply.text == "yes")


@pytest.fixture
def judge() -> Iterator[StandInJudge]:
    with StandInJudge(is_odd) as stand_in:
        yield stand_in


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


PASSING = [
    Fault.RATE_LIMIT,
    Fault.SERVER_ERROR,
    Fault.UNAVAILABLE,
    Fault.ERROR_IN_200,
    Fault.HANG,
    Fault.TRICKLE,
    Fault.RESET,
    Fault.MALFORMED_JSON,
    Fault.HTML,
    Fault.NO_CHOICES,
    Fault.MALFORMED_VERDICT,
    Fault.EMPTY,
    Fault.NULL,
    Fault.REFUSAL,
    Fault.CONTENT_FILTER,
    Fault.LENGTH,
]
"""What may be better at the next attempt."""


@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: fault.name)
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
    async with opened(judge.config(timeout_s=0.2, max_concurrency=16), tmp_path) as pool:
        begin = time.monotonic()
        judged = await pool.ask(requests(400), parse=yes_or_no)
        assert time.monotonic() - begin < 20
        num_judged = sum(vote.is_judged for vote in judged.votes)
        assert 90 <= num_judged <= 105
        for number, vote in enumerate(judged.votes):
            assert vote.values in ((), (float(number % 2),))
        outages = {reason for reason in reasons(judged.votes) if reason.startswith("outage: ")}
        assert len(outages) == 1
        assert "no answer within 0.2 s" in outages.pop()
        judge.spoil = lambda asked: None
        again = await pool.ask(requests(400), parse=yes_or_no)
    assert all(vote.is_judged for vote in again.votes)
    assert again.usage.num_cached == num_judged


async def test_timeouts_alone_are_no_outage(
    judge: StandInJudge, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    judge.spoil = lambda asked: Fault.HANG if asked.number % 10 in (1, 4, 8) else None
    async with opened(judge.config(timeout_s=0.2), tmp_path) as pool:
        judged = await pool.ask(requests(150), parse=yes_or_no)
    assert sum(vote.is_judged for vote in judged.votes) >= 145
    assert judged.usage.num_retries >= 45
    assert 1 <= len([line for line in caplog.messages if "no answer within" in line]) <= 2


async def test_a_dead_port_ends_soon_and_lives_again(judge: StandInJudge, tmp_path: Path) -> None:
    judge.go_down()
    async with opened(judge.config(num_retries=2), tmp_path) as pool:
        begin = time.monotonic()
        judged = await pool.ask(requests(500), parse=yes_or_no)
        assert time.monotonic() - begin < 5
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
    assert judged.votes == (Votes(values=(1.0, 1.0), failures=("after 1 attempts: empty answer",)),)


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


async def test_newer_models_parameters_are_learnt_once(judge: StandInJudge, tmp_path: Path) -> None:
    judge.unsupported = frozenset({"max_tokens", "temperature"})
    async with opened(judge.config(max_concurrency=1), tmp_path) as pool:
        judged = await pool.ask(requests(20), parse=yes_or_no)
    assert all(vote.is_judged for vote in judged.votes)
    assert judge.num_requests == 22
    assert judge.asked[-1].body["max_completion_tokens"] == 5
    assert judged.notes == (
        "refuses max_tokens: max_completion_tokens is sent",
        "refuses temperature: its own is used",
    )


async def test_a_parameter_that_verdicts_need_is_not_given_up(
    judge: StandInJudge, tmp_path: Path
) -> None:
    judge.unsupported = frozenset({"top_logprobs"})
    async with opened(judge.config(), tmp_path) as pool:
        judged = await pool.ask([request(1, top_logprobs=5)], parse=yes_or_no)
    assert reasons(judged.votes) == {
        "400: Unsupported parameter: 'top_logprobs' is not supported with this model."
    }


def likeliest(reply: JudgeReply) -> str:
    (token,) = reply.top_logprobs
    wanted = {name: token[name] for name in ("m", "M") if name in token}
    if not wanted:
        raise ValueError("neither m nor M among the likeliest tokens")
    return max(wanted, key=lambda name: wanted[name])


@pytest.mark.parametrize("fault", [None, Fault.NO_LOGPROBS, Fault.OTHER_LOGPROBS], ids=str)
async def test_log_probabilities(judge: StandInJudge, tmp_path: Path, fault: Fault | None) -> None:
    judge.rule = lambda asked: Answer(text="m", top_logprobs=TOP, finish_reason="length")
    judge.spoil = lambda asked: fault
    async with opened(judge.config(num_retries=1), tmp_path) as pool:
        judged = await pool.ask([request(1, top_logprobs=5)], parse=likeliest)
    sent = judge.asked[0].body
    assert (sent["logprobs"], sent["top_logprobs"]) == (True, 5)
    (vote,) = judged.votes
    if fault is None:
        assert vote.values == ("m",)
    else:
        expected = {
            Fault.NO_LOGPROBS: "after 2 attempts: no log-probabilities in the answer",
            Fault.OTHER_LOGPROBS: "after 2 attempts: no verdict: neither m nor M among the "
            "likeliest tokens",
        }
        assert vote.failures == (expected[fault],)


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (math.nan, -0.5, "after 1 attempts: the log-probability of 'm' is nan"),
        (-0.5, math.inf, "after 1 attempts: the log-probability of 'M' is inf"),
        (-math.inf, -math.inf, "after 1 attempts: no verdict: neither m nor M among"),
        (-0.5, -math.inf, ""),
    ],
)
async def test_log_probabilities_that_are_no_numbers(
    judge: StandInJudge, tmp_path: Path, first: float, second: float, reason: str
) -> None:
    judge.rule = lambda asked: Answer(text="m", top_logprobs=({"m": first, "M": second},))
    async with opened(judge.config(num_retries=0), tmp_path) as pool:
        for _ in range(2):
            judged = await pool.ask([request(1, top_logprobs=5)], parse=likeliest)
    (vote,) = judged.votes
    assert vote.values == (() if reason else ("m",))
    assert "".join(vote.failures).startswith(reason)
    assert judge.num_requests == (2 if reason else 1)  # a vote is kept, and can be read again


NESTED = {
    "lists": "[" * 100_000,
    "objects": '{"a":' * 100_000,
    "an object": '{"a":' + "[" * 100_000 + "]" * 100_000 + "}",
}


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("is_call", [True, False])
async def test_an_answer_nested_without_end_is_unreadable(
    judge: StandInJudge, tmp_path: Path, kind: str, is_call: bool
) -> None:
    text = NESTED[kind]
    judge.rule = lambda asked: (
        Answer(text="yes")
        if not asked.text.endswith(" 1")
        else Answer(arguments=text)
        if is_call
        else Answer(text=text)
    )
    odd = request(1, function=RANK) if is_call else request(1, json_object=True)
    async with opened(judge.config(num_retries=1), tmp_path) as pool:
        judged = await pool.ask([odd, request(2)], parse=yes_or_no)
    assert [vote.is_judged for vote in judged.votes] == [False, True]
    assert judged.votes[0].failures[0].startswith("after 2 attempts: no JSON object in the ")
    assert judged.usage.num_tokens == 30  # it was paid for all the same


async def test_a_reply_that_no_one_thought_of_is_unreadable(
    judge: StandInJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: object, **fields: object) -> JudgeReply:
        raise OverflowError("too large")

    monkeypatch.setattr(client, "read_reply", fails)
    async with opened(judge.config(num_retries=1), tmp_path) as pool:
        judged = await pool.ask([request(1)], parse=yes_or_no)
    expected = "after 2 attempts: the answer cannot be read: OverflowError: too large"
    assert reasons(judged.votes) == {expected}
    assert judged.usage.num_tokens == 20


def never_ending(reply: JudgeReply) -> float:
    return never_ending(reply)


@pytest.mark.parametrize(
    ("parse", "reason"),
    [
        (never_ending, "RecursionError: maximum recursion depth exceeded"),
        (lambda reply: float({"no": 0}[reply.text]), "KeyError: 'yes'"),
        (lambda reply: math.nan, "nan is no vote"),
        (lambda reply: -math.inf, "-inf is no vote"),
    ],
)
async def test_whatever_reading_ends_with_one_item_is_unjudged(
    judge: StandInJudge, tmp_path: Path, parse: Callable[[JudgeReply], float], reason: str
) -> None:
    judge.rule = lambda asked: Answer(text="yes")
    async with opened(judge.config(num_retries=1), tmp_path) as pool:
        await pool.ask([request(1)], parse=yes_or_no)
        judged = await pool.ask([request(1)], parse=parse)  # first as it was kept
    assert judged.votes[0].values == ()
    assert judged.votes[0].failures[0].startswith(f"after 2 attempts: no verdict: {reason}")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (None, ""),
        (Fault.NO_CALL, "rank was not called: That is a matter of taste."),
        (Fault.WRONG_FUNCTION, "another was called, not rank"),
        (Fault.BROKEN_ARGUMENTS, "no JSON object in the arguments of rank: '{\"best"),
    ],
    ids=str,
)
async def test_a_forced_call(
    judge: StandInJudge, tmp_path: Path, fault: Fault | None, reason: str
) -> None:
    judge.rule = lambda asked: Answer(arguments='{"best": "M"}')
    judge.spoil = lambda asked: fault
    async with opened(judge.config(num_retries=1), tmp_path) as pool:
        judged = await pool.ask(
            [request(1, function=RANK)], parse=lambda reply: json.loads(reply.arguments or "")
        )
    assert judge.asked[0].function == "rank"
    assert judge.asked[0].body["tools"][0]["function"]["parameters"] == RANK.parameters
    (vote,) = judged.votes
    if fault is None:
        assert vote.values == ({"best": "M"},)
    else:
        assert vote.failures[0].startswith(f"after 2 attempts: {reason}")


@pytest.mark.parametrize(("text", "is_judged"), [('{"a": 1}', True), ("[1]", False), ("a", False)])
async def test_a_json_object(
    judge: StandInJudge, tmp_path: Path, text: str, is_judged: bool
) -> None:
    judge.rule = lambda asked: Answer(text=text)
    async with opened(judge.config(num_retries=0), tmp_path) as pool:
        judged = await pool.ask(
            [request(1, json_object=True)], parse=lambda reply: json.loads(reply.text)
        )
    assert judge.asked[0].body["response_format"] == {"type": "json_object"}
    assert judged.votes[0].is_judged is is_judged


async def test_half_a_character_stops_nothing(judge: StandInJudge, tmp_path: Path) -> None:
    judge.rule = lambda asked: Answer(text="yes")
    broken = JudgeRequest(
        item_id="x", messages=({"role": "user", "content": "\ud83d is half"},), max_tokens=5
    )
    async with opened(judge.config(), tmp_path) as pool:
        judged = await pool.ask([broken], parse=yes_or_no)
    assert judged.votes[0].values == (1.0,)
