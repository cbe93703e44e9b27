"""An engine that answers at once, for tests of what is around engines: no model, no vLLM.

What it answers depends on the checkpoint's weights and on the prompt alone, so that equal weights
give equal figures and others give others.

    python -m tests.survival.toy_engine OVERRIDES

is the sweep's command with it in the place of vLLM's; the rest is what a user starts.
"""

import asyncio
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from actors.ray_runtime import ray_runtime
from rl_bench.config import ClusterConfig, GraderConfig, ModelConfig
from rl_bench.engine.base import (
    Completion,
    FinishReason,
    GenerationRequest,
    LoadKind,
    LoadReport,
    OnCompletion,
    ignore_completion,
)
from rl_bench.sweep import main

ANSWER_S = 0.05


class ToyEngine:
    """Answers by a checksum; see the module."""

    def __init__(self) -> None:
        self._weights = 0

    async def load(self, snapshot: Path, *, content_hash: str) -> LoadReport:
        """Reads the weights; ``content_hash`` also covers what lies beside them."""
        del content_hash
        self._weights = zlib.crc32((snapshot / "model.safetensors").read_bytes())
        return LoadReport(kind=LoadKind.WARM, seconds=0.0)

    async def generate(
        self,
        requests: Sequence[GenerationRequest],
        *,
        on_completion: OnCompletion = ignore_completion,
    ) -> list[Completion]:
        """Answers each request with a number."""
        await asyncio.sleep(ANSWER_S)
        completions = [self._answer(request) for request in requests]
        for index, completion in enumerate(completions):
            on_completion(index, completion)
        return completions

    async def close(self) -> None:
        """It has nothing to free."""

    def _answer(self, request: GenerationRequest) -> Completion:
        prompt = request.text or str(request.messages)
        number = zlib.crc32(prompt.encode(), self._weights)
        return Completion(
            text=f"#### {number % 10}",
            num_prompt_tokens=len(prompt),
            num_tokens=1 + number % 100,
            finish_reason=FinishReason.STOP,
        )


def make_engine(_config: GraderConfig, _log_dir: Path, _model: ModelConfig) -> ToyEngine:
    """Stands in for `actors.factory`'s own."""
    return ToyEngine()


@contextmanager
def ray_with_toys(cluster: ClusterConfig, *, say: Callable[[str], None]) -> Iterator[None]:
    """Ray as a sweep starts it; graders get the toy."""
    from tests.survival.toy_engine import make_engine as toy  # by a name that other processes know

    # Names the factory only inside, since it imports Ray, whose environment is set by then.
    with ray_runtime(cluster, say=say), patch("actors.factory._make_engine", toy):
        yield


if __name__ == "__main__":
    with patch("actors.sweep_driver.ray_runtime", ray_with_toys):
        sys.exit(main())
