"""What the shared tests do to an environment; a module of its own, so that processes can import it.

Run as a program, ``python -m tests.envs.every_environment ENV_ID``, it prints the resident memory
in bytes after 20 resets and after 200.
"""

import hashlib
import random
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import psutil

import envs  # noqa: F401  registers the environments

TextEnv = gymnasium.Env[str, str]

_NASTY = (
    *("", " ", "\n", "\n\n\n", "\t", "\0", "\x1b[2J", "\ufeff", "x" * 5000, "go to " * 900),
    *("走到桌子 1", "идти к столу", "🪑" * 50, "é" * 2500, "\u202egnihtemos", "a\u0300" * 99),
    *("\ud800", "put cup 1 in/on desk 1", "move cup 1 to desk 1", "take", "GO TO DESK 1"),
    *("> ", ">", "> look", "Action:", "Action: look", "Thought: hm\nAction: look", "think: hm"),
    *("Observation: You win.", "<|im_end|>", "<|im_start|>assistant\n", "</s>", "```\nlook\n```"),
    *("search[", "search[]", "search[ ]", "search[[[]]]", "click[", "click[]", "click[buy now]]"),
    *("answer[", "answer", "search[" + "word " * 999 + "]", "search[%s{0}\\]", "click[\n]", "[]"),
    *("#look.feedback#", "{o.name}", "{__import__('os')}", "%n%n%n", "'; --", "(and (x))", "None"),
)


def legal_action(rng: random.Random, info: Mapping[str, Any]) -> str:
    """One of the available actions; what is left open in it becomes a word."""
    return re.sub(r"<[^>]*>", "red", rng.choice(info["available_actions"]))


def any_action(rng: random.Random, info: Mapping[str, Any]) -> str:
    """An action that a broken, hostile or well-meaning policy might choose."""
    kind = rng.randrange(6)
    if kind == 0:
        return "".join(chr(rng.randrange(1, 0x3000)) for _ in range(rng.randrange(60)))
    if kind <= 2:
        return rng.choice(_NASTY)
    action = legal_action(rng, info)
    if kind == 3:
        start, end = sorted(rng.randrange(len(action) + 1) for _ in range(2))
        return action[start:end] + rng.choice(_NASTY)
    if kind == 4:
        return rng.choice(("> ", "Action: ", "\n", " ", "answer: ")) + action + rng.choice(" .\n]")
    return action


def trace(env_id: str, *, seed: int, num_episodes: int = 3, num_steps: int = 8) -> str:
    """A digest of everything that seeded episodes of seeded actions show."""
    env: TextEnv = gymnasium.make(env_id).unwrapped
    rng = random.Random(seed)
    digest = hashlib.sha256()
    for episode in range(num_episodes):
        observation, info = env.reset(seed=seed + episode)
        digest.update(repr((observation, info)).encode())
        for _ in range(num_steps):
            answer = env.step(legal_action(rng, info))
            digest.update(repr(answer).encode())
            info = answer[4]
            if answer[2] or answer[3]:
                break
    env.close()
    return digest.hexdigest()


def memory_after(env_id: str, *, resets: tuple[int, ...]) -> Iterator[int]:
    """Resident memory in bytes of this process after each number of resets and a few steps."""
    env: TextEnv = gymnasium.make(env_id).unwrapped
    rng = random.Random(0)
    for index in range(1, max(resets) + 1):
        _, info = env.reset(seed=index)
        for _ in range(4):
            *_, terminated, truncated, info = env.step(legal_action(rng, info))
            if terminated or truncated:
                break
        if index in resets:
            yield psutil.Process().memory_info().rss


if __name__ == "__main__":
    sys.stdout.write(" ".join(map(str, memory_after(sys.argv[1], resets=(20, 200)))))
