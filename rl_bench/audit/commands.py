"""Command lines read into the programs that they start, through shells and launchers.

Knows the words of a POSIX shell well enough for what agents type: lists, pipes, redirections,
here-documents, assignments before a command, ``cd``. What it cannot read is no program; nothing is
executed.
"""

import os.path
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

MAX_DEPTH = 6
MAX_COMMAND_CHARS = 200_000
MAX_PROGRAMS = 200

_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})
_WRAPPERS: Mapping[str, int] = {
    "nohup": 0,
    "setsid": 0,
    "time": 0,
    "exec": 0,
    "command": 0,
    "stdbuf": 0,
    "nice": 0,
    "ionice": 0,
    "sudo": 0,
    "env": 0,
    "timeout": 1,
    "taskset": 1,
    "numactl": 0,
    "xargs": 0,
}
"""Programs that start the command after them, and how many words of their own come before it."""
_RUNNERS = frozenset({"uv", "poetry", "pdm", "hatch", "conda", "mamba"})
_TAKES_VALUE = frozenset({"-n", "-k", "-s", "-u", "-c", "-p"})
_LAUNCHERS = frozenset({"accelerate", "torchrun", "deepspeed", "horovodrun", "mpirun"})
_LAUNCHER_MODULES = frozenset(
    {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"}
)
_PYTHON = re.compile(r"^(python|pypy)(\d+(\.\d+)?)?$")
_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w*)=(.*)$", re.DOTALL)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_SEPARATORS = frozenset({"&&", "||", ";", "|", "&", "(", ")", "|&", ";;"})
_KEYWORDS = frozenset(
    {"if", "then", "else", "elif", "fi", "do", "done", "while", "until", "{", "}"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that a command line starts.

    Attributes:
        kind: ``file``: a script at the path ``target``; ``module``: ``python -m target``;
            ``inline``: Python text in ``target``; ``other``: the program ``target``.
        args: Its own words.
        env: Variables set for it alone.
        folder: Where it is started, relative to where the command line was; empty: there.
        log: The file that its output goes to; empty: none is named.
        words: All words of the command.
    """

    kind: Literal["file", "module", "inline", "other"]
    target: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    log: str = ""
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a command line writes from a here-document."""

    path: str
    text: str


@dataclass(slots=True)
class CommandLine:
    """A shell's command line: what it starts, and what it writes."""

    programs: list[Program] = field(default_factory=list)
    files: list[WrittenFile] = field(default_factory=list)


def read_line(text: str) -> CommandLine:
    """Reads a shell's command line, several lines of it too."""
    line = CommandLine()
    _read(text[:MAX_COMMAND_CHARS], line, depth=0, folder="")
    return line


def read_argv(argv: Sequence[str]) -> CommandLine:
    """Reads the words of one process."""
    line = CommandLine()
    _take(list(argv), line, depth=0, folder="", env={}, log="", text="")
    return line


def _read(text: str, line: CommandLine, *, depth: int, folder: str) -> None:
    if depth > MAX_DEPTH:
        return
    for command, document in _split_documents(text):
        for words, log in _commands(command):
            if len(line.programs) >= MAX_PROGRAMS:
                return
            if words[0] == "cd" and len(words) > 1:
                folder = os.path.normpath(os.path.join(folder, words[1]))  # noqa: PTH118  words
                continue
            if document and log and words[0] in {"cat", "tee"}:
                line.files.append(WrittenFile(os.path.normpath(_joined(folder, log)), document))
            elif document and words[0] == "tee" and len(words) > 1:
                line.files.append(
                    WrittenFile(os.path.normpath(_joined(folder, words[-1])), document)
                )
            _take(words, line, depth=depth, folder=folder, env={}, log=log, text=document)


def _joined(folder: str, path: str) -> str:
    return path if path.startswith("/") or not folder else f"{folder}/{path}"


def _split_documents(text: str) -> Iterator[tuple[str, str]]:
    """Commands with the here-document that each is given, if any."""
    lines = text.split("\n")
    plain: list[str] = []
    place = 0
    while place < len(lines):
        match = _HEREDOC.search(lines[place])
        if match is None:
            plain.append(lines[place])
            place += 1
            continue
        if plain:
            yield "\n".join(plain), ""
            plain = []
        head = lines[place][: match.start()] + " " + lines[place][match.end() :]
        place += 1
        begin = place
        while place < len(lines) and lines[place].strip() != match[2]:
            place += 1
        yield head, "\n".join(lines[begin:place])
        place += 1
    if plain:
        yield "\n".join(plain), ""


def _commands(text: str) -> Iterator[tuple[list[str], str]]:
    """Simple commands of a text, and the file that each writes its output to."""
    joined = text.replace("\\\n", " ")
    for piece in _pieces(joined):
        words: list[str] = []
        log = ""
        for word in _tokens(piece):
            if word in _SEPARATORS:
                if words:
                    yield words, log
                words, log = [], ""
            elif word in _KEYWORDS and not words:
                continue
            else:
                words.append(word)
        words, log = _without_redirections(words)
        if words:
            yield words, log


def _pieces(text: str) -> list[str]:
    """Lines, unless a quote goes over several of them."""
    lines: list[str] = []
    pending = ""
    for line in text.split("\n"):
        pending = f"{pending}\n{line}" if pending else line
        if _is_balanced(pending):
            lines.append(pending)
            pending = ""
    return [*lines, pending] if pending else lines


def _is_balanced(text: str) -> bool:
    quote = ""
    escaped = False
    for char in text:
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
    return not quote


def _tokens(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()<>")
    lexer.whitespace_split = True
    try:
        found = list(lexer)
    except ValueError:
        return text.split()
    return _with_redirections(found)


def _with_redirections(words: list[str]) -> list[str]:
    """Folds ``> FILE`` into one word ``>FILE``; a separator in a run of signs stands alone."""
    folded: list[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        if set(word) <= set("<>&") and ("<" in word or ">" in word):
            target = words[place + 1] if place + 1 < len(words) else ""
            if folded and folded[-1].isdigit() and ">" in word:
                folded.pop()  # the 2 of 2>
            folded.append(f"{word}{target}")
            place += 2
            continue
        folded.append(word)
        place += 1
    return folded


def _without_redirections(words: list[str]) -> tuple[list[str], str]:
    kept, log = [], ""
    for word in words:
        if word.startswith((">", "&>")):
            target = word.lstrip("&>")
            if target and not target.isdigit():
                log = target
        elif not word.startswith("<"):
            kept.append(word)
    return kept, log


def _take(
    words: list[str],
    line: CommandLine,
    *,
    depth: int,
    folder: str,
    env: Mapping[str, str],
    log: str,
    text: str,
) -> None:
    """Adds the program that ``words`` start; ``text`` is its standard input, where it is known."""
    words, log_here = _without_redirections(words)
    log = log or log_here
    words, env = _unwrapped(words, dict(env))
    if not words or depth > MAX_DEPTH or len(line.programs) >= MAX_PROGRAMS:
        return
    name = os.path.basename(words[0])  # noqa: PTH119  a word of a command
    rest = words[1:]
    if name in _SHELLS:
        _take_shell(rest, line, depth=depth, folder=folder, text=text, env=env)
        return
    if name == "eval":
        _read(" ".join(rest), line, depth=depth + 1, folder=folder)
        return
    program = _program(name, words, text)
    if program is not None:
        kind, target, args = program
        line.programs.append(
            Program(
                kind=kind,
                target=target,
                args=tuple(args),
                env=env,
                folder=folder,
                log=log,
                words=tuple(words),
            )
        )


def _take_shell(
    rest: list[str],
    line: CommandLine,
    *,
    depth: int,
    folder: str,
    text: str,
    env: Mapping[str, str],
) -> None:
    for place, word in enumerate(rest):
        if word.startswith("-") and "c" in word.lstrip("-") and not word.startswith("--"):
            if place + 1 < len(rest):
                _read(rest[place + 1], line, depth=depth + 1, folder=folder)
            return
        if not word.startswith("-"):
            args = tuple(rest[place + 1 :])
            line.programs.append(
                Program(kind="file", target=word, args=args, folder=folder, env=env)
            )
            return
    if text:
        _read(text, line, depth=depth + 1, folder=folder)


def _unwrapped(words: list[str], env: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """The command itself, without what is put before it."""
    while words:
        name = os.path.basename(words[0])  # noqa: PTH119  a word of a command
        assignment = _ASSIGNMENT.match(words[0])
        if assignment is not None:
            env[assignment[1]] = assignment[2]
            words = words[1:]
        elif name in _WRAPPERS:
            words = _after_options(words[1:])[_WRAPPERS[name] :]
        elif name in _RUNNERS and words[1:2] == ["run"]:
            words = _after_options(words[2:])
        elif name == "bwrap":
            words = words[words.index("--") + 1 :] if "--" in words else []
        else:
            break
    return words, env


def _after_options(words: list[str]) -> list[str]:
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in _TAKES_VALUE else words[1:]
    return words


_Kind = Literal["file", "module", "inline", "other"]


def _program(name: str, words: list[str], text: str) -> tuple[_Kind, str, list[str]] | None:
    rest = words[1:]
    if _PYTHON.match(name):
        return _python_program(rest, text)
    if name in _LAUNCHERS:
        return _launched(rest) or ("other", name, rest)
    if name.endswith(".py") or words[0].endswith(".sh"):
        return "file", words[0], rest
    if words[0].startswith(("./", "/")) and "/bin/" not in words[0]:
        return "file", words[0], rest
    return "other", name, rest


def _python_program(rest: list[str], text: str) -> tuple[_Kind, str, list[str]] | None:
    place = 0
    while place < len(rest):
        word = rest[place]
        if word == "-m" and place + 1 < len(rest):
            module, args = rest[place + 1], rest[place + 2 :]
            launched = _launched(args) if module in _LAUNCHER_MODULES else None
            return launched or ("module", module, args)
        if word.startswith("-m") and len(word) > 2:
            return "module", word[2:], rest[place + 1 :]
        if word == "-c" and place + 1 < len(rest):
            return "inline", rest[place + 1], rest[place + 2 :]
        if word == "-":
            return ("inline", text, rest[place + 1 :]) if text else None
        if word in {"-W", "-X"}:
            place += 2
        elif word.startswith("-"):
            place += 1
        elif "/bin/" in word and not word.endswith(".py"):
            # An installed command is a script of the interpreter's: python /venv/bin/trl grpo
            installed = os.path.basename(word)  # noqa: PTH119  a word of a command
            return _program(installed, [installed, *rest[place + 1 :]], text)
        else:
            return "file", word, rest[place + 1 :]
    return ("inline", text, []) if text else None


def _launched(rest: list[str]) -> tuple[_Kind, str, list[str]] | None:
    """What a launcher of distributed training starts: a script, or ``-m module``."""
    for place, word in enumerate(rest):
        if word in {"-m", "--module"} and place + 1 < len(rest):
            return "module", rest[place + 1], rest[place + 2 :]
        if word.endswith(".py"):
            return "file", word, rest[place + 1 :]
    return None
