"""Train data as the workspace lays them out, turned into demonstrations.

What ``train.jsonl`` holds decides how it is read, not the task's name: a task of another kind that
writes rows of one of these forms is understood.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rl_bench.agents.reference.demo_episodes import answer_demos, episode_demos
from rl_bench.agents.reference.demo_questions import code_demos, question_demos
from rl_bench.agents.reference.demos import Demo
from rl_bench.agents.reference.settings import SettingsError, TaskMeta

_TRAIN_FILE = "train.jsonl"
_FORMS: Sequence[
    tuple[tuple[str, ...], Callable[[TaskMeta, Sequence[Mapping[str, Any]]], list[Demo]]]
] = (
    (("turns",), episode_demos),
    (("problem", "answer"), answer_demos),
    (("prompt", "canonical_solution"), code_demos),
    (("question", "answer"), question_demos),
)
"""Fields of a row, and who makes demonstrations of such rows; the first that fits."""


def load_demos(task: TaskMeta) -> list[Demo]:
    """All demonstrations of a task, in a fixed order.

    Raises:
        SettingsError: There are none, or not in a form that the agent knows; names the file.
    """
    rows = _read(task)
    for fields, make in _FORMS:
        if all(field in rows[0] for field in fields):
            try:
                return make(task, rows)
            except (KeyError, TypeError) as error:
                raise SettingsError(
                    f"{_place(task)}: a row is not like the first one ({error!r})"
                ) from error
    known = ", or ".join(" and ".join(fields) for fields, _ in _FORMS)
    raise SettingsError(
        f"{_place(task)}: rows have {', '.join(rows[0])}; the reference agent knows rows "
        f"with {known}"
    )


def choose(demos: Sequence[Demo], *, num: int, seed: int) -> list[Demo]:
    """``num`` of ``demos`` at random; all of them when ``num`` is 0."""
    if num == 0 or num >= len(demos):
        return list(demos)
    return random.Random(seed).sample(list(demos), num)  # noqa: S311  not for secrets


def _read(task: TaskMeta) -> list[dict[str, Any]]:
    path = task.data / _TRAIN_FILE
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        rows = [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise SettingsError(f"{_place(task)}: no demonstrations ({error})") from error
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise SettingsError(f"{_place(task)}: no demonstrations (one JSON object a line)")
    return rows


def _place(task: TaskMeta) -> str:
    return f"task {task.name} (kind {task.kind}): {task.data / _TRAIN_FILE}"
