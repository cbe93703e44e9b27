"""Which class implements which ``kind`` of task.

Classes are named, not imported: a plan and a workspace must not pay for another task's imports.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import cast

from rl_bench.config import TaskConfig
from rl_bench.errors import ConfigError
from rl_bench.tasks.base import Task

KINDS: Mapping[str, str] = {
    "alfworld": "rl_bench.tasks.alfworld.task:AlfworldTask",
    "alpacaeval": "rl_bench.tasks.alpacaeval.task:AlpacaEvalTask",
    "deepsearchqa": "rl_bench.tasks.deepsearchqa.task:DeepSearchQATask",
    "gsm8k": "rl_bench.tasks.gsm8k.task:GSM8KTask",
    "humaneval": "rl_bench.tasks.humaneval.task:HumanEvalTask",
    "webshop": "rl_bench.tasks.webshop.task:WebShopTask",
}
"""Kind to ``module:class``; the class is called with its config and ``cache=``."""


def make_task(config: TaskConfig, *, cache: Path) -> Task:
    """Makes the task that a config describes; ``cache`` is where it may keep what it builds.

    Raises:
        ConfigError: The kind is unknown.
    """
    if config.kind not in KINDS:
        raise ConfigError(
            f"task {config.name}: kind '{config.kind}' does not exist",
            cure=f"Choices: {', '.join(KINDS)}",
        )
    module, _, name = KINDS[config.kind].partition(":")
    make = cast(Callable[..., Task], getattr(import_module(module), name))
    return make(config, cache=cache)
