"""Both ends of the way between workers and a grader: an engine of the tests, and no Ray."""

import asyncio
from collections.abc import Sequence

import pytest

from actors.exchange import AnswerDesk, Answered, Asked, Asker
from rl_bench.engine.base import (
    Completion,
    FinishReason,
    GenerationRequest,
    OnCompletion,
    Sampling,
)
from rl_bench.errors import GraderError, SubmissionError


def request(text: str) -> GenerationRequest:
    return GenerationRequest(text=text, sampling=Sampling(max_tokens=4))


class Echo:
    """Answers with the prompt, after as many milliseconds as it says; refuses a word."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    async def __call__(
        self, requests: Sequence[GenerationRequest], *, on_completion: OnCompletion
    ) -> list[Completion]:
        self.batches.append(len(requests))
        done = [asyncio.create_task(self._one(r, i, on_completion)) for i, r in enumerate(requests)]
        return list(await asyncio.gather(*done))

    async def _one(self, asked: GenerationRequest, index: int, tell: OnCompletion) -> Completion:
        text = asked.text or ""
        if text == "refuse":
            raise SubmissionError("the template refuses", reason="chat_template")
        await asyncio.sleep(int(text) / 1000)
        said = Completion(
            text=text, num_prompt_tokens=1, num_tokens=1, finish_reason=FinishReason.STOP
        )
        tell(index, said)
        return said


class Line:
    """The way between them; counts calls."""

    def __init__(self, desk: AnswerDesk, name: str = "worker") -> None:
        self.desk = desk
        self.name = name
        self.num_calls = 0

    async def __call__(self, asked: Asked) -> Answered:
        self.num_calls += 1
        return await self.desk.exchange(self.name, asked)


async def test_every_request_gets_its_own_answer_in_fewer_calls() -> None:
    echo = Echo()
    line = Line(AnswerDesk(echo))
    asker = Asker(line)

    async def episode(number: int) -> list[str]:
        said = []
        for step in range(5):
            [completion] = await asker.generate([request(str((number + step) % 7))])
            said.append(completion.text)
        return said

    played = await asyncio.gather(*map(episode, range(40)))
    assert played == [[str((n + step) % 7) for step in range(5)] for n in range(40)]
    assert sum(echo.batches) == 200
    assert line.num_calls < 150


async def test_a_slow_answer_keeps_nobody_waiting() -> None:
    asker = Asker(Line(AnswerDesk(Echo())))
    slow = asyncio.create_task(asker.generate([request("5000")]))
    await asyncio.sleep(0)
    async with asyncio.timeout(2):
        for _ in range(20):
            await asker.generate([request("1")])
    slow.cancel()


async def test_two_workers_do_not_get_each_others_answers() -> None:
    desk = AnswerDesk(Echo())
    one, two = Asker(Line(desk, "one")), Asker(Line(desk, "two"))
    pairs = await asyncio.gather(
        *(a.generate([request(str(i))]) for i in range(1, 9) for a in (one, two))
    )
    assert [c.text for (c,) in pairs] == [str(i) for i in range(1, 9) for _ in "ab"]


async def test_a_checkpoints_fault_reaches_who_asked() -> None:
    asker = Asker(Line(AnswerDesk(Echo())))
    with pytest.raises(SubmissionError, match="refuses"):
        await asker.generate([request("refuse")])
    [after] = await asker.generate([request("1")])
    assert after.text == "1"


async def test_the_end_of_an_evaluation_reaches_who_waits_and_who_comes_later() -> None:
    desk = AnswerDesk(Echo())
    asker = Asker(Line(desk))
    waiting = asyncio.create_task(asker.generate([request("60000")]))
    await asyncio.sleep(0.01)
    desk.close()
    for late in (waiting, asyncio.create_task(asker.generate([request("1")]))):
        async with asyncio.timeout(2):
            with pytest.raises(GraderError, match="over"):
                await late


@pytest.mark.parametrize("error", [GraderError("the grader was lost"), AttributeError("no such")])
async def test_a_lost_grader_reaches_everybody(error: Exception) -> None:
    async def lost(_asked: Asked) -> Answered:
        raise error

    asker = Asker(lost)
    results = await asyncio.gather(
        *(asker.generate([request("1")]) for _ in range(30)), return_exceptions=True
    )
    assert all(isinstance(result, GraderError) for result in results)
