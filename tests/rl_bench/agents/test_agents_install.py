"""CLIs are installed by the real npm and pip, from registries on loopback."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_bench.agents import __main__ as command
from rl_bench.agents import install as install_module
from rl_bench.agents.install import install, run_step
from rl_bench.agents.program import (
    binary_of,
    check_program,
    find_node,
    prefix_of,
    read_installed,
    read_only_folders,
    search_folders,
)
from rl_bench.agents.tools import python_of
from rl_bench.config import AgentConfig, PackageConfig
from rl_bench.errors import ConfigError, InstallError, PreflightError
from tests.needs import needs
from tests.rl_bench.agents.registries import npm_package, pypi_package, served

SAYS_VERSION = "#!/usr/bin/env node\nconsole.log('told 1.2.3 (' + process.argv.slice(2) + ')');\n"


def cli(registry: str = "npm", *, name: str = "told", version: str = "1.2.3") -> AgentConfig:
    package = {"registry": registry, "name": name}
    return AgentConfig(
        name="mine",
        argv=(name, "{prompt}"),
        binary=name,
        version=version,
        package=PackageConfig.model_validate(package),
    )


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    files = {
        **npm_package("told", "1.2.3", script=SAYS_VERSION),
        **npm_package("liar", "1.2.3", script=SAYS_VERSION.replace("1.2.3", "9.9.9")),
        **npm_package(
            "copied",
            "1.2.3",
            script=SAYS_VERSION.replace("1.2.3", "placeholder"),
            post_install="node -e \"require('fs').writeFileSync('main.js', "
            "'#!/usr/bin/env node\\nconsole.log(1 + \\'.2.3\\')')\"",
        ),
        **pypi_package("told", "1.2.3", script="import sys; print('told 1.2.3', sys.argv[1:])"),
    }
    with served(files) as base:
        monkeypatch.setenv("npm_config_registry", base)
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
        monkeypatch.setenv("npm_config_fetch_retries", "0")
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", f"{base}/simple")
        monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
        yield


def need_npm() -> None:
    is_there = shutil.which("npm") is not None and find_node(Path("/nowhere")) is not None
    needs("npm", is_there=is_there, cure="Install Node.js 20 or newer")


def has_python(version: str) -> bool:
    try:
        return bool(python_of(version))
    except PreflightError:
        return False


@pytest.mark.usefixtures("registry")
def test_a_package_of_npm(tmp_path: Path) -> None:
    need_npm()
    agents, said = tmp_path / "agents", list[str]()
    found = install(cli(), agents_dir=agents, say=said.append)

    prefix = agents / "mine" / "1.2.3"
    assert prefix_of(cli(), agents) == prefix
    assert found == read_installed(cli(), agents)
    assert (found.reported, found.registry) == ("1.2.3", "npm")
    assert said[0] == "mine: told 1.2.3 from npm ..."
    binary = binary_of(cli(), agents)
    assert binary == prefix / "node_modules" / ".bin" / "told"
    done = subprocess.run([binary, "a b"], capture_output=True, text=True, check=True)
    assert done.stdout == "told 1.2.3 (a b)\n"
    assert search_folders(cli(), agents)[0] == binary.parent
    assert read_only_folders(cli(), agents)[0] == prefix
    assert check_program(cli(), agents) == f"1.2.3, {prefix}"
    assert not (agents / "mine" / ".draft").exists()


@pytest.mark.usefixtures("registry")
def test_the_packages_own_script_runs(tmp_path: Path) -> None:
    need_npm()
    found = install(cli(name="copied"), agents_dir=tmp_path / "agents", say=print)
    assert found.reported == "1.2.3"


@pytest.mark.usefixtures("registry")
def test_a_package_of_pypi(tmp_path: Path) -> None:
    agents = tmp_path / "agents"
    found = install(cli("pypi"), agents_dir=agents, say=print)

    prefix = agents / "mine" / "1.2.3"
    binary = binary_of(cli("pypi"), agents)
    assert found.reported == "1.2.3"
    assert binary == prefix / "venv" / "bin" / "told"
    done = subprocess.run([binary, "a b"], capture_output=True, text=True, check=True)
    assert done.stdout == "told 1.2.3 ['a b']\n"
    # Its python is not the agent's to find.
    assert search_folders(cli("pypi"), agents) == ()
    folders = read_only_folders(cli("pypi"), agents)
    assert folders[0] == prefix
    # It was made from the Python that runs this, which a sandbox shows anyway.
    assert folders[1:] == ()


@pytest.mark.usefixtures("registry")
def test_again_is_nothing_and_a_broken_one_is_made_anew(tmp_path: Path) -> None:
    need_npm()
    agents, said = tmp_path / "agents", list[str]()
    first = install(cli(), agents_dir=agents, say=print)
    assert install(cli(), agents_dir=agents, say=said.append) == first
    assert said == []

    (prefix_of(cli(), agents) / "installed.json").write_text('{"agent": "mi')
    assert read_installed(cli(), agents) is None
    draft = agents / "mine" / ".draft"
    draft.mkdir()
    (draft / "left over").touch()
    assert install(cli(), agents_dir=agents, say=said.append).reported == "1.2.3"
    assert not draft.exists()


@pytest.mark.usefixtures("registry")
def test_another_package_under_the_same_name_is_not_the_one(tmp_path: Path) -> None:
    need_npm()
    agents = tmp_path / "agents"
    install(cli(), agents_dir=agents, say=print)
    assert read_installed(cli(name="other"), agents) is None
    assert read_installed(cli("pypi"), agents) is None


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (cli(name="absent"), "npm install failed with exit code"),
        (cli(version="7.7.7"), "npm install failed with exit code"),
        (cli(name="liar"), "says version 9.9.9"),
        (cli("pypi", version="7.7.7"), "pip install failed with exit code"),
        (cli().model_copy(update={"binary": "tolt"}), "no program 'tolt'"),
    ],
)
def test_what_fails_is_told_and_leaves_nothing(
    agent: AgentConfig, words: str, tmp_path: Path
) -> None:
    need_npm()
    said = list[str]()
    with pytest.raises(InstallError, match=words) as raised:
        install(agent, agents_dir=tmp_path / "agents", say=said.append)
    assert raised.value.cure
    assert read_installed(agent, tmp_path / "agents") is None
    assert sorted(p.name for p in (tmp_path / "agents" / "mine").iterdir()) == [
        ".lock",
        "install.log",
    ]
    if "exit code" in words:
        assert any(line.startswith("mine: | ") for line in said)


def test_an_agent_without_a_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no package"):
        install(AgentConfig(name="x", argv=("true",)), agents_dir=tmp_path, say=print)


def test_a_python_that_is_missing_is_named_with_a_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PreflightError, match=r"Python 3\.99 is not here") as raised:
        python_of("3.99")
    assert "pyenv install 3.99" in raised.value.cure
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert python_of(own).resolve() == Path(sys.executable).resolve()


def test_a_shim_that_does_not_answer_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    shim = tmp_path / f"python{own}"
    shim.write_text("#!/bin/sh\necho no such version >&2\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(sys.executable).parent}")
    assert python_of(own).resolve() == Path(sys.executable).resolve()


def test_a_step_that_hangs_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install_module, "STILL_EVERY_S", 0.1)
    monkeypatch.setattr(install_module, "STEP_LIMIT_S", 0.5)
    said = list[str]()
    script = f"sleep 321 & echo $! > {tmp_path / 'child'}; wait"
    with pytest.raises(InstallError, match="took more than"):
        run_step("slow", ("sh", "-c", script), log=tmp_path / "log", say=said.append)
    assert said[0].startswith("slow, 0 s")
    child = Path("/proc") / (tmp_path / "child").read_text().strip()
    deadline = time.monotonic() + 5
    while child.exists() and "sleep" in (child / "cmdline").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_cli_on_path_must_be_the_pinned_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "told"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho told 1.2.4\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    with pytest.raises(PreflightError, match=r"is version 1\.2\.4, pinned is 1\.2\.3") as raised:
        check_program(cli(), tmp_path / "agents")
    assert "agent.version=1.2.4" in raised.value.cure

    other = cli(version="1.2.4")
    assert check_program(other, tmp_path / "agents") == f"1.2.4, {program} on PATH"
    assert read_only_folders(other, tmp_path / "agents") == (program.parent,)


def test_node_that_is_missing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "told"
    program.parent.mkdir()
    program.write_text(SAYS_VERSION)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    with pytest.raises(PreflightError, match=r"needs Node\.js 20 or newer"):
        check_program(cli(), tmp_path / "agents")


def test_node_elsewhere_is_seen_and_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, node = tmp_path / "bin" / "told", tmp_path / "node" / "bin" / "node"
    for path, text in ((program, SAYS_VERSION), (node, "#!/bin/sh\necho v22.1.0\n")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{node.parent}:{os.environ['PATH']}")
    assert search_folders(cli(), tmp_path / "agents") == (program.parent, node.parent)
    assert read_only_folders(cli(), tmp_path / "agents") == (
        program.parent,
        tmp_path / "node",
    )


OPTION = """\
name: mine
version: 1.2.3
package: {registry: npm, name: told}
binary: told
apis: [openai]
argv: [told, "{prompt}"]
"""


@pytest.mark.usefixtures("registry")
def test_the_command_installs_lists_and_checks_a_users_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_npm()
    (tmp_path / "conf" / "agent").mkdir(parents=True)
    (tmp_path / "conf" / "agent" / "mine.yaml").write_text(OPTION)
    place = (f"paths.agents={tmp_path / 'agents'}", f"--config-dir={tmp_path / 'conf'}")

    def run(*words: str) -> tuple[int, str, str]:
        code = command.main([*words, *place])
        told = capsys.readouterr()
        return code, told.out, told.err

    code, out, _ = run("list")
    assert code == 0
    assert "mine         1.2.3      npm told" in out
    assert "not installed" in out
    code, _, err = run("check", "mine")
    assert code == 1
    assert "`python -m rl_bench.agents install mine`" in err
    code, out, _ = run("install", "mine")
    assert code == 0, out
    assert "mine: 1.2.3 installed in" in out
    assert "was installed already" in run("install", "mine")[1]
    assert "mine: works" in run("check")[1]
    code, out, err = run("install", "mine", "agent.version=7.7.7")
    assert code == 1
    assert "npm install failed" in err
    marker = tmp_path / "agents" / "mine" / "1.2.3" / "installed.json"
    assert json.loads(marker.read_text())["package"] == "told"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no action is named"),
        (("fetch",), "unknown action 'fetch'"),
        (("install",), "no agent is named"),
        (("install", "codxe"), "did you mean codex?"),
        (("install", "noop"), "agent 'noop' is no package of a registry"),
        (("check", "noop"), "agent=noop dry_run=true"),
        (("install", "codx"), "no package is known for agent 'codx'"),
        (("install", "codex", "sink=none"), "unknown override"),
        (("install", "codex", "opencode", "agent.version=1"), "is for one agent"),
        (("list", "codex"), "list takes no names"),
        (("--frobnicate",), "unknown flag"),
    ],
)
def test_bad_words_are_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(words) == 2
    assert said in capsys.readouterr().err


def test_help_names_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--help"]) == 0
    out = capsys.readouterr().out
    for name in ("claude_code", "codex", "gemini_cli", "opencode", "openhands"):
        assert name in out


def test_help_names_a_users_own_and_what_cannot_be_read_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "mine.yaml").write_text(OPTION)
    (tmp_path / "agent" / "odd.yaml").write_text("package: [a\n")
    (tmp_path / "agent" / "plain.yaml").write_text("name: plain\npackage: null\n")
    assert command.main(["--help", "--config-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "  mine         1.2.3      npm told\n" in out
    assert "odd" not in out
    assert "plain" not in out
    assert command.main(["--help", "--config-dir", str(tmp_path / "none")]) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("registry")
def test_an_interrupted_installation_leaves_nothing(tmp_path: Path) -> None:
    needs("python3.12", is_there=has_python("3.12"), cure="Install Python 3.12")
    agents = tmp_path / "agents"
    words = ("-m", "rl_bench.agents", "install", "openhands", f"paths.agents={agents}")
    process = subprocess.Popen(
        [sys.executable, *words], stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    draft = agents / "openhands" / ".draft"
    while not draft.exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "interrupted" in err
    assert not draft.exists()
