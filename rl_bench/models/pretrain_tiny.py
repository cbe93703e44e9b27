"""Makes the shipped files of the tiny base model: its tokenizer, then its weights.

    OMP_NUM_THREADS=1 python -m rl_bench.models.pretrain_tiny --seed 0

takes some minutes on one core and writes ``rl_bench/models/data``. The corpus is described in
`rl_bench.models.tiny_corpus`. One thread and one seed give the same weights on the same machine;
another processor may round differently.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import Qwen3ForCausalLM

from envs import alfworld_rooms
from rl_bench.models import tiny
from rl_bench.models.tiny_corpus import jottings, sums, walks
from rl_bench.models.tiny_tokenizer import END_OF_TEXT, train_tokenizer
from rl_bench.tasks.gsm8k.word_problems import vocabulary

VOCAB_SIZE = 1200
NUM_PHRASES = 70
BATCH, BLOCK = 8, 256


def make_tokenizer(seed: int) -> Tokenizer:
    """Trains the tokenizer on a sample of the corpus."""
    rng = random.Random(seed)  # noqa: S311  not for secrets
    games = list(walks(rng, num_games=150, walks_a_game=2))
    stories = list(islice(jottings(rng), 500))
    return train_tokenizer(
        [*games, *stories],
        vocab_size=VOCAB_SIZE,
        num_phrases=NUM_PHRASES,
        names=vocabulary() | _household_names(),
    )


def _household_names() -> frozenset[str]:
    objects = (kind for kinds in alfworld_rooms.RECEPTACLE_OBJECTS.values() for kind in kinds)
    kinds = {*alfworld_rooms.RECEPTACLE_OBJECTS, *objects, "DeskLamp", "FloorLamp"}
    return frozenset(kind.lower() for kind in kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of pre-training, with an optimiser and a seed of its own.

    Attributes:
        steps: Optimiser steps.
        lr: Peak learning rate, after which it falls linearly.
        sums: Texts of equations for each random walk.
        stories: Word problems for each random walk.
    """

    seed: int
    steps: int
    lr: float
    sums: int
    stories: int


def phases(seed: int, *, scale: float = 1.0) -> tuple[Phase, Phase]:
    """Language first (half of the tokens are games), then mostly sums, until they are known."""
    language = Phase(seed=seed, steps=round(1600 * scale), lr=3e-3, sums=2, stories=2)
    numbers = Phase(seed=seed + 100, steps=round(1100 * scale), lr=2e-3, sums=24, stories=3)
    return language, numbers


def documents(phase: Phase, *, num_games: int) -> Iterator[str]:
    """The corpus in the mixture of ``phase``, without end."""
    rng = random.Random(phase.seed + 1)  # noqa: S311  not for secrets
    games = list(walks(rng, num_games=num_games, walks_a_game=8))
    rng.shuffle(games)
    equations, stories = sums(rng), jottings(rng)
    for game in chain.from_iterable(games for _ in iter(int, 1)):
        yield game
        yield from islice(equations, phase.sums)
        yield from islice(stories, phase.stories)


def blocks(tokenizer: Tokenizer, texts: Iterator[str]) -> Iterator[torch.Tensor]:
    """Packs texts into ``(BATCH, BLOCK)`` tensors of token ids."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    assert end is not None
    tokens: list[int] = []
    for text in texts:
        tokens += [*tokenizer.encode(text).ids, end]
        if len(tokens) >= BATCH * BLOCK:
            yield torch.tensor(tokens[: BATCH * BLOCK]).view(BATCH, BLOCK)
            tokens = tokens[BATCH * BLOCK :]


def pretrain(model: Qwen3ForCausalLM, tokenizer: Tokenizer, *, phase: Phase) -> None:
    """Trains ``model`` in place on the corpus of ``phase``."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=phase.lr, betas=(0.9, 0.95), weight_decay=0.01
    )
    started = time.monotonic()
    corpus = blocks(tokenizer, documents(phase, num_games=900))
    for step, ids in enumerate(islice(corpus, phase.steps)):
        for group in optimizer.param_groups:
            group["lr"] = phase.lr * min(1.0, (step + 1) / 50) * max(0.03, 1 - step / phase.steps)
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0 or step == phase.steps - 1:
            seconds = time.monotonic() - started
            sys.stdout.write(f"step {step} loss {loss.item():.3f} {seconds:.0f} s\n")
            sys.stdout.flush()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=tiny.SHIPPED_SEED)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the number of steps")
    parser.add_argument("--out", type=Path, default=tiny.DATA)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(args.seed)
    tokenizer.save(str(args.out / tiny.TOKENIZER_FILE.name))
    torch.manual_seed(args.seed)
    model = Qwen3ForCausalLM(tiny.tiny_config(tokenizer.get_vocab_size()))
    for phase in phases(args.seed, scale=args.scale):
        pretrain(model, tokenizer, phase=phase)
    weights = {
        name: tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(weights, args.out / tiny.WEIGHTS_FILE.name, metadata={"format": "pt"})


if __name__ == "__main__":
    main()
