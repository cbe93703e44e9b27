"""Every command of the docs is run here in a cheap form, by another test, or says why it is not.

Cheap: sweeps, evaluations and preparations as dry runs, `make` without doing anything, reports
without plots. Folders that pages name (`results/SWEEP`) are a small synthetic sweep.
"""

import importlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from analysis.synthetic.sweep import write_sweep
from tests.doc_commands import Command, commands, idle_excuses, pages

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE: Mapping[str, str] = {
    "python -m rl_bench.doctor": "tests/rl_bench/test_doctor.py::test_this_environment_passes",
    "python -m pip install --no-deps tests/plugin_package": "tests/test_plugin_package.py::"
    "test_the_walk_through_runs_as_it_is_written",
    "python -m rl_bench.sweep experiment=doors": "tests/test_plugin_package.py::"
    "test_the_walk_through_runs_as_it_is_written",
    "python -m rl_bench.agents": "tests/rl_bench/agents/test_agents_install.py::"
    "test_the_command_installs_lists_and_checks_a_users_own",
    "python -m rl_bench.audit results/full +audit.references": "tests/rl_bench/"
    "test_audit_weights.py::test_known_checkpoints",
    "python -m rl_bench.audit results/full audit=judged": "tests/rl_bench/test_audit_judge.py::"
    "test_a_majority_makes_a_warning_with_quotes",
    "python -m rl_bench.drivers.scripted": "tests/rl_bench/"
    "test_scripted_driver_sessions.py::test_the_command_serves_until_it_is_interrupted",
    "python -m analysis.case_study results/SWEEP OUT --account-url": "tests/analysis/"
    "test_case_study.py::test_the_command_asks_for_accounts",
    "python -m analysis.wandb_view": "tests/analysis/test_wandb_view.py::"
    "test_it_is_one_run_of_the_sweeps_group",
    "curl -H 'Content-Type: application/json' -d '{\"model_path\"": "tests/actors/"
    "test_end_to_end.py::test_smoke_sweep_runs_to_its_tables_and_is_not_repeated",
}
"""Beginnings of commands that are too slow for here, and the test that runs them."""
DRY = ("rl_bench.sweep", "rl_bench.evaluate", "rl_bench.prepare")
EXTRA: Mapping[str, tuple[str, ...]] = {
    "rl_bench.sweep": ("sandbox=none",),
    "analysis.watch": ("--once",),
    "analysis.report": ("--no-plots", "--processes", "1"),
    "analysis.synthetic": ("--runs", "1", "--items", "10"),
}
"""Words that make a command cheap and leave its own words as they are."""
FINE: Mapping[str, tuple[int, ...]] = {"rl_bench.audit": (0, 1)}
"""Exit codes that say that the command line was right; else 0 alone. Audits tell breaches by 1."""
LIMIT_S = 60.0

EVERY = [command for page in pages(ROOT) for command in commands(page, root=ROOT)]


def plain(text: str) -> str:
    """What is run: comments and the name of the sweep make no difference."""
    return re.sub(r"results/\w+", "results/SWEEP", " ".join(shlex.split(text, comments=True)))


UNIQUE = list({(plain(each.text), bool(each.excuse)): each for each in EVERY}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where commands are run: a folder with `results`, and the id of a run in them."""

    folder: Path
    run_id: str

    def words(self, text: str, *, out: Path) -> str:
        """A command with what is here in the place of what stands for it.

        Args:
            text: The command.
            out: A folder that is not there yet.
        """
        for old, new in (
            ("$PWD", str(self.folder)),
            ("runs/ID", f"runs/{self.run_id}"),
            ("[--run RUN_ID]", f"--run {self.run_id}"),
            ("task=...", "task=gsm8k_mini"),
            ("model=...", "model=tiny"),
            ("from=/copy", f"from={self.folder}/copy"),
            (" OUT", f" {out}"),
        ):
            text = text.replace(old, new)
        return text


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A synthetic sweep under every name that the pages use."""
    folder = tmp_path_factory.mktemp("docs")
    sweep = folder / "results" / "SWEEP"
    (folder / "copy").mkdir()
    write_sweep(sweep, runs=2, seed=0, items=10)
    named = {name for each in EVERY for name in re.findall(r"results/(\w+)", each.text)}
    for name in named - {"SWEEP"}:
        (sweep.parent / name).symlink_to(sweep)
    run_id = min(path.name for path in (sweep / "runs").glob("codex*"))
    return Place(folder=folder, run_id=run_id)


@pytest.fixture
def place(scene: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(scene.folder)
    for name in ("RESULTS", "CACHE", "DATA", "AGENTS"):
        monkeypatch.setenv(f"RL_BENCH_{name}", str(scene.folder / name.lower()))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HOME", str(scene.folder))
    return scene


# --- running one


def run_module(module: str, words: Sequence[str]) -> int:
    """``python -m MODULE WORDS`` within this process."""
    found = importlib.import_module(module)
    main = getattr(found, "main", None)
    main = main or importlib.import_module(f"{module}.__main__").main
    keys = {word.partition("=")[0] for word in words}
    is_help = "--help" in keys
    extra = () if is_help else EXTRA.get(module, ())
    given = [
        *words,
        *(word for word in extra if "=" not in word or word.partition("=")[0] not in keys),
    ]
    if module in DRY and "dry_run" not in keys and not is_help:
        given.append("dry_run=true")
    try:
        code = main(given)
    except SystemExit as ended:  # what argparse does
        code = ended.code
    assert isinstance(code, int | None)
    return code or 0


def run_python(words: Sequence[str], place: Place) -> None:
    if words[:1] == ["-m"]:
        code = run_module(words[1], words[2:])
        assert code in FINE.get(words[1], (0,))
    else:
        run_process([sys.executable, *words], cwd=place.folder)


def run_script(words: Sequence[str], place: Place) -> None:
    """``rl-bench`` is the sweep's command."""
    assert run_module("rl_bench.sweep", words) == 0


def run_make(words: Sequence[str], place: Place) -> None:
    """What it would do: the target exists, and sweeps in it are composed."""
    said = run_process(["make", "-n", "-o", "install", *words], cwd=ROOT)
    for step in re.split(r"[;\n]|&&", said.replace("\\\n", " ")):
        if " -m rl_bench.sweep " in step:
            argv = shlex.split(step)
            fixed = [word for word in argv[argv.index("rl_bench.sweep") + 1 :] if "$" not in word]
            assert run_module("rl_bench.sweep", fixed) == 0


def run_git(words: Sequence[str], place: Place) -> None:
    shutil.rmtree(place.folder / "somewhere", ignore_errors=True)
    assert run_process(["git", *words], cwd=place.folder) or words[0] == "clone"


def run_activate(words: Sequence[str], place: Place) -> None:
    """The environment that the tests run in, wherever it lies."""
    assert words == [".venv/bin/activate"]
    script = Path(sys.prefix) / "bin" / "activate"
    if not script.exists():
        pytest.skip("the tests run in no virtual environment")
    said = run_process(["bash", "-c", f". {script}; command -v python"], cwd=place.folder)
    assert said.strip() == str(Path(sys.prefix) / "bin" / "python")


def run_export(words: Sequence[str], place: Place) -> None:
    """A variable for commands below it, which get it where they need it."""
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]*=\S+", word) for word in words)


def run_process(argv: Sequence[str], *, cwd: Path) -> str:
    done = subprocess.run(
        argv, cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


RUNNERS: Mapping[str, Callable[[Sequence[str], Place], None]] = {
    "python": run_python,
    "rl-bench": run_script,
    "make": run_make,
    "git": run_git,
    ".": run_activate,
    "export": run_export,
}


def elsewhere(text: str) -> str:
    """The test that runs a command for real; empty: none is named."""
    words = " ".join(text.split())
    return next((test for start, test in ELSEWHERE.items() if words.startswith(start)), "")


def how(command: Command) -> Callable[[Sequence[str], Place], None] | None:
    """What runs a command here; None if no test needs to.

    Raises:
        LookupError: Nothing does.
    """
    if command.excuse or elsewhere(command.text):
        return None
    program = next(word for word in command.text.split() if not re.match(r"\w+=", word))
    if program not in RUNNERS:
        raise LookupError(
            f"{command}: no test runs it. Run it in tests/test_doc_commands.py, name the test that "
            "does in ELSEWHERE, or put <!-- not run by tests: REASON --> above its block"
        )
    return RUNNERS[program]


@pytest.mark.parametrize("command", UNIQUE, ids=lambda command: f"{command.page}:{command.line}")
def test_a_command_of_the_docs_works(
    command: Command, place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = how(command)
    if run is None:
        return
    words = shlex.split(place.words(command.text, out=tmp_path / "out"), comments=True)
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        monkeypatch.setenv(name, value)
    run(words[1:], place)


def test_tests_that_are_said_to_run_a_command_are_there() -> None:
    for start, test in ELSEWHERE.items():
        path, _, name = test.partition("::")
        assert re.search(rf"def {name}\(", (ROOT / path).read_text()), test
        assert any(elsewhere(command.text) == test for command in EVERY), f"no page says {start}"


def test_excuses_stand_above_commands() -> None:
    assert {page.name: idle for page in pages(ROOT) if (idle := idle_excuses(page))} == {}


# --- the collector itself

PAGE = """\
Prose that says make nothing, and `make inline`.

    make indented     # with a comment
    not a command of ours
    A=1 python -m rl_bench.sweep agent=noop \\
        task=gsm8k_mini

    make after_a_blank

```bash
$ curl http://127.0.0.1
```

```python
make = 1
```

<!-- not run by tests: needs an account -->

    aws s3 ls
    id=$(aws ec2 run)

1. In a list:

       pip install boto3

```yaml
make: no command
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_commands_are_found_with_their_excuses(page: Path) -> None:
    found = commands(page, root=page.parent)

    assert [(each.line, each.text, each.excuse) for each in found] == [
        (3, "make indented     # with a comment", ""),
        (5, "A=1 python -m rl_bench.sweep agent=noop task=gsm8k_mini", ""),
        (8, "make after_a_blank", ""),
        (11, "curl http://127.0.0.1", ""),
        (20, "aws s3 ls", "needs an account"),
        (21, "id=$(aws ec2 run)", "needs an account"),
        (25, "pip install boto3", ""),
    ]
    assert idle_excuses(page) == []


def test_a_command_that_no_test_runs_is_refused(page: Path) -> None:
    found = {each.text: each for each in commands(page, root=page.parent)}

    with pytest.raises(LookupError, match=r"page\.md:25: pip install boto3: no test runs it"):
        how(found["pip install boto3"])
    assert how(found["aws s3 ls"]) is None


def test_a_command_that_is_wrong_fails(place: Place) -> None:
    with pytest.raises(AssertionError):
        run_python(["-m", "rl_bench.sweep", "agnt=noop"], place)
    with pytest.raises(AssertionError):
        run_make(["no_such_target"], place)
    with pytest.raises(ModuleNotFoundError):
        run_python(["-m", "rl_bench.swep"], place)


def test_an_excuse_for_nothing_is_found(page: Path) -> None:
    page.write_text("<!-- not run by tests: it was\nthere -->\n" + PAGE.replace("aws", "awk"))
    assert idle_excuses(page) == [18 + 2]


def test_the_docs_have_commands() -> None:
    assert {"README.md", "docs/quickstart.md", "docs/faq.md"} <= {each.page for each in EVERY}
    assert sum(not each.excuse for each in EVERY) > 30
