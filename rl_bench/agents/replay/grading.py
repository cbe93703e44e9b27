"""The replay agent's side of the grading API."""

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import cast

from rl_bench.agents.replay.recording import ReplayError

SUBMIT_TIMEOUT_S = 24 * 3600.0
QUICK_TIMEOUT_S = 60.0
POLL_S = 0.5
NUM_TRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """A submission of this run. No scores: ``message`` says why."""

    submission_id: int | None
    model_path: str
    tasks: tuple[str, ...]
    scores: dict[str, float | None]
    status: str
    message: str = ""


class Grading:
    """Asks ``GRADING_SERVER_URL``.

    Args:
        url: The run's grading API.
        tasks: The run's tasks.
    """

    def __init__(self, url: str, tasks: tuple[str, ...]) -> None:
        self._url = url.rstrip("/")
        self._tasks = tasks

    def submissions(self) -> list[Graded]:
        """All that were accepted so far, in order; waits for those that are being graded."""
        bodies = self._scores().get("submissions")
        ids = [body["submission_id"] for body in bodies] if isinstance(bodies, list) else []
        return [self._finished(number) for number in ids]

    def baseline(self) -> dict[str, float | None]:
        """The base model's score by task."""
        found = self._scores().get("baseline_score")
        if isinstance(found, dict):
            return {task: _number(found.get(task)) for task in self._tasks}
        return {self._tasks[0]: _number(found)}

    def submit(self, model_path: str, *, task: str | None) -> Graded:
        """Submits a checkpoint and waits for its verdict, through outages of grading."""
        body: dict[str, object] = {"model_path": model_path}
        if task is not None:
            body["task"] = task
        for _ in range(NUM_TRIES):
            try:
                return self._graded(self._call("/submit", body, timeout_s=SUBMIT_TIMEOUT_S))
            except urllib.error.HTTPError as error:
                said = error.read().decode(errors="replace")
                retry_s = float(error.headers.get("Retry-After") or 5)
                refused = _refused(model_path, error.code, said)
                if error.code != 503:
                    return refused
            time.sleep(retry_s)
        return refused

    def _finished(self, submission_id: int) -> Graded:
        while True:
            body = self._get(f"/submissions/{submission_id}")
            if body.get("status") != "pending":
                return self._graded(body)
            time.sleep(POLL_S)

    def _graded(self, body: dict[str, object]) -> Graded:
        tasks = body.get("tasks")
        figures = tasks if isinstance(tasks, dict) else {self._tasks[0]: body}
        return Graded(
            submission_id=cast(int, body["submission_id"]),
            model_path=str(body.get("model_path", "")),
            tasks=tuple(figures),
            scores={task: _number(of.get("score")) for task, of in figures.items()},
            status=str(body.get("status", "")),
            message=str(body.get("message", "")),
        )

    def _scores(self) -> dict[str, object]:
        return self._get("/scores")

    def _get(self, path: str) -> dict[str, object]:
        try:
            return self._call(path, None, timeout_s=QUICK_TIMEOUT_S)
        except urllib.error.HTTPError as error:
            raise ReplayError(f"the grading API answers {path} with {error.code}") from error

    def _call(
        self, path: str, body: dict[str, object] | None, *, timeout_s: float
    ) -> dict[str, object]:
        request = urllib.request.Request(  # noqa: S310  the run's own loopback URL
            self._url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as reply:  # noqa: S310  likewise
                return cast(dict[str, object], json.load(reply))
        except urllib.error.HTTPError:
            raise
        except OSError as error:
            raise ReplayError(f"the grading API cannot be reached: {error}") from error


def _refused(model_path: str, status: int, said: str) -> Graded:
    try:
        message = str(json.loads(said)["message"])
    except (ValueError, KeyError, TypeError):
        message = said[:300]
    return Graded(
        submission_id=None,
        model_path=model_path,
        tasks=(),
        scores={},
        status="refused",
        message=f"{status}: {message}",
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
