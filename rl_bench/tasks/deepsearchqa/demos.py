"""Demonstrations: how somebody who knows the way answers a generated question.

Only generated questions come with their searches; public ones have no demonstrations.
"""

from collections.abc import Mapping
from pathlib import Path

from envs.deepsearchqa import DeepSearchQAEnv
from rl_bench.tasks.deepsearchqa.data import Row


class Demonstrator:
    """Answers questions with the searches that their rows name.

    Args:
        corpus: What is searched.
        num_results: Results for a search.
        max_result_chars: Characters of an observation.
    """

    def __init__(self, corpus: Path, *, num_results: int, max_result_chars: int) -> None:
        self._env = DeepSearchQAEnv(
            search="bm25",
            corpus=str(corpus),
            num_results=num_results,
            max_result_chars=max_result_chars,
            max_steps=100,
        )

    def turns(self, row: Row) -> list[Mapping[str, str]]:
        """``observation`` and ``action`` of each step, up to the answer."""
        observation, _ = self._env.reset(options={"question": row.problem})
        turns = []
        for query in row.searches:
            action = f"I look up {query}.\nAction: search[{query}]"
            turns.append({"observation": observation, "action": action})
            observation = self._env.step(action)[0]
        answer = f"That is enough.\nAction: answer[{row.answer}]"
        return [*turns, {"observation": observation, "action": answer}]
