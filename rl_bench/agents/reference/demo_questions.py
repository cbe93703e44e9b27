"""Demonstrations for tasks that ask once: questions with answers, functions with their bodies.

The prompt's template lies in ``prompt.txt``; ``shots.json`` holds worked examples as messages,
which come before a question where the context has room for them. Protocol ``base`` is plain text.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from envs.protocol import ChatMessage, Prompt
from rl_bench.agents.reference.demos import Demo, Step
from rl_bench.agents.reference.settings import SettingsError, TaskMeta

_BASE = "base"
_PROMPT_FILE = "prompt.txt"
_SHOTS_FILE = "shots.json"


def question_demos(task: TaskMeta, rows: Sequence[Mapping[str, str]]) -> list[Demo]:
    """Rows with ``question`` and ``answer``."""
    template, shots = _template(task), _shots(task.data / _SHOTS_FILE)
    return [
        _demo(task, template.replace("{question}", row["question"]), row["answer"], shots=shots)
        for row in rows
    ]


def code_demos(task: TaskMeta, rows: Sequence[Mapping[str, str]]) -> list[Demo]:
    """Rows with ``prompt``, a function's head, and ``canonical_solution``, its body.

    A chat is answered with the whole function in a fenced block, plain text is continued.
    """
    template = _template(task)
    return [
        _demo(
            task,
            template.replace("{prompt}", row["prompt"]),
            row["canonical_solution"] if task.protocol == _BASE else _fenced(row),
        )
        for row in rows
    ]


def _demo(task: TaskMeta, text: str, answer: str, *, shots: tuple[ChatMessage, ...] = ()) -> Demo:
    if task.protocol == _BASE:
        lead = "" if text[-1:].isspace() else " "
        return (Step(prompts=partial(_plain, text), answer=lead + answer),)
    return (Step(prompts=partial(_chats, text, shots), answer=answer),)


def _plain(text: str) -> Iterable[Prompt]:
    return (Prompt(text=text),)


def _chats(text: str, shots: tuple[ChatMessage, ...]) -> Iterable[Prompt]:
    question: ChatMessage = {"role": "user", "content": text}
    if shots:
        yield Prompt(messages=(*shots, question))
    yield Prompt(messages=(question,))


def _fenced(row: Mapping[str, str]) -> str:
    return f"```python\n{row['prompt']}{row['canonical_solution'].rstrip()}\n```"


def _template(task: TaskMeta) -> str:
    path = task.data / _PROMPT_FILE
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"task {task.name} (kind {task.kind}): no prompt template: {path}"
        ) from error


def _shots(path: Path) -> tuple[ChatMessage, ...]:
    if not path.is_file():
        return ()
    return tuple(
        {"role": str(message["role"]), "content": str(message["content"])}
        for message in json.loads(path.read_text(encoding="utf-8"))
    )
