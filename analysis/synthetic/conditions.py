"""Who takes part in the synthetic sweep, and the effects that are planted in its scores.

A run's expected gain in points is the product of its task's headroom, its driver's and scaffold's
effects, and its mode's share. Names are those of `conf/`, so that tables of a synthetic sweep read
like those of a real one; the numbers are invented.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from rl_bench.config import (
    AgentConfig,
    Api,
    BudgetConfig,
    DataSource,
    DriverConfig,
    ModeConfig,
    ModelConfig,
    RunSpec,
    SandboxConfig,
    TaskConfig,
)

Mode = Literal["free", "sft_only", "rl_only", "multi"]
BUDGET_S = 43_200.0
MULTI_SHARE = 0.8
"""Of a task's gain is what a run on all tasks gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A driver: ``effect``, 0 to 1, multiplies a task's headroom; prices are USD a million."""

    api: Api
    model_id: str
    effect: float
    usd_input: float
    usd_output: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedTask:
    """A task's planted figures, in points.

    Attributes:
        headroom: The gain of a perfect stack in free mode.
        run_sd: Spread of gains between seeds of one cell.
        noise_sd: Of evaluations of one checkpoint; above 0 the base model is graded three times.
        num_items: Of the real task; the option ``items`` may cut it.
        sft_share, rl_share: What the modes reach of the gain in free mode.
    """

    level: Literal["L1", "L2", "L3"]
    baseline: float
    headroom: float
    run_sd: float
    noise_sd: float
    num_items: int
    sft_share: float
    rl_share: float


class Stack(NamedTuple):
    """An agent and its driver."""

    agent: str
    driver: str


SCAFFOLDS: dict[str, tuple[float, tuple[Api, ...]]] = {
    "claude_code": (1.0, (Api.ANTHROPIC,)),
    "codex": (0.95, (Api.OPENAI,)),
    "opencode": (0.85, (Api.OPENAI, Api.ANTHROPIC)),
    "openhands": (0.75, (Api.OPENAI, Api.ANTHROPIC)),
    "gemini_cli": (0.8, (Api.GOOGLE,)),
}
"""The planted effect of each scaffold, a factor, and the APIs that it speaks."""
DRIVERS = {
    "opus_4_6": Driver(
        api=Api.ANTHROPIC, model_id="claude-opus-4-6", effect=0.92, usd_input=5, usd_output=25
    ),
    "sonnet_4_5": Driver(
        api=Api.ANTHROPIC, model_id="claude-sonnet-4-5", effect=0.35, usd_input=3, usd_output=15
    ),
    "gpt_5_4": Driver(
        api=Api.OPENAI, model_id="gpt-5.4", effect=0.72, usd_input=2.5, usd_output=15
    ),
    "gpt_5_2": Driver(
        api=Api.OPENAI, model_id="gpt-5.2", effect=0.5, usd_input=1.75, usd_output=14
    ),
    "gpt_4o": Driver(api=Api.OPENAI, model_id="gpt-4o", effect=0.12, usd_input=2.5, usd_output=10),
    "gemini_2_5_flash": Driver(
        api=Api.GOOGLE, model_id="gemini-2.5-flash", effect=0.05, usd_input=0.3, usd_output=2.5
    ),
}
STACKS = (
    Stack("claude_code", "opus_4_6"),
    Stack("codex", "gpt_5_4"),
    Stack("claude_code", "sonnet_4_5"),
    Stack("codex", "gpt_4o"),
    Stack("opencode", "gpt_5_4"),
    Stack("openhands", "gpt_5_4"),
    Stack("codex", "gpt_5_2"),
    Stack("gemini_cli", "gemini_2_5_flash"),
)
TASKS = {
    "gsm8k": PlantedTask(
        level="L1",
        baseline=70.0,
        headroom=14.0,
        run_sd=1.0,
        noise_sd=0.0,
        num_items=1319,
        sft_share=0.95,
        rl_share=0.7,
    ),
    "alfworld": PlantedTask(
        level="L3",
        baseline=5.0,
        headroom=90.0,
        run_sd=5.0,
        noise_sd=0.0,
        num_items=134,
        sft_share=0.7,
        rl_share=0.96,
    ),
    "humaneval": PlantedTask(
        level="L1",
        baseline=60.0,
        headroom=16.0,
        run_sd=1.5,
        noise_sd=0.0,
        num_items=82,
        sft_share=0.9,
        rl_share=0.8,
    ),
    "alpacaeval": PlantedTask(
        level="L2",
        baseline=20.0,
        headroom=14.0,
        run_sd=1.0,
        noise_sd=0.6,
        num_items=805,
        sft_share=0.6,
        rl_share=0.9,
    ),
    "webshop": PlantedTask(
        level="L3",
        baseline=40.0,
        headroom=40.0,
        run_sd=3.0,
        noise_sd=0.0,
        num_items=100,
        sft_share=0.8,
        rl_share=0.9,
    ),
    "deepsearchqa": PlantedTask(
        level="L3",
        baseline=10.0,
        headroom=12.0,
        run_sd=1.5,
        noise_sd=1.5,
        num_items=200,
        sft_share=0.7,
        rl_share=0.8,
    ),
}
MODEL = "qwen2_5_7b_instruct"
_RULES: dict[Mode, str] = {
    "free": "You choose the post-training method.",
    "sft_only": "Use supervised fine-tuning only.",
    "rl_only": "Use reinforcement learning; a short supervised warm-up is allowed.",
    "multi": "Improve one model on all tasks at once.",
}


def skill(stack: Stack) -> float:
    """What a stack reaches of a task's headroom, 0 to 1."""
    return DRIVERS[stack.driver].effect * SCAFFOLDS[stack.agent][0]


def mean_gain(stack: Stack, task: str, mode: Mode) -> float:
    """The planted mean improvement of a cell, in points."""
    planted = TASKS[task]
    shares = {
        "free": 1.0,
        "multi": MULTI_SHARE,
        "sft_only": planted.sft_share,
        "rl_only": planted.rl_share,
    }
    return planted.headroom * skill(stack) * shares[mode]


class Cell(NamedTuple):
    """One condition of the sweep; ``tasks`` are several only in mode ``multi``."""

    stack: Stack
    tasks: tuple[str, ...]
    mode: Mode


def cells(num_runs: int) -> list[Cell]:
    """The conditions of one seed: all of them, or fewer where there are few runs."""
    small = num_runs < 120
    stacks, tasks = (STACKS[:4], tuple(TASKS)[:2]) if small else (STACKS, tuple(TASKS))
    modes: tuple[Mode, ...] = ("sft_only", "rl_only")
    return [
        *(Cell(stack, (task,), "free") for task in tasks for stack in stacks),
        *(Cell(STACKS[0], (task,), mode) for task in tasks for mode in modes),
        *(Cell(stack, tasks, "multi") for stack in (STACKS[:1] if small else STACKS[:2])),
    ]


def plan(num_runs: int, *, items: int) -> list[RunSpec]:
    """The runs, seed by seed.

    Args:
        num_runs: How many.
        items: The most that an evaluation has.
    """
    one_seed = cells(num_runs)
    return [
        _spec(one_seed[number % len(one_seed)], seed=number // len(one_seed), items=items)
        for number in range(num_runs)
    ]


def stack_of(spec: RunSpec) -> Stack:
    """The run's agent and driver."""
    return Stack(spec.agent.name, spec.driver.name)


def _spec(cell: Cell, *, seed: int, items: int) -> RunSpec:
    driver = DRIVERS[cell.stack.driver]
    return RunSpec(
        agent=AgentConfig(
            name=cell.stack.agent,
            argv=(cell.stack.agent, "{prompt}"),
            apis=SCAFFOLDS[cell.stack.agent][1],
            version="synthetic",
        ),
        driver=DriverConfig(
            name=cell.stack.driver,
            api=driver.api,
            model_id=driver.model_id,
            base_url="http://127.0.0.1:9",
            usd_per_million_input=driver.usd_input,
            usd_per_million_cached_input=driver.usd_input / 10,
            usd_per_million_output=driver.usd_output,
        ),
        mode=ModeConfig(name=cell.mode, rules=_RULES[cell.mode]),
        tasks=tuple(_task(name, items) for name in cell.tasks),
        model=ModelConfig(name=MODEL, kind="local_or_hub", hub_id="synthetic", dtype="bfloat16"),
        budget=BudgetConfig(name="12h", wall_clock_s=BUDGET_S),
        sandbox=SandboxConfig(name="bwrap"),
        seed=seed,
    )


def _task(name: str, items: int) -> TaskConfig:
    planted = TASKS[name]
    return TaskConfig(
        name=name,
        kind=name,
        level=planted.level,
        source=DataSource.BUILTIN,
        protocol="synthetic",
        num_eval=min(planted.num_items, items),
        max_tokens=256,
        num_repeats=3 if planted.noise_sd else 1,
    )
