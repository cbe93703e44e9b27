"""The published zero-shot protocol for WebShop: rules, what can be done now, and the last steps.

A prompt states the instruction, lists the available actions, shows the last five steps and then the
page. As published (Agent² RL-Bench), a past step is shown as the page that its action *led to*,
followed by the action: the newest of these pages is therefore the current one, shown twice. What a
page offered before its action is seen only in the step before. The wording is this project's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.protocol import NO_INFO, Prompt, Turn

SYSTEM = """\
You shop on a website for somebody else. You are told what to buy, what the page shows and which \
actions it offers. Answer with the one action that brings you closer to buying a fitting product, \
such as search[wool socks] or click[buy now], and with nothing else."""
RULES = """\
Choose the next action.
- Take it from the list of available actions, one only.
- search[...] takes words of your own; click[...] takes a text exactly as listed.
- Write the action and nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebShopProtocol:
    """One system message and one user message, made anew for every step.

    Args:
        history_steps: How many past steps are shown.
        system: The system message.
    """

    history_steps: int = 5
    system: str = SYSTEM
    name: str = "webshop_react"
    stop: tuple[str, ...] = ("\n",)

    @classmethod
    def published(cls, *, history_steps: str | int = 5, system: str = SYSTEM) -> "WebShopProtocol":
        """The protocol from settings, whose values may be text.

        Raises:
            ValueError: ``history_steps`` is no number, or negative.
        """
        if int(history_steps) < 0:
            raise ValueError(f"history_steps is {history_steps}, must not be negative")
        return cls(history_steps=int(history_steps), system=system)

    def prompt(
        self, turns: Sequence[Turn], observation: str, info: Mapping[str, Any] = NO_INFO
    ) -> Prompt:
        """See `envs.protocol.PromptProtocol.prompt`; ``info``: `envs.webshop.WebShopInfo`."""
        first = turns[0].observation if turns else observation
        actions = "\n".join(f"  {action}" for action in info.get("available_actions", ()))
        parts = [
            f"What to buy: {info.get('goal') or instruction_in(first)}",
            f"Available actions:\n{actions}",
            RULES,
            *self._history(turns, observation),
            f"Observation {len(turns) + 1}: {observation}\nAction {len(turns) + 1}:",
        ]
        return Prompt(
            messages=(
                {"role": "system", "content": self.system},
                {"role": "user", "content": "\n\n".join(parts)},
            )
        )

    def action(self, completion: str) -> str:
        """The first line, without ``Action:`` before it; ``choose[`` is taken for ``click[``."""
        line = next(iter(completion.strip().splitlines()), "")
        action = line.removeprefix("Action:").strip()
        return f"click[{action[7:]}" if action.startswith("choose[") else action

    def _history(self, turns: Sequence[Turn], observation: str) -> list[str]:
        """The last steps, each as its result and its action."""
        results = [*(turn.observation for turn in turns[1:]), observation]
        begin = max(0, len(turns) - self.history_steps)
        return [
            f"Observation {number + 1}: {results[number]}\nAction {number + 1}: {turn.action}"
            for number, turn in enumerate(turns)
            if number >= begin
        ]


def instruction_in(page: str) -> str:
    """The instruction that every page but the last shows."""
    return page.partition("Instruction: [SEP] ")[2].partition(" [SEP] ")[0]
