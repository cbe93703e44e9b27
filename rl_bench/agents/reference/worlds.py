"""Which tasks the agent can reinforce on, and the `World` that a task's rollouts take place in.

A reward must come from the train data alone, without a judge and without running what a model
wrote; and a rollout is one conversation that only ever grows.
"""

from collections.abc import Callable, Mapping

from transformers import PreTrainedTokenizerBase

from envs.alfworld_games import GAME_FILE
from envs.protocol import Prompt
from rl_bench.agents.reference.data import load_demos
from rl_bench.agents.reference.demo_episodes import protocol_of
from rl_bench.agents.reference.demos import Step
from rl_bench.agents.reference.rollouts import HouseholdWorld, WordProblemWorld, World
from rl_bench.agents.reference.settings import Job, SettingsError, TaskMeta, TrainSettings
from rl_bench.agents.reference.tokens import encode_prompt

_MODES = frozenset({"sft_only", "rl_only", "free", "multi"})
_WHY_NOT: Mapping[str, str] = {
    "alpacaeval": "only a judge can tell how good an answer is",
    "deepsearchqa": "its prompts are plain text with stop strings, and rollouts here are chats",
    "humaneval": "a reward would mean running a model's code inside the agent",
    "webshop": "its prompts are made anew for every step, and rollouts here are growing chats",
}


def check_mode(job: Job) -> None:
    """Says early whether the job's mode can be done on its tasks.

    Raises:
        SettingsError: The mode is unknown, or is reinforcement learning without a world.
    """
    if job.mode not in _MODES:
        raise SettingsError(f"the reference agent does not know mode '{job.mode}'")
    if job.mode == "rl_only":
        check_world(job.tasks[0])


def check_world(task: TaskMeta) -> None:
    """Says early whether `load_world` will find a world.

    Raises:
        SettingsError: The agent has no rewards for the task; names those that it has.
    """
    if task.kind not in _WORLDS:
        why = _WHY_NOT.get(task.kind, "the kind is unknown to it")
        raise SettingsError(
            f"task {task.name}: the reference agent has no reinforcement learning for kind "
            f"'{task.kind}': {why}. It has for {', '.join(_WORLDS)}; choose mode=sft_only"
        )
    if task.kind == "alfworld" and protocol_of(task).prompt([], "").messages is None:
        raise SettingsError(
            f"task {task.name}: protocol {task.protocol} is plain text, and rollouts here are "
            "chats; choose mode=sft_only"
        )


def load_world(
    task: TaskMeta,
    settings: TrainSettings,
    *,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
) -> World:
    """The world that a task's rollouts take place in; ``max_length``: tokens of the context.

    Raises:
        SettingsError: See `check_world`.
    """
    check_world(task)
    return _WORLDS[task.kind](task, settings, tokenizer, max_length)


def _word_problems(
    task: TaskMeta, settings: TrainSettings, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> World:
    steps = [step for demo in load_demos(task) for step in demo][: settings.grpo_pool or None]
    room = max_length - task.max_tokens
    return WordProblemWorld(
        tokenizer=tokenizer,
        prompts=[_fitting(tokenizer, step, room=room) for step in steps],
        answers=[step.answer for step in steps],
        max_tokens=task.max_tokens,
        temperature=settings.grpo_temperature,
    )


def _fitting(tokenizer: PreTrainedTokenizerBase, step: Step, *, room: int) -> Prompt:
    """The first prompt that leaves room for an answer, else the last."""
    *longer, last = step.prompts()
    return next((p for p in longer if len(encode_prompt(tokenizer, p)) <= room), last)


def _household(
    task: TaskMeta, settings: TrainSettings, tokenizer: PreTrainedTokenizerBase, _max_length: int
) -> World:
    games = sorted(task.data.rglob(GAME_FILE))
    if not games:
        raise SettingsError(f"task {task.name}: no games ({GAME_FILE}) below {task.data}")
    return HouseholdWorld(
        tokenizer=tokenizer,
        games=games[: settings.grpo_pool or None],
        protocol=protocol_of(task),
        max_steps=task.max_steps,
        max_tokens=task.max_tokens,
        temperature=settings.grpo_temperature,
        step_penalty=settings.step_penalty,
    )


_WORLDS: Mapping[str, Callable[[TaskMeta, TrainSettings, PreTrainedTokenizerBase, int], World]] = {
    "alfworld": _household,
    "gsm8k": _word_problems,
}
