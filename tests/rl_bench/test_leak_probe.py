"""The agent that looks for leaks finds none in bubblewrap, and finds those that there are."""

import json
import os
import socket
import sys
from pathlib import Path

import pytest

from rl_bench.agents import leak_probe
from rl_bench.agents.leak_probe import Result, Targets, probe
from rl_bench.compose import compose
from rl_bench.config import SandboxConfig
from rl_bench.process.agent_process import AgentExit
from rl_bench.sandbox.choose import make_sandbox
from rl_bench.sandbox.self_test import leaks, self_test
from tests.needs import needs
from tests.rl_bench.cage import ENV, Cage, Kind, finish, make_cage

pytestmark = pytest.mark.timeout(60)
ROOT = Path(__file__).parents[2]


def as_agent(cage: Cage, *, settings: str = "{}") -> tuple[AgentExit, list[Result]]:
    """Runs it as a run does; its exit and its list."""
    env = {
        **ENV,
        "PYTHONPATH": f"{ROOT}/envs/startup{os.pathsep}{ROOT}",
        "HOME": str(cage.workspace / ".home"),
        "TMPDIR": str(cage.workspace / ".tmp"),
        "WORKSPACE": str(cage.workspace),
        "DATA_PATH": str(cage.workspace / "data"),
        "MODEL_PATH": str(cage.workspace / "models"),
        "AGENT_SETTINGS": settings,
    }
    exit_ = finish(cage.start(sys.executable, "-m", "rl_bench.agents.leak_probe", env=env))
    told = cage.stdout.read_text()
    assert told == (cage.code / "leak_probe.json").read_text(), cage.stderr.read_text()
    results = [Result(**result) for result in json.loads(told)]
    through = f"{len(leaks(results))} of {len(results)} attempts got through"
    assert cage.stderr.read_text().splitlines()[-1] == f"{through}, see code/leak_probe.json"
    return exit_, results


def secrets(cage: Cage) -> str:
    """Makes what must not be had, and names it."""
    folder = cage.run.parents[2]
    (folder / "cache" / "valid_unseen").mkdir(parents=True)
    (cage.run / "ledger.jsonl").write_text("{}\n")
    paths = {"cache": str(folder / "cache"), "ledger": str(cage.run / "ledger.jsonl")}
    return json.dumps({"paths": paths, "variables": {"driver": "ANTHROPIC_API_KEY"}})


def tried(results: list[Result]) -> dict[str, Result]:
    return {result.tried: result for result in results}


def test_it_finds_nothing_in_bubblewrap(tmp_path: Path) -> None:
    cage = make_cage(tmp_path, "bwrap")
    exit_, results = as_agent(cage, settings=secrets(cage))
    assert leaks(results) == []
    assert exit_.exit_code == 0
    assert len(results) > 40
    found = tried(results)
    assert found[f"read {cage.run / 'ledger.jsonl'}"].got == "ENOENT"
    assert found["open /proc/sys/kernel/hostname for writing"].got == "EROFS"
    assert found["see other processes"].got == "0"
    assert found["make a user namespace"].got in {"ENOSPC", "EPERM"}


def test_it_finds_what_there_is_without_a_sandbox(tmp_path: Path) -> None:
    cage = make_cage(tmp_path, "none")
    exit_, results = as_agent(cage, settings=secrets(cage))
    assert exit_.exit_code == 1
    found = tried(results)
    expected = {
        f"read {cage.run / 'ledger.jsonl'}",
        f"read {tmp_path / 'cache'}",
        f"list {cage.run}",
        "see other processes",
        "gain rights by a set-uid program",
        "open its own output file",
    }
    assert {name for name in expected if not found[name].leaked} == set()
    assert not found["find keys in its own environment"].leaked
    assert [result.leaked for result in results] == sorted(r.leaked for r in results)[::-1]


def test_it_leaves_nothing_behind(tmp_path: Path) -> None:
    cage = make_cage(tmp_path, "none")
    as_agent(cage)
    assert not list(cage.workspace.glob("**/*leak-probe-*"))
    assert not list(Path(leak_probe.__file__).parent.glob(".leak-probe-*"))
    assert not [line for line in Path("/proc/mounts").read_text().splitlines() if "leak-pr" in line]


def test_what_is_named_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "dummy")
    empty = tmp_path / "empty"
    empty.mkdir()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv("GRADING_SERVER_URL", "http://127.0.0.1:1/token")
        targets = Targets(
            paths=(str(empty), str(tmp_path), str(tmp_path / "absent"), str(pipe)),
            ports=(port,),
            variables=("SOME_API_KEY", "OTHER_API_KEY"),
        )
        found = tried([*leak_probe.files(targets), *leak_probe.processes(targets)])
        reached = [
            result for result in leak_probe.network(targets) if "on loopback" in result.tried
        ]
    assert not found[f"read {empty}"].leaked
    assert found[f"read {tmp_path}"].leaked
    assert found[f"read {tmp_path / 'absent'}"].got == "ENOENT"
    assert found[f"read {pipe}"].got == "read, 0 bytes"
    assert found["find keys in its own environment"].got == "SOME_API_KEY"
    assert "dummy" not in json.dumps(found)
    assert reached[0].leaked


def test_the_runs_own_services_are_no_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        targets = Targets(ports=(port,))

        def reached() -> str:
            results = leak_probe.network(targets)
            return next(result.got for result in results if "on loopback" in result.tried)

        monkeypatch.setattr(leak_probe, "PORTS", ())
        monkeypatch.setattr(leak_probe, "_listening", lambda: iter(()))
        assert reached() == str(port)
        monkeypatch.setenv("GRADING_SERVER_URL", f"http://127.0.0.1:{port}/token")
        assert reached() == "nothing"


def test_probing_oneself_tries_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKSPACE", str(tmp_path))
    results = probe(Targets())
    assert len(results) == len(tried(results))
    assert all(result.got for result in results)


@pytest.mark.parametrize("kind", ["bwrap", "none"])
def test_the_self_test_plants_what_must_not_be_found(tmp_path: Path, kind: Kind) -> None:
    if kind == "bwrap":
        needs("bwrap")
    results = self_test(make_sandbox(SandboxConfig(name=kind)), Targets(), folder=tmp_path)
    planted = [r for r in results if "/sweep/" in r.tried and r.tried.endswith(("jsonl", "json"))]
    assert len(planted) == 2
    assert [result.leaked for result in planted] == [kind == "none"] * 2
    assert bool(leaks(results)) is (kind == "none")
    assert not list(tmp_path.iterdir())


def test_its_option_composes() -> None:
    agent = compose(["agent=leak_probe", "task=gsm8k_mini"]).experiment.options.agents["leak_probe"]
    assert not agent.expects_submissions
    assert not agent.apis
