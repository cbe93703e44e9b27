"""Which checkpoints a training reads and writes, as far as its words and its code say.

A path is read or written by the call, name or option that it is given to; where these say nothing
it counts as both. Paths are those of the agent's workspace; what the runner put there (``data/``,
``models/``) and files that are no checkpoints are left out.
"""

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import NamedTuple

from rl_bench.audit.facts import ModuleFacts

MAX_PATH_CHARS = 200
_NOT_MADE = ("data/", "models/", "/")
_NO_CHECKPOINT = frozenset(
    {".json", ".jsonl", ".txt", ".log", ".py", ".sh", ".csv", ".parquet", ".yaml", ".yml", ".pt"}
)
_PLAIN = frozenset(
    {"output", "outputs", "final", "model", "models", "checkpoint", "best", "data", "code"}
    | {"json", "train", "test", "user", "assistant", "text", "role", "content", "question"}
    | {"answer", "messages", "cuda", "__main__", "?", "True", "False", "None"}
)
"""Words that name no checkpoint by themselves."""
_READS = ("from_pretrained", "load", "trainer", "safe_open", "llm", "vllm", "open")
_WRITES = ("save", "config", "arguments", "makedirs", "mkdir", "export")
_READ_NAMES = frozenset({"model", "base", "init", "teacher", "ref", "start", "from", "load", "src"})
_LABELS = frozenset({"name", "version", "tag", "run", "experiment", "exp"})
"""Names of variables and options whose value may be a checkpoint's last part."""
_WRITE_NAMES = frozenset({"out", "output", "save", "dest", "target", "to", "export", "dst"})


class Paths(NamedTuple):
    """Checkpoints by path or by last part."""

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


NO_PATHS = Paths()


def paths_of(words: Iterable[str], modules: Iterable[ModuleFacts]) -> Paths:
    """The checkpoints of a program.

    Args:
        words: Of its command.
        modules: The files that it trains with.
    """
    told: list[tuple[str, str]] = []
    named = list(_options(list(words)))
    for facts in modules:
        told += [(text.value, _by_call(text.call)) for text in facts.texts if "/" in text.value]
        named += facts.values
    # A word without a slash is a checkpoint's only where its name says so.
    told += [(value, _by_name(name)) for name, value in named if _may_be_path(name, value)]
    reads: set[str] = set()
    writes: set[str] = set()
    for word, use in told:
        path = plain(word)
        if path:
            reads |= {path} if use in {"read", ""} else set()
            writes |= {path} if use in {"write", ""} else set()
    certain = {plain(word): use for word, use in told if use}
    return Paths(
        frozenset(p for p in reads if certain.get(p, "read") == "read"),
        frozenset(p for p in writes if certain.get(p, "write") == "write"),
    )


def plain(word: str) -> str:
    """A path below the workspace; empty for words that name no checkpoint."""
    if not word or len(word) > MAX_PATH_CHARS or not word.isprintable() or " " in word:
        return ""
    path = word.removeprefix("./").rstrip("/")
    name = PurePosixPath(path)
    if path in _PLAIN or path.startswith(_NOT_MADE) or name.suffix in _NO_CHECKPOINT:
        return ""
    return "" if path.startswith("-") or name.name in {"", "."} else path


def same(one: str, other: str) -> bool:
    """Whether two words name one checkpoint: equal, below one another, or the last part alone."""
    if one == other or other.startswith(f"{one}/") or one.startswith(f"{other}/"):
        return True
    return one.endswith(f"/{other}") or other.endswith(f"/{one}")


def _options(words: list[str]) -> Iterable[tuple[str, str]]:
    """Options and their values."""
    for place, word in enumerate(words[1:], start=1):
        option, equals, value = word.partition("=")
        if equals:
            yield option, value
        elif words[place - 1].startswith("--"):
            yield words[place - 1], word


def _may_be_path(name: str, value: str) -> bool:
    if "/" in value:
        return True
    is_number = value.replace(".", "").replace("-", "").replace("e", "").isdigit()
    return not is_number and bool(_parts(name) & (_LABELS | _READ_NAMES | _WRITE_NAMES))


def _by_call(call: str) -> str:
    name = call.rpartition(".")[2].lower()
    if any(mark in name for mark in _WRITES):
        return "write"
    return "read" if any(mark in name for mark in _READS) else ""


def _by_name(name: str) -> str:
    parts = _parts(name)
    if parts & _WRITE_NAMES:
        return "write"
    return "read" if parts & _READ_NAMES else ""


def _parts(name: str) -> set[str]:
    return set(name.strip("-").lower().replace("-", "_").split("_"))
