"""What was seen to run: commands of the trace and processes, read into programs.

An `Execution` is one program with the time it began and what is known of its end. A process and the
trace's command that started it are two executions of one program; the command's output then tells
of both.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rl_bench.audit.commands import CommandLine, Program, WrittenFile, read_argv, read_line
from rl_bench.events import AgentEvent, Entry, ProcessSeen

SAME_START_S = 120.0
"""A process belongs to a command of the trace that came at most this long before it."""
_NOT_SHELLS = frozenset(
    {"read", "write", "edit", "glob", "grep", "ls", "todowrite", "todoread", "webfetch", "task"}
    | {"websearch", "multiedit", "notebookedit", "read_file", "write_file", "replace", "think"}
    | {"finish", "str_replace_editor", "file_editor", "apply_patch", "update_plan", "glob_search"}
)
BROKEN = re.compile(
    r"Traceback \(most recent call last\)|command not found|can't open file|"
    r"No module named|SyntaxError:|ModuleNotFoundError|CUDA out of memory"
)
_COMMAND_KEYS = ("command", "cmd", "script", "code")
_CONTENT_KEYS = ("content", "file_text", "text", "contents")
_PATH_KEYS = ("file_path", "path", "filePath", "filename", "absolute_path")


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One program that was seen to run.

    Attributes:
        began_s: On the run's clock.
        duration_s: None when nobody saw it.
        failed: Whether it broke off; None: not known.
        output: What the trace shows of its output.
        quote: Its command, for people.
    """

    program: Program
    source: Literal["process", "trace"]
    began_s: float
    duration_s: float | None = None
    failed: bool | None = None
    output: str = ""
    quote: str = ""

    @property
    def ended_s(self) -> float | None:
        """On the run's clock; None when nobody saw it."""
        return None if self.duration_s is None else self.began_s + self.duration_s


LIBRARIES = frozenset({"trl", "tune", "swift", "llamafactory-cli", "lmf", "axolotl"})
"""Commands of libraries that may train, whatever their options say."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A command that the agent gave, and what came of it."""

    text: str
    began_s: float
    output: str
    is_error: bool
    name: str


def tool_calls(entries: Iterable[Entry]) -> list[ToolCall]:
    """The agent's tool calls with their results, in order."""
    events = [entry.event for entry in entries if isinstance(entry.event, AgentEvent)]
    results: dict[str, list[AgentEvent]] = defaultdict(list)
    for event in events:
        if event.kind == "tool_result":
            results[event.call_id].append(event)
    calls = []
    for event in events:
        if event.kind == "tool_call":
            answers = results.get(event.call_id, []) if event.call_id else []
            calls.append(
                ToolCall(
                    text=event.text,
                    began_s=event.budget_used_s,
                    output="\n".join(answer.text for answer in answers),
                    is_error=any(answer.is_error for answer in answers),
                    name=event.name,
                )
            )
    return calls


def commands_of(call: ToolCall) -> str:
    """The shell's text of a tool call; empty for tools that are no shell."""
    fields = _fields(call.text)
    if fields is not None:
        values = (fields.get(key) for key in _COMMAND_KEYS)
        value = next((value for value in values if value), "")
        return " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return "" if call.name.lower() in _NOT_SHELLS else call.text


def file_of(call: ToolCall) -> WrittenFile | None:
    """The file that a tool call writes whole, where its text shows that."""
    fields = _fields(call.text)
    if fields is None:
        return None
    path = next((fields[key] for key in _PATH_KEYS if isinstance(fields.get(key), str)), None)
    text = next((fields[key] for key in _CONTENT_KEYS if isinstance(fields.get(key), str)), None)
    return WrittenFile(str(path), str(text)) if path and text else None


def _fields(text: str) -> dict[str, object] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True)
class Seen:
    """All executions in order, and the files that commands wrote, with their times."""

    executions: tuple[Execution, ...]
    files: tuple[tuple[float, WrittenFile], ...]
    num_processes: int
    num_calls: int


def executions(entries: Sequence[Entry]) -> Seen:
    """Everything that the entries of one attempt show to have run."""
    calls = tool_calls(entries)
    found: list[Execution] = []
    files: list[tuple[float, WrittenFile]] = []
    for call in calls:
        whole = file_of(call)
        if whole is not None:
            files.append((call.began_s, whole))
        line = read_line(commands_of(call))
        files += [(call.began_s, file) for file in line.files]
        found += _of_call(call, line)
    processes = [entry.event for entry in entries if isinstance(entry.event, ProcessSeen)]
    found += [each for process in processes for each in _of_process(process, found)]
    found.sort(key=lambda execution: execution.began_s)
    return Seen(tuple(found), tuple(files), len(processes), len(calls))


def _of_call(call: ToolCall, line: CommandLine) -> Iterator[Execution]:
    broken = call.is_error or bool(BROKEN.search(call.output))
    for program in line.programs:
        failed = broken if call.output or call.is_error else None
        if program.log and failed is False:
            failed = None  # what became of it stands in its log
        yield Execution(
            program=program,
            source="trace",
            began_s=call.began_s,
            failed=failed,
            output=call.output,
            quote=call.text,
        )


def _of_process(process: ProcessSeen, calls: Sequence[Execution]) -> Iterator[Execution]:
    for program in read_argv(process.argv).programs:
        own = Execution(
            program=program,
            source="process",
            began_s=process.began_s,
            duration_s=process.duration_s,
            quote=" ".join(process.argv),
        )
        call = _started_by(own, calls)
        yield replace(own, failed=call.failed, output=call.output) if call is not None else own


def _started_by(process: Execution, calls: Sequence[Execution]) -> Execution | None:
    """The last command of the trace before it that starts the same program."""
    for call in reversed(calls):
        waited_s = process.began_s - call.began_s
        same = call.program.target.endswith(process.program.target.rpartition("/")[2])
        if call.source == "trace" and -2.0 <= waited_s <= SAME_START_S and same:
            return call
    return None


def last_attempt(entries: Sequence[Entry]) -> tuple[int, Sequence[Entry]]:
    """The last attempt's number and its entries; earlier ones count for nothing."""
    from rl_bench.events import RunStarted

    for place in range(len(entries) - 1, -1, -1):
        event = entries[place].event
        if isinstance(event, RunStarted):
            return event.attempt, entries[place:]
    return 0, entries


def trainable(seen: Seen, *, limit: int) -> Seen:
    """What may train: no ``ls``, no ``curl``; of more than ``limit``, those that ran longest."""
    may = [e for e in seen.executions if e.program.kind != "other" or _may_train(e.program)]
    longest = sorted(may, key=lambda e: -(e.duration_s or 0.0))[:limit]
    return replace(seen, executions=tuple(sorted(longest, key=lambda e: e.began_s)))


def _may_train(program: Program) -> bool:
    return program.target in LIBRARIES or program.target.startswith("mergekit")
