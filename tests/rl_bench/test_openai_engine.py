"""The engine over a served model, against an endpoint that fails as real ones do, and once vLLM."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from envs.alfworld import ALFWorldEnv
from envs.alfworld_expert import expert_trajectory
from envs.alfworld_games import generate_games
from envs.protocols import get_protocol
from rl_bench.config import EndpointConfig, GraderConfig, JudgeConfig, ModelConfig
from rl_bench.endpoint.served import ask_served, identity
from rl_bench.engine.base import (
    Completion,
    FinishReason,
    GenerationRequest,
    LoadKind,
    Sampling,
)
from rl_bench.engine.openai_engine import OpenaiEngine
from rl_bench.errors import GraderError, PreflightError
from rl_bench.rollout import RolloutSpec, play_episode
from rl_bench.tasks.base import Episode, ItemStatus
from tests.rl_bench.judges.stand_in import PASSING, Answer, Asked, Fault, StandInJudge

MODEL = "org/served-1"
KEY = "sk-a-key-for-tests-0123456789"


def echo(asked: Asked) -> Answer:
    return Answer(text=f"said {asked.text}", num_prompt_tokens=7, num_tokens=3)


@pytest.fixture
def server() -> Iterator[StandInJudge]:
    with StandInJudge(echo, retry_after_s=0.05) as stand_in:
        stand_in.models = [{"id": "other", "object": "model"}, {"id": MODEL, "object": "model"}]
        yield stand_in


def config_of(server: StandInJudge, **fields: object) -> EndpointConfig:
    defaults = {"base_url": server.base_url, "model_id": MODEL, "timeout_s": 10.0}
    return EndpointConfig.model_validate(defaults | fields)


@asynccontextmanager
async def loaded(
    server: StandInJudge, *, max_concurrency: int = 8, **fields: object
) -> AsyncIterator[OpenaiEngine]:
    config = config_of(server, **fields)
    engine = OpenaiEngine(config, max_concurrency=max_concurrency, first_wait_s=0.01)
    try:
        report = await engine.load(Path(), content_hash=identity(config))
        assert report.kind is LoadKind.RESIDENT
        yield engine
    finally:
        await engine.close()
        await engine.close()


def chat(text: str, **sampling: Any) -> GenerationRequest:
    return GenerationRequest(messages=({"role": "user", "content": text},), sampling=of(sampling))


def raw(text: str, **sampling: Any) -> GenerationRequest:
    return GenerationRequest(text=text, sampling=of(sampling))


def of(sampling: dict[str, Any]) -> Sampling:
    return Sampling(**({"max_tokens": 16} | sampling))


def completion(text: str, finish: FinishReason = FinishReason.STOP) -> Completion:
    return Completion(text=text, num_prompt_tokens=7, num_tokens=3, finish_reason=finish)


async def test_answers_come_in_order_within_the_bound_and_are_told(server: StandInJudge) -> None:
    server.rule = lambda asked: Answer(
        text=f"said {asked.text}", num_prompt_tokens=7, num_tokens=3, delay_s=0.01
    )
    told: dict[int, Completion] = {}
    async with loaded(server, max_concurrency=4) as engine:
        answers = await engine.generate(
            [chat(str(i)) if i % 2 else raw(str(i)) for i in range(40)],
            on_completion=told.__setitem__,
        )
    assert answers == [completion(f"said {i}") for i in range(40)]
    assert told == dict(enumerate(answers))
    assert 1 < server.max_in_flight <= 4


async def test_everything_that_decides_an_answer_is_said(server: StandInJudge) -> None:
    sampling = {"temperature": 0.7, "top_p": 0.9, "stop": ("\n", "END"), "seed": 5}
    async with loaded(server) as engine:
        await engine.generate([chat("a \ud800", **sampling), raw("b")])
    by_kind = {"prompt" in asked.body: asked.body for asked in server.asked}
    assert by_kind[False] == {
        "model": MODEL,
        "messages": [{"role": "user", "content": "a ?"}],
        "max_tokens": 16,
        "temperature": 0.7,
        "top_p": 0.9,
        "stop": ["\n", "END"],
        "seed": 5,
    }
    assert by_kind[True] == {
        "model": MODEL,
        "prompt": "b",
        "max_tokens": 16,
        "temperature": 0.0,
        "top_p": 1.0,
    }


async def test_a_servers_own_defaults_do_not_decide(server: StandInJudge) -> None:
    server.models = [{"id": MODEL, "owned_by": "vllm", "max_model_len": 9}]
    async with loaded(server) as engine:
        await engine.generate([raw("b")])
    body = server.asked[0].body
    assert (body["repetition_penalty"], body["top_k"], body["min_p"]) == (1.0, -1, 0.0)
    assert body["max_tokens"] == 9


@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: fault.name)
async def test_a_passing_fault_costs_an_attempt_and_no_answer(
    server: StandInJudge, fault: Fault
) -> None:
    server.spoil = lambda asked: fault if asked.number < 3 else None
    timeout_s = 1.0 if fault in (Fault.HANG, Fault.TRICKLE) else 20.0
    begin = time.monotonic()
    async with loaded(server, timeout_s=timeout_s, num_retries=3) as engine:
        answers = await engine.generate([chat(str(i)) for i in range(5)])
    assert answers == [completion(f"said {i}") for i in range(5)]
    assert server.num_requests >= 8
    if fault is Fault.RATE_LIMIT:
        assert time.monotonic() - begin >= server.retry_after_s


LASTING = {
    Fault.RATE_LIMIT: "after 2 attempts: 429: too many requests",
    Fault.SERVER_ERROR: "after 2 attempts: 500: an internal error",
    Fault.HANG: "after 2 attempts: no answer within 0.3 s",
    Fault.MALFORMED_JSON: "after 2 attempts: the body is no completion",
    Fault.NO_CHOICES: "after 2 attempts: no choice in the answer",
    Fault.CONTENT_FILTER: "the endpoint withholds an answer (content_filter)",
}


@pytest.mark.parametrize("fault", LASTING, ids=lambda fault: fault.name)
async def test_a_lasting_fault_is_an_error_and_never_an_answer(
    server: StandInJudge, fault: Fault
) -> None:
    server.spoil = lambda asked: fault if asked.text == "2" else None
    timeout_s = 0.3 if fault is Fault.HANG else 20.0
    async with loaded(server, timeout_s=timeout_s, num_retries=1, max_concurrency=1) as engine:
        with pytest.raises(GraderError) as raised:
            await engine.generate([chat(str(i)) for i in range(50)])
        assert f"served model {MODEL} at {server.base_url}: " in raised.value.message
        assert LASTING[fault] in raised.value.message
        assert server.num_requests <= 5  # the rest is given up
        server.spoil = lambda asked: None
        assert await engine.generate([chat("2")]) == [completion("said 2")]


CLOSING = {
    Fault.UNAUTHORIZED: ("401: Incorrect API key provided: ***", "Export a key that"),
    Fault.FORBIDDEN: ("403: your country is not served", "Export a key that"),
    Fault.NO_MODEL: ("404: the model has been withdrawn", "Correct grader.endpoint.base_url"),
    Fault.NO_QUOTA: ("429: you exceeded your quota", ""),
}


@pytest.mark.parametrize("fault", CLOSING, ids=lambda fault: fault.name)
async def test_what_would_answer_nobody_ends_at_once_with_a_cure(
    server: StandInJudge,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: Fault,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SERVED_KEY", KEY)
    server.spoil = lambda asked: fault
    async with loaded(server, key_variable="SERVED_KEY", max_concurrency=2) as engine:
        with pytest.raises(GraderError) as raised:
            await engine.generate([chat(str(i)) for i in range(50)])
    said, cure = CLOSING[fault]
    assert said in raised.value.message
    assert raised.value.cure.startswith(cure)
    assert server.num_requests <= 2
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in str(raised.value) + repr(engine) + caplog.text


async def test_a_dead_server_is_an_error_with_its_address(server: StandInJudge) -> None:
    server.go_down()
    with pytest.raises(GraderError, match="the connection failed") as raised:
        async with loaded(server, num_retries=1):
            pass
    assert f"Look at the server of {server.base_url}" in raised.value.cure


async def test_a_server_that_comes_back_is_waited_for(server: StandInJudge) -> None:
    async with loaded(server, num_retries=8) as engine:
        server.go_down()
        waiting = asyncio.create_task(engine.generate([chat("a")]))
        await asyncio.sleep(0.1)
        server.come_up()
        assert await waiting == [completion("said a")]


async def test_users_proxy_and_key_go_nowhere(
    server: StandInJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with loaded(server) as engine:
        assert await engine.generate([chat("a")]) == [completion("said a")]
    assert server.asked[0].headers["authorization"] == "Bearer none"


@pytest.mark.parametrize(
    ("said", "finish"),
    [
        ("stop", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("EOS", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
    ],
)
async def test_why_an_answer_ended(server: StandInJudge, said: str, finish: FinishReason) -> None:
    server.rule = lambda asked: Answer(
        text="x", finish_reason=said, num_prompt_tokens=7, num_tokens=3
    )
    async with loaded(server) as engine:
        answers = await engine.generate([chat("a"), raw("a")])
    assert answers == [completion("x", finish)] * 2


async def test_an_answer_that_the_server_aborted_is_asked_for_again(server: StandInJudge) -> None:
    server.rule = lambda asked: Answer(
        text="x", finish_reason="abort" if asked.number == 0 else "stop", num_tokens=3
    )
    async with loaded(server) as engine:
        (answer,) = await engine.generate([chat("a")])
    assert answer.finish_reason is FinishReason.STOP
    assert server.num_requests == 2


async def test_a_text_ends_before_its_first_stop_string(server: StandInJudge) -> None:
    server.unsupported = frozenset({"stop", "seed"})
    server.rule = lambda asked: Answer(text="take\nEND", finish_reason="length", num_tokens=3)
    async with loaded(server) as engine:
        (answer,) = await engine.generate([chat("a", stop=("END", "\n"), seed=1)])
    assert (answer.text, answer.finish_reason) == ("take", FinishReason.STOP)
    assert "stop" not in server.asked[-1].body


async def test_a_newer_name_of_the_limit_is_learnt_once(server: StandInJudge) -> None:
    server.unsupported = frozenset({"max_tokens"})
    async with loaded(server, max_concurrency=1) as engine:
        await engine.generate([chat("a"), chat("b")])
    assert [asked.body.get("max_completion_tokens") for asked in server.asked] == [None, 16, 16]


async def test_greedy_decoding_is_never_left_to_the_server(server: StandInJudge) -> None:
    server.unsupported = frozenset({"temperature"})
    async with loaded(server) as engine:
        with pytest.raises(GraderError, match="'temperature' is not supported"):
            await engine.generate([chat("a")])


@pytest.mark.parametrize("fault", [Fault.NO_USAGE, Fault.WRONG_USAGE], ids=lambda f: f.name)
async def test_tokens_that_are_not_counted_are_estimated(
    server: StandInJudge, fault: Fault
) -> None:
    server.spoil = lambda asked: fault
    async with loaded(server) as engine:
        (answer,) = await engine.generate([chat("a" * 400)])
    assert answer.text == "said " + "a" * 400
    assert (answer.num_prompt_tokens, answer.num_tokens) == (100, 101)


async def test_a_prompt_that_does_not_fit_is_no_failure(server: StandInJudge) -> None:
    words = "This model's maximum context length is 64 tokens. However, your prompt contains {}"
    server.rule = lambda asked: (
        Answer(refusal=words.format("at least 65 input tokens"))
        if asked.text == "long"
        else echo(asked)
    )
    async with loaded(server) as engine:
        long, short = await engine.generate([chat("long"), chat("short")])
    assert short == completion("said short")
    assert long == Completion(
        text="",
        num_prompt_tokens=65,
        num_tokens=0,
        finish_reason=FinishReason.PROMPT_TOO_LONG,
        max_prompt_tokens=63,
    )
    assert server.num_requests == 2


async def test_an_answer_gets_the_room_that_its_prompt_leaves(server: StandInJudge) -> None:
    words = (
        "This model's maximum context length is 64 tokens. However, you requested {} tokens "
        "(60 in the messages, {} in the completion)."
    )

    def rule(asked: Asked) -> Answer:
        wanted = asked.body["max_tokens"]
        return Answer(refusal=words.format(60 + wanted, wanted)) if wanted > 4 else echo(asked)

    server.rule = rule
    async with loaded(server) as engine:
        assert await engine.generate([chat("a")]) == [completion("said a")]
    assert [asked.body["max_tokens"] for asked in server.asked] == [16, 4]


async def test_a_prompt_that_leaves_no_room_does_not_fit(server: StandInJudge) -> None:
    server.models = [{"id": MODEL, "max_model_len": 7}]
    server.rule = lambda asked: Answer(
        text="", finish_reason="length", num_prompt_tokens=7, num_tokens=0
    )
    async with loaded(server) as engine:
        (answer,) = await engine.generate([chat("a")])
    assert answer.finish_reason is FinishReason.PROMPT_TOO_LONG
    assert answer.max_prompt_tokens == 6


async def test_an_episode_is_played_and_outgrows_no_server(
    server: StandInJudge, tmp_path: Path
) -> None:
    (game,) = generate_games(tmp_path, split="train", num_games=1, seed=3)
    env = ALFWorldEnv()
    actions = [turn.action for turn in expert_trajectory(env, game)]
    words = "The input ({} tokens) is longer than the model's context length (64 tokens)."
    left = list(actions)

    def rule(asked: Asked) -> Answer:
        if len(asked.body["messages"]) > 5:
            return Answer(refusal=words.format(99))
        return Answer(text=left.pop(0), num_prompt_tokens=50, num_tokens=3)

    server.rule = rule
    spec = RolloutSpec(protocol="chat", sampling=Sampling(max_tokens=16), max_steps=50)
    episode = Episode(
        episode_id="e",
        env_id="rl_bench/ALFWorld-v0",
        env_kwargs={},
        options={"game": str(game)},
    )
    async with loaded(server) as engine:
        outcome = await play_episode(
            env, episode, policy=engine, protocol=get_protocol("chat"), spec=spec
        )
    assert len(actions) > 3, "the history must outgrow what the server takes"
    assert (outcome.status, outcome.score) == (ItemStatus.OK, 1.0)
    assert outcome.num_tokens == 3 * len(actions)
    assert "ended_by" not in outcome.detail


async def test_only_the_served_model_is_loaded(server: StandInJudge) -> None:
    config = config_of(server)
    engine = OpenaiEngine(config, max_concurrency=1)
    with pytest.raises(GraderError, match="no model is loaded"):
        await engine.generate([chat("a")])
    with pytest.raises(GraderError, match="/m cannot be graded: a served model takes no check"):
        await engine.load(Path("/m"), content_hash="ab" * 32)
    server.models = [{"id": "a"}, {"id": "b"}]
    with pytest.raises(GraderError, match=f"serves no model '{MODEL}'") as raised:
        await engine.load(Path(), content_hash=identity(config))
    assert raised.value.cure == "Set grader.endpoint.model_id to one of: a, b"
    await engine.close()
    assert server.num_requests == 0


def test_a_model_is_found_before_anything_starts(
    server: StandInJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.models = [{"id": MODEL, "owned_by": "vllm", "root": "/m", "max_model_len": 64}]
    served = ask_served(config_of(server))
    assert (served.model_id, served.owned_by, served.root) == (MODEL, "vllm", "/m")
    assert served.max_model_len == 64

    def refused(**fields: object) -> str:
        with pytest.raises(PreflightError) as raised:
            ask_served(config_of(server, **fields))
        return str(raised.value)

    assert "Set grader.endpoint.model_id to one of: " + MODEL in refused(model_id="x")
    assert "NO_SUCH_KEY is not set" in refused(key_variable="NO_SUCH_KEY")
    assert "Correct grader.endpoint.base_url" in refused(base_url=server.base_url + "/v2/x")
    chat_url = server.base_url + "/chat/completions"
    assert f"Set grader.endpoint.base_url={server.base_url}" in refused(base_url=chat_url)
    monkeypatch.setenv("SERVED_KEY", "two words")
    assert "two words" not in refused(key_variable="SERVED_KEY")
    server.go_down()
    assert "the connection failed" in refused()


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_real_server_answers_as_the_engine_in_this_process(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    from rl_bench.checkpoint import content_hash
    from rl_bench.engine.vllm_engine import VllmEngine
    from rl_bench.judges.vllm_server import VllmServer
    from rl_bench.models.tiny import build_tiny

    folder = build_tiny(tmp_path / "tiny", seed=0)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    # Of these answers the model is sure: two engines round differently.
    asked = [f"{i} apples and {i + 3} more. How many?" for i in (0, 2, 4, 6, 7)]
    turns = [[{"role": "user", "content": text}] for text in asked]
    templated = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    requests = [
        *(chat(text, max_tokens=24) for text in asked),
        *(raw(str(text), max_tokens=24, stop=("\n",)) for text in templated),
        chat("go to the shelf " * 400),
        chat("go to the shelf " * 20, max_tokens=4096),
    ]
    judge = {"name": "s", "kind": "vllm", "annotator": "a", "model_id": MODEL, "path": folder}
    server = VllmServer(
        JudgeConfig.model_validate(judge | {"max_model_len": 256}), log_folder=tmp_path
    )
    try:
        address = await server.address()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SERVED_KEY", address.key)
            config = EndpointConfig(
                base_url=address.base_url, model_id=MODEL, key_variable="SERVED_KEY"
            )
            engine = OpenaiEngine(config, max_concurrency=8)
            await engine.load(Path(), content_hash=identity(config))
            served = await engine.generate(requests)
            await engine.close()
    finally:
        await server.close()

    grader = GraderConfig(name="g", kv_cache_gib=0.25)
    model = ModelConfig(name="tiny", kind="tiny", max_model_len=256)
    local = VllmEngine.from_config(grader, model, log_folder=tmp_path)
    try:
        await local.load(folder, content_hash=content_hash(folder))
        expected = await local.generate(requests)
    finally:
        await local.close()

    assert [each.text for each in served] == [each.text for each in expected]
    assert [each.finish_reason for each in served] == [each.finish_reason for each in expected]
    assert served[-2].finish_reason is FinishReason.PROMPT_TOO_LONG
    assert served[-2].max_prompt_tokens == expected[-2].max_prompt_tokens == 255
    for ours, theirs in zip(served[:-2], expected[:-2], strict=True):
        assert ours.num_prompt_tokens == theirs.num_prompt_tokens
    assert len({each.text for each in served}) == 4
