"""Online rollouts: rewards, masks, and the very prompts that the grader would send."""

from pathlib import Path

import pytest

from envs.alfworld_games import generate_games
from envs.alfworld_layout import LayoutSettings, TaskType
from envs.protocol import Prompt, Turn
from envs.protocol_chat import ChatProtocol
from rl_bench.agents.reference.checkpoint import load
from rl_bench.agents.reference.rollouts import (
    HouseholdWorld,
    WordProblemWorld,
    final_number,
)
from rl_bench.agents.reference.tokens import decode, encode, end_of_turn
from rl_bench.models.tiny import build_tiny


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return generate_games(
        tmp_path_factory.mktemp("games"),
        split="train",
        num_games=3,
        seed=0,
        settings=LayoutSettings(
            task_types=(TaskType.PLACE,), num_receptacles=3, num_objects=2, closed=False
        ),
    )


def test_a_household_rollout_is_the_conversation_that_the_grader_sees(
    base: Path, games: list[Path]
) -> None:
    model, tokenizer = load(base)
    world = HouseholdWorld(
        tokenizer=tokenizer, games=games, protocol=ChatProtocol(), max_steps=4, max_tokens=12
    )
    for rollout in world.play([0, 1, 2, 0], model=model):
        row = rollout.conversation
        assert len(row.completion_ids) == len(row.model_mask) == len(row.logprobs)
        text = decode(tokenizer, row.prompt_ids + row.completion_ids, special=True)
        first, *rest = text.split("<|im_start|>")
        pairs = [part.partition("<|im_end|>") for part in rest]
        assert rollout.solved or len(pairs) == 4
        seen = [first, *(after for _, _, after in pairs[:-1])]
        turns = [Turn(o, a) for o, (a, _, _) in zip(seen, pairs, strict=True)]
        prompt = ChatProtocol().prompt(turns[:-1], turns[-1].observation)
        assert prompt.messages is not None
        rendered = decode(tokenizer, encode(tokenizer, prompt.messages), special=True)
        assert text.startswith(rendered)


def test_environment_tokens_are_masked(base: Path, games: list[Path]) -> None:
    model, tokenizer = load(base)
    world = HouseholdWorld(
        tokenizer=tokenizer, games=games, protocol=ChatProtocol(), max_steps=3, max_tokens=12
    )
    row = world.play([0], model=model)[0].conversation
    heard = [t for t, m in zip(row.completion_ids, row.model_mask, strict=True) if not m]
    said = [t for t, m in zip(row.completion_ids, row.model_mask, strict=True) if m]
    assert decode(tokenizer, heard, special=True).count("<|im_start|>") == 2
    assert len(said) <= 3 * 12
    assert said.count(end_of_turn(tokenizer)) <= 3


def test_word_problems_reward_the_right_number(base: Path) -> None:
    model, tokenizer = load(base)
    question = "Mia has 3 pens. She buys 4 more. How many pens does Mia have now?"
    prompts = [Prompt(messages=({"role": "user", "content": question},))]
    greedy = WordProblemWorld(
        tokenizer=tokenizer, prompts=prompts, answers=["#### 7"], max_tokens=16, temperature=0.0
    )
    said = greedy.play([0], model=model)[0].conversation.completion_ids
    text = decode(tokenizer, said)
    number = final_number(text)
    greedy.answers = [f"#### {int(number)}" if number is not None else "no number"]
    again = greedy.play([0, 0], model=model)
    assert [r.reward for r in again] == [float(number is not None)] * 2
    greedy.answers = ["#### 123456"]
    assert greedy.play([0], model=model)[0].reward == 0.0


@pytest.mark.parametrize(
    ("text", "number"),
    [("a 3 b 4", 4.0), ("9\n#### 1,200 or 5", 1200.0), ("####", None), ("-2.5", -2.5)],
)
def test_final_number(text: str, number: float | None) -> None:
    assert final_number(text) == number
