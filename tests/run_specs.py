"""The conditions of a small run: what a test is not about."""

from rl_bench.config import (
    AgentConfig,
    BudgetConfig,
    DataSource,
    DriverConfig,
    ModeConfig,
    ModelConfig,
    RunSpec,
    SandboxConfig,
    TaskConfig,
)


def make_task_config(name: str, *, num_repeats: int = 1) -> TaskConfig:
    """A task that nobody makes: its name and its numbers are all that is asked of it."""
    return TaskConfig(
        name=name,
        kind="k",
        level="L1",
        source=DataSource.BUILTIN,
        max_tokens=10,
        num_repeats=num_repeats,
    )


def run_spec(
    *tasks: str | TaskConfig,
    mode: str | None = None,
    rules: str = "",
    agent: AgentConfig | None = None,
    driver: DriverConfig | None = None,
    model: str = "tiny",
    budget: BudgetConfig | None = None,
    seed: int = 0,
) -> RunSpec:
    """A run that a test can start or tell of.

    Args:
        tasks: Configs, or names for `make_task_config`; none: ``alfworld``.
        mode: Its name; by default ``multi`` for several tasks, else ``free``.
        rules: The mode's, in words.
        agent: By default one that ends at once.
        driver: By default none.
        model: Its name; it is a tiny one.
        budget: By default ten minutes.
        seed: Of the run.
    """
    configs = [make_task_config(t) if isinstance(t, str) else t for t in tasks or ("alfworld",)]
    name = mode or ("multi" if len(configs) > 1 else "free")
    return RunSpec(
        agent=agent or AgentConfig(name="agent", argv=("true",)),
        driver=driver or DriverConfig(name="none"),
        mode=ModeConfig.model_validate({"name": name, "rules": rules}),
        tasks=tuple(configs),
        model=ModelConfig(name=model, kind="tiny"),
        budget=budget or BudgetConfig(name="test", wall_clock_s=600),
        sandbox=SandboxConfig(name="none"),
        seed=seed,
    )
