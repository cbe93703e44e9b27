"""Prompts and texts with a checkpoint's own tokenizer, and the judgement of the canary."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import torch

from envs.protocol import ChatMessage
from rl_bench.engine.base import GenerationRequest, Sampling
from rl_bench.engine.canary import Canary, canary_prompts, mean_gap, reference_answers
from rl_bench.engine.prompts import CheckpointTokenizer
from rl_bench.errors import SubmissionError
from rl_bench.models.tiny import build_tiny


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_tiny(tmp_path / "tiny", seed=1)


def text_request(text: str) -> GenerationRequest:
    return GenerationRequest(text=text, sampling=Sampling(max_tokens=1))


def chat_request(*contents: str) -> GenerationRequest:
    messages = tuple(ChatMessage(role="user", content=content) for content in contents)
    return GenerationRequest(messages=messages, sampling=Sampling(max_tokens=1))


def test_the_chat_template_of_the_checkpoint_is_used(folder: Path) -> None:
    before = CheckpointTokenizer(folder).encode([chat_request("take the apple")])[0]
    template = "{% for m in messages %}{{ m['content'] }} go to {% endfor %}"
    (folder / "chat_template.jinja").write_text(template)
    after = CheckpointTokenizer(folder).encode([chat_request("take the apple")])[0]
    assert before != after


def test_without_a_template_contents_become_paragraphs(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    tokenizer = CheckpointTokenizer(folder)
    chat, text = tokenizer.encode([chat_request("one", "two"), text_request("one\n\ntwo\n\n")])
    assert chat == text


def test_a_batch_is_encoded_as_its_parts_in_order(folder: Path) -> None:
    tokenizer = CheckpointTokenizer(folder)
    requests = [text_request("go"), chat_request("one"), text_request(""), chat_request("a", "b")]
    assert tokenizer.encode(requests) == [tokenizer.encode([one])[0] for one in requests]


@pytest.mark.parametrize("template", ["{{ 1 / 0 }", "{{ raise_exception('no') }}", "{{ x.y.z }}"])
def test_a_broken_template_is_refused(folder: Path, template: str) -> None:
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(SubmissionError) as caught:
        CheckpointTokenizer(folder)
    assert caught.value.reason == "chat_template"


def test_a_broken_tokenizer_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"model": {"vocab": {}}}')
    with pytest.raises(SubmissionError) as caught:
        CheckpointTokenizer(folder)
    assert caught.value.reason == "tokenizer"


@pytest.mark.parametrize("value", [["<a>"], {"image_token": "<a>"}, 5])
def test_extra_special_tokens_never_crash(folder: Path, value: object) -> None:
    """Loaded, or refused as the submission's fault; nothing else may come out."""
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"extra_special_tokens": value}))
    try:
        assert CheckpointTokenizer(folder).encode([text_request("go")])[0]
    except SubmissionError as error:
        assert error.reason == "tokenizer"  # noqa: PT017  either outcome is right


def test_an_empty_prompt_still_has_a_token(folder: Path) -> None:
    assert len(CheckpointTokenizer(folder).encode([text_request("")])[0]) == 1


def test_end_tokens_come_from_tokenizer_and_generation_config(folder: Path) -> None:
    tokenizer = CheckpointTokenizer(folder)
    (own,) = tokenizer.stop_ids
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
    assert CheckpointTokenizer(folder).stop_ids == {own, 5, 6}
    for damaged in ("[", "[" * 100_000):
        (folder / "generation_config.json").write_text(damaged)
        with pytest.raises(SubmissionError):
            CheckpointTokenizer(folder)


def test_decoding_leaves_the_end_token_out(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 40}))
    tokenizer = CheckpointTokenizer(folder)
    ids = tokenizer.encode([text_request("take the apple")])[0]
    assert tokenizer.decode([*ids, 40]) == tokenizer.decode(ids)


@pytest.mark.parametrize("group", [1, 3, 1000])
def test_a_stop_string_is_found_however_tokens_arrive(folder: Path, group: int) -> None:
    tokenizer = CheckpointTokenizer(folder)
    ids = tokenizer.encode([text_request("take the apple\nthen go to the shelf\nand look")])[0]
    watch = tokenizer.watch(("\nthen", "never"))
    texts = [watch.feed(ids[i : i + group]) for i in range(0, len(ids), group)]
    assert next(text for text in texts if text is not None) == tokenizer.decode(ids).split("\n")[0]
    one_by_one = tokenizer.watch(("\nthen", "never"))
    for token in ids:
        if one_by_one.feed([token]) is not None:
            break
    assert one_by_one.token_ids == ids[: len(one_by_one.token_ids)]
    if group == 1000:
        assert watch.token_ids == one_by_one.token_ids


def test_without_a_stop_string_everything_is_kept(folder: Path) -> None:
    tokenizer = CheckpointTokenizer(folder)
    ids = tokenizer.encode([text_request("take the apple")])[0]
    watch = tokenizer.watch(())
    assert watch.feed(ids) is None
    assert watch.token_ids == ids


def judge(
    canary: Canary,
    answers: list[float],
    content: str,
    *,
    weights: str = "",
    reference: list[float] | None = None,
) -> str:
    return canary.judge(
        answers, content_hash=content, weights=weights or content, reference=reference
    ).problem


def test_canary_prompts_are_fixed_and_fit() -> None:
    prompts = canary_prompts(vocab_size=50, max_model_len=10)
    assert prompts == canary_prompts(vocab_size=50, max_model_len=10)
    assert all(len(prompt) < 10 and max(prompt) < 50 for prompt in prompts)


def test_the_canary_wants_finite_answers_near_the_reference() -> None:
    canary = Canary(torch.float32)
    assert not judge(canary, [-1.0, -2.0], "a", reference=[-1.0, -2.00001])
    assert "transformers" in judge(canary, [-1.0, -2.0], "b", reference=[-1.0, -2.1])
    assert "transformers" in judge(canary, [-1.0], "c", reference=[math.nan])
    verdict = canary.judge([math.nan], content_hash="d", weights="d", reference=None)
    assert verdict.problem
    assert not verdict.finite


def test_the_canary_remembers() -> None:
    canary = Canary(torch.float32)
    assert not judge(canary, [-1.0], "a")
    assert not judge(canary, [-2.0], "b")
    assert "earlier" in judge(canary, [-1.5], "a")
    assert not judge(canary, [-1.0], "a")


def test_the_canary_expects_change_where_weights_changed() -> None:
    canary = Canary(torch.float32)
    assert not judge(canary, [-1.0], "a")
    assert "previous" in judge(canary, [-1.0], "b")
    assert not judge(canary, [-1.0], "only a new tokenizer", weights="a")


def test_gap_is_a_mean() -> None:
    assert mean_gap([0.0, 1.0], [1.0, 1.0]) == 0.5


def test_a_single_character_ends_at_the_tokens_that_hold_it(folder: Path) -> None:
    tokenizer = CheckpointTokenizer(folder)
    ending = tokenizer.ids_that_end(("\n",))
    assert ending
    ids = tokenizer.encode([text_request("take the apple\nthen look\n\nand go")])[0]
    text = ""
    for token in ids:
        text = tokenizer.decode(ids[: ids.index(token) + 1])
        if token in ending:
            break
    assert text.startswith("take the apple\n")
    assert not ending & tokenizer.stop_ids
    assert tokenizer.ids_that_end(("\n\n",)) is None
    assert tokenizer.ids_that_end(()) == frozenset()


def test_references_made_at_the_same_time_are_right(tmp_path: Path) -> None:
    """A load that is given up goes on in its thread, beside the next one's."""
    folders = [build_tiny(tmp_path / str(seed), seed=seed) for seed in (1, 2)]
    prompts = canary_prompts(vocab_size=64, max_model_len=64)
    answers = partial(reference_answers, prompts=prompts, dtype=torch.float32)
    alone = list(map(answers, folders))
    with ThreadPoolExecutor(2) as threads:
        for _ in range(8):
            assert list(threads.map(answers, folders)) == alone
