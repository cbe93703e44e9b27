"""`audit_run`: a recorded run read under the present rules; nothing of the run is changed.

    executions, sources    what ran, and the agent's code over time
    methods -> mode        which training, and whether the mode allows it
    weights                submissions that were not trained
    contamination          evaluation items in the agent's files
    attempts, helpers_used paths, hosts, routes, other models
    trace_judge            a language model's opinion, if one is configured

Every part reads within a time of its own and tells what it could not read. A part that fails on
material nobody thought of leaves a finding ``not_checked`` and the others' results.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from rl_bench.audit.attempts import Forbidden, as_findings, attempts, refused_requests
from rl_bench.audit.contamination import contamination
from rl_bench.audit.executions import (
    Seen,
    ToolCall,
    executions,
    last_attempt,
    tool_calls,
    trainable,
)
from rl_bench.audit.facts import ModuleFacts
from rl_bench.audit.helpers_used import other_models, teachers
from rl_bench.audit.methods import MAX_PROGRAMS, Finder, find_methods
from rl_bench.audit.mode import judge_mode
from rl_bench.audit.probe_result import probe_findings
from rl_bench.audit.problems import Problems
from rl_bench.audit.rules import (
    CODE_S,
    DATA_S,
    LOGS_S,
    MAX_EVIDENCE,
    RULES_VERSION,
    WEIGHT_RULES,
    WEIGHTS_S,
    Rule,
    clip,
)
from rl_bench.audit.sources import History, Version, loose_files, read_history, written
from rl_bench.audit.submissions import Submission, submissions_of
from rl_bench.audit.training_logs import training_logs
from rl_bench.audit.weight_samples import KEPT, Weights, comparable
from rl_bench.audit.weights import open_references, weight_findings
from rl_bench.config import AuditConfig, RunSpec
from rl_bench.errors import RlBenchError
from rl_bench.events import (
    Entry,
    Evidence,
    FindingMade,
    ModeAudited,
    ModeVerdict,
    Note,
    SandboxReady,
)
from rl_bench.lineage.retention import TOPIC as RETENTION
from rl_bench.paths import RunPaths
from rl_bench.tasks.base import Task

log = logging.getLogger(__name__)
T = TypeVar("T")
TAMPERING = "tampering"


class Audit(NamedTuple):
    """What the rules say of a run; to be appended to its ledger by whoever owns that."""

    mode: ModeAudited
    findings: tuple[FindingMade, ...]

    @property
    def is_invalid(self) -> bool:
        """Whether the run broke the rules; a finding that names a submission is that one's."""
        return self.mode.verdict is ModeVerdict.BREACH or any(
            finding.severity == "breach" and finding.submission_id is None
            for finding in self.findings
        )

    @property
    def invalid_submissions(self) -> frozenset[int]:
        """Submissions that must not count."""
        return frozenset(
            finding.submission_id
            for finding in self.findings
            if finding.severity == "breach" and finding.submission_id is not None
        )

    @property
    def breach(self) -> str:
        """Why the run is invalid, in a line; empty when it is not."""
        breaches = [f.summary for f in self.findings if f.severity == "breach"]
        if self.mode.verdict is ModeVerdict.BREACH:
            breaches.insert(0, f"mode: {self.mode.summary}")
        return "; ".join(breaches) if self.is_invalid else ""


@dataclass(slots=True, kw_only=True)
class _Material:
    """What all parts read."""

    paths: RunPaths
    spec: RunSpec
    entries: Sequence[Entry]
    calls: Sequence[ToolCall]
    seen: Seen
    versions: Sequence[Version]
    submissions: Sequence[Submission]
    history: History
    workspace: Path


def audit_run(
    paths: RunPaths,
    spec: RunSpec,
    entries: Sequence[Entry],
    *,
    tasks: Sequence[Task],
    base_model: Path,
    snapshots: Path,
    config: AuditConfig,
    cache: Path | None = None,
) -> Audit:
    """Judges one run. Reads only, blocks for a bounded time, and raises for nothing that it reads.

    Args:
        paths: The run's paths; its workspace must still be there.
        spec: The run.
        entries: Its ledger; only the last attempt's count.
        tasks: Its tasks in the order of ``spec.tasks``; empty: evaluation items are not looked for.
        base_model: The base model's folder.
        snapshots: The sweep's snapshots; what is not there any more is not compared.
        config: Known checkpoints and the judge.
        cache: Where a judge's answers are kept for a later audit; None: nowhere.
    """
    problems = Problems()
    material = _material(paths, spec, entries, problems)
    if problem := material.history.problem:
        (problems.agents if material.history.is_there else problems.own).append(problem)
    facts: dict[str, ModuleFacts] = {}
    mode = _part("mode", lambda: _mode(material, facts), problems) or _unknown()
    parts: Mapping[str, Callable[[], Sequence[FindingMade]]] = {
        "weights": lambda: _weights(material, base_model, snapshots, config, problems),
        "evaluation items": lambda: _contamination(material, tasks, problems),
        "attempts": lambda: _attempts(material, facts),
        "other models": lambda: _other_models(material, facts, base_model),
        "leak probe": lambda: probe_findings(spec.agent, material.workspace, problems),
        "judge": lambda: _judge(material, config, cache),
    }
    findings = [f for name, part in parts.items() for f in _part(name, part, problems) or ()]
    findings += _tampering(material.entries)
    return Audit(mode, (*findings, *problems.findings()))


def _part(name: str, part: Callable[[], T], problems: Problems) -> T | None:
    try:
        return part()
    except Exception as error:
        # The boundary to what agents wrote: a part that trips over it must not end the run.
        log.exception("audit: %s", name)
        problems.agents.append(f"{name}: {type(error).__name__}: {error}")
        return None


def _material(
    paths: RunPaths, spec: RunSpec, entries: Sequence[Entry], problems: Problems
) -> _Material:
    attempt, of_attempt = last_attempt(entries)
    workspace = paths.workspace.resolve()
    seen = _part("executions", lambda: executions(of_attempt), problems) or Seen((), (), 0, 0)
    history = read_history(paths.code_history, attempt=attempt, budget_s=CODE_S)
    skip = ("code",) if history.versions else ()
    loose = _part("files", lambda: _loose(workspace, skip, problems), problems) or []
    versions = [*history.versions, *loose, *written(seen.files, root=workspace)]
    return _Material(
        paths=paths,
        spec=spec,
        entries=of_attempt,
        calls=_part("trace", lambda: tool_calls(of_attempt), problems) or (),
        seen=seen,
        versions=versions,
        submissions=submissions_of(of_attempt),
        history=history,
        workspace=workspace,
    )


def _loose(workspace: Path, skip: Sequence[str], problems: Problems) -> list[Version]:
    left_out: list[str] = []
    found = list(loose_files(workspace, skip=skip, left_out=left_out))
    problems.agents += [f"not looked at: {words}" for words in left_out[:MAX_EVIDENCE]]
    return found


def _mode(material: _Material, facts: dict[str, ModuleFacts]) -> ModeAudited:
    seen = trainable(material.seen, limit=MAX_PROGRAMS)
    logs = training_logs(
        material.workspace,
        material.paths.logs,
        with_raw=not material.spec.agent.stream,
        budget_s=LOGS_S,
    )
    finder = Finder.of(
        seen,
        material.versions,
        submissions=material.submissions,
        workspace=material.workspace,
        budget_s=CODE_S,
    )
    facts.update(finder.facts)
    methods = find_methods(finder, seen, logs)
    return judge_mode(material.spec.mode.name, methods, material.submissions)


def _unknown() -> ModeAudited:
    return ModeAudited(
        verdict=ModeVerdict.UNKNOWN,
        rules_version=RULES_VERSION,
        summary="the audit of the mode failed",
    )


def _weights(
    material: _Material,
    base_model: Path,
    snapshots: Path,
    config: AuditConfig,
    problems: Problems,
) -> list[FindingMade]:
    deadline = time.monotonic() + WEIGHTS_S
    base = Weights.of(base_model)
    references, unread = open_references(config.references, base=base)
    problems.own += unread
    found: list[FindingMade] = []
    judged: dict[str, list[FindingMade]] = {}
    for submission in material.submissions:
        if submission.unchanged:
            found.append(_unchanged(submission))
        elif submission.content_hash in judged:
            found += [_for(each, submission) for each in judged[submission.content_hash]]
        else:
            try:
                ours = _submitted(snapshots, submission)
                if ours is None or time.monotonic() > deadline:
                    why = _unread(material.entries, submission, is_there=ours is not None)
                elif not comparable(ours, base):
                    why = f"have nothing in common with those of the base model at {base_model}"
                else:
                    made = weight_findings(
                        submission.submission_id,
                        ours,
                        base=base,
                        references=references,
                        deadline=deadline,
                    )
                    judged[submission.content_hash] = made
                    found += made
                    continue
                problems.own.append(f"the weights of submission {submission.submission_id} {why}")
            except (RlBenchError, OSError, ValueError, LookupError) as error:
                problems.agents.append(f"submission {submission.submission_id}: {error}")
            found += _earlier(material.entries, submission)
    return found


def _submitted(snapshots: Path, submission: Submission) -> Weights | None:
    """A submission's weights, or the samples that retention kept of them; None: neither is there.

    Raises:
        RlBenchError: The checkpoint is malformed.
        OSError, ValueError, LookupError: It, or what was kept of it, cannot be read.
    """
    folder = snapshots / submission.content_hash
    if folder.is_dir():
        return Weights.of(folder)
    kept = snapshots.with_name(KEPT) / submission.content_hash
    return Weights.kept(kept) if kept.is_file() else None


def _for(finding: FindingMade, submission: Submission) -> FindingMade:
    """The same of a submission with the same content."""
    before = f"submission {finding.submission_id} "
    summary = finding.summary.replace(before, f"submission {submission.submission_id} ", 1)
    return finding.model_copy(
        update={"submission_id": submission.submission_id, "summary": summary}
    )


def _earlier(entries: Sequence[Entry], submission: Submission) -> list[FindingMade]:
    """What an audit said of the weights while they were there."""
    return [
        entry.event
        for entry in entries
        if isinstance(entry.event, FindingMade)
        and entry.event.rule in WEIGHT_RULES
        and entry.event.submission_id == submission.submission_id
    ]


def _unread(entries: Sequence[Entry], submission: Submission, *, is_there: bool) -> str:
    """Why a submission's weights were not looked at."""
    if is_there:
        return f"were not looked at within {WEIGHTS_S:g} s"
    notes = [entry.event for entry in entries if isinstance(entry.event, Note)]
    named = f"{submission.content_hash[:12]} (submission "
    if any(note.topic == RETENTION and named in note.message for note in notes):
        return "were not looked at: by the sweep's rule, sink.keep_models, they were not kept"
    return "are not there"


def _unchanged(submission: Submission) -> FindingMade:
    return FindingMade(
        rule=Rule.UNCHANGED_BASE,
        severity="info",
        rules_version=RULES_VERSION,
        summary=f"submission {submission.submission_id} is the base model itself",
        submission_id=submission.submission_id,
        evidence=(Evidence(source="weights", path=clip(submission.model_path)),),
    )


def _contamination(
    material: _Material, tasks: Sequence[Task], problems: Problems
) -> Sequence[FindingMade]:
    if not tasks:
        problems.own.append("evaluation items were not looked for: the tasks are not there")
        return ()
    result = contamination(
        tasks,
        material.spec.tasks,
        workspace=material.workspace,
        versions=material.versions,
        budget_s=DATA_S,
    )
    problems.own += result.problems
    problems.agents += result.left_out
    return result.findings


def _attempts(material: _Material, facts: Mapping[str, ModuleFacts]) -> list[FindingMade]:
    sweep = material.paths.root.resolve().parent.parent
    data = [task.data_path for task in material.spec.tasks if task.data_path is not None]
    kinds = [e.event.kind for e in material.entries if isinstance(e.event, SandboxReady)]
    forbidden = Forbidden(
        roots=(sweep, *(path.expanduser() for path in data)),
        workspace=material.workspace,
        confined="bwrap" in kinds,
    )
    found = attempts(material.calls, material.seen, material.versions, facts, forbidden)
    return as_findings([*found, *refused_requests(material.entries)])


def _other_models(
    material: _Material, facts: Mapping[str, ModuleFacts], base_model: Path
) -> list[FindingMade]:
    model = material.spec.model
    names = [model.name, model.hub_id.rpartition("/")[2], base_model.name]
    return [
        *other_models(material.entries, material.spec.driver),
        *teachers(material.seen, material.versions, facts, own_names=names),
    ]


def _judge(material: _Material, config: AuditConfig, cache: Path | None) -> list[FindingMade]:
    if config.judge is None:
        return []
    # Imported here: few audits have a judge, and its client takes a while to load.
    from rl_bench.audit.trace_judge import judge_trace

    return judge_trace(
        material.spec,
        material.entries,
        material.calls,
        material.versions,
        config=config.judge,
        cache=cache,
    )


def _tampering(entries: Sequence[Entry]) -> list[FindingMade]:
    """What the runner noticed while it ran and when it closed.

    A warning: scores do not depend on what was changed, and a shared base model that changed was
    not certainly changed by this run.
    """
    notes = [e.event for e in entries if isinstance(e.event, Note) and e.event.topic == TAMPERING]
    messages = list(dict.fromkeys(note.message for note in notes))
    if not messages:
        return []
    return [
        FindingMade(
            rule=Rule.TAMPERING,
            severity="warning",
            rules_version=RULES_VERSION,
            summary=clip("; ".join(messages), 400),
            evidence=tuple(Evidence(source="log", quote=clip(m)) for m in messages[:MAX_EVIDENCE]),
        )
    ]
