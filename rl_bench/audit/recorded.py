"""Judges the recorded runs of a sweep anew: what `python -m rl_bench.audit` does.

Ledgers, workspaces and code histories are read where they lie; verdicts go to
``<sweep>/audits/<rules_version>.jsonl``, one line a run, and never into a ledger.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rl_bench.audit.audit import Audit, audit_run
from rl_bench.audit.executions import last_attempt
from rl_bench.audit.rules import RULES_VERSION
from rl_bench.config import AuditConfig, Frozen, PathsConfig, RunSpec
from rl_bench.errors import ConfigError, LedgerError, RlBenchError
from rl_bench.events import Entry, FindingMade, ModeAudited, ModeVerdict, RunStarted
from rl_bench.ledger import read_ledger
from rl_bench.models.base import resolve_model
from rl_bench.paths import RunPaths, SweepPaths
from rl_bench.tasks.base import Task
from rl_bench.tasks.registry import make_task
from rl_bench.whole_file import write_whole

FOLDER = "audits"


class AuditRecord(Frozen):
    """One line of a sweep's audits.

    Attributes:
        mode_before, findings_before: What the run's ledger says; None: it was never audited.
        not_audited: Why there is no verdict; empty when there is one.
    """

    run_id: str
    time_utc: str
    rules_version: str
    mode_name: str = ""
    mode: ModeAudited | None = None
    findings: tuple[FindingMade, ...] = ()
    mode_before: ModeAudited | None = None
    findings_before: tuple[FindingMade, ...] = ()
    not_audited: str = ""

    @property
    def is_judged(self) -> bool:
        """Whether enough of the run was there to tell whether it kept to its mode."""
        return self.mode is not None and self.mode.verdict is not ModeVerdict.UNKNOWN

    @property
    def is_breach(self) -> bool:
        """Whether the run or one of its submissions broke the rules."""
        severities = [finding.severity for finding in self.findings]
        return (
            self.mode is not None and self.mode.verdict.value == "breach"
        ) or "breach" in severities


_RECORD: TypeAdapter[AuditRecord] = TypeAdapter(AuditRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSweep:
    """A sweep on disk.

    Args:
        paths: Its folder.
        folders: Cache and the like.
        config: Known checkpoints and the judge.
    """

    paths: SweepPaths
    folders: PathsConfig
    config: AuditConfig

    def run_ids(self) -> list[str]:
        """Runs with a ledger.

        Raises:
            ConfigError: There are none: it is no sweep's folder.
        """
        found = sorted(path.parent.name for path in self.paths.runs.glob("*/ledger.jsonl"))
        if not found:
            raise ConfigError(
                f"{self.paths.root} "
                + ("holds no runs" if self.paths.root.is_dir() else "is no folder"),
                cure="Name a sweep's folder, RESULTS/SWEEP",
            )
        return found

    def chosen(self, wanted: Sequence[str]) -> list[str]:
        """The runs named by id, by its beginning or by the digest at its end; all for none.

        Raises:
            ConfigError: A name fits no run, or several.
        """
        known = self.run_ids()
        if not wanted:
            return known
        chosen = []
        for name in wanted:
            fitting = [each for each in known if name == each] or [
                each for each in known if each.startswith(name) or each.endswith(f"-{name}")
            ]
            if len(fitting) != 1:
                why = "no run" if not fitting else f"{len(fitting)} runs"
                raise ConfigError(
                    f"--run {name} fits {why} of {self.paths.root}",
                    cure=f"Runs: {', '.join(known[:8])}{', …' if len(known) > 8 else ''}",
                )
            chosen += fitting
        return chosen

    def audit(self, run_id: str) -> AuditRecord:
        """Judges one run; a ledger or a model that cannot be read is told in the record."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        record = AuditRecord(run_id=run_id, time_utc=now, rules_version=RULES_VERSION)
        paths = self.paths.run(run_id)
        try:
            entries = read_ledger(paths.ledger)
            spec = _spec_of(entries)
            base_model = resolve_model(spec.model, cache=self.folders.cache)
        except RlBenchError as error:
            return record.model_copy(update={"not_audited": str(error)})
        audit = self._audit(paths, spec, entries, base_model)
        _, of_attempt = last_attempt(entries)
        before = [e.event for e in of_attempt if isinstance(e.event, ModeAudited)]
        return record.model_copy(
            update={
                "mode_name": spec.mode.name,
                "mode": audit.mode,
                "findings": audit.findings,
                "mode_before": before[-1] if before else None,
                "findings_before": tuple(
                    e.event for e in of_attempt if isinstance(e.event, FindingMade)
                ),
            }
        )

    def _audit(
        self, paths: RunPaths, spec: RunSpec, entries: Sequence[Entry], base_model: Path
    ) -> Audit:
        return audit_run(
            paths,
            spec,
            entries,
            tasks=self._tasks(spec),
            base_model=base_model,
            snapshots=self.paths.snapshots,
            config=self.config,
            cache=self.folders.cache,
        )

    def _tasks(self, spec: RunSpec) -> Sequence[Task]:
        """The run's tasks; none where one cannot be made, which the audit tells."""
        try:
            return [make_task(task, cache=self.folders.cache) for task in spec.tasks]
        except RlBenchError:
            return ()

    def keep(self, records: Sequence[AuditRecord]) -> Path:
        """Writes verdicts, in place of earlier ones of these runs under the same rules.

        Raises:
            OSError: The disk refused.
        """
        path = self.paths.root / FOLDER / f"{RULES_VERSION}.jsonl"
        path.parent.mkdir(exist_ok=True)
        kept = {record.run_id: record for record in (*_kept(path), *records)}
        lines = [kept[run_id].model_dump_json() for run_id in sorted(kept)]
        write_whole(path, "".join(f"{line}\n" for line in lines), is_shared=True)
        return path


def _spec_of(entries: Sequence[Entry]) -> RunSpec:
    for entry in reversed(entries):
        if isinstance(entry.event, RunStarted):
            return entry.event.spec
    raise LedgerError("the ledger tells of no attempt")


def _kept(path: Path) -> Iterator[AuditRecord]:
    """Records of an earlier audit; a line that cannot be read is left out, to be judged again."""
    if path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                yield _RECORD.validate_json(line)
            except ValidationError:
                continue
