"""What plug-ins add is found, imported late, refused clearly, recorded, and kept from agents."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envs.plugins import PluginBroken, environment_makers
from envs.protocols import get_protocol
from rl_bench.checks import Verdict
from rl_bench.compose import compose
from rl_bench.config import DataSource, TaskConfig
from rl_bench.errors import ConfigError, PreflightError
from rl_bench.option_files import CONF_DIR, groups
from rl_bench.plan import expand
from rl_bench.plugins import find_program, plugin_checks, plugins_of, stamp
from rl_bench.preflight import grading_checks
from rl_bench.sandbox.base import Launch, View
from rl_bench.sandbox.choose import find_bubblewrap
from rl_bench.sandbox.plugin_files import hidden_files, shown_files
from rl_bench.tasks.alpacaeval.annotators import load_annotator
from rl_bench.tasks.deepsearchqa.judging import get_annotator
from rl_bench.tasks.registry import make_task
from tests.needs import needs
from tests.plugin_scene import install
from tests.run_specs import run_spec

ROOT = Path(__file__).resolve().parents[1]
TASK = """\
class Task:
    evaluator_version = "t-1"
    def __init__(self, config, *, cache):
        self.name = config.name
    def description(self):
        return ""
    def write_train_data(self, folder):
        pass
    def check_data(self):
        pass
    def evaluation_texts(self):
        return iter(())
    async def evaluate(self, context):
        raise NotImplementedError
"""


def config(kind: str) -> TaskConfig:
    return TaskConfig(name="mine", kind=kind, level="L1", source=DataSource.BUILTIN, max_tokens=1)


def make(kind: str, cache: Path) -> Any:  # noqa: ANN401  whatever the plug-in makes
    return make_task(config(kind), cache=cache)


def test_a_task_comes_in_and_a_broken_plugin_breaks_only_itself(site: Path, tmp_path: Path) -> None:
    install(site, "good-one", {"rl_bench.tasks": {"good": "good_one.task:Task"}}, {
        "good_one/__init__.py": "", "good_one/task.py": TASK,
    })  # fmt: skip
    install(site, "bad-one", {"rl_bench.tasks": {"bad": "bad_one:Task", "gone": "bad_two:Task"}}, {
        "bad_one.py": "import no_such_module\n", "bad_two.py": "",
    }, version="0.9")  # fmt: skip

    assert make("good", tmp_path).name == "mine"
    assert "bad_one" not in sys.modules
    assert stamp("t-1", config("good")) == "t-1 (good-one 1.2)"
    assert stamp("t-1", config("gsm8k")) == "t-1"
    missing = f"No module named 'no_such_module' at {site / 'bad_one.py'}:1"
    for kind, why in {"bad": missing, "gone": "no attribute 'Task'"}.items():
        with pytest.raises(ConfigError) as caught:
            make(kind, tmp_path)
        assert why in caught.value.message
        assert "of bad-one 0.9" in caught.value.message
        assert "pip uninstall bad-one" in caught.value.cure
        assert "from its source folder" in caught.value.cure
        assert "install bad-one" not in caught.value.cure.replace("uninstall", "")
    with pytest.raises(ConfigError, match=r"kind 'nil' does not exist.*gsm8k.*good"):
        make("nil", tmp_path)


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (("evaluation_texts", "other"), "it has no evaluation_texts"),
        (('evaluator_version = "t-1"', ""), "it has no evaluator_version"),
        (("self.name = config.name", "pass"), "it has no name"),
        (("async def evaluate(self, context)", "async def evaluate(self)"),
         "evaluate cannot be called with (context)"),
        (("def check_data(self)", "async def check_data(self)"),
         "check_data is asynchronous in another way than the protocol's"),
        (("def check_data(self)", "check_data = 1\n    def a(self)"), "check_data is no method"),
        (("    def check_data(self):\n        pass",
          "    @property\n    def check_data(self):\n        raise OSError(5, 'two\\nlines')"),
         "check_data cannot be looked up: OSError: [Errno 5] two lines at {site}/half_one.py:11"),
        (("def check_data(self):\n        pass",
          "def __getattr__(self, name):\n        raise ValueError(name)"),
         "check_data cannot be looked up: ValueError: check_data at {site}/half_one.py:10"),
        (("self.name = config.name", "self.name = config.nothing"),
         "making it broke: AttributeError: 'TaskConfig' object has no attribute 'nothing'"),
    ],
)  # fmt: skip
def test_what_makes_no_task_is_refused_before_anything_starts(
    site: Path, tmp_path: Path, edit: tuple[str, str], told: str
) -> None:
    points = {"rl_bench.tasks": {"half": "half_one:Task"}}
    install(site, "half-one", points, {"half_one.py": TASK.replace(*edit)})
    experiment = compose([f"paths.cache={tmp_path}"]).experiment
    checks = grading_checks(experiment, plan=[run_spec(config("half"))])
    [failed] = [check for check in checks if check.name == "task mine"]
    assert failed.verdict is Verdict.FAILED
    told = f"half_one:Task of half-one 1.2 makes no task: {told.format(site=site)}"
    assert failed.detail.startswith(told)
    assert "broke" in told or failed.detail == told
    assert "docs/extending.md" in failed.cure
    assert "\n" not in failed.detail + failed.cure


def test_a_name_that_is_taken_is_refused_with_both_places(site: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        points = {"same": f"{name}:Task", "gsm8k": f"{name}:Task", name: f"{name}:Task"}
        install(site, name, {"rl_bench.tasks": points}, {f"{name}.py": TASK})

    assert make("two", tmp_path).name == "mine"
    with pytest.raises(ConfigError, match=r"one:Task of one 1\.2 and two:Task of two 1\.2"):
        make("same", tmp_path)
    with pytest.raises(ConfigError, match=r"'gsm8k' is there twice: rl_bench and one:Task"):
        make("gsm8k", tmp_path)


def test_environments_and_protocols_come_in_when_they_are_used(site: Path) -> None:
    points = {
        "rl_bench.environments": {"x/A-v0": "worlds:make", "x/B-v0": "worlds:missing"},
        "rl_bench.protocols": {"plain": "worlds:protocol"},
    }
    code = "def make(*, size):\n    return size\ndef protocol(*, word='w'):\n    return word\n"
    install(site, "worlds", points, {"worlds.py": code})

    makers = environment_makers({})
    assert "worlds" not in sys.modules
    assert makers["x/A-v0"](size=3) == 3
    with pytest.raises(PluginBroken, match=r"'x/B-v0': worlds:missing of worlds 1\.2"):
        makers["x/B-v0"]()
    made: object = get_protocol('plain:{"word": "v"}')
    assert made == "v"
    with pytest.raises(ValueError, match=r"choices: chat.*plain"):
        get_protocol("fancy")


def test_annotators_and_agents_programs_come_in(site: Path) -> None:
    points = {
        "rl_bench.annotators": {"alpacaeval.terse": "notes:Terse", "deepsearchqa.one": "notes:One"},
        "rl_bench.agents": {"a": "notes_agent.program"},
    }
    install(site, "notes", points, {
        "notes.py": "class Terse: pass\nclass One: pass\n",
        "notes_agent/__init__.py": "", "notes_agent/program.py": "", "notes_agent/other.py": "",
    })  # fmt: skip

    assert type(load_annotator("terse")).__name__ == "Terse"
    assert type(get_annotator("one")).__name__ == "One"
    with pytest.raises(ConfigError, match=r"for alpacaeval.*function_call, terse"):
        load_annotator("one")
    assert find_program("notes_agent.program") == "part of notes 1.2"
    assert find_program("rl_bench.agents.copy_base") == "part of rl_bench"
    with pytest.raises(PreflightError, match=r"notes_agent\.other of notes 1\.2 is not shown"):
        find_program("notes_agent.other")
    with pytest.raises(PreflightError, match=r"notes_agent\.nil is not in notes 1\.2"):
        find_program("notes_agent.nil")


AGENT = "# Does nothing much.\nname: {name}\nargv: [sleep, '1']\n"


def test_options_come_in_and_are_recorded(site: Path) -> None:
    files = {"opts/__init__.py": "raise SystemExit\n"}
    files["opts/conf/agent/idle.yaml"] = AGENT.format(name="idle")
    install(site, "opts", {"rl_bench.conf": {"opts": "opts.conf"}}, files)

    blocks = "sweep.blocks=[{agents: [idle, noop], drivers: [none], tasks: [gsm8k_mini]}]"
    experiment = compose([blocks]).experiment

    recorded = {s.agent.name: plugins_of(s, experiment.options) for s in expand(experiment)}
    assert recorded == {"idle": {"opts": "1.2"}, "noop": {}}
    assert "idle" in groups()["agent"]
    with pytest.raises(ConfigError, match=r"'idel' does not exist.*did you mean idle"):
        compose(["agent=idel"])


def test_an_option_in_two_places_is_refused_once_it_is_used(site: Path, tmp_path: Path) -> None:
    files = {f"opts/conf/agent/{n}.yaml": AGENT.format(name=n) for n in ("noop", "idle")}
    points = {"opts": "opts.conf", "nil": "opts.nowhere"}
    install(site, "opts", {"rl_bench.conf": points}, {"opts/__init__.py": "", **files})
    mine = tmp_path / "mine"
    (mine / "agent").mkdir(parents=True)
    (mine / "agent" / "idle.yaml").write_text(AGENT.format(name="idle"))

    assert compose(["agent=idle"]).experiment
    with pytest.raises(ConfigError) as caught:
        compose(["agent=noop"])
    assert f"in {CONF_DIR} and in {site}/opts/conf (opts 1.2)" in str(caught.value)
    with pytest.raises(ConfigError, match=f"in {mine} and in {site}/opts/conf"):
        compose(["agent=idle"], config_dirs=[mine])
    with pytest.raises(ConfigError, match=r"options of opts 1\.2 are missing: opts\.nowhere"):
        compose(["agent=idel"])


def test_start_up_imports_nothing_of_a_plugin_and_searches_work(site: Path) -> None:
    points = {
        "rl_bench.tasks": {"t": "late:Task"},
        "rl_bench.search": {"mine": "late_search:Mine"},
        "rl_bench.conf": {"c": "late.conf"},
    }
    search = "class Mine:\n    name, url, key_variable = 'mine', 'http://127.0.0.1:1', 'MINE_KEY'\n"
    install(site, "late", points, {
        "late/__init__.py": "raise RuntimeError('imported')\n",
        "late/conf/agent/idle.yaml": AGENT.format(name="idle"), "late_search.py": search,
    })  # fmt: skip
    environ = {**os.environ, "PYTHONPATH": str(site)}

    def python(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *words], env=environ, cwd=ROOT, text=True, capture_output=True,
            timeout=120, check=False,
        )  # fmt: skip

    told = python("-m", "rl_bench.sweep", "--help")
    assert told.returncode == 0, told.stderr
    assert "gemini_cli, idle" in told.stdout
    assert "Does nothing much." in told.stdout
    code = (
        "from envs.search.backends import NAMES, key_variable, make_search\n"
        "print(NAMES.index('mine'), key_variable('mine'), make_search('mine', num_results=1).name)"
    )
    found = python("-c", code)
    assert found.stdout.split() == ["5", "MINE_KEY", "mine"], found.stderr


def test_the_doctor_lists_plugins_with_their_state(site: Path) -> None:
    install(site, "fine", {"rl_bench.tasks": {"f": "fine:Task"}}, {"fine.py": TASK})
    install(site, "ill", {"rl_bench.sinks": {"s": "ill:Sink"}}, {"ill.py": ""}, version="3")
    install(site, "odd", {"rl_bench.tsks": {"s": "odd:Task"}}, {"odd.py": ""})

    rows = {check.name: check for check in plugin_checks()}
    assert rows["plug-in fine"].verdict == "ok"
    assert rows["plug-in fine"].detail == "1.2: task kind f"
    assert rows["plug-in ill"].verdict == "warning"
    assert "3: sink s; " in rows["plug-in ill"].detail
    assert "pip uninstall ill" in rows["plug-in ill"].cure
    assert "rl_bench.tasks" in rows["plug-in odd"].cure


def test_agents_see_what_is_declared_for_them_and_nothing_that_grades(
    site: Path, tmp_path: Path
) -> None:
    points = {
        "rl_bench.tasks": {"t": "secret.task:Task"},
        "rl_bench.environments": {"s/W-v0": "secret.world:World"},
        "rl_bench.agents": {"a": "secret.agents.first"},
        "rl_bench.sinks": {"s": "secret_sink:Sink"},
    }
    names = ("__init__", "task", "world", "answers", "agents/__init__", "agents/first")
    files = {f"secret/{name}.py": "" for name in (*names, "agents/second")}
    files |= {"secret/data.jsonl": "answers", "secret_sink.py": "x = 1", "beside/__init__.py": ""}
    install(site, "secret", points, files)
    install(site, "other", {}, {"library/__init__.py": ""})

    assert set(hidden_files()) == {site / "secret", site / "secret_sink.py", site / "beside"}
    seen = ("__init__.py", "agents/__init__.py", "agents/first.py", "world.py")
    assert {path.relative_to(site / "secret").as_posix() for path in shown_files()} == set(seen)

    needs("bwrap")
    bubblewrap = find_bubblewrap()
    assert not isinstance(bubblewrap, str), bubblewrap
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    listing = f"cd {site} && find . -type f -size +0 | sort; find secret beside library | sort"
    wrapped = bubblewrap.wrap(
        Launch(argv=("sh", "-c", listing), env={"PATH": os.defpath}, cwd=workspace),
        View(workspace=workspace, home=workspace, tmp=workspace, read_only=(site,)),
        status_fd=2,
    )
    done = subprocess.run(
        wrapped.argv, env=wrapped.env, cwd=wrapped.cwd, text=True, capture_output=True,
        timeout=60, check=False,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert "library/__init__.py" in lines, done.stderr
    assert {line for line in lines if line.startswith("secret/") and line.endswith(".py")} == {
        f"secret/{name}" for name in seen
    }
    assert not any("answers" in line or "data.jsonl" in line for line in lines)
    assert "beside/__init__.py" not in lines
    assert "./secret_sink.py" not in lines
