"""What the tiny base model was pre-trained on: text that shows a language, not how to solve a task.

- Sums: correct equations, alone or in chains, of no story.
- Jottings: a word problem's story, then equations that combine its numbers at random. The model
  learns to copy numbers from a story, and nothing about which sign a story asks for.
- Stories alone.
- Walks: household games played at random, in the chat form that an agent would see. Goals are
  stated and ignored.

Stories and games are of the train splits. Everything is a function of the seed.
"""

import random
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from envs.alfworld_engine import Engine, make_engine
from envs.alfworld_games import generate_games
from envs.alfworld_layout import LayoutSettings
from rl_bench.models.tiny_tokenizer import TURN_END, TURN_START
from rl_bench.tasks.gsm8k.word_problems import ProblemShape, iter_problems

_LARGEST = 99
_IDLE = frozenset({"help", "inventory", "look"})
_CORPUS_SEED = 1_000_003  # stories and games of other seeds than any task's data


def sums(rng: random.Random) -> Iterator[str]:
    """Chains of one to three correct equations."""
    while True:
        lines: list[str] = []
        left: int | None = None
        for _ in range(rng.randint(1, 3)):
            line, left = _equation(rng, left)
            lines.append(line)
        yield "\n".join(lines)


def _equation(rng: random.Random, left: int | None) -> tuple[str, int]:
    sign = rng.choice("+-*/" if left is None else "+-")
    if sign == "*":
        a, b = rng.randint(2, 9), rng.randint(2, 9)
        return f"{a} * {b} = {a * b}", a * b
    if sign == "/":
        b, result = rng.randint(2, 9), rng.randint(2, 12)
        return f"{b * result} / {b} = {result}", result
    a = rng.randint(2, 60) if left is None else left
    if sign == "-" and a > 1:
        b = rng.randint(1, min(a, 20))
        return f"{a} - {b} = {a - b}", a - b
    b = rng.randint(1, min(20, _LARGEST - a)) if a < _LARGEST else 0
    return f"{a} + {b} = {a + b}", a + b


def jottings(rng: random.Random) -> Iterator[str]:
    """Stories, two in ten alone, the others followed by arbitrary equations over their numbers."""
    shape = ProblemShape(max_steps=3, max_number=60)
    for problem in iter_problems("train", seed=_CORPUS_SEED, shape=shape):
        if rng.random() < 0.2:
            yield problem.question
            continue
        numbers = [int(number) for number in re.findall(r"\d+", problem.question)]
        lines: list[str] = []
        left = rng.choice(numbers)
        for _ in range(rng.randint(1, 2)):
            line, left = _combine(rng, left, rng.choice(numbers))
            lines.append(line)
        yield problem.question + "\n" + "\n".join(lines)


def _combine(rng: random.Random, a: int, b: int) -> tuple[str, int]:
    results = {"+": a + b, "-": a - b, "*": a * b, "/": a // b}
    if a < b:
        del results["-"]
    if a % b:
        del results["/"]
    results = {sign: result for sign, result in results.items() if result <= _LARGEST}
    sign = rng.choice(sorted(results)) if results else "-"
    result = results.get(sign, a - b)
    return f"{a} {sign} {b} = {result}", result


def walks(rng: random.Random, *, num_games: int, walks_a_game: int) -> Iterator[str]:
    """Random walks of up to twelve steps in generated train games."""
    engine = make_engine()
    sizes = [(4, 2), (5, 3), (6, 4)]
    with tempfile.TemporaryDirectory() as folder:
        for index, (receptacles, objects) in enumerate(sizes):
            settings = LayoutSettings(num_receptacles=receptacles, num_objects=objects)
            games = generate_games(
                Path(folder) / str(index),
                split="train",
                num_games=num_games // len(sizes),
                seed=_CORPUS_SEED + index,
                settings=settings,
            )
            for game in games:
                engine.load(game)
                for _ in range(walks_a_game):
                    yield _walk(engine, rng)


def _walk(engine: Engine, rng: random.Random) -> str:
    shown = engine.reset()
    text = shown.feedback.partition("=-")[2].strip()
    for _ in range(rng.randint(6, 12)):
        if shown.won:
            break
        commands = [command for command in shown.admissible if command not in _IDLE]
        handling = [command for command in commands if not command.startswith("go to")]
        command = rng.choice(handling if handling and rng.random() < 0.5 else commands)
        shown = engine.step(command)
        text += f"{TURN_START}{command}{TURN_END}{shown.feedback.strip()}"
    return text
