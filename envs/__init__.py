"""Environments of the interactive tasks, as Gymnasium environments over text.

Importing this package registers them by name and imports none of them: no engine, torch or Ray is
loaded until `gymnasium.make` is called.
"""

import gymnasium

_ENTRY_POINTS = {
    "rl_bench/ALFWorld-v0": "envs.alfworld:ALFWorldEnv",
    "rl_bench/DeepSearchQA-v0": "envs.deepsearchqa:DeepSearchQAEnv",
    "rl_bench/WebShop-v0": "envs.webshop:WebShopEnv",
}

for _env_id, _entry_point in _ENTRY_POINTS.items():
    if _env_id not in gymnasium.registry:
        gymnasium.register(id=_env_id, entry_point=_entry_point, disable_env_checker=True)
