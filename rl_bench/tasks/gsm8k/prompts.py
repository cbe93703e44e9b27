"""GSM8K's prompts: a question, after worked examples if wanted, as a chat or as plain text.

Worked examples are rows of the train file, given by number, so that the published four-example
prompt (OpenCompass, ``gsm8k_gen_1d7fe4``) comes out of the data: its examples are rows 7364, 1708,
669 and 6724, with the calculator notes (``<<…>>``) left out and ``#### N`` put as "The answer is
N". Chat: examples are turns of the dialogue, as published. Base: one text of question and answer
pairs; an answer ends where the next question would begin.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from envs.protocol import ChatMessage
from rl_bench.engine.base import GenerationRequest, Sampling
from rl_bench.errors import ConfigError
from rl_bench.tasks.gsm8k.data import Row
from rl_bench.tasks.gsm8k.rules import MARK, RuleName

S = TypeVar("S", bound=StrEnum)

QUESTION = "{question}"
_CALCULATOR_NOTE = re.compile(r"<<[^>]*>>")


class PromptStyle(StrEnum):
    """The protocols of this task."""

    CHAT = "chat"
    BASE = "base"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSettings:
    """What a config says about prompts and scoring.

    Attributes:
        style: The config's ``protocol``.
        prompt: The user's message, or the text before an answer; holds ``{question}``.
        shots: Numbers of train rows shown as worked examples, from 0, in this order.
        rule: ``settings.answer_rule``.
    """

    style: PromptStyle
    prompt: str
    shots: tuple[int, ...]
    rule: RuleName

    @classmethod
    def read(cls, protocol: str, settings: Mapping[str, object], *, task: str) -> "PromptSettings":
        """Reads and checks the settings.

        Raises:
            ConfigError: One is unknown or does not fit the protocol.
        """
        prompt = str(settings.get("prompt", QUESTION))
        style = _named(PromptStyle, protocol, what=f"task {task}: protocol")
        rule = settings.get("answer_rule", RuleName.MARKED)
        if QUESTION not in prompt:
            raise ConfigError(f"task {task}: settings.prompt lacks {QUESTION}")
        if style is PromptStyle.BASE and not heading(prompt):
            raise ConfigError(
                f"task {task}: protocol base needs a heading before {QUESTION} in settings.prompt",
                cure='Write it as "Question: {question}\\nAnswer:", so that an answer has an end',
            )
        return cls(
            style=style,
            prompt=prompt,
            shots=_shots(settings.get("shots", ()), task=task),
            rule=_named(RuleName, str(rule), what=f"task {task}: settings.answer_rule"),
        )


def heading(prompt: str) -> str:
    """What stands before the question, e.g. ``Question:``."""
    return prompt.partition(QUESTION)[0].strip()


def _named(kind: type[S], name: str, *, what: str) -> S:
    try:
        return kind(name)
    except ValueError:
        raise ConfigError(
            f"{what}: '{name}' does not exist", cure=f"Choices: {', '.join(kind)}"
        ) from None


def _shots(value: object, *, task: str) -> tuple[int, ...]:
    numbers = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ConfigError(f"task {task}: settings.shots lists row numbers from 0, not {value!r}")
    return tuple(numbers)


class Prompts:
    """Turns rows into requests.

    Args:
        settings: What the config says.
        shots: The rows that ``settings.shots`` names.
    """

    def __init__(self, settings: PromptSettings, shots: Sequence[Row]) -> None:
        self._settings = settings
        self.examples = tuple((self._ask(row.question), spoken(row.answer)) for row in shots)

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        """The worked examples as turns of a chat."""
        return tuple(
            message
            for question, answer in self.examples
            for message in (
                ChatMessage(role="user", content=question),
                ChatMessage(role="assistant", content=answer),
            )
        )

    @property
    def template(self) -> str:
        """What a question is put into: the last user's message, or the whole text."""
        if self._settings.style is PromptStyle.CHAT:
            return self._settings.prompt
        shown = "".join(f"{question} {answer}\n" for question, answer in self.examples)
        return shown + self._settings.prompt

    def request(self, question: str, *, max_tokens: int) -> GenerationRequest:
        """The request for one question, greedy."""
        text = self.template.replace(QUESTION, question)
        if self._settings.style is PromptStyle.CHAT:
            sampling = Sampling(max_tokens=max_tokens)
            user = ChatMessage(role="user", content=text)
            return GenerationRequest(messages=(*self.messages, user), sampling=sampling)
        stop = (f"\n{heading(self._settings.prompt)}",)
        return GenerationRequest(text=text, sampling=Sampling(max_tokens=max_tokens, stop=stop))

    def _ask(self, question: str) -> str:
        return self._settings.prompt.replace(QUESTION, question)


def spoken(answer: str) -> str:
    """A worked answer as the published examples write it, ending in a line break."""
    steps, _, number = _CALCULATOR_NOTE.sub("", answer).partition(MARK)
    return f"{steps.rstrip()}\nThe answer is {number.strip()}\n"
