"""What is known of a run when its route is made: tables, code history, workspace, logs.

Whatever is not there any more is left out; the tables alone do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.run_tables import Row
from rl_bench.audit.executions import Seen, executions, trainable
from rl_bench.audit.methods import MAX_PROGRAMS, Finder
from rl_bench.audit.sources import (
    History,
    Version,
    as_python,
    by_text,
    loose_files,
    read_history,
    written,
)
from rl_bench.audit.submissions import Submission
from rl_bench.audit.training_logs import LogSign, training_logs
from rl_bench.events import AgentEvent, Entry, ProcessSeen
from rl_bench.paths import RunPaths

LOGS_S = 3.0
_EVENT_FIELDS = {
    AgentEvent: ("kind", "budget_used_s", "name", "text", "call_id", "is_error"),
    ProcessSeen: (
        "pid",
        "parent_pid",
        "argv",
        "began_s",
        "duration_s",
        "cpu_s",
        "max_rss_bytes",
    ),
}

TABLES: Mapping[str, Sequence[str]] = {
    "trace": ("seq", "time", *_EVENT_FIELDS[AgentEvent]),
    "processes": ("seq", "time", *_EVENT_FIELDS[ProcessSeen]),
}
"""What routes are read from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMaterial:
    """What is known of one attempt.

    Attributes:
        folder: The run's own; it may be gone.
        trace, processes: Rows of these tables, see `TABLES`.
        methods: By the audit that judged the run.
        submissions: One row a submission and task, see `analysis.trajectories.trajectory`.
        problem: Why there are no rows where there should be.
    """

    run_id: str
    folder: Path
    attempt: int
    budget_used_s: float
    methods: tuple[str, ...]
    trace: Sequence[Row]
    processes: Sequence[Row]
    submissions: Sequence[Row]
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A run whose files were read, and whose code was not yet parsed.

    Attributes:
        finder: Knows the commands' own Python text only.
        texts: Python by the text of its file, of every file of the agent's.
    """

    material: RunMaterial
    seen: Seen
    versions: tuple[Version, ...]
    finder: Finder
    logs: tuple[LogSign, ...]
    texts: Mapping[str, str]
    has_code: bool
    has_trace: bool
    problem: str


def prepare(material: RunMaterial, *, budget_s: float) -> Prepared:
    """Reads a run's tables, code history and workspace.

    Args:
        material: What is known of it.
        budget_s: The most that each of them takes; 0: the tables alone.
    """
    seen = trainable(executions(_entries(material)), limit=MAX_PROGRAMS)
    paths = RunPaths(material.folder)
    workspace = paths.workspace.resolve()
    there = workspace.is_dir() and budget_s > 0
    history = History(problem="the code was not read")
    if budget_s > 0:
        history = read_history(paths.code_history, attempt=material.attempt, budget_s=budget_s)
    loose = list(loose_files(workspace)) if there else []
    from_trace = list(written(seen.files, root=workspace)) if budget_s > 0 else []
    versions = (*history.versions, *loose, *from_trace)
    python = {text: as_python(version) for text, version in by_text(versions).items()}
    finder = Finder.of(
        seen,
        (),
        submissions=_submissions(material.submissions),
        workspace=workspace,
        budget_s=budget_s,
    )
    return Prepared(
        material=material,
        seen=seen,
        versions=versions,
        finder=finder,
        logs=tuple(_logs(paths, material, budget_s=min(LOGS_S, budget_s)) if there else ()),
        texts={text: code for text, code in python.items() if code is not None},
        has_code=bool(history.versions or loose),
        has_trace=bool(from_trace),
        problem=material.problem or ("" if loose else history.problem),
    )


def _entries(material: RunMaterial) -> list[Entry]:
    """The ledger entries that tell what ran, from the tables' rows."""
    rows: list[tuple[int, str, AgentEvent | ProcessSeen]] = []
    told = [row for row in material.trace if row["kind"] in ("tool_call", "tool_result")]
    for kind, table in ((AgentEvent, told), (ProcessSeen, material.processes)):
        for row in table:
            fields = {name: row[name] for name in _EVENT_FIELDS[kind]}
            rows.append((row["seq"], row["time"].isoformat(), kind.model_validate(fields)))
    rows.sort(key=lambda row: row[0])
    return [Entry(seq=seq, time_utc=time, elapsed_s=0.0, event=event) for seq, time, event in rows]


def _submissions(rows: Sequence[Row]) -> list[Submission]:
    found = {
        row["submission_id"]: Submission(
            submission_id=row["submission_id"],
            content_hash=row["content_hash"],
            model_path=row["model_path"],
            used_s=row["at_s"],
            unchanged=row["kind"] == "unchanged",
        )
        for row in rows
    }
    return list(found.values())


def _logs(paths: RunPaths, material: RunMaterial, *, budget_s: float) -> list[LogSign]:
    # Raw output with a trace is a conversation, in which logs are talked about.
    with_raw = not material.trace
    signs = training_logs(paths.workspace, paths.logs, with_raw=with_raw, budget_s=budget_s)
    return list(signs)
