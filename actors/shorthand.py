"""What crosses between a worker and a grader, in few bytes: what both ends know is not said again.

A prompt of an episode holds all that was said before it, so whole prompts would cost the square of
an episode's length. `Sender` numbers places for conversations, and sends of each prompt what is new
since the last one of its place; `Receiver` remembers the last prompt of each place. A place has one
open request at a time, so that the order in which calls arrive does not matter.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rl_bench.engine.base import Completion, FinishReason, GenerationRequest, Sampling
from rl_bench.errors import RlBenchError

if TYPE_CHECKING:  # the package loads Gymnasium
    from envs.protocol import ChatMessage

MAX_PLACES = 512
"""Prompts that each end remembers, at most; others are sent whole."""
NO_PLACE = -1

Content: TypeAlias = "tuple[ChatMessage, ...] | str"


class ShortRequest(NamedTuple):
    """A request; its prompt is ``num_kept`` messages or characters of the place's last, and more.

    ``number`` is the asker's own.
    """

    number: int
    place: int
    num_kept: int
    more: Content
    sampling: Sampling


ShortAnswer: TypeAlias = tuple[int, tuple[str, int, int, str, int] | RlBenchError]
"""The request's number, and a `Completion`'s fields or what went wrong."""


@dataclass(slots=True)
class _Place:
    number: int
    content: Content = ()
    is_open: bool = False


class Sender:
    """The asker's end."""

    def __init__(self) -> None:
        self._places: OrderedDict[str, _Place] = OrderedDict()
        self._open: dict[int, _Place] = {}
        self._samplings: dict[Sampling, Sampling] = {}

    def shorten(
        self, number: int, request: GenerationRequest, *, conversation: str | None
    ) -> ShortRequest:
        """What to send; ``conversation`` names requests whose prompts are likely to grow."""
        content: Content = (request.messages or ()) if request.text is None else request.text
        # One object for equal ones: pickle writes an object once a call.
        sampling = self._samplings.setdefault(request.sampling, request.sampling)
        place = None if conversation is None else self._place(conversation)
        if place is None:
            return ShortRequest(number, NO_PLACE, 0, content, sampling)
        num_kept = _num_common(place.content, content)
        place.content, place.is_open = content, True
        self._open[number] = place
        return ShortRequest(number, place.number, num_kept, content[num_kept:], sampling)

    def answered(self, number: int) -> None:
        """The other end has read that request."""
        place = self._open.pop(number, None)
        if place is not None:
            place.is_open = False

    def forget(self) -> None:
        """Nobody knows what the other end has read: everything is sent whole again."""
        self._places.clear()
        self._open.clear()

    def _place(self, conversation: str) -> _Place | None:
        place = self._places.get(conversation)
        if place is not None:
            self._places.move_to_end(conversation)
            return None if place.is_open else place
        number = len(self._places)
        if number >= MAX_PLACES:
            oldest = next(iter(self._places))
            if self._places[oldest].is_open:
                return None
            number = self._places.pop(oldest).number
        place = self._places[conversation] = _Place(number)
        return place


class Receiver:
    """The other end, for one asker."""

    def __init__(self) -> None:
        self._contents: dict[int, Content] = {}

    def read(self, short: ShortRequest) -> GenerationRequest:
        """The whole request."""
        content = short.more
        if short.num_kept:
            content = self._contents[short.place][: short.num_kept] + content  # type: ignore[operator]  # alike
        if short.place != NO_PLACE:
            self._contents[short.place] = content
        if isinstance(content, str):
            return GenerationRequest(text=content, sampling=short.sampling)
        return GenerationRequest(messages=content, sampling=short.sampling)


def _num_common(before: Content, now: Content) -> int:
    """Messages, or characters, at the beginning of both."""
    if isinstance(now, str):
        return len(before) if isinstance(before, str) and now.startswith(before) else 0
    return 0 if isinstance(before, str) else _num_equal(before, now)


def _num_equal(before: "Sequence[ChatMessage]", now: "Sequence[ChatMessage]") -> int:
    for index, (one, other) in enumerate(zip(before, now, strict=False)):
        if one != other:
            return index
    return min(len(before), len(now))


def shorten_answer(number: int, answer: Completion | RlBenchError) -> ShortAnswer:
    """An answer as it is sent."""
    if isinstance(answer, RlBenchError):
        return number, answer
    return number, (
        answer.text,
        answer.num_prompt_tokens,
        answer.num_tokens,
        answer.finish_reason.value,
        answer.max_prompt_tokens,
    )


def read_answer(answer: ShortAnswer) -> Completion | RlBenchError:
    """An answer as it was given."""
    said = answer[1]
    if isinstance(said, RlBenchError):
        return said
    text, num_prompt_tokens, num_tokens, reason, max_prompt_tokens = said
    return Completion(
        text=text,
        num_prompt_tokens=num_prompt_tokens,
        num_tokens=num_tokens,
        finish_reason=FinishReason(reason),
        max_prompt_tokens=max_prompt_tokens,
    )
