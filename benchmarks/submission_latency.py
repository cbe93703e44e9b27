"""Seconds from a checkpoint to its answers: weights swapped into a warm engine, against a new one.

Both ways load the same checkpoints and answer the same requests, in turns within one run, so the
ratio holds on a busy machine. A cold round is charged what a fresh engine in a running grader
costs: the start and the end of its processes, not Python's imports in this one.

    python -m benchmarks.submission_latency [--model smollm2_135m]
    python -m benchmarks.submission_latency --checkpoints DIR DIR … --dtype bfloat16
"""

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checkpoints import nudged
from rl_bench.checkpoint import content_hash
from rl_bench.compose import compose
from rl_bench.engine.base import Completion, GenerationRequest, LoadKind, Sampling
from rl_bench.engine.vllm_engine import VllmEngine
from rl_bench.engine.vllm_setup import VllmOptions
from rl_bench.models.base import resolve_model
from rl_bench.plan import expand

NUM_REQUESTS = 48
_TIMES = ("hash_s", "load_s", "engine_s", "staging_s", "generate_s", "close_s", "total_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One checkpoint one way: seconds to hash, load, generate and (cold only) close.

    ``engine_s``, a part of ``load_s``: the swap or the engine's start alone. ``staging_s``, another
    part: the weights read and packed for the swap, while the checkpoint is examined.
    """

    hash_s: float
    load_s: float
    engine_s: float
    staging_s: float
    generate_s: float
    close_s: float
    texts: tuple[str, ...]

    @property
    def total_s(self) -> float:
        return self.hash_s + self.load_s + self.generate_s + self.close_s


def requests(max_tokens: int) -> list[GenerationRequest]:
    """Fixed greedy prompts."""
    sampling = Sampling(max_tokens=max_tokens)
    return [
        GenerationRequest(text=f"You are in room {i}. Looking around you see", sampling=sampling)
        for i in range(NUM_REQUESTS)
    ]


async def one_round(
    engine: VllmEngine, folder: Path, asked: Sequence[GenerationRequest], *, expect: LoadKind
) -> Round:
    """Loads ``folder`` and answers; closes the engine when it was a cold start."""
    times = [time.monotonic()]
    digest = content_hash(folder)
    times.append(time.monotonic())
    report = await engine.load(folder, content_hash=digest)
    if report.kind is not expect:
        raise RuntimeError(f"{folder} was loaded {report.kind}, not {expect}")
    times.append(time.monotonic())
    completions: list[Completion] = await engine.generate(asked)
    times.append(time.monotonic())
    if expect is LoadKind.COLD:
        await engine.close()
    times.append(time.monotonic())
    spent = [after - before for before, after in itertools.pairwise(times)]
    texts = tuple(completion.text for completion in completions)
    return Round(
        hash_s=spent[0],
        load_s=spent[1],
        engine_s=report.engine_s,
        staging_s=report.staging_s,
        generate_s=spent[2],
        close_s=spent[3],
        texts=texts,
    )


async def measure(folders: Sequence[Path], options: VllmOptions, *, num_rounds: int) -> str:
    """Alternates warm and cold rounds over ``folders``; returns a JSON report.

    Raises:
        RuntimeError: A warm answer differs from the fresh engine's for the same checkpoint.
    """
    asked = requests(max_tokens=16)
    warm_engine = VllmEngine(options)
    await warm_engine.load(folders[-1], content_hash=content_hash(folders[-1]))
    warm, cold = [], []
    try:
        for number in range(num_rounds):
            folder = folders[number % len(folders)]
            warm.append(await one_round(warm_engine, folder, asked, expect=LoadKind.WARM))
            cold.append(await one_round(VllmEngine(options), folder, asked, expect=LoadKind.COLD))
            if warm[-1].texts != cold[-1].texts:
                raise RuntimeError(f"warm and fresh answers differ for {folder}")
    finally:
        await warm_engine.close()
    return json.dumps(report(warm, cold), indent=2)


def report(
    warm: Sequence[Round], cold: Sequence[Round]
) -> dict[str, float | int | dict[str, float]]:
    """Medians in seconds, and their ratio."""

    def medians(rounds: Sequence[Round]) -> dict[str, float]:
        return {
            name: round(statistics.median(getattr(one, name) for one in rounds), 4)
            for name in _TIMES
        }

    def ratio(name: str) -> float:
        return round(medians(cold)[name] / medians(warm)[name], 1)

    return {
        "num_rounds": len(warm),
        "num_requests": NUM_REQUESTS,
        "warm": medians(warm),
        "cold": medians(cold),
        "cold_to_warm": ratio("total_s"),
        "load_cold_to_warm": ratio("load_s"),
        "start_to_swap": ratio("engine_s"),
        "start_to_staging_and_swap": round(
            medians(cold)["engine_s"] / (medians(warm)["engine_s"] + medians(warm)["staging_s"]), 1
        ),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--checkpoints", nargs="*", type=Path, help="default: a new one a round, of --model's shape"
    )
    parser.add_argument("--model", default="tiny", help="an option of conf/model")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--max-model-len", type=int, default=512)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folders = arguments.checkpoints or _checkpoints(
            Path(scratch), model=arguments.model, num=arguments.rounds + 1
        )
        options = VllmOptions(
            dtype=arguments.dtype,
            max_model_len=arguments.max_model_len,
            log_folder=Path(scratch) / "logs",
        )
        result = asyncio.run(measure(folders, options, num_rounds=arguments.rounds))
    sys.stdout.write(f"{result}\n")


def _checkpoints(scratch: Path, *, model: str, num: int) -> list[Path]:
    """Each round gets a checkpoint of its own, as a grader does: nothing is known about it yet."""
    experiment = compose([f"model={model}"]).experiment
    base = resolve_model(expand(experiment)[0].model, cache=experiment.paths.cache)
    return [nudged(base, scratch / f"checkpoint{i}", by=i / 100) for i in range(num)]


if __name__ == "__main__":
    main()
