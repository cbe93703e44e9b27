"""Notices changes under the agent's `code/` and has them recorded while the run goes on.

A thread looks at names, sizes and times every second; a change is recorded once the folder has been
quiet for two seconds, or has been written to without a pause for twenty. The more revisions there
are, the longer the next one waits, so that a run has some thousand at most. Whatever fails here is
a warning: no run ends by it.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from rl_bench.errors import RlBenchError
from rl_bench.events import AgentEvent, CodeChanged, Event, SubmissionAccepted
from rl_bench.lineage.code_files import list_code
from rl_bench.lineage.code_history import CodeHistory, Revision
from rl_bench.lineage.commit import Cause

log = logging.getLogger(__name__)

POLL_S = 1.0
QUIET_S = 2.0
MAX_WAIT_S = 20.0
MAX_LOAD = 0.05
"""The share of one core that looking may take."""
WAIT_A_REVISION_S = 0.1
"""Each revision so far makes the next wait this much longer; a tenth of it when asked to hurry."""
MAX_WARNINGS = 20
RETRY_S = 60.0
JOIN_LIMIT_S = 30.0


class CodeWatch:
    """Watches one run's code. Use as a context manager, or `start` and `close`.

    Args:
        code: The agent's folder.
        history: Where revisions go.
        used_s: Seconds used on the run's clock.
        tell: Told of each new revision; may raise, which only `at_submission` passes on.
        warn: Told what could not be recorded, each thing once.
        poll_s: Between two looks.
        quiet_s: Without a change, before one is recorded.
        max_wait_s: From a change to its revision at the latest.
    """

    def __init__(
        self,
        code: Path,
        *,
        history: CodeHistory,
        used_s: Callable[[], float],
        tell: Callable[[CodeChanged], object],
        warn: Callable[[str], object] = log.warning,
        poll_s: float = POLL_S,
        quiet_s: float = QUIET_S,
        max_wait_s: float = MAX_WAIT_S,
    ) -> None:
        self._code = code
        self._history = history
        self._used_s = used_s
        self._tell = tell
        self._warn = warn
        self._poll_s = poll_s
        self._quiet_s = quiet_s
        self._max_wait_s = max_wait_s
        self._mutex = threading.Lock()
        self._wake = threading.Event()
        self._hurry = False
        self._stopped = False
        self._warned: set[str] = set()
        self._recorded: int | None = None
        self._seen: int | None = None
        self._dirty_since = self._changed_at = 0.0
        self._recorded_at = self._not_before = -math.inf
        self._thread = threading.Thread(target=self._run, name="code watch", daemon=True)

    def start(self) -> Self:
        """Begins to look."""
        self._thread.start()
        return self

    def look_soon(self) -> None:
        """Has a change recorded without waiting for quiet, e.g. when a command is about to run."""
        self._hurry = True
        self._wake.set()

    def heed(self, event: Event) -> None:
        """Takes a hint from an event that is in the ledger; never raises.

        A tool that is called or has answered may have changed the code, and is about to be followed
        by another: it is looked at now. An accepted submission's revision gets its tag.
        """
        if isinstance(event, AgentEvent) and event.kind in ("tool_call", "tool_result"):
            self.look_soon()
        elif isinstance(event, SubmissionAccepted) and event.code_revision:
            number, revision = event.submission_id, event.code_revision
            self._guarded(lambda: self._history.tag_submission(number, revision))

    def at_submission(self) -> str:
        """Records the code as it is now; the id of its revision.

        Raises:
            WorkspaceError: It could not be recorded.
        """
        return self._record("submission").id

    def close(self) -> None:
        """Stops looking and records what the code is at the end; never raises."""
        if self._stopped:
            return
        self._stopped = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_LIMIT_S)
        self._guarded(lambda: self._record("end"))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self) -> None:
        pause_s = self._poll_s
        while not self._stopped:
            self._wake.wait(pause_s)
            self._wake.clear()
            if self._stopped:
                return
            began = time.monotonic()
            self._guarded(self._look)
            pause_s = max(self._poll_s, (time.monotonic() - began) / MAX_LOAD)

    def _look(self) -> None:
        hurry, self._hurry = self._hurry, False
        now = time.monotonic()
        signature = list_code(self._code).signature()
        if signature == self._recorded:
            self._seen = signature
            return
        if self._seen == self._recorded:
            self._dirty_since = now
        if signature != self._seen:
            self._seen, self._changed_at = signature, now
        is_due = (
            hurry
            or now - self._changed_at >= self._quiet_s
            or now - self._dirty_since >= self._max_wait_s
        )
        if is_due and now >= self._earliest(hurry=hurry):
            self._record("change")
            # What is written while it is recorded shows at the next look.
            self._recorded, self._recorded_at = signature, now

    def _earliest(self, *, hurry: bool) -> float:
        wait_s = self._history.num_revisions * WAIT_A_REVISION_S
        return max(self._not_before, self._recorded_at + (wait_s / 10 if hurry else wait_s))

    def _record(self, cause: Cause) -> Revision:
        # One at a time, so that revisions are told in their order.
        with self._mutex:
            used_s = self._used_s()
            revision = self._history.record(cause, budget_used_s=used_s)
            if revision.is_new:
                self._tell(
                    CodeChanged(
                        revision=revision.id,
                        cause=cause,
                        changed=revision.changed,
                        num_changed=revision.num_changed,
                        num_files=revision.num_files,
                        budget_used_s=used_s,
                    )
                )
            return revision

    def _guarded(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001  the boundary: what is only watched ends no run
            self._not_before = time.monotonic() + RETRY_S
            known = isinstance(error, (RlBenchError, OSError))
            message = str(error) if known else f"{type(error).__name__}: {error}"
            if message not in self._warned and len(self._warned) < MAX_WARNINGS:
                self._warned.add(message)
                self._say(f"the code could not be recorded: {message}")

    def _say(self, message: str) -> None:
        try:
            self._warn(message)
        except Exception:
            # The same boundary: a ledger that takes nothing more is told of elsewhere.
            log.exception("%s", message)
