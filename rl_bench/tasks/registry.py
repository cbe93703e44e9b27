"""Which class implements which ``kind`` of task: this project's own, and those of plug-ins.

Classes are named, not imported: a plan and a workspace must not pay for another task's imports.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from rl_bench.config import TaskConfig
from rl_bench.plugins import TASKS, load_named
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
        ConfigError: The kind is unknown, or the plug-in that has it is broken.
    """
    make = load_named(TASKS, config.kind, KINDS, what=f"task {config.name}: kind")
    return cast(Task, make(config, cache=cache))
