"""The command line, as a user types it: help, dry run, bad input. Nothing is ever started here."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from rl_bench import sweep
from rl_bench.compose import compose
from rl_bench.option_files import groups
from rl_bench.preflight import num_local_cpus

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RL_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RL_BENCH_RESULTS", raising=False)
    return tmp_path


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rl_bench.sweep", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def test_help_explains_every_group_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.main(["--help"]) == 0

    text = capsys.readouterr().out
    for group, options in groups().items():
        assert group in text
        assert all(option in text for option in options)
    assert "dry_run=true" in text
    assert "Control: ends at once and submits nothing." in text
    for word in ("RL_BENCH_RESULTS", "RL_BENCH_DATA", "instructions.md", "GRADING_SERVER_URL"):
        assert word in text


@pytest.mark.parametrize(("name", "num_runs"), [("8b_base", 37), ("7b_instruct", 31)])
def test_dry_run_ends_with_the_number_of_runs(
    name: str, num_runs: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep.main([f"+experiment={name}", "dry_run=true"]) == 0

    out, err = capsys.readouterr()
    assert f"{num_runs} runs" in out.splitlines()[-1]
    assert "GPU-hours" in out
    assert f"{num_runs * 12 * 4:,}" in out
    assert err == ""
    assert [path.name for path in folder.iterdir() if path.name != "cache"] == []


def test_a_dry_run_tells_minutes_and_what_this_machine_can_hold(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["+experiment=quickstart", "dry_run=true", "budget.wall_clock_s=240"]
    assert sweep.main([*words, "cluster.num_cpus=2"]) == 0
    assert "8 min" in capsys.readouterr().out

    assert sweep.main([*words, f"cluster.cpus_per_run={num_local_cpus()}"]) == 0
    assert "16 min" in capsys.readouterr().out


def test_dry_run_leaves_nothing_behind(folder: Path) -> None:
    done = run("+experiment=quickstart", "dry_run=true")

    assert done.returncode == 0, done.stderr
    assert "4 runs" in done.stdout.splitlines()[-1]
    assert not (folder / "outputs").exists()
    assert not (folder / "results").exists()


def test_help_marks_what_is_taken_when_nothing_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert sweep.main(["--help"]) == 0
    marked = re.findall(r"^  (\w+) .*?(\w+)\*", capsys.readouterr().out, flags=re.MULTILINE)
    chosen = compose([]).experiment
    assert (dict(marked)["mode"],) == chosen.sweep.blocks[0].modes
    assert dict(marked)["budget"] == chosen.budget.name
    assert dict(marked)["sandbox"] == chosen.sandbox.name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["agent=cladue"], "agent 'cladue' does not exist"),
        (["budget.wall_clock_s=0"], "budget.wall_clock_s"),
        (["--foo"], "unknown flag '--foo'"),
        (["--hlp"], "did you mean --help?"),
        (["--confg-dir=x"], "did you mean --config-dir?"),
        (["--num-eval", "8"], "Overrides have no dashes: num_eval=8"),
        (["--dry-run"], "Overrides have no dashes: dry_run=true"),
        (["agent=codex"], "codex speaks openai"),
        (["task=webshop", "agent=noop"], "task webshop"),
        (["model=qwen3_8b_base", "model.path=/absent", "agent=noop"], "/absent"),
        (["paths.min_free_gib=1e9"], "folder results"),
        (["paths.results=''"], "paths.results: it names no folder"),
        (["model.path=/absent", "agent=noop"], "path has no effect with kind=tiny"),
        (["task.data_path=/absent", "agent=noop"], "data_path has no effect"),
        (["task.num_eval=100000000", "agent=noop"], "task.num_eval"),
        (["budget.wall_clock_s=inf", "agent=noop"], "budget.wall_clock_s"),
        (["sweep.seeds=[99999999999]", "agent=noop"], "sweep.seeds.0"),
        (["agent=command", "agent.argv=['{nope}']"], "'{nope}' is not on PATH"),
        (["task.num_eval=[1"], "override 'task.num_eval=[1' cannot be read"),
        (["=3"], "override '=3' names no key"),
        ([""], "override '' names no key"),
    ],
)
def test_bad_input_exits_with_2_and_starts_nothing(
    words: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep.main(["task=gsm8k_mini", *words] if "task=webshop" not in words else words) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert all(line.startswith("error: ") for line in err.splitlines())
    assert said in err
    assert not (folder / "results").exists()


def test_nothing_named_starts_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.main([]) == 2
    assert sweep.main(["--config-dir", str(folder)]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("error: nothing is named to run. Write +experiment=NAME: ") == 2
    assert "quickstart" in err
    assert not (folder / "results").exists()


def test_a_start_tells_what_it_is_and_where_its_results_go(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object) -> int:
        told.append(capsys.readouterr().err)
        return 0

    told: list[str] = []
    monkeypatch.setattr("actors.sweep_driver.run_sweep", started)
    words = ["agent=noop", "task=gsm8k_mini", "sandbox=none", "sweep.seeds=[0,1]", "sweep.name=a"]

    assert sweep.main([*words, "budget.wall_clock_s=90"]) == 0

    first, second = told[0].splitlines()[-2:]
    root = folder / "results" / "a"
    assert first == f"sweep a: 2 runs, budget 1:30 each; results go to {root}"
    assert second.startswith("to watch it from elsewhere: ")
    assert second.endswith(f" -m analysis.watch {root}")


def test_a_user_sees_no_traceback(folder: Path) -> None:
    done = run("agnet=noop")

    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown key 'agnet'. ")
    assert done.stderr.count("\n") == 1


def test_interrupt_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "_start", interrupted)

    assert sweep.main([]) == 130
    assert "same command keeps what has finished" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["driver.lock", "."])
def test_a_sweep_folder_that_cannot_be_used_is_bad_input(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = folder / "results" / "mine" / name
    if name == ".":
        place.parent.mkdir()
        place.write_text("a file")
    else:
        place.mkdir(parents=True)

    assert sweep.main(["agent=noop", "task=gsm8k_mini", "sweep.name=mine"]) == 2

    assert "error: " in capsys.readouterr().err


def test_a_damaged_record_of_the_sweep_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = folder / "results" / "mine" / "sweep.json"
    record.parent.mkdir(parents=True)
    record.write_bytes(b"\xff\xfe\x00")

    assert sweep.main(["agent=noop", "task=gsm8k_mini", "sweep.name=mine"]) == 2

    assert "sweep.json cannot be read" in capsys.readouterr().err


def test_two_drivers_of_one_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = folder / "results" / "mine" / "driver.lock"
    lock.parent.mkdir(parents=True)
    with FileLock(lock):
        assert sweep.main(["agent=noop", "task=gsm8k_mini", "sweep.name=mine"]) == 2

    assert "is being run by another process" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], ["agent=noop", "dry_run=true"]])
def test_output_that_nobody_reads_or_that_knows_only_ascii(words: list[str], folder: Path) -> None:
    program = [sys.executable, "-m", "rl_bench.sweep", "task=gsm8k_mini", *words]
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "40", "LC_ALL": "C"}
    done = subprocess.run(program, cwd=ROOT, env=env, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()

    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        closed = subprocess.run(
            program, cwd=ROOT, stdout=pipe, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert b"Traceback" not in closed.stderr
    assert b"Exception" not in closed.stderr


def test_a_request_to_end_is_an_interrupt_from_the_start(folder: Path) -> None:
    program = (
        "import sys, time, rl_bench.sweep as s\n"
        "s._start = lambda composed: (print('up', flush=True), time.sleep(60))\n"
        "sys.argv = ['x', 'agent=noop', 'task=gsm8k_mini']\n"
        "sys.exit(s.main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"same command keeps what has finished" in err
    assert b"Traceback" not in err
