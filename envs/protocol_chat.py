"""Chat protocols: an observation is a user message, an action the assistant's answer.

The first user message holds the room and the task. Nothing else is said, so a game stays short and
every prompt extends the one before it (which lets an engine reuse its cache).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.alfworld_dialect import USAGE, Dialect
from envs.protocol import NO_INFO, ChatMessage, Prompt, Turn

RULES = """\
You are in a house and do a household task by text commands. Answer each observation with one \
command and nothing else. Commands:
look | inventory | go to <place> | open <place> | close <place> | take <object> from <place> | \
move <object> to <place> | use <lamp> | clean <object> with <sink> | \
heat <object> with <microwave> | cool <object> with <fridge> | examine <place or object>
Name things with their number, e.g. go to desk 1. An object must be in your hands to be treated or \
moved, and you can hold one. Open what is closed to see inside."""
"""What a general model must be told; a model trained on the task needs no rules.

In current games' dialect; a game in the other one has its own command in this place.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatProtocol:
    """Alternating messages.

    Args:
        system: A system message; none when empty. Where it states the command of current games
            for putting an object down, a game that ``info["dialect"]`` says is of the other dialect
            gets its own.
    """

    system: str = ""
    name: str = "chat"
    stop: tuple[str, ...] = ()

    @classmethod
    def with_rules(cls, *, system: str = RULES) -> "ChatProtocol":
        """The protocol with a system message that explains the commands."""
        return cls(system=system, name="chat_rules")

    def prompt(
        self, turns: Sequence[Turn], observation: str, info: Mapping[str, Any] = NO_INFO
    ) -> Prompt:
        """See `envs.protocol.PromptProtocol.prompt`."""
        messages: list[ChatMessage] = []
        if self.system:
            usage = USAGE[Dialect(info.get("dialect", Dialect.MOVE))]
            system = self.system.replace(USAGE[Dialect.MOVE], usage)
            messages.append({"role": "system", "content": system})
        for turn in turns:
            messages.append({"role": "user", "content": turn.observation})
            messages.append({"role": "assistant", "content": turn.action})
        messages.append({"role": "user", "content": observation})
        return Prompt(messages=tuple(messages))

    def action(self, completion: str) -> str:
        """The first line that is not blank, without a leading prompt sign."""
        for line in completion.splitlines():
            text = line.strip().removeprefix(">").strip()
            if text:
                return text
        return ""
