"""Reads files in a child process with limits, so that no file can stop or crash the audit.

    python -m rl_bench.audit.reader_process CPU_SECONDS

takes a line of JSON a file on stdin, ``{"path", "source"}``, and answers each with a line of
`ModuleFacts`. A file that kills the child, by memory, time or the parser's own faults, is told as a
problem of that file; the others are read by a new child.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from rl_bench.audit.facts import ModuleFacts

MAX_SOURCE_BYTES = 1_000_000
MAX_TOTAL_BYTES = 40_000_000
FILE_CPU_S = 8
MAX_MEMORY_BYTES = 2 * 1024**3
MAX_RESTARTS = 6
_STACK_BYTES = 256 * 1024 * 1024
_RECURSION = 20_000
_CHECKOUT = Path(__file__).resolve().parents[2]


def read_sources(
    sources: Mapping[str, str], *, budget_s: float, file_cpu_s: int = FILE_CPU_S
) -> dict[str, ModuleFacts]:
    """The facts of Python files.

    Args:
        sources: Text by any key, which becomes the facts' path.
        budget_s: What is not read by then is told as a problem.
        file_cpu_s: CPU time that one file may take.

    Returns:
        Facts of every key.
    """
    facts: dict[str, ModuleFacts] = {}
    todo: list[str] = []
    total = 0
    for key, source in sources.items():
        total += len(source)
        if len(source) > MAX_SOURCE_BYTES or total > MAX_TOTAL_BYTES:
            facts[key] = ModuleFacts(path=key, problem="too large to be read")
        else:
            todo.append(key)
    deadline = time.monotonic() + budget_s
    for _ in range(MAX_RESTARTS):
        left_s = deadline - time.monotonic()
        if not todo or left_s <= 0:
            break
        files = [(key, sources[key]) for key in todo]
        found = _read_in_child(files, timeout_s=left_s, file_cpu_s=file_cpu_s)
        facts |= found
        todo = [key for key in todo if key not in facts]
        if todo:  # the first without an answer is what the child was at
            culprit = todo.pop(0)
            facts[culprit] = ModuleFacts(path=culprit, problem="reading it took too much")
    facts |= {key: ModuleFacts(path=key, problem="there was no time to read it") for key in todo}
    return facts


def _read_in_child(
    files: Sequence[tuple[str, str]], *, timeout_s: float, file_cpu_s: int
) -> dict[str, ModuleFacts]:
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as answers:
        for path, source in files:
            given.write(json.dumps({"path": path, "source": source}).encode() + b"\n")
        given.seek(0)
        child = subprocess.Popen(
            [sys.executable, "-m", "rl_bench.audit.reader_process", str(file_cpu_s)],
            stdin=given,
            stdout=answers,
            stderr=subprocess.DEVNULL,
            cwd=_CHECKOUT,
            env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(_CHECKOUT)},
        )
        try:
            child.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        answers.seek(0)
        return _answers(answers)


def _answers(stream: IO[bytes]) -> dict[str, ModuleFacts]:
    found: dict[str, ModuleFacts] = {}
    for line in stream:
        try:
            facts = ModuleFacts.model_validate_json(line)
        except ValidationError:
            continue  # the child was ended while it wrote
        found[facts.path] = facts
    return found


def _serve(file_cpu_s: int) -> None:
    from rl_bench.audit.code_reader import read_module

    for line in sys.stdin.buffer:
        used = resource.getrusage(resource.RUSAGE_SELF)
        soft = int(used.ru_utime + used.ru_stime) + file_cpu_s
        resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))
        file = json.loads(line)
        try:
            facts = read_module(file["path"], file["source"])
            text = facts.model_dump_json()
        except (RecursionError, MemoryError) as error:
            text = ModuleFacts(path=file["path"], problem=type(error).__name__).model_dump_json()
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def main(file_cpu_s: int) -> int:
    """The child."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Deep but honest code needs more stack than a main thread has.
    threading.stack_size(_STACK_BYTES)
    sys.setrecursionlimit(_RECURSION)
    thread = threading.Thread(target=_serve, args=(file_cpu_s,))
    thread.start()
    thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
