"""Who acts in a run: an agent, the language model that drives it, and the mode that binds them."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import (
    Field,
    PositiveFloat,
    model_validator,
)

from rl_bench.config.base import (
    MAX_SECONDS,
    Frozen,
    OptionName,
    Setting,
)


class Api(StrEnum):
    """The provider API that a driver speaks and a scaffold needs."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    GOOGLE = "google"


class PackageConfig(Frozen):
    """Where a published CLI is installed from, at its agent's ``version``.

    Attributes:
        registry: Whose package it is.
        name: The package.
        python: The interpreter that a package of PyPI needs, e.g. ``3.12``; empty: ours.
    """

    registry: Literal["npm", "pypi"]
    name: str
    python: str = ""


class StreamRule(Frozen):
    """Reads one kind of a CLI's JSON lines.

    Paths are keys joined by dots, from the element, or after ``^`` from the line. A path of a count
    may be several, joined by ``+``: their sum.

    Attributes:
        when: Values that a line must have, by path.
        each: The path of a list in the line: the rule then applies to every element of it; what is
            no list counts as a list of one.
        only: Values that the element must have, by path.
        kind: What it tells; see `rl_bench.events.AgentEvent`.
        name, text, call_id, is_error, cost_usd, num_turns: Paths of these fields. ``text`` may
            list several, of which the first that is there is taken.
        tokens: Paths of token counts, by `AgentEvent`'s names of them.
        totals: The counts are totals so far, not one turn's.
    """

    when: Mapping[str, Setting] = {}
    each: str = ""
    only: Mapping[str, Setting] = {}
    kind: Literal["message", "tool_call", "tool_result", "usage", "error", "result"]
    name: str = ""
    text: tuple[str, ...] = ()
    call_id: str = ""
    is_error: str = ""
    cost_usd: str = ""
    num_turns: str = ""
    tokens: Mapping[
        Literal["input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens"], str
    ] = {}
    totals: bool = False


class AgentConfig(Frozen):
    """An agent (scaffold): the command that is started in the workspace.

    In ``argv``, ``resume_argv``, ``env`` and ``files`` the placeholders ``{python}``,
    ``{workspace}``, ``{home}``, ``{prompt}``, ``{driver_model}``, ``{driver_url}`` (the gateway)
    and ``{driver_key}`` (a dummy) are filled in, each within its one value, through no shell.

    Attributes:
        argv: The command.
        apis: Provider APIs the scaffold can drive; empty means it takes no driver.
        env: Extra environment variables of the agent's process.
        files: Files written below its HOME before it starts, path to content.
        settings: The agent's own settings, handed over as JSON in ``AGENT_SETTINGS``.
        version: The pinned version of a published CLI.
        package: Where it is installed from; see `rl_bench.agents`.
        binary: The executable that preflight must find; empty if the project has it.
        modes: Modes the agent can work in; empty means all.
        expects_submissions: A quick end without any submission means that it never worked. False
            for controls that submit nothing on purpose.
        stream: How its output is read, first match wins for each element; empty: not at all.
        read_only: Folders beyond the workspace that it may read.
        on_live_children: What happens when it exits and processes that it started still run:
            they are ended, or waited for while there is budget, or waited for and the agent is
            started again with ``resume_argv``.
        resume_argv: The command that goes on with its session; ``{prompt}`` says what happened.
        linger_s: After its final event it is given this long to exit.
    """

    name: OptionName
    argv: tuple[str, ...] = Field(min_length=1)
    apis: tuple[Api, ...] = ()
    env: Mapping[str, str] = {}
    files: Mapping[str, str] = {}
    settings: Mapping[str, Setting | Mapping[str, Setting]] = {}
    version: str = ""
    package: PackageConfig | None = None
    binary: str = ""
    modes: tuple[str, ...] = ()
    expects_submissions: bool = True
    stream: tuple[StreamRule, ...] = ()
    read_only: tuple[Path, ...] = ()
    on_live_children: Literal["kill", "wait", "resume"] = "wait"
    resume_argv: tuple[str, ...] = ()
    linger_s: PositiveFloat = Field(default=60.0, le=MAX_SECONDS)

    @model_validator(mode="after")
    def _can_resume(self) -> "AgentConfig":
        if self.on_live_children == "resume" and not self.resume_argv:
            raise ValueError("on_live_children=resume needs resume_argv")
        return self

    @model_validator(mode="after")
    def _can_be_started(self) -> "AgentConfig":
        words = (*self.argv, *self.resume_argv, *self.env.values(), *self.files.values())
        for text in (*words, *self.env, *self.files, self.binary):
            if "\0" in text or not _is_encodable(text):
                raise ValueError(
                    f"{text[:80]!r} has a NUL or half a character, which no system takes"
                )
        for name in self.env:
            if not name or "=" in name:
                raise ValueError(f"env: {name!r} is no name of a variable")
        for name in self.files:
            path = PurePosixPath(name)
            if not path.parts or path.is_absolute() or ".." in path.parts:
                raise ValueError(f"files: {name!r} must be a relative path without .., below HOME")
            if any(str(parent) in self.files for parent in path.parents):
                raise ValueError(f"files: {name!r} lies below another one of the files")
        return self


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class DriverConfig(Frozen):
    """The language model that drives a scaffold. ``none`` has no API and no key.

    Attributes:
        kind: ``endpoint`` is a provider's, at ``base_url``; ``scripted`` is the project's own
            server, which plays ``session`` and speaks every API.
        api: The API it speaks; ``null`` for ``none`` and for ``scripted``.
        model_id: The model, as the provider names it.
        base_url: What the provider tells its clients, see docs/drivers.md.
        key_variable: The environment variable with the key; empty: none is needed.
        other_models: Calls that ask for another model than ``model_id``: recorded, or refused.
        session: Of ``scripted``: a file's name in `rl_bench/drivers/sessions`, or a path.
        usd_per_million_input, usd_per_million_output: Prices, US dollars for a million tokens.
        usd_per_million_cached_input: Of input that was read from the provider's cache; ``null``:
            as plain input.
        usd_per_million_cache_write: Of input written to that cache; ``null``: as plain input.
    """

    name: OptionName
    kind: Literal["endpoint", "scripted"] = "endpoint"
    api: Api | None = None
    model_id: str = ""
    key_variable: str = ""
    base_url: str = ""
    other_models: Literal["record", "refuse"] = "record"
    session: str = ""
    usd_per_million_input: float = Field(default=0.0, ge=0)
    usd_per_million_cached_input: float | None = Field(default=None, ge=0)
    usd_per_million_cache_write: float | None = Field(default=None, ge=0)
    usd_per_million_output: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _is_whole(self) -> "DriverConfig":
        if self.kind == "scripted" and (self.api is not None or not self.session):
            raise ValueError("kind=scripted has a session, and no api: it speaks every one")
        if self.api is not None and not (self.model_id and self.base_url):
            raise ValueError("a driver with an api needs model_id and base_url")
        return self

    @property
    def is_none(self) -> bool:
        """Whether it is no language model at all."""
        return self.kind == "endpoint" and self.api is None

    def api_for(self, agent: AgentConfig) -> Api | None:
        """The API that the two speak with each other; None when they cannot, or need none."""
        if self.kind == "scripted":
            return agent.apis[0] if agent.apis else None
        return self.api if self.api in agent.apis else None


class ModeConfig(Frozen):
    """Which post-training the agent may use, and the words that tell it so.

    Attributes:
        name: What the audit judges by.
        rules: The words, a part of the agent's instructions.
    """

    name: Literal["free", "sft_only", "rl_only", "multi"]
    rules: str
