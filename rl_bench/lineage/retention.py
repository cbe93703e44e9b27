"""Which accepted checkpoints stay on disk: `SinkConfig.keep_models`, applied to one run.

By default those that are best on a task, the last, the base itself, and any that is not graded yet.
The submissions' rows and scores stay whatever is removed: the ledger is the truth, and a note in it
says what went. Of the weights, samples stay, so that the audit says the same as if all had stayed.
Repeating it changes nothing, and a kill in between leaves nothing lost.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Literal

from rl_bench.audit.weight_samples import KEPT, Weights
from rl_bench.config import KeepModels, RunSpec
from rl_bench.counts import plural
from rl_bench.errors import RlBenchError
from rl_bench.events import Entry, Note, RunStarted, SubmissionAccepted
from rl_bench.lineage.references import SnapshotReferences
from rl_bench.scoreboard import Scoreboard

TOPIC = "retention"
"""Topic of the note that tells what was removed."""
Superfluous = Mapping[str, tuple[int, ...]]
"""Ids of the submissions by content hash."""


class Retention:
    """Removes the snapshots of one run that its sweep's rule does not keep.

    Args:
        snapshots: The sweep's folder of snapshots.
        spec: The run.
        run_id: Its id.
        keep_models: The rule.
        base_hash: The base model's content hash.
    """

    def __init__(
        self,
        snapshots: Path,
        *,
        spec: RunSpec,
        run_id: str,
        keep_models: KeepModels,
        base_hash: str,
    ) -> None:
        self._snapshots = snapshots
        self._references = SnapshotReferences(snapshots, run_id=run_id)
        self._tasks = tuple(task.name for task in spec.tasks)
        self._spec = spec
        self._keep_models = keep_models
        self._base_hash = base_hash

    def superfluous(self, board: Scoreboard) -> Superfluous:
        """What later submissions made superfluous while the run goes on.

        Call it, and `remove` after it, while no submission is being accepted: one that is, is not
        on the board yet.

        Args:
            board: The submissions of the attempt so far.
        """
        if self._keep_models == "all":
            return {}
        graded = {sub.content_hash for sub in board.submissions if sub.is_final}
        return _with_ids(graded - self._kept(board), board)

    def remove(self, superfluous: Superfluous) -> Note | None:
        """Removes snapshots that no other run needs. Blocks; what fails is told, not raised.

        Returns:
            What was removed, for the ledger; None: nothing was.
        """
        removed: dict[str, int] = {}
        problems: list[str] = []
        for digest, ids in superfluous.items():
            try:
                if ids:
                    self._keep_samples(digest)
                num_bytes = self._references.release(digest)
            except (OSError, RlBenchError, ValueError, LookupError) as error:
                problems.append(f"{digest[:12]}: {error}")
                continue
            if num_bytes is not None:
                removed[digest] = num_bytes
        return _note(removed, problems, superfluous)

    def _keep_samples(self, digest: str) -> None:
        """Keeps what the audit looks at of the weights, whatever rules it will have.

        Raises:
            RlBenchError: The checkpoint is malformed.
            OSError, ValueError, LookupError: It cannot be read, or the disk refused.
        """
        snapshot, kept = self._snapshots / digest, self._snapshots.with_name(KEPT) / digest
        if snapshot.is_dir() and not kept.exists():
            kept.parent.mkdir(exist_ok=True)
            Weights.of(snapshot).keep(kept)

    def at_end(self, entries: Iterable[Entry]) -> Note | None:
        """Removes all that is not kept, of every attempt; call it when the run accepts no more.

        Args:
            entries: The run's whole ledger.
        """
        if self._keep_models == "all":
            return None
        ledger = list(entries)
        board = Scoreboard(self._spec)
        board.restore(ledger)
        kept = self._kept(board) | _ungraded_before(ledger, self._spec)
        known = {e.event.content_hash for e in ledger if isinstance(e.event, SubmissionAccepted)}
        # Also what was stored and then not accepted, e.g. beyond the limit of submissions.
        return self.remove(_with_ids((known | self._references.referred()) - kept, board))

    def _kept(self, board: Scoreboard) -> set[str]:
        kept = {submission.content_hash for submission in board.pending()}
        if self._keep_models == "none":
            return kept
        bests = {best.submission_id for task in self._tasks if (best := board.best(task))}
        last = board.submissions[-1:]
        chosen = [sub for sub in board.submissions if sub.submission_id in bests]
        return kept | {sub.content_hash for sub in (*chosen, *last)} | {self._base_hash}


def _with_ids(digests: Iterable[str], board: Scoreboard) -> Superfluous:
    return {
        digest: tuple(sub.submission_id for sub in board.submissions if sub.content_hash == digest)
        for digest in sorted(digests)
    }


def _note(removed: Mapping[str, int], problems: list[str], of: Superfluous) -> Note | None:
    if not removed and not problems:
        return None
    names = [
        f"{digest[:12]} (submission {', '.join(map(str, of[digest])) or 'of no id'})"
        for digest in removed
    ]
    parts = []
    if removed:
        what, size = plural(len(removed), "snapshot"), plural(sum(removed.values()), "byte")
        parts.append(f"removed {what}, {size}: {', '.join(names)}")
    if problems:
        parts.append(f"could not be removed: {'; '.join(problems)}")
    level: Literal["info", "warning"] = "warning" if problems else "info"
    return Note(level=level, topic=TOPIC, message=". ".join(parts))


def _ungraded_before(ledger: list[Entry], spec: RunSpec) -> set[str]:
    """What attempts before the last accepted and nobody has graded."""
    starts = [number for number, e in enumerate(ledger) if isinstance(e.event, RunStarted)]
    found: set[str] = set()
    for begin, end in pairwise(starts):
        board = Scoreboard(spec)
        board.restore(ledger[begin:end])
        found |= {submission.content_hash for submission in board.pending()}
    return found
