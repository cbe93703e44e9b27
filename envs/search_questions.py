"""Questions for a search agent, as a train file holds them: JSONL, one question a line.

The evaluation's questions never stand in such a file; they are handed over one by one, without
their references.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from envs.answer_match import SINGLE_ANSWER
from envs.errors import EnvironmentBroken


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuestion:
    """A question; ``reference`` is ``None`` where nobody but the judge may know it."""

    question: str
    category: str = ""
    answer_type: str = SINGLE_ANSWER
    reference: str | None = None


def read_questions(path: Path) -> Sequence[SearchQuestion]:
    """The rows of a train file: ``problem``, ``answer``, ``answer_type`` and ``category``.

    Raises:
        EnvironmentBroken: It is missing, empty or broken; names the line.
    """
    try:
        stat = path.stat()
        return _read(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        raise EnvironmentBroken(
            f"no questions: {path} ({error.strerror}); name the folder of train.jsonl in data_dir "
            "or in the environment variable DATA_PATH, or give reset options a 'question'"
        ) from error


@lru_cache(maxsize=4)
def _read(path: Path, _mtime_ns: int, _num_bytes: int) -> Sequence[SearchQuestion]:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if line.strip():
            rows.append(_question(line, where=f"{path}, line {number}"))
    if not rows:
        raise EnvironmentBroken(f"{path} holds no questions")
    return tuple(rows)


def _question(line: str, *, where: str) -> SearchQuestion:
    try:
        fields = json.loads(line)
        return SearchQuestion(
            question=str(fields["problem"]),
            category=str(fields.get("category", "")),
            answer_type=str(fields.get("answer_type", SINGLE_ANSWER)),
            reference=str(fields["answer"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EnvironmentBroken(f"{where}: not a question ({type(error).__name__})") from error
