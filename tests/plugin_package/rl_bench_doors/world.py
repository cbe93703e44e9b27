"""The environment: a prize lies behind one of three doors. All that an agent sees of the task."""

import json
import re
from typing import Any

import gymnasium

from envs.agent_data import find_agent_data
from envs.errors import EnvironmentBroken
from envs.text_space import AnyText

NUM_DOORS = 3
TRAIN_FILE = "train.jsonl"
_NUMBER = re.compile(r"\d+")


class DoorsEnv(gymnasium.Env[str, str]):
    """Opens the door whose number an action names; the right one ends the episode with reward 1.

    Args:
        max_steps: Doors that may be opened in an episode.
    """

    def __init__(self, *, max_steps: int = NUM_DOORS) -> None:
        self.max_steps = max_steps
        self.observation_space = AnyText(200)
        self.action_space = AnyText(200)
        self._prize, self._num_steps = 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Shows the doors; the seed, ``options["episode"]`` or ``options["prize"]`` chooses.

        Raises:
            EnvironmentBroken: A train episode is asked for, and there is none.
        """
        super().reset(seed=seed)
        chosen = options or {}
        self._num_steps = 0
        self._prize = int(chosen["prize"]) if "prize" in chosen else self._train_prize(chosen)
        return f"A prize lies behind one of {NUM_DOORS} doors.", self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Opens a door; an action without a number opens none."""
        self._num_steps += 1
        number = _NUMBER.search(action)
        won = number is not None and int(number[0]) == self._prize
        told = "The prize!" if won else "Nothing."
        is_late = self._num_steps >= self.max_steps
        return told, float(won), won, is_late and not won, self._info()

    def _train_prize(self, chosen: dict[str, Any]) -> int:
        path = find_agent_data(TRAIN_FILE)
        if path is None:
            raise EnvironmentBroken(f"no {TRAIN_FILE} below DATA_PATH")
        rows = path.read_text(encoding="utf-8").splitlines()
        index = int(chosen.get("episode", self.np_random.integers(len(rows))))
        return int(json.loads(rows[index])["prize"])

    def _info(self) -> dict[str, Any]:
        return {"available_actions": [f"open door {n}" for n in range(1, NUM_DOORS + 1)]}
