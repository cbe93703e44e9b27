"""Whatever a sweep names, its plan is its blocks' union less what it excludes, or an error."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_bench.compose import compose
from rl_bench.config import BlockConfig, Experiment, SweepConfig
from rl_bench.errors import ConfigError
from rl_bench.plan import EXCLUDE_KEYS, expand, run_id
from tests.adversarial.bounds import FEW, MANY

AGENTS = ("noop", "copy_base", "claude_code")
DRIVERS = ("none", "opus_4_6")
MODES = ("free", "rl_only", "multi")
TASKS = ("gsm8k_mini", "alfworld_mini")
MODELS = ("tiny",)
EVERY = compose(
    [
        f"sweep.blocks=[{{agents: [{', '.join(AGENTS)}], drivers: [{', '.join(DRIVERS)}], "
        f"modes: [{', '.join(MODES)}], tasks: [{', '.join(TASKS)}], models: [tiny]}}]"
    ]
).experiment


def some(names: tuple[Any, ...]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(st.sampled_from(names), min_size=1, max_size=3).map(tuple)


BLOCKS = st.builds(
    BlockConfig,
    stacks=st.none(),
    agents=some(AGENTS),
    drivers=some(DRIVERS),
    modes=some(MODES),
    tasks=some(TASKS),
    models=some(MODELS),
    seeds=some((0, 1, 7)),
)
STACKED = st.builds(
    BlockConfig,
    stacks=some(("noop/none", "claude_code/opus_4_6", "copy_base/none", "noop/opus_4_6")),
    agents=st.none(),
    drivers=st.none(),
    modes=some(MODES),
    tasks=some(TASKS),
    models=some(MODELS),
    seeds=some((0, 1)),
)
PARTS = st.sampled_from(
    [f"task={t}" for t in TASKS] + [f"agent={a}" for a in AGENTS] + ["mode=multi", "seed=1"]
)
EXCLUSIONS = st.lists(
    st.lists(PARTS, min_size=1, max_size=2).map(",".join) | st.text(max_size=12), max_size=2
).map(tuple)


def experiment(*blocks: BlockConfig, exclude: tuple[str, ...] = ()) -> Experiment:
    sweep = SweepConfig(name="s", seeds=(0,), blocks=blocks, exclude=exclude)
    return EVERY.model_copy(update={"sweep": sweep})


def assert_one_line(error: ConfigError) -> None:
    assert "\n" not in str(error)
    assert error.cure


def ids(*blocks: BlockConfig, exclude: tuple[str, ...] = ()) -> list[str]:
    """The plan's ids, none where nothing is left or the blocks name what cannot be driven."""
    try:
        return [run_id(spec) for spec in expand(experiment(*blocks, exclude=exclude))]
    except ConfigError as error:
        assert_one_line(error)
        return []


@MANY
@given(st.lists(BLOCKS | STACKED, min_size=1, max_size=3), EXCLUSIONS)
def test_a_plan_is_a_plan_or_one_clear_line(
    blocks: list[BlockConfig], exclude: tuple[str, ...]
) -> None:
    found = ids(*blocks, exclude=exclude)

    assert len(set(found)) == len(found)
    assert found == ids(*blocks, exclude=exclude)


@MANY
@given(BLOCKS, BLOCKS)
def test_the_plan_of_two_blocks_is_their_union_in_order(one: BlockConfig, two: BlockConfig) -> None:
    first, second = ids(one), ids(two)
    if first and second:
        assert ids(one, two) == list(dict.fromkeys([*first, *second]))


@MANY
@given(BLOCKS)
def test_a_block_is_its_cross_product(block: BlockConfig) -> None:
    drivable = {("noop", "none"), ("copy_base", "none"), ("claude_code", "opus_4_6")}
    pairs = drivable & set(product(block.agents or (), block.drivers or ()))
    wanted = set()
    for pair, mode, seed in product(pairs, block.modes or (), block.seeds or ()):
        tasks = tuple(block.tasks or ())
        for group in [tasks] if mode == "multi" else [(task,) for task in tasks]:
            wanted.add((pair, mode, group, seed))
    try:
        specs = expand(experiment(block))
    except ConfigError:
        assert not wanted
        return
    found = [
        ((s.agent.name, s.driver.name), s.mode.name, tuple(t.name for t in s.tasks), s.seed)
        for s in specs
    ]
    assert set(found) == wanted
    assert len(found) == len(wanted)


@MANY
@given(BLOCKS, st.sampled_from(TASKS))
def test_an_excluded_task_is_in_no_run_and_nothing_else_is_lost(
    block: BlockConfig, task: str
) -> None:
    if not ids(block) or task not in (block.tasks or ()):
        return
    rest = tuple(name for name in block.tasks or () if name != task)
    alone = block.model_copy(update={"tasks": rest})

    assert ids(block, exclude=(f"task={task}",)) == (ids(alone) if rest else [])


@FEW
@given(
    st.text(max_size=40) | st.lists(st.sampled_from([*EXCLUDE_KEYS, "=", ",", " "])).map("".join)
)
def test_any_exclusion_that_is_none_is_named(text: str) -> None:
    block = BlockConfig(
        agents=("noop",),
        drivers=("none",),
        modes=("free",),
        tasks=("gsm8k_mini",),
        models=("tiny",),
        seeds=(0,),
    )
    with pytest.raises(ConfigError, match=r"sweep\.exclude"):
        expand(experiment(block, exclude=(text,)))
