"""Composition: every experiment composes, overrides reach their option, bad input is explained."""

import re
from pathlib import Path

import pytest

from rl_bench.compose import compose
from rl_bench.errors import ConfigError
from rl_bench.option_files import CONF_DIR, groups
from rl_bench.plan import expand

EXPERIMENTS = sorted(path.stem for path in (CONF_DIR / "experiment").glob("*.yaml"))
DEBUGS = sorted(path.stem for path in (CONF_DIR / "debug").glob("*.yaml"))
AXES = ("agent", "driver", "mode", "task", "model")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_composes_and_plans(name: str) -> None:
    experiment = compose([f"+experiment={name}"]).experiment

    assert experiment.sweep.name == name
    assert expand(experiment)


@pytest.mark.parametrize("name", DEBUGS)
def test_every_debug_setting_composes(name: str) -> None:
    assert expand(compose(["+experiment=quickstart", f"+debug={name}"]).experiment)


@pytest.mark.parametrize(
    ("group", "option"),
    [
        (group, path.stem)
        for group in ("budget", "grader", "sandbox", "sink", "cluster", "paths")
        for path in sorted((CONF_DIR / group).glob("*.yaml"))
    ],
)
def test_every_condition_composes_under_its_own_name(group: str, option: str) -> None:
    given = ("base_url=http://x/v1", "model_id=m") if option == "openai" else ()
    words = [f"{group}={option}", *(f"{group}.endpoint.{word}" for word in given)]
    experiment = compose(words).experiment

    assert getattr(experiment, group).name == option


def test_every_option_of_every_axis_is_valid_and_bears_its_file_name() -> None:
    every = "[{agents: ['*'], drivers: ['*'], modes: ['*'], tasks: ['*'], models: ['*']}]"
    needed = ["options.agent.command.argv=[bash]", "options.agent.replay.settings.run=/r"]
    for driver in ("openai_compatible", "anthropic_compatible"):
        given = ("model_id=m", "base_url=http://x/v1", "key_variable=K")
        needed += [f"options.driver.{driver}.{word}" for word in given]
    options = compose([f"sweep.blocks={every}", *needed]).experiment

    for group in AXES:
        found = getattr(options.options, f"{group}s")
        assert sorted(found) == sorted(groups()[group])
        assert all(found[name].name == name for name in found)


def test_plain_start_is_one_run_of_the_groups_choices() -> None:
    composed = compose([])

    assert not composed.dry_run
    assert re.fullmatch(r"reference-alfworld_mini-[0-9a-f]{6}", composed.experiment.sweep.name)
    assert len(expand(composed.experiment)) == 1


def name_of(*overrides: str) -> str:
    return compose(overrides).experiment.sweep.name


@pytest.mark.parametrize(
    "change",
    ["budget.wall_clock_s=77", "sweep.seeds=[1]", "mode=rl_only", "task.num_eval=3", "agent=noop"],
)
def test_another_condition_is_another_unnamed_sweep(change: str) -> None:
    assert name_of(change) != name_of()


@pytest.mark.parametrize(
    "change", ["cluster.max_parallel_runs=3", "sink.wandb.mode=disabled", "paths.results=/tmp/x"]
)
def test_what_may_differ_under_a_name_leaves_the_unnamed_sweep(change: str) -> None:
    assert name_of(change) == name_of() == name_of("dry_run=true")


def test_an_unnamed_sweep_of_several_counts_them() -> None:
    name = name_of("sweep.blocks=[{agents: [noop, copy_base], tasks: [gsm8k_mini]}]")

    assert re.fullmatch(r"2agents-gsm8k_mini-[0-9a-f]{6}", name)


def test_a_given_name_is_kept() -> None:
    assert name_of("sweep.name=unnamed") == "unnamed"


@pytest.mark.parametrize(
    "choice", ["task=gsm8k_mini", "mode=sft_only", "sweep.exclude=['task=gsm8k_mini']"]
)
def test_a_choice_that_is_all_that_runs_or_a_filter_is_accepted(choice: str) -> None:
    blocks = "sweep.blocks=[{tasks: [gsm8k_mini]}, {modes: [rl_only], tasks: [gsm8k_mini]}]"

    if choice.startswith("sweep"):
        assert len(expand(compose(["+experiment=quickstart", choice]).experiment)) == 2
    else:
        assert len(expand(compose([choice, blocks]).experiment)) == 2


def test_experiment_needs_no_plus() -> None:
    assert compose(["experiment=smoke"]) == compose(["+experiment=smoke"])


def test_override_reaches_the_chosen_option_only() -> None:
    experiment = compose(["+experiment=quickstart", "task.num_eval=7"]).experiment

    assert experiment.options.tasks["alfworld_mini"].num_eval == 7
    assert experiment.options.tasks["gsm8k_mini"].num_eval != 7


def test_override_reaches_a_named_option() -> None:
    experiment = compose(
        ["+experiment=quickstart", "options.task.gsm8k_mini.num_eval=7"]
    ).experiment

    assert experiment.options.tasks["gsm8k_mini"].num_eval == 7


def test_override_may_set_a_key_that_the_file_leaves_out() -> None:
    experiment = compose(["model=qwen3_8b_base", "model.path=/models/base"]).experiment

    assert experiment.options.models["qwen3_8b_base"].path == Path("/models/base")


def test_paths_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RL_BENCH_RESULTS", raising=False)
    monkeypatch.delenv("RL_BENCH_CACHE", raising=False)

    paths = compose([]).experiment.paths

    assert paths.results == tmp_path / "results"
    assert paths.cache == tmp_path / "home/.cache/rl_bench"


def test_config_dir_adds_options(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "mine.yaml").write_text(
        "defaults: [noop, _self_]\nname: mine\nenv: {WHO: '${..name}'}\n"
    )

    experiment = compose(
        ["sweep.blocks=[{agents: [mine, noop]}]"], config_dirs=[tmp_path]
    ).experiment

    assert experiment.options.agents["mine"].env["WHO"] == "mine"
    assert "mine" in groups(config_dirs=[tmp_path])["agent"]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["agent=cladue"], ["agent 'cladue' does not exist", "Choices:", "mean claude_code?"]),
        (["agnet=noop"], ["unknown key 'agnet'", "did you mean agent?"]),
        (["+experment=smoke"], ["unknown key 'experment'", "did you mean experiment?"]),
        (["+experiment=smok"], ["experiment 'smok' does not exist", "did you mean smoke?"]),
        (["budget.wallclock_s=3"], ["'budget.wallclock_s'", "did you mean wall_clock_s?"]),
        (["budget.wall_clock_s=-5"], ["budget.wall_clock_s", "greater than 0", "-5"]),
        (["budget.wall_clock_s=soon"], ["budget.wall_clock_s", "number", "soon"]),
        (["sink.wandb.mode=maybe"], ["sink.wandb.mode", "'online', 'offline' or 'disabled'"]),
        (["sink.wandb.proj=x"], ["'sink.wandb.proj'", "did you mean project?"]),
        (["~task.kind"], ["missing key 'task.kind'"]),
        (["agent=command"], ["missing key 'agent.argv'"]),
        (["agent=replay", "agent.setings.run=/x"], ["unknown key 'agent.setings'", "settings?"]),
        (["agent=command", "budget.wallclock_s=3"], ["'budget.wallclock_s'", "wall_clock_s?"]),
        (["agent=replay", "agent.settings.rn=/x"], ["missing key 'agent.settings.run'"]),
        (["agent=[noop,command]"], ["agent takes one option", "sweep.blocks"]),
        (["sweep.name=a b"], ["sweep.name", "pattern"]),
        (["sweep.seeds=3"], ["sweep.seeds", "valid list (got 3). Write sweep.seeds=[3]"]),
        (["+experiment=smoke", "+experiment=agents"], ["experiment is given twice", "one exp"]),
        (["sweep.seeds=[]"], ["sweep.seeds", "at least 1"]),
        (["sweep.blocks=[{taks: [gsm8k]}]"], ["'sweep.blocks.0.taks'", "did you mean tasks?"]),
        (["sweep.blocks=[{tasks: [gsm9k]}]"], ["task 'gsm9k' does not exist", "mean gsm8k?"]),
        (["sweep.blocks=[{stacks: [codex]}]"], ["stack 'codex'", "agent/driver"]),
        (["sweep.blocks=[{stacks: [a/b], agents: [c]}]"], ["either stacks or agents"]),
        (["dry_run=maybe"], ["dry_run is 'maybe'", "true, false"]),
        (["word"], ["'word' has no value", "Write word=VALUE"]),
        (["dry_run"], ["'dry_run' has no value", "Write dry_run=true"]),
        (["none"], ["Write driver=none or sandbox=none"]),
        (["+quickstart"], ["'+quickstart' has no value", "Write experiment=quickstart"]),
        (["experment=smoke"], ["unknown key 'experment'", "did you mean experiment?"]),
        (["wall_clock_s=3"], ["unknown key 'wall_clock_s'", "mean budget.wall_clock_s?"]),
        (["bugdet.wall_clock=3"], ["mean budget.wall_clock_s?"]),
        (["seed=3"], ["unknown key 'seed'", "did you mean sweep.seeds?"]),
        (["name=mine"], ["did you mean sweep.name?"]),
        (["budget.seeds=[1]"], ["unknown key 'budget.seeds'", "did you mean sweep.seeds?"]),
        (["budget.time=5"], ["unknown key 'budget.time'", "did you mean wall_clock_s?"]),
        (["budget.calls=5"], ["did you mean max_driver_calls?"]),
        (["model.path=${nope}"], ["model.path", "nope"]),
        (["+experiment=quickstart", "task=webshop"], ["'task=webshop'", "no run of this sweep"]),
        (
            ["+experiment=quickstart", "mode=rl_only"],
            ["'mode=rl_only' changes nothing", 'sweep.exclude=["mode=sft_only"]', "sweep.blocks="],
        ),
        (
            ["+experiment=quickstart", "task=gsm8k_mini"],
            ["'task=gsm8k_mini' changes nothing", 'sweep.exclude=["task=alfworld_mini"]'],
        ),
        (["+experiment=8b_base", "agent=codex"], ["'agent=codex' changes", "agents: [codex]"]),
        (["task=gsm8k_mini,alfworld_mini"], ["sweep.blocks=[{tasks: [gsm8k_mini, alfworld_mini]"]),
        (["budget=quick,smoke"], ["several values", "one budget"]),
        (["budget.wall_clock_s=1,2"], ["'budget.wall_clock_s=1,2'", "several values"]),
        (["options.task.alfworld_mini.num_eval=3"], ["is the chosen task", "task.KEY=VALUE"]),
    ],
)
def test_bad_input_is_one_clear_line(overrides: list[str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(overrides)

    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text


def test_missing_config_dir_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        compose([], config_dirs=[tmp_path / "absent"])
