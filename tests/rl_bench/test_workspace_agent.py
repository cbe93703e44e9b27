"""How an agent is called: prompt, placeholders, files below HOME, search path, limits."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from rl_bench.agents.launch import DRIVER_KEY, MAX_ARGUMENT_BYTES, Values, write_home_files
from rl_bench.compose import compose_agent
from rl_bench.config import AgentConfig, DriverConfig, PackageConfig, RunSpec
from rl_bench.errors import WorkspaceError
from rl_bench.instructions import MAX_LISTED, MAX_PROMPT_BYTES, go_on, instruct, prompt
from rl_bench.paths import RunPaths
from rl_bench.sandbox.base import Launch
from rl_bench.workspace import Workspace
from tests.rl_bench.grading_scene import WordTask, make_spec, write_checkpoint

URL = "http://127.0.0.1:4321/token"
NASTY = "a 'b' \"c\" `whoami` $(id) ${HOME} <(x) \\ !! *\n\tünïcode 日本 — {workspace} %s\n--flag"


class NastyTask(WordTask):
    """A task whose description is full of what shells and formats act on."""

    def description(self) -> str:
        return NASTY


def with_driver(agent: AgentConfig) -> RunSpec:
    driver = DriverConfig(name="d", kind="scripted", session="smoke", model_id="model-1")
    return make_spec(agent=agent).model_copy(update={"driver": driver})


def create(root: Path, agent: AgentConfig, *, nasty: bool = False) -> Workspace:
    base = root / "base"
    if not base.exists():
        write_checkpoint(base, value=5)
    spec = with_driver(agent)
    make = NastyTask if nasty else WordTask
    tasks = [make(task.name) for task in spec.tasks]
    return Workspace.create(RunPaths(root / "run"), spec, tasks=tasks, base_model=base)


def launch(workspace: Workspace, root: Path, *, message: str = "") -> Launch:
    return workspace.launch(
        "http://127.0.0.1:1/t", agents_dir=root / "agents", driver_url=URL, message=message
    )


def test_the_prompt_holds_everything_the_agent_needs(tmp_path: Path) -> None:
    workspace = create(tmp_path, AgentConfig(name="t", argv=("true",)))

    for words in (
        "You have 600 seconds",
        "# Improve tiny on alfworld",
        "Do as you like.",
        '"$GRADING_SERVER_URL/submit"',
        "data/train.jsonl  ",
        "code/\n",
        "models/tiny/config.json",
        "nobody answers questions",
    ):
        assert words in workspace.prompt, words
    assert ".home" not in workspace.prompt


@pytest.mark.parametrize("size", [0, 50_000])
def test_the_prompt_arrives_as_one_argument_as_it_is(size: int, tmp_path: Path) -> None:
    agent = AgentConfig(
        name="t",
        argv=("{python}", "-c", "import sys; sys.stdout.write(sys.argv[1])", "{prompt}"),
    )
    workspace = create(tmp_path, agent, nasty=True)
    workspace.prompt += "x" * size
    assert NASTY in workspace.prompt
    command = launch(workspace, tmp_path)

    done = subprocess.run(command.argv, env=command.env, capture_output=True, check=True)

    assert done.stdout.decode() == workspace.prompt


def test_an_argument_that_the_system_does_not_take_is_refused(tmp_path: Path) -> None:
    workspace = create(tmp_path, AgentConfig(name="t", argv=("true", "-p={prompt}")))
    workspace.prompt = "x" * (MAX_ARGUMENT_BYTES - 3)
    subprocess.run(launch(workspace, tmp_path).argv, check=True)
    workspace.prompt += "x"
    with pytest.raises(WorkspaceError, match="an argument of agent t has 131072 bytes"):
        launch(workspace, tmp_path)
    with pytest.raises(OSError, match="too long"):
        subprocess.run(("true", "x" * (MAX_ARGUMENT_BYTES + 1)), check=True)


def test_a_variable_that_the_system_does_not_take_is_refused(tmp_path: Path) -> None:
    agent = AgentConfig(name="t", argv=("true",), env={"BIG": "{prompt}"})
    workspace = create(tmp_path, agent)
    workspace.prompt = "x" * MAX_ARGUMENT_BYTES
    with pytest.raises(WorkspaceError, match="BIG of agent t"):
        launch(workspace, tmp_path)


@pytest.mark.parametrize("text", ["long ", "日本"])
def test_a_long_description_gives_way_to_its_file(text: str, tmp_path: Path) -> None:
    spec = make_spec()
    description = "# Improve\n\n" + text * 100_000

    shown = prompt(spec, description=description, instructions=instruct(spec), listing="data/")

    assert len(shown.encode()) <= MAX_PROMPT_BYTES
    assert "# Improve\n\n(Too long to be shown here: read description.md.)" in shown
    assert instruct(spec).strip() in shown


def test_nothing_makes_the_prompt_unusable(tmp_path: Path) -> None:
    spec = make_spec()
    shown = prompt(spec, description="a\0b\ud800", instructions="x" * 10**6, listing="y" * 10**6)
    assert len(shown.encode()) <= MAX_PROMPT_BYTES
    assert "\0" not in shown


def test_many_files_are_not_all_listed(tmp_path: Path) -> None:
    class ManyFiles(WordTask):
        def write_train_data(self, folder: Path) -> None:
            for number in range(500):
                (folder / f"{number:03}.txt").touch()

    spec = make_spec()
    base = write_checkpoint(tmp_path / "base", value=1)
    workspace = Workspace.create(
        RunPaths(tmp_path / "run"), spec, tasks=[ManyFiles("alfworld")], base_model=base
    )
    assert f"data/{MAX_LISTED // 2:03}.txt" in workspace.prompt
    assert "data/400.txt" not in workspace.prompt
    assert " more\n" in workspace.prompt


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("kill", "processes that you left behind are ended too"),
        ("wait", "may run on until the deadline."),
        ("resume", "are asked to go on when they have ended"),
    ],
)
def test_the_agent_is_told_what_becomes_of_what_it_leaves(policy: str, words: str) -> None:
    agent = AgentConfig.model_validate(
        {"name": "t", "argv": ["true"], "resume_argv": ["true"], "on_live_children": policy}
    )
    assert words in instruct(make_spec(agent=agent))


def test_placeholders_are_filled_in_everywhere(tmp_path: Path) -> None:
    agent = AgentConfig(
        name="t",
        argv=("run", "{driver_model}", "x={driver_url}/v1"),
        resume_argv=("run", "--continue", "{prompt}"),
        env={"KEY": "{driver_key}", "MIX": "{home}:{unknown}:{ {workspace}"},
        files={"a/b.json": '{"url": "{driver_url}", "home": "{home}"}'},
    )
    workspace = create(tmp_path, agent)

    first = launch(workspace, tmp_path)
    later = launch(workspace, tmp_path, message="go on")

    assert first.argv == ("run", "model-1", f"x={URL}/v1")
    assert later.argv == ("run", "--continue", "go on")
    assert first.env == later.env
    assert first.env["KEY"] == DRIVER_KEY
    assert first.env["MIX"] == f"{workspace.home}:{{unknown}}:{{ {workspace.root}"
    assert first.cwd == workspace.root
    written = workspace.home / "a" / "b.json"
    assert json.loads(written.read_text()) == {"url": URL, "home": str(workspace.home)}
    assert written.stat().st_mode & 0o777 == 0o600


def test_a_driver_that_is_missing_is_told(tmp_path: Path) -> None:
    workspace = create(tmp_path, AgentConfig(name="t", argv=("run", "{driver_url}")))
    with pytest.raises(WorkspaceError, match="has no driver"):
        workspace.launch("u", agents_dir=tmp_path)


def values(home: Path) -> Values:
    return Values(workspace=home.parent, home=home, prompt="")


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "", "."])
def test_files_stay_below_home(name: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with pytest.raises(ValidationError, match="below HOME"):
        AgentConfig(name="t", argv=("true",), files={name: "text"})
    unchecked = AgentConfig.model_construct(name="t", argv=("true",), files={name: "text"})
    with pytest.raises(WorkspaceError):
        write_home_files(unchecked, values(home))
    assert list(home.iterdir()) == []
    assert not (tmp_path / "x").exists()


def test_files_are_never_written_through_links(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    (outside / "there").write_text("mine")
    (home / "folder").symlink_to(outside)
    (home / "file").symlink_to(outside / "there")
    for name in ("folder/new", "file"):
        agent = AgentConfig(name="t", argv=("true",), files={name: "text"})
        with pytest.raises(WorkspaceError, match="could not be written below HOME"):
            write_home_files(agent, values(home))
    assert [path.name for path in outside.iterdir()] == ["there"]
    assert (outside / "there").read_text() == "mine"


def test_a_cli_is_called_by_its_path_and_python_stays_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "elsewhere" / "bin" / "cli"
    program.parent.mkdir(parents=True)
    for name in ("cli", "python"):
        (program.parent / name).write_text("#!/bin/sh\n")
        (program.parent / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    agent = AgentConfig(
        name="t",
        argv=("cli", "cli"),
        binary="cli",
        version="1",
        package=PackageConfig(registry="npm", name="cli"),
    )
    command = launch(create(tmp_path, agent), tmp_path)

    assert command.argv == (str(program), "cli")
    path = command.env["PATH"]
    assert path.split(":")[:2] == [str(Path(sys.executable).parent), str(program.parent)]
    assert shutil.which("python", path=path) == str(Path(sys.executable).parent / "python")


@pytest.mark.parametrize("name", ["claude_code", "codex", "gemini_cli", "opencode", "openhands"])
def test_the_published_agents_are_whole(name: str, tmp_path: Path) -> None:
    agent = compose_agent(name)
    assert agent is not None
    workspace = create(tmp_path, agent)

    first = launch(workspace, tmp_path)
    later = launch(workspace, tmp_path, message=go_on(remaining_s=77.0))

    assert workspace.prompt in first.argv
    assert any("77 seconds" in argument for argument in later.argv)
    everything = " ".join((*first.argv, *later.argv, *first.env.values()))
    everything += "".join(p.read_text() for p in workspace.home.rglob("*") if p.is_file())
    assert URL in everything
    assert "model-1" in everything
    assert DRIVER_KEY in first.env.values() or DRIVER_KEY in everything
    for placeholder in ("{driver", "{home}", "{workspace}", "{prompt}", "{python}"):
        assert placeholder not in everything
    for path in workspace.home.rglob("*.json"):
        json.loads(path.read_text())
    for variable, text in first.env.items():
        if text.lstrip().startswith("{"):
            json.loads(text)
            assert variable
