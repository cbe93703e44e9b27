"""Demonstrations for tasks that are played: an expert's turns, in the prompts of the evaluation.

`envs.protocols` renders them. What a protocol wants to know beside an observation is in the rows,
or, an ALFWorld game's dialect, in the game. Prompts too long for the context lose turns as in an
evaluation: the oldest first, never the first of all, which states the task.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from envs.alfworld_dialect import dialect_of
from envs.protocol import Prompt, PromptProtocol, Turn
from envs.protocols import PROTOCOL_FILE, get_protocol
from rl_bench.agents.reference.demos import Demo, Step
from rl_bench.agents.reference.settings import SettingsError, TaskMeta

_TOLD = ("goal", "answer_type", "available_actions")
"""What environments tell under the same name as demonstrations do, and protocols read."""


def episode_demos(task: TaskMeta, rows: Sequence[Mapping[str, Any]]) -> list[Demo]:
    """Rows with ``turns``, a list of ``observation`` and ``action``."""
    speak = protocol_of(task)
    return [_demo(speak, row["turns"], info=_info(row, data=task.data)) for row in rows]


def answer_demos(task: TaskMeta, rows: Sequence[Mapping[str, Any]]) -> list[Demo]:
    """Rows with ``problem`` and ``answer`` alone, of a search task: the answer, without a search.

    Nobody has shown how to search for them, so this teaches the form of an answer and little else.
    """
    speak = protocol_of(task)
    return [
        _demo(
            speak,
            [{"observation": row["problem"], "action": f"Action: answer[{row['answer']}]"}],
            info=_info(row, data=task.data),
        )
        for row in rows
    ]


def protocol_of(task: TaskMeta) -> PromptProtocol:
    """The evaluation's protocol; ``protocol.txt`` beside the data has its settings too.

    Raises:
        SettingsError: It does not exist, or lacks a file.
    """
    path = task.data / PROTOCOL_FILE
    spec = path.read_text(encoding="utf-8").strip() if path.is_file() else task.protocol
    try:
        return get_protocol(spec)
    except (ValueError, FileNotFoundError) as error:
        raise SettingsError(f"task {task.name}: {error}") from error


def _info(row: Mapping[str, Any], *, data: Path) -> dict[str, Any]:
    info = {key: row[key] for key in _TOLD if key in row}
    game = data / str(row.get("game", ""))
    if game.is_file():
        grammar = json.loads(game.read_text(encoding="utf-8"))["grammar"]
        info["dialect"] = dialect_of(grammar, name=str(game))
    return info


def _demo(
    speak: PromptProtocol, rows: Sequence[Mapping[str, Any]], *, info: Mapping[str, Any]
) -> Demo:
    turns = [Turn(row["observation"], row["action"]) for row in rows]
    steps = []
    for number, (turn, row) in enumerate(zip(turns, rows, strict=True)):
        told = {**info, **{key: row[key] for key in _TOLD if key in row}}
        prompts = partial(_prompts, speak, turns[:number], turn.observation, told)
        answer, stop = _said(speak, turns[:number], turn, info=told)
        steps.append(Step(prompts=prompts, answer=answer, stop=stop))
    return steps


def _prompts(
    speak: PromptProtocol, turns: Sequence[Turn], observation: str, info: Mapping[str, Any]
) -> Iterator[Prompt]:
    """The prompt, then those with ever fewer turns, as an evaluation drops them."""
    kept = list(turns)
    yield speak.prompt(kept, observation, info)
    while len(kept) > 1:
        num_dropped = max(1, (len(kept) - 1) // 4)
        kept = [kept[0], *kept[1 + num_dropped :]]
        yield speak.prompt(kept, observation, info)


def _said(
    speak: PromptProtocol, before: Sequence[Turn], turn: Turn, *, info: Mapping[str, Any]
) -> tuple[str, str]:
    """What a model writes to take ``turn``'s action, and the stop string that ends it.

    A transcript's next prompt shows both: it goes on with the action as the model wrote it.
    """
    text = speak.prompt(before, turn.observation, info).text
    later = speak.prompt([*before, turn], "", info).text
    if text is None or later is None or not later.startswith(text):
        return turn.action, ""
    lead, action, rest = later[len(text) :].partition(turn.action)
    return lead + action, next((stop for stop in speak.stop if rest.startswith(stop)), "")
