"""Which sandbox is taken, how it is tried out, and what is said when it does not work or breaks."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
from pathlib import Path
from typing import Literal

import pytest

from rl_bench.agents.leak_probe import Targets
from rl_bench.compose import compose
from rl_bench.config import SandboxConfig
from rl_bench.errors import SandboxError
from rl_bench.events import AgentStarted, RunEnd
from rl_bench.paths import SweepPaths
from rl_bench.plan import expand
from rl_bench.preflight import Check, Verdict, preflight
from rl_bench.process.agent_process import AgentProcess
from rl_bench.sandbox import choose
from rl_bench.sandbox.base import Launch
from rl_bench.sandbox.bubblewrap import Bubblewrap
from rl_bench.sandbox.choose import make_sandbox
from rl_bench.sandbox.self_test import leaks, self_test
from tests.needs import needs
from tests.rl_bench.cage import ENV, Cage, finish, make_cage
from tests.rl_bench.test_run import Laboratory, spec_of

pytestmark = pytest.mark.timeout(60)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def cage(tmp_path: Path) -> Cage:
    return make_cage(tmp_path, "bwrap")


def test_a_sandbox_that_breaks_is_not_the_agents_end(cage: Cage, tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'no namespaces for you' >&2\nexit 1\n")
    broken.chmod(0o755)
    sandbox = Bubblewrap(program=str(broken), version="0")
    launch = sandbox.wrap(Launch(argv=("true",), env=ENV, cwd=cage.workspace), cage.view())
    exit_ = finish(
        AgentProcess.start(
            launch.argv,
            env=launch.env,
            cwd=launch.cwd,
            stdout=cage.stdout,
            stderr=cage.stderr,
            is_wrapped=True,
        )
    )
    assert "before it had started the agent: no namespaces for you" in exit_.sandbox_error
    assert (exit_.start_error, exit_.exit_code, exit_.killed) == ("", None, False)


def test_a_sandbox_that_is_killed_is_not_the_agents_end(cage: Cage) -> None:
    agent = cage.start("sleep", "60")
    os.kill(agent.wrapper_pids[0], 9)
    exit_ = finish(agent)
    assert "before it had told how the agent ended" in exit_.sandbox_error
    assert (exit_.exit_code, exit_.killed, exit_.cause) == (None, False, None)


def test_a_python_started_by_a_path_from_below_is_found_inside(tmp_path: Path) -> None:
    needs("bwrap")
    code = """
        from rl_bench.agents.leak_probe import Targets
        from rl_bench.config import SandboxConfig
        from rl_bench.sandbox.choose import make_sandbox
        from rl_bench.sandbox.self_test import self_test
        self_test(make_sandbox(SandboxConfig(name="bwrap")), Targets())
    """
    done = subprocess.run(
        [os.path.relpath(sys.executable, tmp_path), "-c", textwrap.dedent(code)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "PROBE_PAUSES_S", (0.0, 0.0))


def test_without_bubblewrap(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="apt-get install bubblewrap"):
        make_sandbox(SandboxConfig(name="bwrap"))
    sandbox = make_sandbox(SandboxConfig(name="auto"))
    assert sandbox.kind == "none"
    assert "bwrap is not on PATH" in sandbox.warnings()[0]
    assert "bwrap is not on PATH" in caplog.text


@pytest.fixture
def bwrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The place of a `bwrap` found before the machine's; each of its starts is a line in a file."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "bwrap"


def write_bwrap(program: Path, script: str) -> None:
    program.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "bubblewrap 0.4.1" && exit\n'
        f"echo >>{program}.starts\n{script}\n"
    )
    program.chmod(0o755)


def num_starts(program: Path) -> int:
    return len(Path(f"{program}.starts").read_text().splitlines())


@pytest.mark.parametrize(
    "said",
    [
        "setting up uid map: Permission denied",
        "bwrap: Unknown option --disable-userns",
        "bwrap: Creating new namespace failed: Operation not permitted",
        "bwrap: No permissions to create new namespace",
        "bwrap: Creating new namespace failed: nesting depth or "
        "/proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
    ],
)
def test_a_bubblewrap_that_may_not_work_is_told_and_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bwrap: Path, said: str
) -> None:
    limit = tmp_path / "max_user_namespaces"
    limit.write_text("0\n")
    monkeypatch.setattr(choose, "_MAX_USER_NAMESPACES", limit)
    write_bwrap(bwrap, f"echo '{said}' >&2; exit 1")
    with pytest.raises(SandboxError) as refused:
        make_sandbox(SandboxConfig(name="bwrap"))
    assert said in refused.value.message
    assert "sysctl" in refused.value.cure
    assert num_starts(bwrap) == 1
    assert said in make_sandbox(SandboxConfig(name="auto")).warnings()[0]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'bwrap: Resource temporarily unavailable' >&2; exit 1", "Resource temporarily"),
        ("echo 'bwrap: /proc/sys/user/max_*_namespaces exceeded' >&2; exit 1", "exceeded"),
        ("exec sleep 60", "timed out"),
        ("kill -9 $$", "ended with code -9"),
        ("exit 0", "ended with code 0"),
    ],
)
@pytest.mark.parametrize("name", ["auto", "bwrap"])
def test_a_fault_that_may_pass_leaves_no_agent_unconfined(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    bwrap: Path,
    name: Literal["auto", "bwrap"],
    script: str,
    said: str,
) -> None:
    limit = tmp_path / "max_user_namespaces"
    limit.write_text("1000\n")
    monkeypatch.setattr(choose, "_MAX_USER_NAMESPACES", limit)
    monkeypatch.setattr(choose, "PROBE_LIMIT_S", 0.5)
    write_bwrap(bwrap, script)
    with pytest.raises(SandboxError, match=f"failed 3 times: .*{said}") as refused:
        make_sandbox(SandboxConfig(name=name))
    assert "sandbox=none" in refused.value.cure
    assert num_starts(bwrap) == 3


def test_a_fault_that_passed_is_not_remembered_and_a_success_is(bwrap: Path) -> None:
    needs("bwrap")
    real = shutil.which("bwrap")
    fails = "echo 'bwrap: Resource temporarily unavailable' >&2; exit 1"
    write_bwrap(bwrap, fails)
    with pytest.raises(SandboxError):
        make_sandbox(SandboxConfig(name="auto"))

    write_bwrap(bwrap, f'[ $(wc -l <{bwrap}.starts) -lt 5 ] && {{ {fails}; }}; exec {real} "$@"')
    assert make_sandbox(SandboxConfig(name="auto")).kind == "bwrap"
    assert num_starts(bwrap) == 5  # three before, one more failed, the next worked
    assert make_sandbox(SandboxConfig(name="auto")).kind == "bwrap"
    assert num_starts(bwrap) == 5


def test_a_run_that_cannot_be_confined_for_now_is_infrastructure(
    tmp_path: Path, bwrap: Path
) -> None:
    write_bwrap(bwrap, "echo 'bwrap: Resource temporarily unavailable' >&2; exit 1")
    spec = spec_of(sys.executable, "-c", "").model_copy(
        update={"sandbox": SandboxConfig(name="auto")}
    )
    lab = Laboratory(tmp_path, spec)
    end = lab.run.execute(attempt=0, is_last=False)
    assert (end, lab.run.is_final) == (RunEnd.SANDBOX_BROKEN, False)
    assert not lab.events(AgentStarted)


def test_the_choice_is_bubblewrap_where_it_works() -> None:
    needs("bwrap")
    sandbox = make_sandbox(SandboxConfig(name="auto", max_processes=7))
    assert isinstance(sandbox, Bubblewrap)
    assert sandbox.max_processes == 7
    assert sandbox.version[0].isdigit()
    assert sandbox.warnings()


def preflight_check(tmp_path: Path, *overrides: str) -> Check:
    folders = (f"paths.results={tmp_path}/results", f"paths.cache={tmp_path}/cache")
    base = ("agent=noop", "task=gsm8k_mini", "sandbox=bwrap")
    experiment = compose([*base, *folders, *overrides]).experiment
    paths = SweepPaths(experiment.paths.results / experiment.sweep.name)
    checks = preflight(experiment, plan=expand(experiment), paths=paths)
    return next(check for check in checks if check.name.startswith("sandbox"))


def test_preflight_tries_to_break_out(tmp_path: Path) -> None:
    needs("bwrap")
    (tmp_path / "results" / "other_sweep" / "runs").mkdir(parents=True)
    (tmp_path / "cache" / "data" / "valid_unseen").mkdir(parents=True)
    check = preflight_check(tmp_path)
    assert check.verdict is Verdict.OK, check
    assert "refused" in check.detail
    assert not list((tmp_path / "results").glob(".*"))


def test_preflight_fails_on_a_leak(tmp_path: Path) -> None:
    needs("bwrap")
    with tempfile.TemporaryDirectory(dir=Path(sys.prefix)) as name:
        (Path(name) / "valid_unseen").mkdir()
        check = preflight_check(tmp_path, f"paths.data={name}")
    assert check.verdict is Verdict.FAILED
    assert f"read {name}" in check.detail
    assert check.cure


def test_a_key_inside_is_a_leak(tmp_path: Path) -> None:
    needs("bwrap")
    sandbox = make_sandbox(SandboxConfig(name="bwrap"))
    found = leaks(self_test(sandbox, Targets(variables=("HOME",)), folder=tmp_path))
    assert found == ["find keys in its own environment: HOME"]


def test_a_whole_run_of_an_ordinary_user() -> None:
    """Started by a real user that is not root."""
    python3 = Path("/usr/bin/python3")
    is_there = os.geteuid() == 0 and python3.exists()
    needs("setpriv", is_there=is_there, cure="run as root, with a Python of the system")
    needs("bwrap")
    code = f"""
        import os, sys, tempfile
        sys.path[:0] = [{str(ROOT)!r}, {sysconfig.get_path("purelib")!r}]
        from pathlib import Path
        from rl_bench.process.agent_process import AgentProcess
        from rl_bench.sandbox.base import Launch, View
        from rl_bench.sandbox.bubblewrap import Bubblewrap
        from rl_bench.sandbox.self_test import Targets, leaks, self_test
        run = Path(tempfile.mkdtemp())
        work = run / "workspace"
        for name in ("data", ".home", ".tmp"):
            (work / name).mkdir(parents=True)
        script = "ulimit -u; id -u; echo x > data/x; setsid nohup sleep 60 &"
        launch = Bubblewrap(program="bwrap", version="", max_processes=100).wrap(
            Launch(argv=("bash", "-c", script), env={ENV!r}, cwd=work),
            View(workspace=work, home=work / ".home", tmp=work / ".tmp",
                 protected=(work / "data",)),
        )
        agent = AgentProcess.start(
            launch.argv, env=launch.env, cwd=work, stdout=run / "out", stderr=run / "err",
            is_wrapped=True, grace_s=0.3,
        )
        exit_ = agent.wait(remaining_s=lambda: 20.0, grace_s=0.3)
        print(os.geteuid())
        print((run / "out").read_text().split(), "Read-only" in (run / "err").read_text())
        print(exit_.exit_code, exit_.num_survivors_killed, exit_.num_unkillable)
        tried = self_test(Bubblewrap(program="bwrap", version=""), Targets())
        print(len(tried) > 40, leaks(tried))
    """
    done = subprocess.run(
        [
            *("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"),
            *(str(python3), "-c", textwrap.dedent(code)),
        ],
        cwd="/",
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "65534",
        "['400', '1000'] True",
        "0 1 0",
        "True []",
    ], done.stderr
