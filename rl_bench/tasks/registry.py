"""Which class implements which ``kind`` of task: this project's own, and those of plug-ins.

Classes are named, not imported: a plan and a workspace must not pay for another task's imports.
What a plug-in makes is held against the protocol `Task` at once: no type checker has seen it.
"""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from envs.plugins import find_entry
from rl_bench.config import TaskConfig
from rl_bench.errors import ConfigError, RlBenchError, fault_of
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
_MEMBERS = (*Task.__annotations__, *(name for name in vars(Task) if not name.startswith("_")))
_SHOWN_IN = (
    "docs/extending.md shows a whole task, rl_bench/tasks/base.py says what each member does"
)


def make_task(config: TaskConfig, *, cache: Path) -> Task:
    """Makes the task that a config describes; ``cache`` is where it may keep what it builds.

    Raises:
        ConfigError: The kind is unknown, or the plug-in that has it is broken or makes no `Task`.
    """
    make = load_named(TASKS, config.kind, KINDS, what=f"task {config.name}: kind")
    if config.kind in KINDS:
        return cast(Task, make(config, cache=cache))
    return _made_by_plugin(make, config, cache=cache)


def _made_by_plugin(make: Callable[..., Any], config: TaskConfig, *, cache: Path) -> Task:
    """Refuses what lacks a member of `Task`, or has a method that cannot be called as one."""
    try:
        task = make(config, cache=cache)
        faults = [fault for name in _MEMBERS if (fault := _fault(task, name))]
    except RlBenchError:
        raise
    except Exception as error:  # noqa: BLE001  code of others raises anything as it is made
        faults = [f"making it broke: {fault_of(error)}"]
    if faults:
        raise ConfigError(
            f"task {config.name}: {find_entry(TASKS, config.kind)} makes no task: "
            f"{'; '.join(faults)}",
            cure=f"Its author must mend it: {_SHOWN_IN}",
        )
    return cast(Task, task)


def _fault(task: object, name: str) -> str:
    """What is wrong with a member; empty where nothing is."""
    try:
        return _fault_of_member(task, name)
    except Exception as error:  # noqa: BLE001  code of others raises anything as it is looked up
        return f"{name} cannot be looked up: {fault_of(error)}"


def _fault_of_member(task: object, name: str) -> str:
    # Looked up without a call: a property may have to read data, or serve other names.
    if inspect.getattr_static(task, name, None) is None and not hasattr(task, name):
        return f"it has no {name}"
    wanted = getattr(Task, name, None)
    if not inspect.isfunction(wanted):
        return ""
    method = getattr(task, name)
    arguments = [each for each in inspect.signature(wanted).parameters if each != "self"]
    if not callable(method):
        return f"{name} is no method"
    if inspect.isasyncgenfunction(method) or (
        inspect.iscoroutinefunction(method) and not inspect.iscoroutinefunction(wanted)
    ):
        return f"{name} is asynchronous in another way than the protocol's"
    try:
        inspect.signature(method).bind(*arguments)
    except TypeError:
        return f"{name} cannot be called with ({', '.join(arguments)})"
    except ValueError:  # it tells no signature
        return ""
    return ""
