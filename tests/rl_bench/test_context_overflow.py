"""Servers' words for a context that is too small, each with its numbers."""

import pytest

from rl_bench.endpoint.failures import AskError
from rl_bench.engine.context_overflow import Overflow, read_answer_limit, read_overflow


def refusal(said: str, *, code: str = "", status: int = 400) -> AskError:
    return AskError(f"{status}: {said}", said=said, code=code, status=status)


@pytest.mark.parametrize(
    ("said", "limit", "num_prompt_tokens"),
    [
        # OpenAI, old and new
        (
            "This model's maximum context length is 4097 tokens. However, you requested 4203 tokens"
            " (3703 in the messages, 500 in the completion).",
            4097,
            3703,
        ),
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in"
            " 8227 tokens. Please reduce the length of the messages.",
            8192,
            8227,
        ),
        (
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in"
            " 300001 tokens.",
            272000,
            300001,
        ),
        # vLLM: too many tokens, and too many characters to count them
        (
            "This model's maximum context length is 256 tokens. However, your prompt contains at"
            " least 257 input tokens, which exceeds this limit even without any output tokens.",
            256,
            257,
        ),
        (
            "This model's maximum context length is 256 tokens. However, your prompt contains 9000"
            " characters (more than 2560 characters, which is the upper bound for 256 input"
            " tokens).",
            256,
            0,
        ),
        ("Input length (300) exceeds model's maximum context length (256).", 256, 300),
        # SGLang
        (
            "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
            40960,
            61709,
        ),
        (
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You"
            " requested a total of 5000 tokens: 3000 tokens from the input messages and 2000 tokens"
            " for the completion.",
            4096,
            3000,
        ),
        # llama.cpp, text-generation-inference, and gateways
        ("request (5000 tokens) exceeds the available context size (4096 tokens)", 4096, 5000),
        (
            "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and"
            " 512 `max_new_tokens`",
            4096,
            4000,
        ),
        ("prompt is too long: 210000 tokens > 200000 maximum", 200000, 210000),
    ],
)
def test_the_numbers_are_read(said: str, limit: int, num_prompt_tokens: int) -> None:
    found = read_overflow(refusal(said))
    assert found == Overflow(limit=limit, num_prompt_tokens=num_prompt_tokens)
    room = limit - num_prompt_tokens if num_prompt_tokens else None
    assert found.room == (None if room is None else max(0, room))


def test_a_code_is_enough() -> None:
    found = read_overflow(refusal("zu lang", code="context_length_exceeded"))
    assert found == Overflow()
    assert found.room is None


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("temperature must be at most 2", 400),
        ("maximum context length is 4097 tokens", 500),
        ("the model `m` does not exist", 404),
    ],
)
def test_other_refusals_are_no_overflow(said: str, status: int) -> None:
    assert read_overflow(refusal(said, status=status)) is None


def test_the_most_that_an_answer_may_have() -> None:
    said = "max_tokens is too large: 9000. This model supports at most 4096 completion tokens"
    assert read_answer_limit(refusal(said)) == 4096
    assert read_overflow(refusal(said)) is None
    assert read_answer_limit(refusal("no such thing")) == 0
