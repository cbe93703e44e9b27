"""Original arithmetic word problems, generated: what GSM8K's task runs on when it has no data.

A problem is a short story of one to three arithmetic steps over small whole numbers, told through
one of many verbs and settings, with a worked solution that ends in ``#### N`` as GSM8K's do. The
generator is a pure function of its seed. A problem belongs to the train or the evaluation split by
a digest of its text, so that the splits are disjoint whatever the sizes and seeds.
"""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Split = Literal["train", "eval"]

_NAMES = {
    "she": ("Mia", "Nora", "Lena", "Ruth", "Ivy", "Zoe", "Clara", "Anya"),
    "he": ("Tom", "Omar", "Felix", "Ben", "Hugo", "Raj", "Leo", "Sam"),
}
_THINGS = (
    "apples", "pears", "shells", "marbles", "stamps", "coins", "cards", "buttons",
    "pencils", "books", "stickers", "beads",
)  # fmt: skip
_CONTAINERS = ("boxes", "bags", "jars", "baskets", "trays", "drawers")
_GAINS = (
    "finds {n} more", "buys {n} more", "gets {n} more from {other}", "wins {n} more",
    "is given {n} extra ones", "collects another {n}", "takes {n} from {other}",
    "adds {n} to the pile", "earns {n} as a prize", "picks up {n} from the floor",
)  # fmt: skip
_LOSSES = (
    "loses {n} of them", "gives {n} of them to {other}", "sells {n} of them", "throws away {n}",
    "leaves {n} at school", "breaks {n} by accident", "hands {n} over to {other}",
    "lends {n} to {other}", "uses up {n} of them", "drops {n} in the river",
)  # fmt: skip
_GROUPS = (
    "{name} has {a} {container} with {b} {things} in each.",
    "{name} fills {a} {container} and puts {b} {things} in every one.",
    "There are {a} {container} on the table, each holding {b} {things}, and {name} takes them all.",
    "{name} buys {b} {things} every day for {a} days.",
)
_STARTS = (
    "{name} has {a} {things}.",
    "{name} owns {a} {things}.",
    "At first {name} has {a} {things}.",
    "In the morning {name} counts {a} {things}.",
)
_ASKS = (
    "How many {things} does {name} have now?",
    "How many {things} are left with {name} at the end?",
    "What number of {things} does {name} have in the end?",
)
_SHARES = (
    "{name} shares all of them equally among {n} friends. How many {things} does each friend get?",
    "{name} sorts all of them into {n} equal piles. How many {things} are in a pile?",
)


@dataclass(frozen=True, slots=True)
class WordProblem:
    """One problem. ``answer`` is the worked solution, its last line ``#### N``."""

    question: str
    answer: str
    num_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemShape:
    """What the generator draws from.

    Attributes:
        min_steps: Fewest arithmetic steps of a problem.
        max_steps: Most arithmetic steps of a problem.
        max_number: No intermediate result is larger.
    """

    min_steps: int = 1
    max_steps: int = 2
    max_number: int = 40

    def __post_init__(self) -> None:
        if not 1 <= self.min_steps <= self.max_steps <= 3:
            raise ValueError("a word problem has one to three steps")
        if self.max_number < 10:
            raise ValueError("max_number must be at least 10")


def vocabulary() -> frozenset[str]:
    """The names and things that stories are about."""
    return frozenset(_THINGS) | {name for names in _NAMES.values() for name in names}


class _Story:
    """A problem under construction: sentences, equations and the running total."""

    def __init__(self, rng: random.Random, shape: ProblemShape) -> None:
        self.rng = rng
        self.shape = shape
        pronoun = rng.choice(tuple(_NAMES))
        self.pronoun = pronoun.capitalize()
        self.name = rng.choice(_NAMES[pronoun])
        others = [name for names in _NAMES.values() for name in names if name != self.name]
        self.other = rng.choice(others)
        self.things = rng.choice(_THINGS)
        self.sentences: list[str] = []
        self.equations: list[str] = []
        self.total = 0

    def fill(self, template: str, **numbers: int | str) -> str:
        return template.format(name=self.name, other=self.other, things=self.things, **numbers)

    def equation(self, left: int, sign: str, right: int, result: int) -> None:
        self.equations.append(f"{left} {sign} {right} = {result}")
        self.total = result

    def start(self) -> None:
        self.total = self.rng.randint(3, max(5, self.shape.max_number // 2))
        self.sentences.append(self.fill(self.rng.choice(_STARTS), a=self.total))

    def group(self) -> None:
        most = min(9, self.shape.max_number // 2)
        count = self.rng.randint(2, most)
        each = self.rng.randint(2, min(9, self.shape.max_number // count))
        container = self.rng.choice(_CONTAINERS)
        template = self.rng.choice(_GROUPS)
        self.sentences.append(self.fill(template, a=count, b=each, container=container))
        self.equation(count, "*", each, count * each)

    def change(self) -> None:
        room = min(12, self.shape.max_number - self.total)
        gain = room >= 2 and (self.total < 4 or self.rng.random() < 0.5)
        number = self.rng.randint(2, room if gain else min(12, self.total - 1))
        verb = self.fill(self.rng.choice(_GAINS if gain else _LOSSES), n=number)
        then = "" if not self.equations else "Then "
        subject = self.pronoun.lower() if then else self.pronoun
        self.sentences.append(f"{then}{subject} {verb}.")
        result = self.total + number if gain else self.total - number
        self.equation(self.total, "+" if gain else "-", number, result)

    def divisors(self) -> list[int]:
        return [n for n in range(2, 10) if self.total % n == 0 and self.total // n >= 2]

    def share(self) -> None:
        number = self.rng.choice(self.divisors())
        self.sentences.append(self.fill(self.rng.choice(_SHARES), n=number))
        self.equation(self.total, "/", number, self.total // number)

    def ask(self) -> None:
        self.sentences.append(self.fill(self.rng.choice(_ASKS)))


def make_problem(rng: random.Random, *, shape: ProblemShape) -> WordProblem:
    """Draws one problem from ``rng``."""
    story = _Story(rng, shape)
    num_steps = rng.randint(shape.min_steps, shape.max_steps)
    if rng.random() < 0.3:
        story.group()
    else:
        story.start()
    while len(story.equations) < num_steps - 1:
        story.change()
    if len(story.equations) == num_steps:
        story.ask()
    elif story.divisors() and rng.random() < 0.3:
        story.share()
    else:
        story.change()
        story.ask()
    answer = "\n".join([*story.equations, f"#### {story.total}"])
    return WordProblem(" ".join(story.sentences), answer, num_steps)


def split_of(question: str) -> Split:
    """The split that a problem belongs to, by a digest of its text: one in five is ``eval``."""
    return "eval" if hashlib.sha256(question.encode()).digest()[0] % 5 == 0 else "train"


def iter_problems(split: Split, *, seed: int, shape: ProblemShape) -> Iterator[WordProblem]:
    """Distinct problems of ``split`` without end (the shape's variety is far from exhausted)."""
    rng = random.Random(f"word-problems/{split}/{seed}")  # noqa: S311  not for secrets
    seen: set[str] = set()
    while True:
        problem = make_problem(rng, shape=shape)
        if split_of(problem.question) == split and problem.question not in seen:
            seen.add(problem.question)
            yield problem
