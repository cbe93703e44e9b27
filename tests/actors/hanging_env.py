"""An environment that never answers its episode named "hang"; for the watchdog's test."""

import time
from typing import Any

import gymnasium
from gymnasium import spaces


class HangingEnv(gymnasium.Env[str, str]):
    """Won by any first action, except in the episode that hangs in pure Python."""

    num_made = 0

    def __init__(self) -> None:
        HangingEnv.num_made += 1
        self.observation_space = spaces.Text(100)
        self.action_space = spaces.Text(100)
        self._hang = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        self._hang = bool((options or {}).get("hang"))
        return "start", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        while self._hang:
            time.sleep(0)
        return "done", 1.0, True, False, {}


gymnasium.register("Hanging-v0", f"{__name__}:HangingEnv")
