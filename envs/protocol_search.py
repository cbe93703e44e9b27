"""ReAct for search: one growing text of thoughts, actions and observations (Yao et al. 2023).

The header's words are this project's own; the form (``Question``, ``Answer type``, ``Thought``,
``Action``, ``Observation``, raw text without a chat template) is that of the published runs
(microsoft/RD-Agent, autorl_bench/benchmarks/deepsearchqa/eval.py).

``search_react_published`` also has their stop strings. One of them, a new line with ``Action:``,
ends a completion just before its action: a model that thinks, and acts on the next line, is cut to
the thought and then made to answer (the environment's ``forced_answer``), without a search. The
runs behind the published scores had these stop strings. ``search_react`` lets the action through.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.protocol import NO_INFO, Prompt, Turn
from envs.search_actions import first_action

HEADER = """\
You answer questions with the help of a web search. Go step by step: a thought, then one action.
Thought: I need the year in which the bridge was opened.
Action: search[Forth Bridge opening year]
After a search an observation with its results follows. Once you know enough, answer:
Thought: The first result says 1890.
Action: answer[1890]

Answer briefly. If the answer type is Set Answer, give every item, separated by commas.
"""
"""Its examples are real ones: small models copy a placeholder as it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReactProtocol:
    """The transcript as raw text, up to the next thought.

    Args:
        header: The first lines of every prompt.
    """

    header: str = HEADER
    name: str = "search_react"
    stop: tuple[str, ...] = ("\nObservation:", "\nQuestion:")

    @classmethod
    def make(cls, *, header: str = HEADER) -> "SearchReactProtocol":
        """The protocol that lets a model search."""
        return cls(header=header)

    @classmethod
    def published(cls, *, header: str = HEADER) -> "SearchReactProtocol":
        """The protocol with the published stop strings."""
        stop = ("\nAction:", "\nThought:", "\nObservation:")
        return cls(header=header, name="search_react_published", stop=stop)

    def prompt(
        self, turns: Sequence[Turn], observation: str, info: Mapping[str, Any] = NO_INFO
    ) -> Prompt:
        """See `envs.protocol.PromptProtocol.prompt`."""
        shown = [*(turn.observation for turn in turns), observation]
        parts = [self.header, f"\nQuestion: {shown[0]}\n"]
        if info.get("answer_type"):
            parts.append(f"Answer type: {info['answer_type']}\n")
        parts.append("\nThought:")
        for turn, answer in zip(turns, shown[1:], strict=True):
            parts.append(f" {turn.action}\nObservation: {answer}\nThought:")
        if turns and info.get("expects_answer"):
            parts[-1] = f" {turns[-1].action}\nAction: answer["
        return Prompt(text="".join(parts))

    def action(self, completion: str) -> str:
        """The thought and the first action after it; what follows an action is invented."""
        text = completion.strip().removeprefix("Thought:").strip()
        found = first_action(text)
        return text if found is None else text[: found.end]
