"""Environments of the interactive tasks, as Gymnasium environments over text.

Importing this package makes Gymnasium know them by name, those of plug-ins too, and imports none of
them: no engine, torch or Ray is loaded until `gymnasium.make` is called. Gymnasium itself is not
imported either, since what only plans needs none of it: the names are registered as soon as both
this package and Gymnasium are imported, in whichever order.
"""

from collections.abc import Callable
from typing import Any

from envs.after_import import after_import
from envs.plugins import environment_makers

_ENTRY_POINTS = {
    "rl_bench/ALFWorld-v0": "envs.alfworld:ALFWorldEnv",
    "rl_bench/DeepSearchQA-v0": "envs.deepsearchqa:DeepSearchQAEnv",
    "rl_bench/WebShop-v0": "envs.webshop:WebShopEnv",
}


def _register() -> None:
    import gymnasium

    makers: dict[str, Callable[..., Any] | str] = {
        **_ENTRY_POINTS,
        **environment_makers(_ENTRY_POINTS),
    }
    for env_id, entry_point in makers.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(id=env_id, entry_point=entry_point, disable_env_checker=True)


after_import("gymnasium", _register)
