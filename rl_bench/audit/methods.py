"""Which post-training methods a run used: what its code says, joined with what was seen to run.

Written is not run. A method ``RAN`` when a program that certainly reaches it was seen, did not
break off and lived long enough, or when a log holds what only this method reports; ``MAYBE`` when
one of these is open; ``WRITTEN`` when only code has it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from rl_bench.audit.commands import Program, read_argv, read_line
from rl_bench.audit.executions import BROKEN, Execution, Seen
from rl_bench.audit.facts import ModuleFacts, Sign
from rl_bench.audit.frameworks import (
    OFFLINE_RL,
    POLICY_GRADIENT,
    SFT,
    Family,
    Method,
    config_method,
    module_method,
    program_method,
)
from rl_bench.audit.reach import Reach, find_file, reach
from rl_bench.audit.reader_process import read_sources
from rl_bench.audit.rules import MIN_RUN_S, clip
from rl_bench.audit.sources import Version, as_python, at_time, by_text
from rl_bench.audit.submissions import Submission
from rl_bench.audit.training_logs import LogSign, signs_in_text, tail_of
from rl_bench.events import Evidence

REFERENCE_AGENT = "rl_bench.agents.reference"
GRPO = Method("grpo", Family.RL, online=True)
MAX_PROGRAMS = 400
"""Programs of a run that are followed into their code: the longest."""
MAX_NESTED = 4
SETTLE_S = 5.0
"""A revision is stored this long after the change at most: what ran had it already."""
_SUPERVISED_STAGE = re.compile(r"/\d+-(warmup|sft)-\d+$")
_CONFIGURED = frozenset({"axolotl", "llamafactory-cli", "lmf", "swift"})


class Certainty(IntEnum):
    """How sure it is that a method was used."""

    WRITTEN = 0
    MAYBE = 1
    RAN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodSeen:
    """A method in one place.

    Attributes:
        first_s: When it began, on the run's clock; None: not known.
        last_s: When it ended at the latest; None: not known.
    """

    method: Method
    certainty: Certainty
    first_s: float | None
    last_s: float | None = None
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Methods:
    """All methods of a run, and what could not be read."""

    seen: tuple[MethodSeen, ...]
    problems: tuple[str, ...] = ()
    num_programs: int = 0

    def of(self, *families: Family, at_least: Certainty = Certainty.RAN) -> list[MethodSeen]:
        """Those of some families that are at least so certain."""
        return [s for s in self.seen if s.method.family in families and s.certainty >= at_least]

    def names(self) -> tuple[str, ...]:
        """The names of methods that ran, in order of their start."""
        ran = [s for s in self.seen if s.certainty is Certainty.RAN]
        ran.sort(key=lambda s: float("inf") if s.first_s is None else s.first_s)
        return tuple(dict.fromkeys(s.method.name for s in ran))


class _Job(NamedTuple):
    execution: Execution
    certain: bool
    depth: int


def find_methods(finder: "Finder", seen: Seen, logs: Iterable[LogSign]) -> Methods:
    """Joins code, executions and logs.

    Args:
        finder: Has read the code.
        seen: What ran and may train.
        logs: Signs in its logs.
    """
    for number, execution in enumerate(seen.executions):
        finder.take(execution, number)
    for sign in logs:
        finder.take_log(sign)
    finder.take_written()
    return Methods(
        seen=tuple(finder.found),
        problems=tuple(dict.fromkeys(finder.problems)),
        num_programs=len(seen.executions),
    )


def _inline_version(execution: Execution, number: int) -> Version | None:
    if execution.program.kind != "inline":
        return None
    path = f"<command {number}>.py"
    return Version(path=path, text=execution.program.target, since_s=execution.began_s)


@dataclass(slots=True)
class Finder:
    """Finds methods in the code that executions reach; made by `of`.

    Attributes:
        facts: What was read of the agent's Python files, by their text.
    """

    versions: Sequence[Version]
    workspace: Path
    has_processes: bool
    warmed_up_s: float
    facts: dict[str, ModuleFacts] = field(default_factory=dict)
    found: list[MethodSeen] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _reached: set[tuple[str, str, int]] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        seen: Seen,
        versions: Sequence[Version],
        *,
        submissions: Sequence[Submission],
        workspace: Path,
        budget_s: float,
    ) -> "Finder":
        """Reads every different Python text once.

        Args:
            seen: What ran and may train.
            versions: The agent's code over time.
            submissions: The reference agent names its stages in their paths.
            workspace: The agent's folder.
            budget_s: For reading.
        """
        inline = [_inline_version(e, n) for n, e in enumerate(seen.executions)]
        everything = [*versions, *(version for version in inline if version is not None)]
        texts = {}
        for text, version in by_text(everything).items():
            python = as_python(version)
            if python is not None:
                texts[text] = python
        keys = {str(number): text for number, text in enumerate(texts)}
        facts = read_sources({key: texts[text] for key, text in keys.items()}, budget_s=budget_s)
        return cls(
            versions=everything,
            workspace=workspace,
            has_processes=seen.num_processes > 0,
            warmed_up_s=_warmed_up_s(submissions),
            facts={keys[key]: found for key, found in facts.items()},
        )

    def take(self, execution: Execution, number: int) -> None:
        """Everything that an execution trains with, through scripts and commands of its own too."""
        jobs = [_Job(execution, True, 0)]
        while jobs:
            job = jobs.pop()
            if job.depth <= MAX_NESTED:
                jobs += self._take(job, number)

    def _take(self, job: _Job, number: int) -> list[_Job]:
        program, execution = job.execution.program, job.execution
        files = at_time(self.versions, execution.began_s + SETTLE_S)
        if program.kind == "module" and program.target == REFERENCE_AGENT:
            self._take_reference(execution)
            return []
        method = self._by_command(program, files)
        if method is not None:
            self._add(method, execution, certain=job.certain, code=())
            return []
        return self._take_code(job, number, files)

    def _by_command(self, program: Program, files: Mapping[str, Version]) -> Method | None:
        if program.kind == "module":
            return module_method(program.target, program.args)
        if program.kind != "other":
            return None
        if program.target in _CONFIGURED:
            for word in program.args:
                for path in find_file(word, files, folder=program.folder, root=str(self.workspace)):
                    configured = config_method(files[path].text)
                    if configured is not None:
                        return configured
        return program_method(program.target, program.args)

    def _take_code(self, job: _Job, number: int, files: Mapping[str, Version]) -> list[_Job]:
        execution, program = job.execution, job.execution.program
        if program.kind == "inline":
            targets = [f"<command {number}>.py"] if job.depth == 0 else []
        elif program.kind == "file":
            root = str(self.workspace)
            targets = find_file(program.target, files, folder=program.folder, root=root)
        elif program.kind == "module":
            name = program.target.replace(".", "/")
            root = str(self.workspace)
            targets = [
                path
                for tail in (f"{name}.py", f"{name}/__main__.py")
                for path in find_file(tail, files, folder=program.folder, root=root)
            ]
        else:
            return []
        if not targets and program.kind == "file" and program.target.endswith((".py", ".sh")):
            self.problems.append(f"{clip(program.target, 80)} ran and was not found")
        certain = job.certain and len(targets) == 1
        jobs: list[_Job] = []
        for path in targets[:8]:
            text = files[path].text
            if text in self.facts:
                jobs += self._take_python(path, execution, files, certain=certain, depth=job.depth)
            else:
                jobs += _nested(read_line(text).programs, execution, certain, job.depth)
        return jobs

    def _take_python(
        self,
        path: str,
        execution: Execution,
        files: Mapping[str, Version],
        *,
        certain: bool,
        depth: int,
    ) -> list[_Job]:
        modules = {p: self.facts[v.text] for p, v in files.items() if v.text in self.facts}
        reached = reach(path, modules, execution.program)
        self.problems += [f"{p} cannot be read: {why}" for p, why in reached.problems.items()]
        for method, sure, code in _methods_of(reached, files):
            self._add(method, execution, certain=certain and sure, code=code)
            self._reached |= {(e.path, e.revision, e.line or 0) for e in code}
        return [
            nested
            for _, command, sure in reached.commands
            for nested in _nested(
                read_argv(command.words).programs, execution, certain and sure, depth
            )
        ]

    def _take_reference(self, execution: Execution) -> None:
        """Its recipes are known: supervised, then GRPO with online rollouts if it got that far."""
        if execution.failed:
            return
        log = self.workspace / "output" / "logs" / "grpo.jsonl"
        if not log.is_file():
            self._add(SFT, execution, certain=True, code=())
            return
        warm_up, grpo = _parts(execution, self.warmed_up_s)
        self._add(SFT, execution, certain=True, code=(), part=warm_up)
        self._add(GRPO, execution, certain=True, code=(), part=grpo)

    def _add(
        self,
        method: Method,
        execution: Execution,
        *,
        certain: bool,
        code: Sequence[Evidence],
        part: Execution | None = None,
    ) -> None:
        """Takes a method; ``part``: the stretch of the execution that it had, if not all."""
        span = part or execution
        self.found.append(
            MethodSeen(
                method=method,
                certainty=self._certainty(method, execution, certain),
                first_s=span.began_s,
                last_s=span.ended_s,
                evidence=(*code, evidence_of(span)),
            )
        )

    def _certainty(self, method: Method, execution: Execution, certain: bool) -> Certainty:
        shown = signs_in_text(execution.output, path="", min_lines=1)
        if certain and any(sign.method.family is method.family for sign in shown):
            return Certainty.RAN
        failed = self._failed(execution)
        too_short = execution.duration_s is not None and execution.duration_s < MIN_RUN_S
        if failed or too_short or not certain:
            return Certainty.MAYBE
        if execution.duration_s is None and (self.has_processes or failed is None):
            # Where processes are recorded, the process itself is the better witness.
            return Certainty.RAN if failed is False else Certainty.MAYBE
        return Certainty.RAN

    def _failed(self, execution: Execution) -> bool | None:
        log = execution.program.log
        if not log or execution.failed is not None:
            return execution.failed
        path = Path(execution.program.folder, log)
        text = tail_of(path if path.is_absolute() else self.workspace / path)
        return bool(BROKEN.search(text)) if text else None

    def take_log(self, sign: LogSign) -> None:
        """A method that a log shows."""
        self.found.append(
            MethodSeen(
                method=sign.method,
                certainty=Certainty.RAN,
                first_s=None,
                evidence=(sign.evidence,),
            )
        )

    def take_written(self) -> None:
        """What stands in the code and no program was seen to reach."""
        told: set[tuple[str, str]] = set()
        for text, version in by_text(self.versions).items():
            facts = self.facts.get(text)
            for sign in _training_signs(facts):
                place = (version.path, version.revision, sign.line)
                if place not in self._reached and (version.path, sign.method) not in told:
                    told.add((version.path, sign.method))
                    self.found.append(
                        MethodSeen(
                            method=sign.as_method,
                            certainty=Certainty.WRITTEN,
                            first_s=None,
                            evidence=(_evidence(version, sign),),
                        )
                    )


def _warmed_up_s(submissions: Sequence[Submission]) -> float:
    """When the reference agent had submitted the last of its supervised stages."""
    times = [s.used_s for s in submissions if _SUPERVISED_STAGE.search(s.model_path)]
    return max(times, default=-1.0) + 0.001


def _parts(execution: Execution, at_s: float) -> tuple[Execution, Execution]:
    """What ran until ``at_s`` and what ran from then on; each all of it if that is before it."""
    if at_s <= execution.began_s:
        return execution, execution
    ended_s = execution.ended_s
    if ended_s is None:
        return execution, replace(execution, began_s=at_s)
    first_s = min(at_s, ended_s) - execution.began_s
    return (
        replace(execution, duration_s=first_s),
        replace(execution, began_s=at_s, duration_s=max(ended_s - at_s, 0.0)),
    )


def _training_signs(facts: ModuleFacts | None) -> Iterator[Sign]:
    for unit in facts.units if facts is not None else ():
        yield from (sign for sign in unit.signs if sign.kind != "generate")


def _methods_of(
    reached: Reach, files: Mapping[str, Version]
) -> Iterator[tuple[Method, bool, tuple[Evidence, ...]]]:
    """The methods of what a program reaches, with certainty and places."""
    samples = any(each.sign.kind == "generate" for each in reached.signs)
    trains = [each for each in reached.signs if each.sign.kind == "train"]
    clear = [each for each in trains if each.sign.family is not Family.UNCLEAR]
    for each in clear or trains:
        method = each.sign.as_method
        if method.name in {POLICY_GRADIENT.name, OFFLINE_RL.name}:
            method = POLICY_GRADIENT if samples else OFFLINE_RL
        yield method, each.certain, (_evidence(files[each.path], each.sign),)
    for each in reached.signs:
        if each.sign.kind == "construct":
            yield each.sign.as_method, False, (_evidence(files[each.path], each.sign),)


def _nested(
    programs: Sequence[Program], execution: Execution, certain: bool, depth: int
) -> list[_Job]:
    return [
        _Job(replace(execution, program=program), certain, depth + 1)
        for program in programs
        if program.kind != "inline"
    ]


def _evidence(version: Version, sign: Sign) -> Evidence:
    return Evidence(
        source="code",
        path=version.path,
        revision=version.revision,
        line=sign.line,
        quote=clip(sign.quote),
    )


def evidence_of(execution: Execution) -> Evidence:
    """An execution as evidence."""
    duration = "" if execution.duration_s is None else f", for {execution.duration_s:.0f} s"
    quote = f"{clip(execution.quote, 220)} (at {execution.began_s:.0f} s{duration})"
    return Evidence(source=execution.source, quote=quote)
