"""Turn-taking over the real ALFWorld engine: experts win, the history is cut, errors are kept."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from envs.alfworld import ALFWorldEnv
from envs.alfworld_expert import expert_trajectory
from envs.alfworld_games import generate_games
from envs.protocol import NO_INFO, Prompt, PromptProtocol, Turn
from envs.protocol_chat import ChatProtocol
from envs.protocol_react import KINDS
from envs.protocols import get_protocol
from rl_bench.engine.base import Completion, FinishReason, GenerationRequest, Sampling
from rl_bench.rollout import RolloutSpec, play_episode
from rl_bench.tasks.base import Episode, ItemOutcome, ItemStatus

CHAT = get_protocol("chat")


class ScriptedPolicy:
    """Says what it is told, in order; refuses prompts of more than ``max_messages``."""

    def __init__(self, actions: Sequence[str], *, max_messages: int = 1000) -> None:
        self.actions = list(actions)
        self.max_messages = max_messages
        self.requests: list[GenerationRequest] = []
        self.num_refused = 0

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        [request] = requests
        assert request.messages is not None
        if len(request.messages) > self.max_messages:
            self.num_refused += 1
            return [self._completion("", FinishReason.PROMPT_TOO_LONG)]
        self.requests.append(request)
        return [self._completion(self.actions.pop(0), FinishReason.STOP)]

    def _completion(self, text: str, reason: FinishReason) -> Completion:
        return Completion(
            text=text, num_prompt_tokens=9, num_tokens=len(text.split()), finish_reason=reason
        )


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("games")
    return generate_games(folder, split="train", num_games=1, seed=3)[0]


@pytest.fixture
def env() -> ALFWorldEnv:
    return ALFWorldEnv()


async def play(
    env: ALFWorldEnv,
    game: Path,
    policy: ScriptedPolicy,
    *,
    max_steps: int = 50,
    max_episode_tokens: int | None = None,
) -> ItemOutcome:
    spec = RolloutSpec(
        protocol="chat",
        sampling=Sampling(max_tokens=16),
        max_steps=max_steps,
        max_episode_tokens=max_episode_tokens,
    )
    episode = Episode(
        episode_id="e",
        env_id="rl_bench/ALFWorld-v0",
        env_kwargs={},
        options={"game": str(game)},
    )
    return await play_episode(env, episode, policy=policy, protocol=CHAT, spec=spec)


async def test_the_experts_actions_win(env: ALFWorldEnv, game: Path) -> None:
    actions = [turn.action for turn in expert_trajectory(env, game)]
    outcome = await play(env, game, ScriptedPolicy(actions))
    assert outcome.status is ItemStatus.OK
    assert outcome.score == 1.0
    assert outcome.num_steps == len(actions)
    assert outcome.num_tokens == sum(len(action.split()) for action in actions)
    assert str(outcome.detail["actions"]).split(" | ") == actions


async def test_an_unfinished_episode_scores_zero(env: ALFWorldEnv, game: Path) -> None:
    outcome = await play(env, game, ScriptedPolicy(["look"] * 3), max_steps=3)
    assert (outcome.status, outcome.score, outcome.num_steps) == (ItemStatus.OK, 0.0, 3)


async def test_a_full_context_drops_the_oldest_turns_but_the_task(
    env: ALFWorldEnv, game: Path
) -> None:
    policy = ScriptedPolicy(["look", "inventory"] * 5, max_messages=6)
    outcome = await play(env, game, policy, max_steps=10)
    assert outcome.num_steps == 10
    first = [request.messages[0] for request in policy.requests if request.messages]
    assert all(message == first[0] for message in first), "the task stays in every prompt"
    assert max(len(request.messages or ()) for request in policy.requests) <= 6


class LastTurnOnly(ChatProtocol):
    """Shows one past turn, however many there are."""

    def prompt(
        self, turns: Sequence[Turn], observation: str, info: Mapping[str, Any] = NO_INFO
    ) -> Prompt:
        return super().prompt(turns[-1:], observation, info)


async def test_a_prompt_that_did_not_fit_is_not_asked_again(env: ALFWorldEnv, game: Path) -> None:
    policy = ScriptedPolicy(["look"], max_messages=2)
    spec = RolloutSpec(protocol="chat", sampling=Sampling(max_tokens=16), max_steps=9)
    episode = Episode(episode_id="e", env_id="x", env_kwargs={}, options={"game": str(game)})
    outcome = await play_episode(env, episode, policy=policy, protocol=LastTurnOnly(), spec=spec)
    assert (outcome.num_steps, outcome.detail["ended_by"]) == (1, "context_window")
    assert policy.num_refused == 1


async def test_a_window_too_small_for_the_task_ends_the_episode(
    env: ALFWorldEnv, game: Path
) -> None:
    outcome = await play(env, game, ScriptedPolicy([], max_messages=0))
    assert (outcome.status, outcome.score) == (ItemStatus.OK, 0.0)
    assert outcome.detail["ended_by"] == "context_window"


async def test_a_broken_game_is_an_error_and_no_score(env: ALFWorldEnv, tmp_path: Path) -> None:
    broken = tmp_path / "game.tw-pddl"
    broken.write_text("{")
    outcome = await play(env, broken, ScriptedPolicy([]))
    assert (outcome.status, outcome.score) == (ItemStatus.ENV_ERROR, None)
    assert outcome.detail["error"]


async def test_an_episode_ends_with_its_token_budget(env: ALFWorldEnv, game: Path) -> None:
    outcome = await play(env, game, ScriptedPolicy(["go to nowhere 1"] * 9), max_episode_tokens=10)
    assert (outcome.score, outcome.num_steps, outcome.num_tokens) == (0.0, 3, 12)
    assert outcome.detail["ended_by"] == "token_budget"


async def test_what_ends_a_completion_is_the_protocols(env: ALFWorldEnv, game: Path) -> None:
    policy = ScriptedPolicy(["look"])
    protocol = ChatProtocol(stop=("\n",))
    spec = RolloutSpec(protocol="chat", sampling=Sampling(max_tokens=16), max_steps=1)
    episode = Episode(episode_id="e", env_id="x", env_kwargs={}, options={"game": str(game)})
    await play_episode(env, episode, policy=policy, protocol=protocol, spec=spec)
    assert policy.requests[0].sampling.stop == ("\n",)


class NarrowPolicy:
    """Looks around for ever; refuses prompts longer than ``max_chars``, as a small context does."""

    def __init__(self, max_chars: int) -> None:
        self.max_chars = max_chars
        self.prompts: list[str] = []

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        [request] = requests
        assert request.text is not None
        is_long = len(request.text) > self.max_chars
        if not is_long:
            self.prompts.append(request.text)
        reason = FinishReason.PROMPT_TOO_LONG if is_long else FinishReason.STOP
        return [Completion(text="look", num_prompt_tokens=1, num_tokens=1, finish_reason=reason)]


@pytest.fixture
def react(tmp_path: Path) -> PromptProtocol:
    example = "You see a desk 1.\nYour task is to: put it.\n> put cup 1 in/on desk 1\n" * 9
    texts = {f"react_{kind}_{i}": example for kind in KINDS for i in (0, 1)}
    (tmp_path / "prompts.json").write_text(json.dumps(texts))
    return get_protocol("react", prompts=str(tmp_path / "prompts.json"))


async def play_react(
    env: ALFWorldEnv, game: Path, policy: NarrowPolicy, protocol: PromptProtocol
) -> ItemOutcome:
    return await play_episode(
        env,
        Episode(episode_id="e", env_id="x", env_kwargs={}, options={"game": str(game)}),
        policy=policy,
        protocol=protocol,
        spec=RolloutSpec(protocol="react", sampling=Sampling(max_tokens=9), max_steps=50),
    )


async def test_a_few_shot_prompt_keeps_examples_and_task_when_history_overflows(
    env: ALFWorldEnv, game: Path, react: PromptProtocol
) -> None:
    whole = NarrowPolicy(10**6)
    await play_react(env, game, whole, react)
    beginning = whole.prompts[0]
    narrow = NarrowPolicy(len(beginning) + 600)
    outcome = await play_react(env, game, narrow, react)
    assert (outcome.status, outcome.num_steps) == (ItemStatus.OK, 50)
    assert len(narrow.prompts) == len(whole.prompts) == 50
    assert all(prompt.startswith(beginning) for prompt in narrow.prompts)
    assert all(prompt.endswith("\n>") for prompt in narrow.prompts)
    assert len(narrow.prompts[-1]) < len(whole.prompts[-1])


@pytest.mark.parametrize("room", [0, 1000])
async def test_examples_that_do_not_fit_end_the_episode_and_nothing_else(
    env: ALFWorldEnv, game: Path, react: PromptProtocol, room: int
) -> None:
    policy = NarrowPolicy(room)
    outcome = await play_react(env, game, policy, react)
    assert (outcome.status, outcome.score, outcome.num_steps) == (ItemStatus.OK, 0.0, 0)
    assert outcome.detail["ended_by"] == "context_window"


class CountingPolicy:
    """Has a window of so many words, and tells it, as an engine does."""

    def __init__(self, max_words: int) -> None:
        self.max_words = max_words
        self.num_asked = 0
        self.shown: list[int] = []

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        self.num_asked += 1
        [request] = requests
        messages = request.messages or ()
        num_words = sum(len(message["content"].split()) for message in messages)
        fits = num_words <= self.max_words
        if fits:
            self.shown.append(len(messages))
        return [
            Completion(
                text="look",
                num_prompt_tokens=num_words,
                num_tokens=1,
                finish_reason=FinishReason.STOP if fits else FinishReason.PROMPT_TOO_LONG,
                max_prompt_tokens=0 if fits else self.max_words,
            )
        ]


async def test_prompts_that_cannot_fit_are_not_asked(
    env: ALFWorldEnv, game: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = CountingPolicy(max_words=150)
    with monkeypatch.context() as patch:
        patch.setattr("rl_bench.rollout._Window.MARGIN", 1e9)
        spec = RolloutSpec(protocol="chat", sampling=Sampling(max_tokens=4), max_steps=40)
        episode = Episode(episode_id="e", env_id="x", env_kwargs={}, options={"game": str(game)})
        await play_episode(env, episode, policy=patient, protocol=CHAT, spec=spec)
    quick = CountingPolicy(max_words=150)
    await play_episode(env, episode, policy=quick, protocol=CHAT, spec=spec)
    assert quick.shown == patient.shown, "the same histories are shown"
    assert quick.num_asked < 0.8 * patient.num_asked
