"""The agent's side of the grading API, with nothing but the standard library.

Also keeps the agent's clock: `GradingClient.remaining_s` asks the server, whose clock is the one
that counts.
"""

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast

_SUBMIT_TIMEOUT_S = 3600.0
_QUICK_TIMEOUT_S = 30.0
_RETRIES = 5


class TaskScore(TypedDict, total=False):
    """The part of an answer that the agent reads."""

    submission_id: int
    score: float | None
    baseline_score: float | None
    improvement: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A submission without a score: the server's status and its words."""

    status: int
    reason: str


class GradingClient:
    """Talks to ``GRADING_SERVER_URL``."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def submit(self, model_path: Path, *, task: str | None = None) -> TaskScore | Refused:
        """Submits a checkpoint and waits for its score.

        Tries again, as the server asks, while grading is down; any other refusal is returned.
        """
        body: dict[str, object] = {"model_path": str(model_path)}
        if task is not None:
            body["task"] = task
        for _ in range(_RETRIES):
            try:
                return cast(TaskScore, self._call("/submit", body, timeout_s=_SUBMIT_TIMEOUT_S))
            except urllib.error.HTTPError as error:
                reason = error.read().decode(errors="replace")[:500]
                refused = Refused(status=error.code, reason=reason)
                if error.code != 503:
                    return refused
                time.sleep(float(error.headers.get("Retry-After") or 2))
        return refused

    def remaining_s(self) -> float:
        """Seconds until the deadline; infinite when the server tells none."""
        try:
            answer = self._call("/time", None, timeout_s=_QUICK_TIMEOUT_S)
        except urllib.error.URLError:
            return float("inf")
        value = answer.get("remaining_s")
        return float(value) if isinstance(value, int | float) else float("inf")

    def _call(
        self, path: str, body: dict[str, object] | None, *, timeout_s: float
    ) -> dict[str, object]:
        request = urllib.request.Request(  # noqa: S310  the URL is the run's own
            self._url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=timeout_s) as response:  # noqa: S310  likewise
            return cast(dict[str, object], json.load(response))


class Deadline:
    """The moment to stop training, read once from the server and then kept locally.

    A grading that the run waits for may lengthen the clock, so `refresh` asks again.
    """

    def __init__(self, client: GradingClient, *, reserve_s: float) -> None:
        self._client = client
        self._reserve_s = reserve_s
        self._at = 0.0
        self.refresh()

    def refresh(self) -> None:
        """Asks the server for the time left."""
        self._at = time.monotonic() + self._client.remaining_s() - self._reserve_s

    @property
    def passed(self) -> bool:
        """Whether it is time to stop."""
        return time.monotonic() >= self._at
