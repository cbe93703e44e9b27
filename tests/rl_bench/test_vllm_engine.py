"""The warm engine answers as a fresh one: one real engine, led through a story.

An engine takes many seconds to start, so a fixture tells the whole story once and records what
happened; each test looks at one part of the record. The story's checkpoints are small random Qwen3
models, tied and untied, computed in float32.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from envs.protocol import ChatMessage
from rl_bench.checkpoint import content_hash
from rl_bench.engine.base import Completion, FinishReason, GenerationRequest, LoadKind, Sampling
from rl_bench.engine.prompts import CheckpointTokenizer
from rl_bench.engine.vllm_engine import VllmEngine
from rl_bench.engine.vllm_loader import VllmLoader
from rl_bench.engine.vllm_setup import MIN_BATCHED_TOKENS, VllmOptions
from rl_bench.errors import GraderError, SubmissionError
from tests.rl_bench.vllm_models import make_model, variant

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]

MAX_MODEL_LEN = 128
NUM_PROMPTS = 48
SENTENCE = "go to the shelf and take the red apple then open it and look"
PROMPTS = [f"{SENTENCE[: 3 + 5 * (i % 12)]} {i}" for i in range(NUM_PROMPTS)]
GREEDY = [GenerationRequest(text=text, sampling=Sampling(max_tokens=16)) for text in PROMPTS]


def hf_greedy(folder: Path) -> list[str]:
    """The same 48 answers by transformers."""
    from transformers import AutoModelForCausalLM

    tokenizer = CheckpointTokenizer(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    texts = []
    for request in GREEDY:
        ids = torch.tensor(tokenizer.encode([request]))
        output = model.generate(
            ids, max_new_tokens=16, do_sample=False, eos_token_id=sorted(tokenizer.stop_ids)
        )
        texts.append(tokenizer.decode(output[0, ids.shape[1] :].tolist()))
    return texts


@contextlib.contextmanager
def moved_away(folder: Path) -> Iterator[Path]:
    """The folder under another name, for a while."""
    away = folder.with_name("away")
    folder.rename(away)
    try:
        yield away
    finally:
        away.rename(folder)


class SwitchableLoader(VllmLoader):
    """A loader that can be told how to swap.

    Attributes:
        way: ``plain``: vLLM's own reload, which leaves a tied head stale. ``moved``: the checkpoint
            is elsewhere since it was staged, so that its weights are loaded in place. ``gone``: its
            files cannot be read any more when the swap begins.
    """

    way = ""

    async def _in_workers(self, method: str, folder: Path) -> str:
        assert self.process is not None
        if method != "swap_weights" or not self.way:
            return await super()._in_workers(method, folder)
        if self.way == "plain":
            await self.process.llm.collective_rpc(
                "reload_weights", kwargs={"weights_path": str(folder)}
            )
            return ""
        with moved_away(folder) as away:
            return await super()._in_workers(method, away if self.way == "moved" else folder)


@dataclass
class Answers:
    """What the engine said for one checkpoint: 48 texts, and log-probabilities of 48 prompts."""

    kind: LoadKind
    texts: list[str]
    scores: list[list[float]]


@dataclass
class Story:
    """The record: answers by the name of the load, and errors by the name of the attempt."""

    answers: dict[str, Answers] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)
    completions: dict[str, list[Completion]] = field(default_factory=dict)
    kinds: dict[str, LoadKind] = field(default_factory=dict)
    repeated: tuple[list[Completion], list[Completion]] = ([], [])
    tokens_per_s: float = 0.0
    survivors: list[int] = field(default_factory=list)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    made = {
        f"{kind}_{name}": make_model(root / f"{kind}_{name}", seed=seed, tied=kind == "tied")
        for kind in ("tied", "untied")
        for name, seed in (("a", 1), ("b", 2))
    }
    tied = made["tied_a"]
    name = "model.layers.1.mlp.up_proj.weight"
    made["nan"] = variant(tied, root / "nan", lambda w: w[name][3].fill_(float("nan")))
    made["inf"] = variant(tied, root / "inf", lambda w: w[name][0, 0].fill_(float("inf")))
    made["overflow"] = variant(tied, root / "overflow", lambda w: w[name].fill_(3e38))
    halves = torch.zeros(128, 32, dtype=torch.uint8)  # two elements each
    made["half_byte"] = variant(
        tied, root / "half_byte", lambda w: w.update({name: halves.view(torch.float4_e2m1fn_x2)})
    )
    made["half"] = variant(
        made["tied_b"], root / "half", lambda w: w.update({k: v.bfloat16() for k, v in w.items()})
    )
    made["own_head"] = variant(
        made["tied_b"],
        root / "own_head",
        lambda w: w.update({"lm_head.weight": w["model.embed_tokens.weight"].clone()}),
    )
    made["other_head"] = variant(
        made["tied_b"],
        root / "other_head",
        lambda w: w.update({"lm_head.weight": w["model.embed_tokens.weight"] + 1}),
    )
    return made


@pytest.fixture(scope="module")
def story(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Story:
    options = VllmOptions(
        max_model_len=MAX_MODEL_LEN, kv_cache_gib=0.125, log_folder=tmp_path_factory.mktemp("logs")
    )
    return asyncio.run(tell(models, options))


async def tell(models: dict[str, Path], options: VllmOptions) -> Story:
    """Three cold starts; everything else happens in the warm engine."""
    loader, story = SwitchableLoader(options), Story()
    engine = VllmEngine(options, loader=loader)

    async def visit(label: str, model: str) -> None:
        report = await engine.load(models[model], content_hash=content_hash(models[model]))
        completions = await engine.generate(GREEDY)
        tokenizer = CheckpointTokenizer(models[model])
        scores = [await engine.score(tokenizer.encode([request])[0]) for request in GREEDY]
        story.answers[label] = Answers(report.kind, [c.text for c in completions], scores)

    async def fail(label: str, model: str) -> None:
        try:
            await engine.load(models[model], content_hash=content_hash(models[model]))
        except SubmissionError as error:
            story.errors[label] = error

    try:
        await visit("tied_a, first", "tied_a")
        await visit("tied_b, swapped in", "tied_b")
        await visit("tied_a, swapped back", "tied_a")
        for bad in ("nan", "inf", "overflow", "other_head", "half_byte"):
            await fail(bad, bad)
        await visit("tied_a, after bad ones", "tied_a")
        await visit("half", "half")
        await visit("own_head", "own_head")
        await visit("tied_b, swapped in again", "tied_b")
        await look_around(engine, story)
        await visit("tied_a, before the stale head", "tied_a")
        loader.way = "plain"
        await visit("tied_b, fresh engine", "tied_b")  # the canary throws the warm one away
        loader.way = "gone"
        await visit("tied_a, warm again", "tied_a")
        loader.way = "moved"
        await visit("tied_b, loaded in place", "tied_b")
        loader.way = ""
        await visit("tied_a, after a load in place", "tied_a")
        await die(engine, story)
        await visit("untied_b, fresh engine", "untied_b")
        await visit("untied_a, swapped in", "untied_a")
        await visit("untied_b, swapped in", "untied_b")
        await close_under_load(engine, story)
    finally:
        await engine.close()
        await engine.close()
    try:
        await engine.generate(GREEDY[:1])
    except GraderError as error:
        story.errors["closed"] = error
    return story


async def look_around(engine: VllmEngine, story: Story) -> None:
    """What the loaded ``tied_b`` says to requests of every kind."""

    async def ask(label: str, *requests: GenerationRequest) -> None:
        story.completions[label] = await engine.generate(requests)

    await ask("nothing")
    await ask("too long", GenerationRequest(text="x" * 500, sampling=Sampling(max_tokens=4)))
    await ask("tight", GenerationRequest(text="x" * 120, sampling=Sampling(max_tokens=50)))
    chat: tuple[ChatMessage, ...] = ({"role": "user", "content": "hello"},)
    await ask("chat", GenerationRequest(messages=chat, sampling=Sampling(max_tokens=4)))
    await ask(
        "chat, by hand",
        GenerationRequest(
            text="<|im_start|>hello<|im_end|><|im_start|>", sampling=Sampling(max_tokens=4)
        ),
    )
    whole = await engine.generate(GREEDY)
    longest = max(range(NUM_PROMPTS), key=lambda i: len(whole[i].text))
    text = whole[longest].text
    stop = text[3:5]
    await ask("whole", GREEDY[longest])
    await ask(
        f"stop {stop}",
        GenerationRequest(text=PROMPTS[longest], sampling=Sampling(max_tokens=16, stop=(stop,))),
    )
    story.completions["stop"] = story.completions.pop(f"stop {stop}")
    await ask(
        "stop at a character",
        GenerationRequest(text=PROMPTS[longest], sampling=Sampling(max_tokens=16, stop=(text[3],))),
    )
    sampled = [
        # Long and many: more tokens than the engine reads in a step.
        GenerationRequest(text=p * 2, sampling=Sampling(max_tokens=8, temperature=1.0, seed=7))
        for p in PROMPTS * 2
    ]
    story.repeated = (await engine.generate(sampled), await engine.generate(sampled))
    started = time.monotonic()
    told: dict[int, Completion] = {}
    many = await engine.generate(GREEDY * 4, on_completion=told.__setitem__)
    assert [told[index] for index in range(len(many))] == many
    story.tokens_per_s = sum(c.num_tokens for c in many) / (time.monotonic() - started)


LONG = [
    GenerationRequest(text=text, sampling=Sampling(max_tokens=100, temperature=1.0))
    for text in PROMPTS * 8
]


async def close_under_load(engine: VllmEngine, story: Story) -> None:
    """The engine is closed under running requests."""
    running = asyncio.ensure_future(engine.generate(LONG))
    await asyncio.sleep(0.05)
    pids = engine.pids
    await engine.close()
    story.survivors = [pid for pid in pids if psutil.pid_exists(pid)]
    try:
        await asyncio.wait_for(running, timeout=30)
    except GraderError as error:
        story.errors["closed under load"] = error


async def die(engine: VllmEngine, story: Story) -> None:
    """The engine's process is killed under running requests."""
    running = asyncio.ensure_future(engine.generate(LONG))
    await asyncio.sleep(0.05)
    for pid in engine.pids:
        psutil.Process(pid).kill()
    try:
        await asyncio.wait_for(running, timeout=30)
    except GraderError as error:
        story.errors["death"] = error


@pytest.mark.parametrize(
    ("label", "same_as"),
    [
        ("tied_b, swapped in", "tied_b, fresh engine"),
        ("tied_b, swapped in again", "tied_b, fresh engine"),
        ("own_head", "tied_b, fresh engine"),
        ("tied_a, swapped back", "tied_a, first"),
        ("tied_a, warm again", "tied_a, first"),
        ("tied_b, loaded in place", "tied_b, fresh engine"),
        ("tied_a, after a load in place", "tied_a, first"),
        ("untied_b, swapped in", "untied_b, fresh engine"),
    ],
)
def test_a_warm_engine_answers_as_a_fresh_one(story: Story, label: str, same_as: str) -> None:
    warm, fresh = story.answers[label], story.answers[same_as]
    assert warm.kind is LoadKind.WARM
    assert fresh.kind is LoadKind.COLD
    assert warm.texts == fresh.texts
    assert warm.scores == fresh.scores


@pytest.mark.parametrize("model", ["tied_a", "tied_b", "untied_a", "untied_b", "half"])
def test_answers_are_those_of_transformers(
    story: Story, models: dict[str, Path], model: str
) -> None:
    expected = hf_greedy(models[model])
    assert len(set(expected)) > NUM_PROMPTS // 4  # a constant would prove nothing
    for label, answers in story.answers.items():
        if label.split(",")[0] == model:
            assert answers.texts == expected, label


def test_different_checkpoints_differ(story: Story) -> None:
    first, second = story.answers["tied_a, first"], story.answers["tied_b, fresh engine"]
    same = sum(a == b for a, b in zip(first.texts, second.texts, strict=True))
    assert same < NUM_PROMPTS // 4


def test_the_canary_catches_a_stale_head(story: Story) -> None:
    """The reload as vLLM does it would have been wrong: the engine noticed and started afresh."""
    assert story.answers["tied_a, before the stale head"].kind is LoadKind.WARM
    assert story.answers["tied_b, fresh engine"].kind is LoadKind.COLD


def test_weights_stored_in_another_dtype_are_swapped_too(story: Story) -> None:
    assert story.answers["half"].kind is LoadKind.WARM


def test_a_swap_reads_nothing_that_was_staged(story: Story) -> None:
    """Its files were out of reach when the swap began, and no fresh engine was needed."""
    assert story.answers["tied_a, warm again"].kind is LoadKind.WARM


def test_refused_checkpoints_do_not_answer(story: Story) -> None:
    before, after = story.answers["tied_a, swapped back"], story.answers["tied_a, after bad ones"]
    assert after.kind is LoadKind.RESIDENT
    assert (after.texts, after.scores) == (before.texts, before.scores)


@pytest.mark.parametrize("label", ["nan", "inf"])
def test_non_finite_weights_are_refused_by_name(story: Story, label: str) -> None:
    error = story.errors[label]
    assert isinstance(error, SubmissionError)
    assert error.reason == "non_finite"
    assert error.file == "model.safetensors"
    assert "model.layers.1.mlp.up_proj.weight" in error.message


def test_finite_weights_that_compute_nan_are_refused(story: Story) -> None:
    error = story.errors["overflow"]
    assert isinstance(error, SubmissionError)
    assert error.reason == "non_finite"


def test_what_vllm_cannot_load_is_refused(story: Story) -> None:
    """The engine fails while it stages it, and answers for the one before all the same."""
    error = story.errors["half_byte"]
    assert isinstance(error, SubmissionError)
    assert error.reason == "tensor_dtypes"


def test_a_tied_model_with_another_head_is_refused(story: Story) -> None:
    error = story.errors["other_head"]
    assert isinstance(error, SubmissionError)
    assert error.reason == "untied_head"


def test_death_is_the_graders_fault_and_not_the_end(story: Story) -> None:
    assert isinstance(story.errors["death"], GraderError)
    assert story.answers["untied_b, fresh engine"].kind is LoadKind.COLD


def test_closing_leaves_no_process(story: Story) -> None:
    assert story.survivors == []
    assert isinstance(story.errors["closed under load"], GraderError)
    assert isinstance(story.errors["closed"], GraderError)


def test_a_prompt_that_does_not_fit_is_answered_so(story: Story) -> None:
    (completion,) = story.completions["too long"]
    assert completion.finish_reason is FinishReason.PROMPT_TOO_LONG
    assert completion.num_prompt_tokens == 500
    assert completion.num_tokens == 0
    (tight,) = story.completions["tight"]
    assert tight.num_tokens <= MAX_MODEL_LEN - 120


def test_no_requests_get_no_completions(story: Story) -> None:
    assert story.completions["nothing"] == []


def test_the_chat_template_is_applied(story: Story) -> None:
    assert story.completions["chat"] == story.completions["chat, by hand"]


def test_a_stop_string_ends_the_answer(story: Story) -> None:
    (whole,), (cut,) = story.completions["whole"], story.completions["stop"]
    assert cut.finish_reason is FinishReason.STOP
    assert cut.text == whole.text[: whole.text.find(whole.text[3:5])]
    assert 0 < cut.num_tokens <= whole.num_tokens


def test_one_character_ends_the_answer(story: Story) -> None:
    (whole,), (cut,) = story.completions["whole"], story.completions["stop at a character"]
    assert cut.finish_reason is FinishReason.STOP
    assert cut.text == whole.text[: whole.text.find(whole.text[3])]
    assert 0 < cut.num_tokens <= whole.num_tokens


def test_a_seed_repeats_samples(story: Story) -> None:
    first, second = story.repeated
    assert sum(completion.num_prompt_tokens for completion in first) > 2 * MIN_BATCHED_TOKENS
    assert first == second
    assert len({completion.text for completion in first}) > 1


def test_requests_run_concurrently(story: Story) -> None:
    # One at a time this engine decodes a few hundred tokens/s, on a busy machine far fewer.
    assert story.tokens_per_s > 300


OWNER = """
import asyncio, sys
from pathlib import Path
from rl_bench.engine.vllm_engine import VllmEngine
from rl_bench.engine.vllm_loader import VllmLoader
from rl_bench.engine.vllm_setup import VllmOptions

async def main():
    options = VllmOptions(max_model_len=64, kv_cache_gib=0.0625, log_folder=Path(sys.argv[2]))
    engine = VllmEngine(options)
    await engine.load(Path(sys.argv[1]), content_hash="x")
    print("pids", *engine.pids, flush=True)
    await asyncio.sleep(600)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_the_engine_dies_with_its_owner(models: dict[str, Path], tmp_path: Path) -> None:
    script = tmp_path / "owner.py"
    script.write_text(OWNER)
    with subprocess.Popen(
        [sys.executable, str(script), str(models["tied_a"]), str(tmp_path)],
        env=dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2])),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as owner:
        try:
            assert owner.stdout is not None
            line = next(line for line in owner.stdout if line.startswith("pids"))
        finally:
            owner.kill()
    children = [int(pid) for pid in line.split()[1:]]
    assert children
    deadline = time.monotonic() + 30
    while any(map(_lives, children)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not any(map(_lives, children))


def _lives(pid: int) -> bool:
    """Whether it runs; one that nobody has reaped yet does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
