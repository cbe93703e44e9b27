"""A session: the steps that the scripted driver takes, its last words, and the faults between.

Sessions are YAML files. ``!file NAME`` stands for the content of a file beside the session.

    steps:
      - say: I look at the task first.
        run: cat description.md
      - say: Now the training script.
        write: {code/train.py: !file train_sft.py}
        run: python code/train.py
    last: Done.
    faults:
      - {before_step: 2, kind: status, status: 429, retry_after_s: 1, times: 2}

Commands go through CLIs that differ: Gemini CLI refuses `$(...)`, backticks and `<(...)` anywhere
in a command, files that are written included, and OpenHands takes one command line a call.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field, PositiveFloat, PositiveInt, ValidationError, model_validator
from pydantic_core import ErrorDetails

from rl_bench.config import MAX_SECONDS, Frozen
from rl_bench.errors import ConfigError
from rl_bench.nearest import nearest

SESSIONS = Path(__file__).with_name("sessions")
STEP_LIMIT_S = 600.0
_DELIMITER = "END_OF_FILE"
_MAX_TITLE = 60
_MAPPING = "it must be a mapping of keys"
_WORDS = {
    "missing": "this key is missing",
    "string_type": "it must be text",
    "tuple_type": "it must be a list",
    "too_short": "it is empty",
    "string_too_short": "it is empty",
    "mapping_type": _MAPPING,
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
}
"""What pydantic's types of errors mean to who writes a session."""


class Step(Frozen):
    """One answer of the driver: words, a command, or both.

    A step of words alone ends the agent's turn; the session goes on when the agent is started
    again with the same conversation.

    Attributes:
        say: The words.
        run: A shell command; one line when ``write`` is given too.
        write: Files that the command writes first, path to content.
        title: What an agent shows for the command; by default the beginning of ``say``.
        limit_s: What the agent is told that the command may take, where it can be told.
    """

    say: str = ""
    run: str = ""
    write: Mapping[str, str] = {}
    title: str = ""
    limit_s: PositiveFloat = Field(default=STEP_LIMIT_S, le=MAX_SECONDS)

    @model_validator(mode="after")
    def _does_something(self) -> "Step":
        if not (self.say.strip() or self.run.strip() or self.write):
            raise ValueError("a step says, runs or writes something")
        if self.write and "\n" in self.run.strip():
            raise ValueError("beside write, run is one line: the files' contents follow it")
        if any(_DELIMITER in content.splitlines() for content in self.write.values()):
            raise ValueError(f"a line of a file reads {_DELIMITER}, which ends the file")
        return self

    @property
    def command(self) -> str:
        """The whole command, empty if there is none: one line, and the files' contents after it."""
        run = self.run.strip()
        if not self.write:
            return run
        words = []
        for path in self.write:
            folder = Path(path).parent.as_posix()
            words += [f"mkdir -p {shlex.quote(folder)}"] if folder != "." else []
            words += [f"cat > {shlex.quote(path)} <<'{_DELIMITER}'"]
        contents = [f"{text.rstrip()}\n{_DELIMITER}\n" for text in self.write.values()]
        return " && ".join([*words, *([run] if run else [])]) + "\n" + "".join(contents)

    @property
    def label(self) -> str:
        """What an agent shows for the command."""
        first = (self.title or self.say or self.run or "Write files").strip().splitlines()[0]
        return first[:_MAX_TITLE].rstrip(" .:")


class Fault(Frozen):
    """What goes wrong before a step, for the first ``times`` requests that would get it.

    Attributes:
        before_step: The step, from 1; one more than there are steps is the last message.
        kind: ``status`` answers with ``status``; ``hang`` says nothing for ``seconds`` and then
            answers; ``cut`` breaks the connection in the middle of the answer; ``stall`` stops in
            the middle for ``seconds`` and then goes on; ``error_event`` ends a stream with an
            error, and is a 500 where nothing is streamed.
        times: Requests; ``null``: all.
        status: Of kind ``status``.
        retry_after_s: Sent as ``Retry-After``, for kind ``status``.
        seconds: Of kinds ``hang`` and ``stall``; ``null``: until the client gives up.
        message: The error's words; by default the provider's.
    """

    before_step: PositiveInt
    kind: Literal["status", "hang", "cut", "stall", "error_event"]
    times: PositiveInt | None = 1
    status: int | None = Field(default=None, ge=400, le=599)
    retry_after_s: PositiveFloat | None = Field(default=None, le=MAX_SECONDS)
    seconds: PositiveFloat | None = Field(default=None, le=MAX_SECONDS)
    message: str = ""

    @model_validator(mode="after")
    def _fits_its_kind(self) -> "Fault":
        if (self.status is not None) != (self.kind == "status"):
            raise ValueError("status goes with kind=status, and only with it")
        if self.retry_after_s is not None and self.kind != "status":
            raise ValueError("retry_after_s goes with kind=status only")
        if self.seconds is not None and self.kind not in ("hang", "stall"):
            raise ValueError("seconds go with kind=hang and kind=stall only")
        return self


class Session(Frozen):
    """What the driver does from an agent's first request to its last.

    Attributes:
        name: The file's name.
        about: What it shows, for readers.
        steps: In order.
        last: What is said when all steps are done.
        faults: In order, where several come before one step.
    """

    name: str = "session"
    about: str = ""
    steps: tuple[Step, ...] = Field(min_length=1)
    last: str = Field(min_length=1)
    faults: tuple[Fault, ...] = ()

    @model_validator(mode="after")
    def _faults_have_a_place(self) -> "Session":
        end = len(self.steps) + 1
        late = [fault.before_step for fault in self.faults if fault.before_step > end]
        if late:
            raise ValueError(f"a fault comes before step {late[0]}; the last message is {end}")
        return self


def session_names() -> list[str]:
    """The sessions that ship with the project."""
    return sorted(path.stem for path in SESSIONS.glob("*.yaml"))


def load_session(name_or_path: str | Path) -> Session:
    """Reads and checks a session.

    Args:
        name_or_path: The name of a shipped session, or the path of a YAML file.

    Raises:
        ConfigError: It does not exist, or is no session; names the file, the key and the cure.
    """
    path = _path_of(name_or_path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"session '{name_or_path}' cannot be read: {error}",
            cure=f"Give a YAML file, or one of {', '.join(session_names())}",
        ) from error
    content = _parse(text, path=path)
    try:
        return Session.model_validate({"name": path.stem, **content})
    except ValidationError as error:
        problems = error.errors(include_url=False)
        unknown = [problem for problem in problems if problem["type"] == "extra_forbidden"]
        # A misspelt key is often why another is missing.
        problem = (unknown or problems)[0]
        words, advice = _in_words(problem)
        raise ConfigError(
            f"session {path}: {words}",
            cure=f"{advice}docs/drivers.md tells what a session holds",
        ) from error


def _in_words(problem: ErrorDetails) -> tuple[str, str]:
    """What is wrong at which key, and advice."""
    where = ".".join(str(part) for part in problem["loc"])
    said = _WORDS.get(problem["type"])
    if problem["type"] == "extra_forbidden":
        known = _keys_beside(problem["loc"])
        meant = nearest(str(problem["loc"][-1]), known)
        advice = f"Did you mean {meant}? " if meant else f"Known are {', '.join(known)}; "
        return f"{where}: unknown key", advice
    if said is None:
        said = problem["msg"].removeprefix("Value error, ").replace("Input should be", "it must be")
        said = said.partition(", unable to")[0].replace("a valid", "a")
    given = problem["input"]
    shown = (
        f", not {str(given)[:_MAX_TITLE]!r}"
        if where and isinstance(given, str | int | float)
        else ""
    )
    return f"{where}: {said}{shown}" if where else said, ""


def _keys_beside(loc: tuple[int | str, ...]) -> list[str]:
    if loc[1:] and loc[0] == "steps":
        return list(Step.model_fields)
    return list(Fault.model_fields if loc[1:] and loc[0] == "faults" else Session.model_fields)


def _path_of(name_or_path: str | Path) -> Path:
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or text.endswith((".yaml", ".yml")):
        return Path(name_or_path).expanduser()
    path = SESSIONS / f"{text}.yaml"
    if not path.is_file():
        raise ConfigError(
            f"there is no session '{text}'",
            cure=f"Choices: {', '.join(session_names())}; or give the path of a YAML file",
        )
    return path


def _parse(text: str, *, path: Path) -> dict[str, object]:
    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml is untyped
        """Knows ``!file``; a class of its own, since it knows the session's folder."""

    def file(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
        named = path.parent / str(loader.construct_scalar(node))
        try:
            return named.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"session {path}: !file {named.name} cannot be read: {error}",
                cure="Put the file beside the session",
            ) from error

    Loader.add_constructor("!file", file)
    try:
        content = yaml.load(text, Loader=Loader)  # noqa: S506  a child of SafeLoader
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        raise ConfigError(f"session {path} is no YAML: {said}") from error
    if not isinstance(content, dict):
        raise ConfigError(
            f"session {path} is empty or no mapping", cure="It has the keys steps and last"
        )
    return {str(key): value for key, value in content.items()}
