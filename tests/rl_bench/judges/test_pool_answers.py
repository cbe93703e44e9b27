"""What the judge pool sends and reads: parameters, log-probabilities, calls, any text at all."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_bench.judges import client
from rl_bench.judges.base import FunctionSpec, JudgeReply, JudgeRequest
from tests.rl_bench.judges.scene import opened, reasons, request, requests, yes_or_no
from tests.rl_bench.judges.stand_in import Answer, Fault, StandInJudge

RANK = FunctionSpec(
    name="rank",
    parameters={"type": "object", "properties": {"best": {"type": "string", "enum": ["m", "M"]}}},
)


TOP = ({"m": -0.2, "M": -1.7},)


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
        (math.nan, -0.5, "after 1 attempt: the log-probability of 'm' is nan"),
        (-0.5, math.inf, "after 1 attempt: the log-probability of 'M' is inf"),
        (-math.inf, -math.inf, "after 1 attempt: no verdict: neither m nor M among"),
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
