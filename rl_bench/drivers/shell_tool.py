"""Which of an agent's tools runs a command, with which arguments, and how to wait for its end.

Nothing here knows an agent by name but `_PREFERRED` and `_RUNNING`: a function whose parameters
hold ``command`` or ``cmd`` is a shell.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rl_bench.drivers.dialogue import Called, Returned, Tool
from rl_bench.drivers.loose import mapping, string
from rl_bench.drivers.schema_value import type_of, value_for
from rl_bench.drivers.session import Step

_COMMANDS = ("command", "cmd")
_PREFERRED = ("Bash", "exec_command", "run_shell_command", "bash", "terminal", "shell")
_FINISH = "finish"
_TIMEOUT = re.compile(r"timeout(_ms|_s|_seconds)?")
_YIELD = "yield_time_ms"
_YIELD_MS = 30_000
_POLL_S = 300.0
_LIMIT_IN_WORDS = re.compile(r"max(?:imum)?(?: of)?:? *([\d_,]+)", re.IGNORECASE)
_LABELS = ("description", "summary")
_FIXED: Mapping[str, object] = {"security_risk": "LOW", "login": False}
"""Parameters with one value. A login shell would lose the PATH that the agent was started with."""


@dataclass(frozen=True, slots=True)
class Shell:
    """A tool that runs commands."""

    tool: Tool
    parameter: str

    def call(self, step: Step) -> Called:
        """The call that runs a step's command."""
        return Called(self.tool.name, self._arguments(step.command, step.label, step.limit_s))

    def waits(self) -> Called:
        """The call that looks again at a command that still runs, in the same tool."""
        return Called(self.tool.name, self._arguments("", "Wait for the command", _POLL_S))

    def ran(self, call: Called) -> bool:
        """Whether ``call`` ran a command in this shell, rather than look at one again."""
        return call.name == self.tool.name and bool(call.arguments.get(self.parameter))

    def _arguments(self, command: str, label: str, limit_s: float) -> dict[str, object]:
        made: dict[str, object] = {}
        required = self.tool.schema.get("required")
        for name, value in mapping(self.tool.schema.get("properties")).items():
            schema = mapping(value)
            is_needed = isinstance(required, list) and name in required
            if name == self.parameter:
                is_list = type_of(schema) == "array"
                made[name] = ["bash", "-lc", command] if is_list else command
            elif name in _LABELS and type_of(schema) == "string":
                made[name] = label
            elif _TIMEOUT.fullmatch(name) or name == _YIELD:
                made[name] = _time_argument(name, schema, limit_s=limit_s)
            elif name in _FIXED:
                made[name] = _FIXED[name]
            elif is_needed:
                made[name] = value_for(schema, text=label)
        return made


def find_shell(tools: Sequence[Tool]) -> Shell | None:
    """The tool that runs commands, if the agent offers one."""
    shells = [shell for tool in tools if (shell := _as_shell(tool)) is not None]
    known = [s for name in _PREFERRED for s in shells if s.tool.name == name]
    return next(iter([*known, *shells]), None)


def find_finish(tools: Sequence[Tool]) -> Tool | None:
    """The tool that ends the agent's work with a message, if there is one."""
    ends = [tool for tool in tools if tool.name == _FINISH]
    return next((t for t in ends if "message" in mapping(t.schema.get("properties"))), None)


def finish_call(tool: Tool, message: str) -> Called:
    """The call that ends the agent's work."""
    arguments = mapping(value_for(tool.schema, text=message))
    return Called(tool.name, {**arguments, "message": message})


def poll_for(result: Returned, *, shell: Shell, tools: Sequence[Tool]) -> Called | None:
    """The call that waits for the command whose result says that it still runs; else None."""
    for running in _RUNNING:
        found = running.pattern.search(result.text)
        tool = next((t for t in tools if t.name in running.tools), None)
        if found is None or (running.tools and tool is None):
            continue
        if tool is None:
            return shell.waits()
        return Called(tool.name, running.arguments(found))
    return None


def _as_shell(tool: Tool) -> Shell | None:
    properties = mapping(tool.schema.get("properties"))
    for name in _COMMANDS:
        # A parameter with choices names what an editor does, not a command line.
        if name in properties and "enum" not in mapping(properties[name]):
            return Shell(tool, name)
    return None


def _time_argument(name: str, schema: Mapping[str, object], *, limit_s: float) -> int:
    """A time in the unit, and below the limit, that the schema or its words state."""
    words = string(schema.get("description"))
    if name == _YIELD:
        return _YIELD_MS
    is_ms = name.endswith("_ms") or "millisecond" in words.lower()
    wanted = int(limit_s * (1000 if is_ms else 1))
    stated = _LIMIT_IN_WORDS.search(words)
    limits = [int(re.sub(r"\D", "", stated[1]) or wanted)] if stated else []
    most = schema.get("maximum")
    limits += [int(most)] if isinstance(most, int | float) else []
    return min([wanted, *limits])


@dataclass(frozen=True, slots=True)
class _Running:
    """How an agent says that a command still runs, and what waits for it.

    ``tools`` names the tool that does; empty: the shell itself, without a command.
    """

    pattern: re.Pattern[str]
    tools: tuple[str, ...] = ()
    arguments: Callable[[re.Match[str]], Mapping[str, object]] = lambda _: {}


_RUNNING = (
    _Running(
        re.compile(r"Process running with session ID (\d+)"),
        ("write_stdin",),
        lambda found: {
            "session_id": int(found[1]),
            "chars": "",
            _YIELD: int(_POLL_S * 1000),
        },
    ),
    _Running(
        re.compile(r"running in (?:the )?background (?:with|\()\s*ID: *([\w-]+)"),
        ("TaskOutput", "BashOutput"),
        lambda found: {"task_id": found[1], "block": True, "timeout": int(_POLL_S * 1000)},
    ),
    _Running(re.compile(r"\[The command (?:has no new output after|timed out after)")),
)
