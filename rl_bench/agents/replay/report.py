"""What a replay found, beside what was recorded: `output/replay.json`, and a table on stdout."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

REPORT = "replay.json"
_REMARKS = {True: "within noise", False: "beyond noise", None: ""}


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ReplayedCommand(_Frozen):
    """A command that was run again, or why it was not.

    Attributes:
        recorded_s, replayed_s: How long it took then and now.
        exit_code: None: it was ended for taking too long, or not run.
    """

    command: str
    revision: str
    recorded_s: float | None
    replayed_s: float | None = None
    exit_code: int | None = None
    skipped: str = ""


class ReplayedSubmission(_Frozen):
    """A recorded submission and the one that stands for it now.

    Attributes:
        by: ``command``: a recorded command submitted it by itself; ``replay``: this agent did.
        within_noise: By task, whether the scores differ by no more than the task's noise floor;
            None where the noise is not known.
    """

    recorded_id: int
    replayed_id: int | None
    model_path: str
    revision: str
    by: Literal["command", "replay"]
    recorded: Mapping[str, float | None]
    replayed: Mapping[str, float | None]
    within_noise: Mapping[str, bool | None]
    message: str = ""


class ReplayReport(_Frozen):
    """A replay as far as it has come.

    Attributes:
        differs: Conditions of this run that are not the recorded one's, in words.
        problem: Why it stopped; empty when all was replayed.
    """

    run_id: str
    agent: str
    differs: tuple[str, ...] = ()
    recorded_baseline: Mapping[str, float | None] = {}
    replayed_baseline: Mapping[str, float | None] = {}
    commands: tuple[ReplayedCommand, ...] = ()
    submissions: tuple[ReplayedSubmission, ...] = ()
    num_recorded: int
    problem: str = ""

    @property
    def is_complete(self) -> bool:
        """Every recorded score has its counterpart."""
        return (
            not self.problem
            and len(self.submissions) == self.num_recorded
            and all(
                score is None or sub.replayed.get(task) is not None
                for sub in self.submissions
                for task, score in sub.recorded.items()
            )
        )

    def write(self, output: Path) -> None:
        """Puts it into the folder ``output``, whole at any moment."""
        draft = output / f".{REPORT}.draft"
        draft.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
        draft.replace(output / REPORT)

    def table(self) -> str:
        """The comparison as text: a row for the baseline and one for each submission and task."""
        rows = [("submission", "task", "model", "recorded", "replayed", "difference", "")]
        for task, score in self.recorded_baseline.items():
            now = self.replayed_baseline.get(task)
            rows.append(("baseline", task, "", *_figures(score, now), ""))
        for sub in self.submissions:
            for task, score in sub.recorded.items():
                remark = sub.message or _REMARKS[sub.within_noise.get(task)]
                figures = _figures(score, sub.replayed.get(task))
                rows.append((str(sub.recorded_id), task, sub.model_path, *figures, remark))
        widths = [max(len(row[column]) for row in rows) for column in range(7)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        notes = [f"differs from the recorded run: {text}" for text in self.differs]
        if self.problem:
            notes.append(f"stopped: {self.problem}")
        return "\n".join([f"replay of {self.run_id} ({self.agent})", *lines, *notes])


def _figures(recorded: float | None, replayed: float | None) -> tuple[str, str, str]:
    difference = "-" if recorded is None or replayed is None else f"{replayed - recorded:+.2f}"
    return _shown(recorded), _shown(replayed), difference


def _shown(score: float | None) -> str:
    return "-" if score is None else f"{score:.2f}"
