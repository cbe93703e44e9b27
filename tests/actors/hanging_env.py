"""An environment that never answers some of its episodes; for the watchdog's test."""

import re
import time
from typing import Any

import gymnasium
from gymnasium import spaces


class HangingEnv(gymnasium.Env[str, str]):
    """Won by any first action, except in an episode with an option that lets it hang.

    ``hang`` does so in pure Python, ``stuck`` within one call that keeps the interpreter to itself.
    """

    num_made = 0

    def __init__(self) -> None:
        HangingEnv.num_made += 1
        self.observation_space = spaces.Text(100)
        self.action_space = spaces.Text(100)
        self._hang = self._stuck = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        self._hang = bool((options or {}).get("hang"))
        self._stuck = bool((options or {}).get("stuck"))
        return "start", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        while self._hang:
            time.sleep(0)
        if self._stuck:
            re.match("(a+)+$", "a" * 60 + "b")
        return "done", 1.0, True, False, {}


gymnasium.register("Hanging-v0", f"{__name__}:HangingEnv")
