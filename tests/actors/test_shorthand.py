"""Requests and answers arrive as they were sent, and a growing prompt is not sent again."""

import pickle

import pytest

from actors import shorthand
from actors.shorthand import NO_PLACE, Receiver, Sender, read_answer, shorten_answer
from envs.protocol import ChatMessage
from rl_bench.engine.base import Completion, FinishReason, GenerationRequest, Sampling
from rl_bench.errors import SubmissionError

SAMPLING = Sampling(max_tokens=4)


def chat(*contents: str) -> GenerationRequest:
    messages: list[ChatMessage] = [{"role": "user", "content": content} for content in contents]
    return GenerationRequest(messages=tuple(messages), sampling=SAMPLING)


def text(content: str) -> GenerationRequest:
    return GenerationRequest(text=content, sampling=SAMPLING)


@pytest.mark.parametrize("is_chat", [True, False])
def test_only_what_is_new_is_sent(is_chat: bool) -> None:
    sender, receiver = Sender(), Receiver()
    words, sizes = [], []
    for number in range(50):
        words.append(f"word {number}, ")
        request = chat(*words) if is_chat else text("".join(words))
        short = sender.shorten(number, request, conversation="one")
        sizes.append(len(pickle.dumps(short)))
        assert receiver.read(short) == request
        sender.answered(number)
    assert max(sizes) - min(sizes) < 20


def test_prompts_of_any_kind_and_order_arrive_as_they_were() -> None:
    sender, receiver = Sender(), Receiver()
    requests = [
        chat("a", "b", "c"),
        chat("a", "c"),  # the history was cut
        chat("a"),
        text("a text"),
        text("a text and more"),
        text("another"),
        text(""),
        chat(),
        chat("b", "b"),
    ]
    for number, request in enumerate(requests):
        short = sender.shorten(number, request, conversation="one")
        assert receiver.read(short) == request
        sender.answered(number)


def test_conversations_keep_apart_and_share_few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shorthand, "MAX_PLACES", 3)
    sender, receiver = Sender(), Receiver()
    number = 0
    for step in range(1, 5):
        for name in "abcdefg":
            request = chat(*(f"{name}{i}" for i in range(step)))
            short = sender.shorten(number, request, conversation=name)
            assert short.place < 3
            assert receiver.read(short) == request
            sender.answered(number)
            number += 1


def test_an_open_place_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shorthand, "MAX_PLACES", 1)
    sender = Sender()
    assert sender.shorten(0, chat("a"), conversation="one").place == 0
    # Calls may arrive in another order than they were sent in.
    assert sender.shorten(1, chat("a", "b"), conversation="one").place == NO_PLACE
    assert sender.shorten(2, chat("b"), conversation="two").place == NO_PLACE
    assert sender.shorten(3, chat("b"), conversation=None).place == NO_PLACE
    sender.answered(0)
    assert sender.shorten(4, chat("b"), conversation="two").place == 0


def test_after_a_failure_everything_is_sent_whole() -> None:
    sender = Sender()
    sender.shorten(0, chat("a"), conversation="one")
    sender.forget()
    assert Receiver().read(sender.shorten(1, chat("a", "b"), conversation="one")) == chat("a", "b")


def test_answers_arrive_as_they_were() -> None:
    completion = Completion(
        text="go",
        num_prompt_tokens=7,
        num_tokens=2,
        finish_reason=FinishReason.PROMPT_TOO_LONG,
        max_prompt_tokens=5,
    )
    assert read_answer(shorten_answer(1, completion)) == completion
    error = SubmissionError("no", reason="chat_template")
    assert read_answer(shorten_answer(1, error)) is error
