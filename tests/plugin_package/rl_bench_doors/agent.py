"""The agent: plays one train episode, tells how it went, and submits the base model as it is."""

import json
import os
import sys

import gymnasium
import httpx


def main() -> int:
    """Plays and submits; what it prints is kept as the run's ``logs/agent.stdout``."""
    settings = json.loads(os.environ["AGENT_SETTINGS"])
    env = gymnasium.make("doors/Doors-v0")
    env.reset(options={"episode": settings["episode"]})
    doors = range(1, settings["num_doors"] + 1)
    rewards = [env.step(f"open door {door}")[1] for door in doors]
    sys.stdout.write(f"rewards {rewards}\n")
    answer = httpx.post(
        f"{os.environ['GRADING_SERVER_URL']}/submit",
        json={"model_path": os.environ["MODEL_PATH"]},
        timeout=60.0,
    )
    sys.stdout.write(answer.text + "\n")
    return int(answer.is_error)


if __name__ == "__main__":
    sys.exit(main())
