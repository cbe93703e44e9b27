"""The published ReAct protocol for ALFWorld: two worked examples, then the game as a transcript.

A prompt is a header, two example transcripts of the goal's kind (the file's number 1, then 0), the
sentence that begins the task, and the game so far with ``>`` before each action. The examples come
from a file (``alfworld_3prompts.json`` of the ReAct repository), since they are not this project's
to ship; the header is this project's own wording and can be set.

Dialects (`envs.alfworld_dialect`). The published examples say ``put X in/on Y``; current games know
only ``move X to Y``. ``react`` shows the examples in the dialect of the game at hand;
``react_published`` shows them as published whatever the game says: on current games that is the
mismatch under which published scores were measured.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from envs.agent_data import find_agent_data
from envs.alfworld_dialect import Dialect, to_move_dialect
from envs.protocol import NO_INFO, Prompt, Turn

HEADER = "You act in a household through short text commands. Two solved tasks come first.\n"
PROMPTS_FILE = "react/alfworld_3prompts.json"
"""Where the examples lie below ``RL_BENCH_DATA``, and below an agent's data folder."""
KINDS = ("put", "examine", "clean", "heat", "cool", "puttwo")
"""The kinds of examples in the file, one for each task type."""
_ARRIVAL = re.compile(r"^You arrive at loc \d+\. ")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactProtocol:
    """Few-shot transcripts as raw text.

    Args:
        examples: Goal kind to its two example transcripts as published, in prompt order.
        header: The first lines of every prompt.
        is_matched: Whether the examples are shown in the game's dialect, which ``info["dialect"]``
            tells; current games' where nothing tells it.
    """

    examples: Mapping[str, tuple[str, str]] = field(repr=False)
    header: str = HEADER
    is_matched: bool = True
    name: str = "react"
    stop: tuple[str, ...] = ("\n",)

    @classmethod
    def matched(cls, *, prompts: str = "", header: str = HEADER) -> "ReactProtocol":
        """Protocol ``react``: the examples in the dialect of the game at hand.

        Args:
            prompts: The file; default: `PROMPTS_FILE` in one of its places.
            header: The first lines of every prompt.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: The file lacks an example.
        """
        return cls(examples=load_examples(prompts), header=header)

    @classmethod
    def published(cls, *, prompts: str = "", header: str = HEADER) -> "ReactProtocol":
        """Protocol ``react_published``: the examples as published; arguments as in `matched`."""
        examples = load_examples(prompts)
        return cls(examples=examples, header=header, is_matched=False, name="react_published")

    def prompt(
        self, turns: Sequence[Turn], observation: str, info: Mapping[str, Any] = NO_INFO
    ) -> Prompt:
        """See `envs.protocol.PromptProtocol.prompt`."""
        shown = [_without_location(seen) for seen in (*(t.observation for t in turns), observation)]
        examples = "".join(self.examples[goal_kind(shown[0])])
        if self.is_matched and info.get("dialect", Dialect.MOVE) == Dialect.MOVE:
            examples = to_move_dialect(examples)
        parts = [self.header, examples, "\nHere is the task.\n", _squeezed(shown[0]), "\n>"]
        for turn, answer in zip(turns, shown[1:], strict=True):
            parts.append(f" {turn.action}\n{answer}\n>")
        return Prompt(text="".join(parts))

    def action(self, completion: str) -> str:
        """The first line, without a leading prompt sign."""
        lines = completion.strip().splitlines()
        return lines[0].strip().removeprefix(">").strip() if lines else ""


def _squeezed(observation: str) -> str:
    """Without blank lines, as in the examples."""
    return "\n".join(line for line in observation.splitlines() if line.strip())


def _without_location(observation: str) -> str:
    """Without "You arrive at loc 5.", which games up to release 2.1.1 say and ReAct leaves out."""
    return _ARRIVAL.sub("", observation)


def goal_kind(observation: str) -> str:
    """The kind of examples that fits the task stated in an episode's first observation."""
    goal = observation.lower().rpartition("your task is to:")[2]
    words = set(re.findall(r"[a-z]+", goal))
    if "two" in words:
        return "puttwo"
    if words & {"examine", "look"}:
        return "examine"
    for kind, signs in (("clean", {"clean"}), ("heat", {"heat", "hot"}), ("cool", {"cool"})):
        if words & signs:
            return kind
    return "put"


def prompts_path(prompts: str = "") -> Path:
    """The examples' file: ``prompts``, or its place below ``RL_BENCH_DATA`` or an agent's data.

    Raises:
        FileNotFoundError: There is no such file; says where to get it.
    """
    path = Path(prompts or Path(os.environ.get("RL_BENCH_DATA", ".")) / PROMPTS_FILE)
    if path.is_file():
        return path
    given = None if prompts else find_agent_data(PROMPTS_FILE)
    if given is not None:
        return given
    raise FileNotFoundError(
        f"ReAct examples not found at {path}. Take prompts/alfworld_3prompts.json of "
        "github.com/ysymyth/ReAct and name it in task.settings.react_prompts, or set "
        "RL_BENCH_DATA to a folder that holds react/alfworld_3prompts.json."
    )


def load_examples(prompts: str = "") -> dict[str, tuple[str, str]]:
    """Reads the examples: goal kind to two transcripts, in prompt order."""
    return _read_examples(prompts_path(prompts))


@lru_cache(maxsize=4)
def _read_examples(path: Path) -> dict[str, tuple[str, str]]:
    data = json.loads(path.read_text())
    try:
        return {k: (str(data[f"react_{k}_1"]), str(data[f"react_{k}_0"])) for k in KINDS}
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} lacks the example {error}") from error
