"""The cached, batched sampler says what the model says."""

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from rl_bench.agents.reference.checkpoint import load
from rl_bench.agents.reference.sampler import BatchSampler, Conversation
from rl_bench.agents.reference.tokens import encode
from rl_bench.models.tiny import build_tiny

PROMPTS = ["Mia has 3 pens. She buys 4 more.", "You see a desk 1, and a bed 2.", "5 + 6"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def model(base: Path) -> PreTrainedModel:
    return load(base).model


@pytest.fixture(scope="module")
def prompts(base: Path) -> list[list[int]]:
    tokenizer = load(base).tokenizer
    return [encode(tokenizer, [{"role": "user", "content": prompt}]) for prompt in PROMPTS]


def _full_logprobs(model: PreTrainedModel, row: Conversation) -> list[float]:
    """Log-probabilities of the completion in one plain forward pass."""
    ids = torch.tensor([row.prompt_ids + row.completion_ids])
    with torch.no_grad():
        logprobs = torch.log_softmax(model(input_ids=ids).logits[0].float(), dim=-1)
    start = len(row.prompt_ids)
    return [logprobs[start + i - 1, token].item() for i, token in enumerate(row.completion_ids)]


def _play(model: PreTrainedModel, prompts: list[list[int]], *, drop: int) -> list[Conversation]:
    sampler = BatchSampler(model, end_id=1, generator=torch.Generator().manual_seed(0))
    rows = sampler.start(prompts)
    sampler.turn(max_tokens=5)
    for number, row in enumerate(rows):
        row.observe([7 + number] * (number + 1))
    sampler.keep([row for number, row in enumerate(rows) if number != drop])
    sampler.turn(max_tokens=4)
    return rows


def test_logprobs_are_those_of_a_plain_forward_pass(
    model: PreTrainedModel, prompts: list[list[int]]
) -> None:
    for row in _play(model, prompts, drop=0):
        full = _full_logprobs(model, row)
        for said, logprob, chosen in zip(full, row.logprobs, row.model_mask, strict=True):
            assert not chosen or said == pytest.approx(logprob, abs=1e-4)
            assert chosen or logprob == 0.0


def test_a_dropped_row_stays_as_it_was(model: PreTrainedModel, prompts: list[list[int]]) -> None:
    rows = _play(model, prompts, drop=0)
    assert sum(rows[0].model_mask) <= 5
    assert sum(rows[1].model_mask) > 5
    assert rows[1].model_mask.count(0) == 2


def test_greedy_is_independent_of_the_batch(
    model: PreTrainedModel, prompts: list[list[int]]
) -> None:
    together = BatchSampler(model, end_id=1, temperature=0.0)
    together.start(prompts)
    turns = together.turn(max_tokens=8)
    for prompt, turn in zip(prompts, turns, strict=True):
        alone = BatchSampler(model, end_id=1, temperature=0.0)
        alone.start([prompt])
        assert alone.turn(max_tokens=8) == [turn]


def test_a_turn_ends_at_the_end_token(model: PreTrainedModel, prompts: list[list[int]]) -> None:
    free = BatchSampler(model, end_id=-1, temperature=0.0)
    free.start(prompts[:1])
    said = free.turn(max_tokens=3)[0]
    sampler = BatchSampler(model, end_id=said[0], temperature=0.0)
    row = sampler.start(prompts[:1])[0]
    assert sampler.turn(max_tokens=3) == [[]]
    assert row.completion_ids == said[:1]
    assert row.model_mask == [1]
