"""The order of a recorded run's commands and submissions.

The ledger's order is theirs, but for one thing: what an agent prints is read a moment after it was
printed, so a quick command may stand behind the submission that it made. It then comes first all
the same, and with it every command before it.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

from rl_bench.agents.replay.recording import Command, RecordedSubmission, Step

LATE_S = 2.0
"""A command that is told so much later than a submission may still have made it."""
_READS = re.compile(r"/scores\b|scores\.json|/submissions/")


class Placed(NamedTuple):
    """A step, after which event of the ledger it belongs, and what a command printed."""

    after: float
    step: Step
    answer: str = ""


def in_order(commands: Sequence[Placed], submissions: Sequence[Placed]) -> tuple[Step, ...]:
    """All steps as they were taken; at one place a command comes first.

    Args:
        commands: In their order.
        submissions: In their order, which they keep.
    """
    taken: set[tuple[int, str]] = set()
    placed, after = list(commands), 0.0
    for item in submissions:
        made_after = _maker_place(item, commands, taken)
        after = max(after, item.after, made_after)
        placed.append(item._replace(after=after))
    placed.sort(key=lambda item: (item.after, item.step.kind != "command"))
    return tuple(item.step for item in placed)


def _maker_place(item: Placed, commands: Sequence[Placed], taken: set[tuple[int, str]]) -> float:
    """Where the command stands that made a submission; 0 when no command tells that it did."""
    submission = item.step
    assert isinstance(submission, RecordedSubmission)
    path = submission.model_path
    fitting = [
        number
        for number, at in enumerate(commands)
        if at.step.at_s <= submission.at_s + LATE_S and (number, path) not in taken
    ]
    for number in _makers(item, submission, commands, fitting):
        taken.add((number, path))
        return commands[number].after
    return 0.0


def _makers(
    item: Placed,
    submission: RecordedSubmission,
    commands: Sequence[Placed],
    fitting: Sequence[int],
) -> Iterator[int]:
    """Commands that may have made it, likeliest first."""
    named = re.compile(rf"submission_id\W+{submission.submission_id}\b")
    for number in fitting:
        at = commands[number]
        if named.search(at.answer) and not _READS.search(_text(at)):
            yield number
    name = re.escape(PurePath(submission.model_path).name)
    word = re.compile(rf"(?<![\w.-]){name}(?![\w-])")
    submits = [n for n in fitting if "submit" in (t := _text(commands[n])) and word.search(t)]
    yield from reversed([n for n in submits if commands[n].after <= item.after])
    yield from (n for n in submits if commands[n].after > item.after)


def _text(placed: Placed) -> str:
    step = placed.step
    return step.text or " ".join(step.argv) if isinstance(step, Command) else ""
