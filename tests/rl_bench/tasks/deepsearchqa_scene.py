"""DeepSearchQA's task, policies that search and answer, and a judge that knows the reference."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rl_bench.config import DataSource, JudgeConfig, Setting, TaskConfig
from rl_bench.engine.base import Completion, GenerationRequest, Sampling
from rl_bench.judges.base import Judge
from rl_bench.judges.pool import JudgePool
from rl_bench.tasks.base import EvalResult
from rl_bench.tasks.deepsearchqa.task import DeepSearchQATask
from tests.rl_bench.judges.stand_in import Answer, Asked, StandInJudge
from tests.rl_bench.tasks.scene import PlayingContext, said

Act = Callable[[str, int], str]
"""Question and number of the step to completion."""


class SearchPolicy:
    """Completes prompts of the search protocol."""

    def __init__(self, act: Act) -> None:
        self._act = act

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        texts = [_stopped(self.complete(r.text or ""), r.sampling.stop) for r in requests]
        return [said(text) for text in texts]

    def complete(self, prompt: str) -> str:
        """Any text; what comes after a stop string is cut off."""
        asked = re.search(r"^Question: (.*)$", prompt, re.MULTILINE)
        assert asked is not None
        return self._act(asked[1], prompt.count("\nObservation:"))


def _stopped(text: str, stop: Sequence[str]) -> str:
    return text[: min((at for each in stop if (at := text.find(each)) >= 0), default=len(text))]


class Player(PlayingContext):
    """Plays by ``act``, and judges with ``pool``."""

    def __init__(self, act: Act, pool: Judge | None = None, *, repeat: int = 0) -> None:
        sampling = Sampling(max_tokens=8, temperature=0.0)
        super().__init__(SearchPolicy(act), pool, sampling=sampling, max_steps=6, repeat=repeat)


def make_task(
    cache: Path,
    *,
    protocol: str = "search_react",
    judge: JudgeConfig | None = None,
    data_path: Path | None = None,
    num_train: int | None = 10,
    num_eval: int | None = 12,
    settings: Mapping[str, Setting] | None = None,
    max_error_fraction: float = 0.05,
) -> DeepSearchQATask:
    config = TaskConfig(
        name="dsqa",
        kind="deepsearchqa",
        level="L3",
        source=DataSource.BUILTIN if data_path is None else DataSource.PATH,
        data_path=data_path,
        protocol=protocol,
        num_train=num_train,
        num_eval=num_eval,
        max_tokens=128,
        max_steps=6,
        judge=judge,
        settings={"search": "bm25", "num_towns": 8, **(settings or {})},
        max_error_fraction=max_error_fraction,
    )
    return DeepSearchQATask(config, cache=cache)


def expert(task: DeepSearchQATask) -> Act:
    """Searches as the rows say, then answers."""
    rows = {row.problem: row for row in task.eval_rows}

    def act(question: str, step: int) -> str:
        row = rows[question]
        if step < len(row.searches):
            return f" I look.\nAction: search[{row.searches[step]}]\nObservation: invented"
        return f" I know.\nAction: answer[{row.answer}]"

    return act


def judge_by_reference(asked: Asked) -> Answer:
    """Right when the response is the reference, in the form that was asked for."""
    text = asked.text
    reference = text.split("Reference answer:\n")[1].split("\n\n<response")[0]
    [response] = re.findall(r"<response \w+>\n(.*)\n</response", text, re.DOTALL)
    if "Reply with one word" in text:
        return Answer(text="Correct." if response == reference else "incorrect")
    details = {item: item in response for item in reference.split(", ")}
    extra = [] if response in (reference, reference.split(", ")[0]) else ["Atlantis"]
    rated = {"Explanation": "", "Correctness Details": details, "Excessive Answers": extra}
    return Answer(text=json.dumps({"Answer Correctness": rated}))


async def evaluate(
    task: DeepSearchQATask,
    act: Act,
    *,
    judge: StandInJudge,
    tmp_path: Path,
    repeat: int = 0,
    **fields: object,
) -> EvalResult:
    config = judge.config(timeout_s=5.0, **{"num_retries": 1, **fields})
    pool = JudgePool.from_config(
        config, cache=tmp_path / "judge", log_folder=tmp_path, first_wait_s=0.01
    )
    try:
        return await task.evaluate(Player(act, pool, repeat=repeat))
    finally:
        await pool.close()
