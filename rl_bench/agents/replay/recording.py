"""What the replay agent is told of a run: its commands and submissions in their order.

`rl_bench.lineage.recording` makes the file of a run's ledger. Evaluated items, traces and logs are
not in it, since whatever runs in the agent's sandbox may read it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

RECORDING = "recording.json"
HISTORY = "code.git"


class ReplayError(Exception):
    """The replay cannot be set up, or cannot go on; the message says why."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Command(_Frozen):
    """A command that was run.

    Attributes:
        text: Of a shell, as the agent's tool took it; empty when ``argv`` is given.
        argv: Of a process.
        is_agent: ``argv`` is the recorded agent's own, with ``{python}`` and ``{workspace}``.
        keeps_folder: The tool goes on in the folder that a command ended in.
        revision: The code's revision to run it with; empty: none is known.
        at_s: When it began, on the run's clock.
        duration_s: How long it took; None when its end was not told.
        is_cut: The record holds its beginning only.
    """

    kind: Literal["command"] = "command"
    text: str = ""
    argv: tuple[str, ...] = ()
    is_agent: bool = False
    keeps_folder: bool = False
    revision: str = ""
    at_s: float
    duration_s: float | None = None
    is_cut: bool = False


class RecordedSubmission(_Frozen):
    """A submission that was accepted, with its scores by task.

    Attributes:
        is_base: It was the base model's own folder.
    """

    kind: Literal["submission"] = "submission"
    submission_id: int
    model_path: str
    tasks: tuple[str, ...]
    revision: str = ""
    at_s: float
    scores: Mapping[str, float | None] = {}
    is_base: bool = False


Step = Annotated[Command | RecordedSubmission, Field(discriminator="kind")]


class Recording(_Frozen):
    """A run's last attempt.

    Attributes:
        settings: The recorded agent's own settings, for processes that read them.
        env: The environment that its config adds, for an agent that is its own command.
        noise: By task, what two gradings of one checkpoint differ by.
    """

    version: Literal[1] = 1
    run_id: str
    agent: str
    mode: str
    model: str
    seed: int
    tasks: tuple[str, ...]
    settings: Mapping[str, object] = {}
    env: Mapping[str, str] = {}
    baseline: Mapping[str, float | None] = {}
    noise: Mapping[str, float | None] = {}
    steps: tuple[Step, ...]

    @property
    def submissions(self) -> tuple[RecordedSubmission, ...]:
        """The submissions, in order."""
        return tuple(step for step in self.steps if isinstance(step, RecordedSubmission))

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands, in order."""
        return tuple(step for step in self.steps if isinstance(step, Command))


def read_recording(run: Path) -> Recording:
    """The recording in a run's folder.

    Raises:
        ReplayError: There is none, or it is damaged.
    """
    path = run / RECORDING
    try:
        return Recording.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ReplayError(
            f"{path} cannot be read ({error.strerror}): is agent.settings.run the folder of a run?"
        ) from error
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise ReplayError(f"{path} is no recording of this version: {problem['msg']}") from error
