"""How an episode's history becomes a prompt, and a completion an action.

Shared by the grader's rollouts and by an agent's own training code, so that both see the very same
prompts. A protocol is pure: no engine, no environment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol, TypedDict

NO_INFO: Final[Mapping[str, Any]] = MappingProxyType({})


class ChatMessage(TypedDict):
    """One chat message: ``role`` is ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One step of an episode: the observation shown, and the action taken on it."""

    observation: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Chat ``messages``, or raw ``text`` for base models and few-shot protocols."""

    messages: tuple[ChatMessage, ...] | None = None
    text: str | None = None


class PromptProtocol(Protocol):
    """Renders prompts and reads actions."""

    @property
    def name(self) -> str:
        """The protocol's name, as `envs.protocols.get_protocol` takes it."""
        ...

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings that end a completion."""
        ...

    def prompt(
        self, turns: Sequence[Turn], observation: str, info: Mapping[str, Any] = NO_INFO
    ) -> Prompt:
        """The prompt for the next action, after ``turns``, on seeing ``observation``.

        ``info`` is what the environment told beside it, e.g. ``available_actions``.
        """
        ...

    def action(self, completion: str) -> str:
        """The action in a completion."""
        ...
