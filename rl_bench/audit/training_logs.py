"""What training left in logs: columns that only certain methods report.

Looks at trainer states, model cards, JSON lines and printed dictionaries, in the agent's workspace
and, for an agent that is a program, in its raw output. A line counts when its keys have numbers and
tell of progress; words alone never do.
"""

import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rl_bench.audit.frameworks import SFT, Family, Method, named_method
from rl_bench.audit.rules import clip
from rl_bench.audit.sources import walk_files
from rl_bench.clone import open_regular
from rl_bench.events import Evidence

HEAD_BYTES = 2_000_000
TAIL_BYTES = 1_000_000
MAX_FILES = 500
MAX_LINE_CHARS = 20_000
MIN_LINES = 2
"""A training reports more than once; a note may quote one line."""
_SUFFIXES = frozenset({".json", ".jsonl", ".log", ".txt", ".out", ".err", ".csv", ""})
_KEY = re.compile(r"[\"']([A-Za-z][\w/. -]{0,80})[\"']\s*:\s*[\"']?-?(?:\d|nan|inf)")
_PROGRESS = frozenset({"loss", "train_loss", "learning_rate", "epoch", "grad_norm", "step"})
_CARD_TAGS = re.compile(r"^\s*-\s*(trl|[a-z_-]{2,14})\s*$", re.MULTILINE)
_GRPO = Method("grpo", Family.RL, online=True)
_PPO = Method("ppo", Family.RL, online=True)
_DPO = Method("dpo", Family.PREFERENCE)
_ONLINE_MARKS = (
    "objective/rlhf_reward",
    "objective/scores",
    "policy/approxkl_avg",
    "actor/pg_loss",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSign:
    """A method that a log shows to have run; when it began no log tells."""

    method: Method
    evidence: Evidence


def method_of_keys(keys: Iterable[str]) -> Method | None:
    """The method whose training reports these columns; None when several could."""
    found = set(keys)
    if any(mark in found for mark in _ONLINE_MARKS):
        return _PPO
    if {"rewards/chosen", "rewards/rejected"} <= found or "rewards/margins" in found:
        return _DPO
    has_spread = "reward_std" in found or any(key.startswith("completions/") for key in found)
    if "reward" in found and has_spread:
        return _GRPO
    if "mean_token_accuracy" in found and found & {"loss", "train_loss"}:
        return SFT
    return None


def training_logs(
    workspace: Path, logs: Path, *, with_raw: bool, budget_s: float
) -> Iterator[LogSign]:
    """Signs in the files that a run left.

    Args:
        workspace: The agent's folder.
        logs: The folder with its raw output.
        with_raw: Its output is a program's own, not a conversation in which logs are talked about.
        budget_s: What is not read by then is left.
    """
    deadline = time.monotonic() + budget_s
    raw = [logs / "agent.stdout", logs / "agent.stderr"] if with_raw else []
    num_read = 0
    for path in [*raw, *walk_files(workspace, skip=("code", ".tmp", ".home"))]:
        if time.monotonic() > deadline or num_read >= MAX_FILES:
            return
        if path.suffix not in _SUFFIXES and path.name != "README.md" and path not in raw:
            continue
        with suppress(OSError, ValueError):
            text = _read(path)
            num_read += 1
            root = workspace if path.is_relative_to(workspace) else logs.parent
            name = path.relative_to(root).as_posix().encode("utf-8", "replace").decode()
            yield from _in_file(name, text)


def signs_in_text(text: str, *, path: str, min_lines: int = MIN_LINES) -> Iterator[LogSign]:
    """Signs in the lines of a text, each method once, when it has so many lines."""
    counts: Counter[str] = Counter()
    for number, line in enumerate(text.split("\n"), 1):
        keys = _KEY.findall(line[:MAX_LINE_CHARS])
        method = method_of_keys(keys) if keys else None
        if method is None or not _PROGRESS & set(keys):
            continue
        counts[method.name] += 1
        if counts[method.name] == min_lines:
            quote = clip(line[:MAX_LINE_CHARS])
            evidence = Evidence(source="log", path=path, line=number, quote=quote)
            yield LogSign(method=method, evidence=evidence)


def _in_file(name: str, text: str) -> Iterator[LogSign]:
    if name.endswith("trainer_state.json"):
        yield from _in_state(name, text)
    elif name.endswith("README.md"):
        yield from _in_card(name, text)
    else:
        yield from signs_in_text(text, path=name)


def _in_state(name: str, text: str) -> Iterator[LogSign]:
    try:
        history = json.loads(text)["log_history"]
        rows = [row for row in history if isinstance(row, dict)]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    told: set[str] = set()
    for row in rows[:10_000]:
        method = method_of_keys(_numeric(row))
        if method is not None and method.name not in told:
            told.add(method.name)
            evidence = Evidence(source="log", path=name, quote=clip(json.dumps(row)))
            yield LogSign(method=method, evidence=evidence)


def _numeric(row: Mapping[str, object]) -> list[str]:
    return [str(key) for key, value in row.items() if isinstance(value, int | float)]


def _in_card(name: str, text: str) -> Iterator[LogSign]:
    """TRL writes the trainer's name among the tags of the card that it saves with a checkpoint."""
    parts = text.split("---", 2)
    if len(parts) < 3 or parts[0].strip():
        return
    tags = _CARD_TAGS.findall(parts[1][:5000])
    methods = [method for tag in tags if (method := named_method(tag)) is not None]
    if "trl" in tags and methods:
        evidence = Evidence(source="log", path=name, quote=clip("tags: " + ", ".join(tags)))
        yield LogSign(method=methods[0], evidence=evidence)


def _read(path: Path) -> str:
    with open_regular(path) as file:
        status = os.fstat(file.fileno())
        data = file.read(HEAD_BYTES)
        if status.st_size > HEAD_BYTES + TAIL_BYTES:
            file.seek(-TAIL_BYTES, os.SEEK_END)
            data += b"\n" + file.read(TAIL_BYTES)
        else:
            data += file.read(TAIL_BYTES)
    if b"\0" in data[:4096]:
        raise ValueError("not text")
    return data.decode("utf-8", "replace")


def tail_of(path: Path, *, num_bytes: int = 20_000) -> str:
    """The end of a log; empty when there is none."""
    with suppress(OSError), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(size - num_bytes, 0))
        return file.read(num_bytes).decode("utf-8", "replace")
    return ""
