"""Breaks scoring, best-so-far, budget, resume and fairness on purpose, one edit at a time.

`tools/mutants.toml` lists single edits and, for each, the tests that must notice it. Each is made
in a copy of the working tree, and those tests run there: one that fails has killed the mutant, and
a mutant that survives names a test that is missing. First the tests run on the copy as it is, since
a test that fails anyway kills nothing; nor does one that is skipped on this machine.

    python -m tools.mutants [--from N] [--to M]
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tools" / "mutants.toml"
LIMIT_S = 300.0
"""Of the tests of one mutant; one that hangs them is noticed too."""
WHOLE_LIMIT_S = 900.0
"""Of the tests of all mutants, on the code as it is."""
_TESTS_FAILED = 1
"""What pytest returns when tests ran and some failed."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
"""A line of pytest's summary, and the test's id in it up to the first space of a parameter."""


class Mutant(BaseModel):
    """One edit: ``old``, which stands once in ``file``, becomes ``new``.

    Attributes:
        why: What it breaks.
        tests: Files or ids of tests, as pytest takes them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    why: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = Field(min_length=1)


class Outcome(StrEnum):
    """What tests made of a tree."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"
    """The tests could not run, which says nothing."""


class Verdict(NamedTuple):
    """``by``: the first test that failed, or why none is known; empty when none did."""

    outcome: Outcome
    by: str = ""


def read_mutants(path: Path = LIST) -> list[Mutant]:
    """The list, in order.

    Raises:
        ValueError: An edit is malformed, or what it changes does not stand once in its file.
    """
    found = [Mutant.model_validate(entry) for entry in tomllib.loads(path.read_text())["mutant"]]
    for mutant in found:
        count = (ROOT / mutant.file).read_text().count(mutant.old)
        if count != 1:
            raise ValueError(f"{mutant.file}: {mutant.old!r} stands there {count} times, not once")
    return found


def copy_tree(target: Path) -> None:
    """Copies what git tracks, as it is in the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)


def run_tests(tree: Path, tests: Sequence[str], *, limit_s: float) -> Verdict:
    """Runs tests on the code of ``tree``: killed means that one of them failed."""
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            words,
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Verdict(Outcome.KILLED, f"no end within {limit_s:.0f} s")
    if done.returncode == 0:
        return Verdict(Outcome.SURVIVED)
    if done.returncode != _TESTS_FAILED:
        return Verdict(Outcome.BROKEN, f"pytest answered {done.returncode}")
    failed = _FAILED.search(done.stdout)
    return Verdict(Outcome.KILLED, failed[1] if failed else "")


def try_mutant(tree: Path, mutant: Mutant) -> Verdict:
    """Makes the edit, runs its tests, takes the edit back."""
    file = tree / mutant.file
    text = file.read_text()
    file.write_text(text.replace(mutant.old, mutant.new))
    try:
        return run_tests(tree, mutant.tests, limit_s=LIMIT_S)
    finally:
        file.write_text(text)


def main() -> int:
    """Tries the mutants; 1 when one survived or its tests could not run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="N")
    parser.add_argument("--to", dest="last", type=int, default=None, metavar="M")
    given = parser.parse_args()
    mutants = read_mutants()
    chosen = list(enumerate(mutants, start=1))[given.first - 1 : given.last]
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="rl_bench-mutants-") as name:
        tree = Path(name)
        copy_tree(tree)
        tests = sorted({test for _, mutant in chosen for test in mutant.tests})
        whole = run_tests(tree, tests, limit_s=WHOLE_LIMIT_S)
        if whole.outcome is not Outcome.SURVIVED:
            print(f"the tests fail without a mutant ({whole.by}): mend them first", file=sys.stderr)
            return 1
        for number, mutant in chosen:
            outcome, by = try_mutant(tree, mutant)
            outcomes.append(outcome)
            print(f"{number:3} {outcome:8} {mutant.file}: {mutant.why}  [{by}]", flush=True)
    killed = outcomes.count(Outcome.KILLED)
    print(f"{killed} of {len(outcomes)} killed")
    return 0 if killed == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
