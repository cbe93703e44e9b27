"""The distributions hold all that they need: commands run from a wheel, far from the checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.needs import needs

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]
SITE = sysconfig.get_paths()["purelib"]
PACKAGES = ("actors", "analysis", "conf", "envs", "rl_bench")
BUILD = "import sys; from setuptools import build_meta as b; print(getattr(b, sys.argv[1])('..'))"
OWN_COPY = f"""
import atexit, os, sys

@atexit.register
def check_modules():
    strangers = [
        f"{{name}} is {{module.__file__}}"
        for name, module in sys.modules.items()
        if name.partition(".")[0] in {PACKAGES!r}
        and getattr(module, "__file__", None)
        and not module.__file__.startswith(os.path.dirname(__file__))
    ]
    if strangers:
        print(*strangers, sep="\\n", file=sys.stderr, flush=True)
        os._exit(99)
"""
"""For every process of the wheel's Python: of the project it may import the wheel's files only."""
DATA = """
from pathlib import Path
from rl_bench.compose import compose
from rl_bench.models.base import resolve_model
from rl_bench.plan import expand
from rl_bench.tasks.registry import make_task

tasks = "gsm8k_mini, webshop_mini, alpacaeval_mini"
experiment = compose(["agent=noop", f"sweep.blocks=[{{tasks: [{tasks}]}}]"]).experiment
specs = expand(experiment)
assert (resolve_model(specs[0].model, cache=Path("cache")) / "model.safetensors").stat().st_size
for spec in specs:
    [config] = spec.tasks
    folder = Path("data", config.name)
    folder.mkdir(parents=True)
    make_task(config, cache=Path("cache")).write_train_data(folder)
    assert any(path.stat().st_size for path in folder.rglob("*")), config.name
    print(config.name)
"""


def run(*argv: str | Path, cwd: Path) -> str:
    """What a command prints; it must end well, and finds no package by the tests' environment."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    caches = {"RL_BENCH_CACHE": str(cwd / "cache"), "RL_BENCH_RESULTS": str(cwd / "results")}
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env={**env, **caches, "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the repository holds: a build leaves its traces where it runs."""
    needs("a git checkout", is_there=(ROOT / ".git").exists())
    folder = tmp_path_factory.mktemp("distribution") / "checkout"
    for name in run("git", "ls-files", "-z", cwd=ROOT).split("\0"):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def unpacked(checkout: Path) -> Path:
    """The source distribution, as a user unpacks it."""
    before = files(checkout)
    built = run(sys.executable, "-c", BUILD, "build_sdist", cwd=checkout).split()[-1]
    with tarfile.open(checkout.parent / built) as archive:
        archive.extractall(checkout.parent / "unpacked", filter="data")
    [folder] = (checkout.parent / "unpacked").iterdir()
    assert before - files(folder) == set(), "MANIFEST.in leaves these out"
    return folder


@pytest.fixture(scope="module")
def wheel(unpacked: Path) -> Path:
    """The wheel that pip would build of it."""
    sources = {name for name in files(unpacked) if name.partition("/")[0] in PACKAGES}
    built = run(sys.executable, "-c", BUILD, "build_wheel", cwd=unpacked).split()[-1]
    path = unpacked.parent / built
    with zipfile.ZipFile(path) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == sources, "a wheel is the packages, whole, and nothing else"
    return path


@pytest.fixture(scope="module")
def programs(wheel: Path) -> Path:
    """The folder of programs of an environment with the wheel, and this environment's libraries."""
    folder = wheel.parent / "venv"
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    quiet = ("--no-deps", "--no-index", "--quiet")
    run(sys.executable, "-m", "pip", "--python", python, "install", *quiet, wheel, cwd=wheel.parent)
    [site] = folder.glob("lib/python3*/site-packages")
    (site / "own_copy.py").write_text(OWN_COPY)
    # A folder that is named here is searched last, and an editable install's .pth in it not read.
    (site / "libraries.pth").write_text(f"import own_copy\n{SITE}\n")
    return python.parent


def test_every_command_answers(programs: Path, tmp_path: Path) -> None:
    scripts = sorted(path.name for path in programs.glob("rl-bench*"))
    assert len(scripts) == 6
    for script in scripts:
        module = "rl_bench." + (script.removeprefix("rl-bench").removeprefix("-") or "sweep")
        assert module in run(programs / script, "--help", cwd=tmp_path)
    for module in (
        "analysis.report",
        "analysis.watch",
        "analysis.wandb_view",
        "analysis.case_study",
    ):
        assert module in run(programs / "python", "-m", module, "--help", cwd=tmp_path)


def test_the_quickstart_is_planned_and_checked(programs: Path, tmp_path: Path) -> None:
    words = ("+experiment=quickstart", "dry_run=true")
    said = run(programs / "python", "-m", "rl_bench.sweep", *words, cwd=tmp_path)
    assert "dry run, nothing started: 4 runs" in said
    assert "A start would be refused" not in said


def test_models_data_and_templates_are_inside(programs: Path, tmp_path: Path) -> None:
    python = programs / "python"
    said = run(python, "-m", "rl_bench.prepare", "task=gsm8k_mini", cwd=tmp_path)
    assert "nothing to get" in said
    assert len(run(python, "-c", DATA, cwd=tmp_path).split()) == 3
    run(python, "-m", "analysis.synthetic", "sweep", "--runs", "2", "--items", "10", cwd=tmp_path)
    quick = ("--no-plots", "--processes", "1")
    run(python, "-m", "analysis.report", "sweep", *quick, cwd=tmp_path)
    assert (tmp_path / "sweep" / "report" / "index.html").stat().st_size > 1000
