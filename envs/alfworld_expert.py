"""Experts that play ALFWorld, and the trajectories they leave for supervised fine-tuning.

Two of them. `walkthrough_policy` replays the game file's own solution: short, but it knows where
things are without having looked. `Explorer` plays from observations only, as a model must: it
visits places in a fixed order until it sees the wanted object. Imitating it needs no clairvoyance.
Both speak the dialect of the game at hand, since every command is taken from the admissible ones.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from envs.alfworld import ALFWorldEnv
from envs.alfworld_games import load_game
from envs.errors import EnvironmentBroken
from envs.protocol import Turn

ExpertKind = Literal["explorer", "walkthrough"]
Policy = Callable[[str, Sequence[str]], str]
"""Observation and available actions to the next action."""


def expert_trajectory(
    env: ALFWorldEnv, game: Path, *, expert: ExpertKind = "explorer"
) -> list[Turn]:
    """Plays ``game`` in ``env`` with an expert.

    Returns:
        The turns of a won episode, first observation first.

    Raises:
        EnvironmentBroken: The expert did not win within the environment's ``max_steps``.
    """
    observation, info = env.reset(options={"game": str(game)})
    policy = walkthrough_policy(game) if expert == "walkthrough" else Explorer(info["goal"])
    turns: list[Turn] = []
    while not info["won"]:
        action = policy(observation, info["available_actions"])
        turns.append(Turn(observation, action))
        observation, _, _, truncated, info = env.step(action)
        if truncated:
            raise EnvironmentBroken(f"expert {expert} did not win {game} in {len(turns)} steps")
    return turns


def walkthrough_policy(game: Path) -> Policy:
    """The solution written in the game file.

    Raises:
        EnvironmentBroken: The file has none; or, when played, it ends before the goal is reached.
    """
    commands = iter(load_game(game)["walkthrough"])

    def act(observation: str, admissible: Sequence[str]) -> str:
        command = next(commands, None)
        if command is None:
            raise EnvironmentBroken(f"the walkthrough of {game} is missing or ends too early")
        return command

    return act


_PLACE_GOAL = re.compile(
    r"(?:put|find|clean|heat|cool)(?: an?| some| two)?(?: (?P<state>clean|hot|cool))?"
    r" (?P<thing>\w+)(?: and put (?:it|them))? (?:in|on) (?P<place>\w+)\.?$"
)
_LOOK_GOAL = re.compile(
    r"(?:look at|examine)(?: the| an?)? (?P<thing>\w+) (?:under|with) the (?P<lamp>\w+)\.?$"
)
_TREATMENTS = {
    "clean": ("clean", "sink"),
    "hot": ("heat", "microwave"),
    "heat": ("heat", "microwave"),
    "cool": ("cool", "fridge"),
}
"""A word of the goal to the verb it asks for and the beginning of the appliance's name."""
_SEEN = re.compile(r"\ba (\w+ \d+)")


class Explorer:
    """Plays from what it sees: search, take, treat, deliver.

    Places are searched in the order in which the room lists them; what was seen on the way is
    remembered. Two objects go to the same place, as the goal demands.

    Args:
        goal: The task in the engine's own words.

    Raises:
        ValueError: The goal is worded freely.
    """

    def __init__(self, goal: str) -> None:
        place, look = _PLACE_GOAL.match(goal), _LOOK_GOAL.match(goal)
        found = place or look
        if found is None:
            raise ValueError(f"the expert does not understand the goal {goal!r}")
        self._thing = found["thing"]
        self._lamp = look["lamp"] if look else ""
        self._target_kind = place["place"] if place else ""
        state = (place["state"] if place else None) or goal.split()[0]
        self._verb, self._appliance = _TREATMENTS.get(state, ("", ""))
        self._unvisited: list[str] | None = None
        self._seen_at: dict[str, str] = {}
        self._delivered: set[str] = set()
        self._at = self._held = self._target = ""
        self._treated = False

    def __call__(self, observation: str, admissible: Sequence[str]) -> str:
        """The next command, one of ``admissible``."""
        self._look_around(observation)
        command = self._deliver(admissible) if self._held else self._search(admissible)
        if command.startswith("go to "):
            self._at = command.removeprefix("go to ")
            if self._unvisited and self._at in self._unvisited:
                self._unvisited.remove(self._at)
        return command

    def _look_around(self, observation: str) -> None:
        names = _SEEN.findall(observation.split("\n\n")[0].partition("you see")[2])
        if self._unvisited is None:
            self._unvisited = names
        else:
            self._seen_at.update(dict.fromkeys(names, self._at))

    def _search(self, admissible: Sequence[str]) -> str:
        for command in admissible:
            taken = re.fullmatch(rf"take ({self._thing} \d+) from (.+)", command)
            if taken and taken[1] not in self._delivered and self._may_take_from(taken[2]):
                self._held, self._treated = taken[1], not self._verb
                return command
        return self._find(self._thing, admissible)

    def _may_take_from(self, place: str) -> bool:
        """What lies at the goal already and needs no treatment stays there."""
        return bool(self._verb or self._lamp) or place != self._target_name()

    def _target_name(self) -> str:
        return self._target or f"{self._target_kind} 1"

    def _find(self, kind: str, admissible: Sequence[str]) -> str:
        """Opens what is closed here, else goes where such a thing was seen, else to a new place."""
        if f"open {self._at}" in admissible:
            return f"open {self._at}"
        for name, place in self._seen_at.items():
            wanted = name.rpartition(" ")[0] == kind and name not in self._delivered
            if wanted and place != self._at and self._may_take_from(place):
                return f"go to {place}"
        for place in self._unvisited or ():
            if f"go to {place}" in admissible:
                return f"go to {place}"
        return "look"

    def _deliver(self, admissible: Sequence[str]) -> str:
        if not self._treated:
            return self._treat(admissible)
        if self._lamp:
            use = next((c for c in admissible if c.startswith(f"use {self._lamp} ")), None)
            return use or self._find(self._lamp, admissible)
        self._target = self._target_name()
        moves = (f"move {self._held} to {self._target}", f"put {self._held} in/on {self._target}")
        move = next((c for c in admissible if c in moves), None)
        if move is not None:
            self._delivered.add(self._held)
            self._held = ""
            return move
        if self._at == self._target and f"open {self._at}" in admissible:
            return f"open {self._at}"
        return f"go to {self._target}"

    def _treat(self, admissible: Sequence[str]) -> str:
        treat = next((c for c in admissible if c.startswith(f"{self._verb} {self._held} ")), None)
        if treat is not None:
            self._treated = True
            return treat
        return next((c for c in admissible if c.startswith(f"go to {self._appliance}")), "look")
