"""One replay: the recorded steps in their order.

A command runs with the code at the revision that it had then. A submission that a command made by
itself is recognised by its path and order; any other is made here, of the same path. Where a
checkpoint is missing that the record does not tell how to make, the replay stops and says so.
"""

import json
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rl_bench.agents.replay.code import CodeRestorer
from rl_bench.agents.replay.grading import Graded, Grading
from rl_bench.agents.replay.recording import (
    HISTORY,
    Command,
    RecordedSubmission,
    Recording,
    ReplayError,
    read_recording,
)
from rl_bench.agents.replay.report import ReplayedCommand, ReplayedSubmission, ReplayReport
from rl_bench.agents.replay.shell import SLOWER, Shell

MIN_WAIT_S = 120.0
SLACK_S = 10.0
SHOWN_CHARS = 500
_GRADING_URL = re.compile(
    r"http://(?:127\.0\.0\.1|localhost):\d+/[\w-]+(?=/(?:submit|submissions|scores|time|health)\b)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the agent works, of its environment.

    Attributes:
        run: The recorded run's folder.
    """

    run: Path
    workspace: Path
    output: Path
    model: Path
    grading_url: str
    env: Mapping[str, str]

    @classmethod
    def of(cls, env: Mapping[str, str]) -> "Place":
        """Reads the environment that the runner gives.

        Raises:
            ReplayError: ``settings.run`` is missing.
        """
        run = json.loads(env.get("AGENT_SETTINGS", "{}")).get("run")
        if not run:
            raise ReplayError("agent.settings.run names no recorded run")
        return cls(
            run=Path(run),
            workspace=Path(env["WORKSPACE"]),
            output=Path(env["OUTPUT_DIR"]),
            model=Path(env["MODEL_PATH"]),
            grading_url=env["GRADING_SERVER_URL"],
            env=env,
        )


class Replay:
    """Replays one recording.

    Raises:
        ReplayError: The recording cannot be read, or is of other tasks or another model.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._recording = recording = read_recording(place.run)
        meta = json.loads((place.workspace / "run_meta.json").read_text(encoding="utf-8"))
        self._differs = _differences(recording, meta)
        self._grading = Grading(place.grading_url, recording.tasks)
        self._code = CodeRestorer(place.run / HISTORY, place.workspace / "code")
        env = {**place.env, **recording.env, "AGENT_SETTINGS": json.dumps(recording.settings)}
        log = place.output / "replay.log"
        self._shell = Shell(place.workspace, env=env, log=log, rewrite=self._rewrite)
        self._commands: list[ReplayedCommand] = []
        self._submissions: list[ReplayedSubmission] = []
        self._taken: set[int] = set()
        self._last = (0.0, time.monotonic())

    def run(self) -> ReplayReport:
        """Goes through all steps; the report is on disk after each of them."""
        try:
            for step in self._recording.steps:
                if isinstance(step, Command):
                    self._repeat(step)
                else:
                    self._submit(step)
                self._report().write(self._place.output)
        except ReplayError as error:
            report = self._report(str(error))
        else:
            report = self._report()
        report.write(self._place.output)
        return report

    def _repeat(self, command: Command) -> None:
        shown = (command.text or " ".join(command.argv))[:SHOWN_CHARS]
        if command.is_cut:
            self._commands.append(
                ReplayedCommand(
                    command=shown,
                    revision=command.revision,
                    recorded_s=command.duration_s,
                    skipped="the record holds its beginning only",
                )
            )
            return
        if command.revision:
            self._code.restore(command.revision)
        sys.stdout.write(f"$ {shown}\n")
        sys.stdout.flush()
        self._last = (command.at_s, time.monotonic())
        outcome = self._shell.run(command)
        self._commands.append(
            ReplayedCommand(
                command=shown,
                revision=command.revision,
                recorded_s=command.duration_s,
                replayed_s=round(outcome.duration_s, 3),
                exit_code=outcome.exit_code,
            )
        )

    def _submit(self, recorded: RecordedSubmission) -> None:
        found = self._made_by_command(recorded)
        if found is None:
            path = self._path(recorded)
            # While it was waited for, a command may have submitted it.
            found = self._made_by_command(recorded)
        by_command = found is not None
        if found is None:
            if recorded.revision:
                self._code.restore(recorded.revision)
            is_one = len(recorded.tasks) < len(self._recording.tasks)
            found = self._grading.submit(path, task=recorded.tasks[0] if is_one else None)
        if found.submission_id is not None:
            self._taken.add(found.submission_id)
        self._submissions.append(
            ReplayedSubmission(
                recorded_id=recorded.submission_id,
                replayed_id=found.submission_id,
                model_path=recorded.model_path,
                revision=recorded.revision,
                by="command" if by_command else "replay",
                recorded=recorded.scores,
                replayed=found.scores,
                within_noise=self._within_noise(recorded.scores, found.scores),
                message=found.message,
            )
        )
        sys.stdout.write(f"submission {recorded.submission_id}: {dict(found.scores)}\n")
        sys.stdout.flush()

    def _made_by_command(self, recorded: RecordedSubmission) -> Graded | None:
        """The first submission of this run that is not yet taken for another and fits."""
        # An agent that is its own command makes the same ones, perhaps by other names.
        is_own = any(command.is_agent for command in self._recording.commands)
        fitting = (
            sub
            for sub in self._grading.submissions()
            if sub.submission_id not in self._taken
            and set(sub.tasks) == set(recorded.tasks)
            and (is_own or recorded.is_base or sub.model_path == recorded.model_path)
        )
        return next(fitting, None)

    def _path(self, recorded: RecordedSubmission) -> str:
        """The checkpoint to submit, once it is there.

        Raises:
            ReplayError: It is not.
        """
        if recorded.is_base:
            return str(self._place.model)
        # What runs in the background may be what makes it, submits it, or never ends.
        folder = self._place.workspace / recorded.model_path
        at_s, began = self._last
        took_s, passed_s = max(0.0, recorded.at_s - at_s), time.monotonic() - began
        self._shell.wait_for_background(2 * took_s + SLACK_S - passed_s)
        if not folder.is_dir():
            self._shell.wait_for_background(max(MIN_WAIT_S, SLOWER * took_s))
        if not folder.is_dir():
            raise ReplayError(self._nothing_tells(recorded))
        return recorded.model_path

    def _nothing_tells(self, recorded: RecordedSubmission) -> str:
        run = [command for command in self._commands if not command.skipped]
        failed = [command for command in run if command.exit_code != 0]
        cut = len(self._commands) - len(run)
        what = f"submission {recorded.submission_id} is of {recorded.model_path}, which"
        if not run:
            return f"{what} nothing in the record tells how to make: no command comes before it"
        last = f"; the last that failed: {failed[-1].command[:200]}" if failed else ""
        return (
            f"{what} is not there after the recorded commands before it "
            f"({len(run)}, {len(failed)} failed, {cut} of which only the beginning is recorded "
            f"left out{last}); see output/replay.log"
        )

    def _within_noise(
        self, recorded: Mapping[str, float | None], replayed: Mapping[str, float | None]
    ) -> dict[str, bool | None]:
        found: dict[str, bool | None] = {}
        for task, score in recorded.items():
            now, floor = replayed.get(task), self._recording.noise.get(task)
            if score is None or now is None or floor is None:
                found[task] = None
            else:
                found[task] = abs(now - score) <= floor
        return found

    def _rewrite(self, text: str) -> str:
        """The recorded run's workspace and grading API become this run's."""
        place = self._place
        text = text.replace(str(place.run / "workspace"), str(place.workspace))
        run_id = re.escape(self._recording.run_id)
        old = rf"(?:/[^\s'\"/:;|&()<>`$=]+)*/runs/{run_id}/workspace(?![\w.-])"
        text = re.sub(old, lambda _: str(place.workspace), text)
        return _GRADING_URL.sub(lambda _: place.grading_url, text)

    def _report(self, problem: str = "") -> ReplayReport:
        recording = self._recording
        return ReplayReport(
            run_id=recording.run_id,
            agent=recording.agent,
            differs=self._differs,
            recorded_baseline=recording.baseline,
            replayed_baseline=self._grading.baseline(),
            commands=tuple(self._commands),
            submissions=tuple(self._submissions),
            num_recorded=len(recording.submissions),
            problem=problem,
        )


def _differences(recording: Recording, meta: Mapping[str, object]) -> tuple[str, ...]:
    """What of this run's conditions differs; tasks and model must not."""
    listed = meta["tasks"]
    assert isinstance(listed, list)
    tasks = tuple(task["name"] for task in listed)
    for name, then, now in (
        ("tasks", ", ".join(recording.tasks), ", ".join(tasks)),
        ("base model", recording.model, str(meta["base_model"])),
    ):
        if then != now:
            raise ReplayError(f"the recorded run's {name}: {then}; this run's: {now}")
    return tuple(
        f"{name}: {now}, recorded: {then}"
        for name, then, now in (
            ("seed", recording.seed, meta["seed"]),
            ("mode", recording.mode, meta["mode"]),
        )
        if then != now
    )
