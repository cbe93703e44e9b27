"""The plan: published counts, ids as digests, exclusions, pairs that cannot be driven."""

import pytest

from rl_bench.compose import compose
from rl_bench.config import Experiment
from rl_bench.errors import ConfigError
from rl_bench.plan import digest, drives, expand, run_id, undrivable_pairs


def plan_of(*overrides: str) -> Experiment:
    return compose(overrides).experiment


@pytest.mark.parametrize(("name", "num_runs"), [("8b_base", 37), ("7b_instruct", 31)])
def test_published_studies_have_their_number_of_runs(name: str, num_runs: int) -> None:
    plan = expand(plan_of(f"+experiment={name}"))

    assert len(plan) == num_runs
    assert all(spec.budget.wall_clock_s == 12 * 3600 for spec in plan)
    multi = [spec for spec in plan if spec.mode.name == "multi"]
    assert [len(spec.tasks) for spec in multi] == [6]


def test_full_is_every_drivable_combination() -> None:
    experiment = plan_of("+experiment=full")
    options = experiment.options
    pairs = [
        (a.name, d.name)
        for a in options.agents.values()
        for d in options.drivers.values()
        if drives(a, d)
    ]
    plan = expand(experiment)

    found = {(spec.agent.name, spec.driver.name) for spec in plan}
    assert found == set(pairs)
    single_modes, tasks, models = 3, 6, 2
    assert len(plan) == len(pairs) * models * (single_modes * tasks + 1)
    assert len(undrivable_pairs(experiment)) == len(options.agents) * len(options.drivers) - len(
        pairs
    )


def test_ids_are_readable_and_unique() -> None:
    plan = expand(plan_of("+experiment=quickstart"))
    ids = [run_id(spec) for spec in plan]

    assert len(set(ids)) == len(ids) == 4
    assert ids[0].startswith("reference-none-sft_only-alfworld_mini-tiny-s0-")


def test_an_id_that_no_file_can_have_as_its_name_is_refused_before_a_start() -> None:
    def long(num: int) -> Experiment:
        names = {f"{group}.name": "n" * num for group in ("agent", "driver", "task", "model")}
        return plan_of(
            *("agent=noop", "task=gsm8k_mini", "model=tiny", "mode=free", "driver=none"),
            *(f"{key}={name}" for key, name in names.items()),
        )

    [fits] = expand(long(53))
    assert 220 < len(run_id(fits)) <= 240
    with pytest.raises(ConfigError, match=r"its id has 2\d\d characters of 240") as refused:
        expand(long(64))
    assert "Shorten the names" in refused.value.cure


def test_plan_is_deterministic() -> None:
    again = [expand(plan_of("+experiment=8b_base")) for _ in range(2)]

    assert again[0] == again[1]


@pytest.mark.parametrize(
    "change",
    [
        "budget.wall_clock_s=77",
        "sweep.seeds=[5]",
        "task.num_eval=3",
        "task.settings.data_seed=9",
        "model.max_model_len=99",
        "agent.settings.lr=1",
        "mode=free",
    ],
)
def test_any_condition_changes_the_digest(change: str) -> None:
    before, after = expand(plan_of())[0], expand(plan_of(change))[0]

    assert digest(before) != digest(after)


@pytest.mark.parametrize(
    "change", ["cluster.max_parallel_runs=3", "sink.wandb.mode=disabled", "paths.results=/tmp/x"]
)
def test_what_is_no_condition_leaves_the_digest(change: str) -> None:
    assert run_id(expand(plan_of())[0]) == run_id(expand(plan_of(change))[0])


def test_equal_conditions_are_one_run() -> None:
    blocks = "sweep.blocks=[{tasks: [gsm8k_mini]}, {tasks: [gsm8k_mini, alfworld_mini]}]"

    plan = expand(plan_of(blocks))

    assert [spec.tasks[0].name for spec in plan] == ["gsm8k_mini", "alfworld_mini"]


def test_seeds_multiply_and_a_block_may_name_its_own() -> None:
    plan = expand(plan_of("sweep.seeds=[1,2]", "sweep.blocks=[{}, {seeds: [9]}]"))

    assert [spec.seed for spec in plan] == [1, 2, 9]


def test_exclusion_drops_what_matches_every_part() -> None:
    plan = expand(plan_of("+experiment=8b_base", "sweep.exclude=['agent=codex,task=humaneval']"))

    assert len(plan) == 37 - 3
    assert not [s for s in plan if s.agent.name == "codex" and s.tasks[0].name == "humaneval"]


def test_exclusion_takes_a_task_out_of_a_multi_run() -> None:
    plan = expand(plan_of("+experiment=8b_base", "sweep.exclude=['task=webshop']"))

    assert len(plan) == 37 - 6
    assert len(plan[-1].tasks) == 5


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("agent=nobody", "matches no run"),
        ("agnt=codex", "cannot be read"),
        ("agent", "cannot be read"),
        ("agent=a,agent=b", "cannot be read"),
    ],
)
def test_bad_exclusions_are_refused(pattern: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        expand(plan_of(f"sweep.exclude=['{pattern}']"))


def test_excluding_everything_is_refused() -> None:
    with pytest.raises(ConfigError, match="no run is left"):
        expand(plan_of("sweep.exclude=['seed=0']"))


@pytest.mark.parametrize(
    "overrides",
    [
        ["sweep.blocks=[{stacks: [codex/opus_4_6]}]"],
        ["sweep.blocks=[{stacks: [reference/opus_4_6]}]"],
        ["agent=codex"],
    ],
)
def test_a_pair_that_cannot_be_driven_is_refused(overrides: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"codex speaks openai|reference takes no driver"):
        expand(plan_of(*overrides))


def test_the_drivers_that_fit_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        expand(compose(["agent=codex", "driver=opus_4_6"]).experiment)
    for name in ("gpt_5_4", "openai_compatible", "scripted"):
        assert name in caught.value.cure
    assert "sonnet_4_5" not in caught.value.cure


def test_a_factorial_block_drops_pairs_that_cannot_be_driven() -> None:
    experiment = plan_of(
        "sweep.blocks=[{agents: [codex, claude_code], drivers: [gpt_4o, opus_4_6]}]"
    )

    assert [s.driver.name for s in expand(experiment)] == ["gpt_4o", "opus_4_6"]
    assert undrivable_pairs(experiment) == [("claude_code", "gpt_4o"), ("codex", "opus_4_6")]


def test_an_agent_outside_its_modes_is_refused_alone_and_dropped_beside_others() -> None:
    limited = "agent.modes=[sft_only]"
    with pytest.raises(ConfigError, match="does not work in mode 'free'"):
        expand(plan_of("agent=noop", limited, "mode=free"))

    blocks = "sweep.blocks=[{agents: [noop, copy_base]}]"
    plan = expand(plan_of(f"options.agent.noop.{limited[6:]}", "mode=free", blocks))

    assert [spec.agent.name for spec in plan] == ["copy_base"]
