"""What runs inside vLLM's worker processes: the in-place swap of weights, done completely.

vLLM mixes `WorkerExtension` into its worker class and calls its methods by name. Nothing may
escape a method as an exception, since that kills the whole engine: each returns a text instead,
empty for success, and the caller falls back on a fresh engine.
"""

import os
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil


class WorkerExtension:
    """Methods for `collective_rpc`; ``self`` is vLLM's worker."""

    model_runner: Any  # vLLM's, present in the class that this is mixed into
    reload_weights: Any

    def swap_weights(self, path: str) -> str:
        """Loads the weights of the checkpoint at ``path`` over the present ones.

        Beyond vLLM's own reload: (1) the output head is processed again. On CPUs a linear layer
        keeps a packed copy of its weight, and a tied model's checkpoint has no tensor for the head
        that would refresh it. (2) The KV cache is zeroed: masked attention multiplies whatever an
        earlier checkpoint left in unused slots by zero, and zero times NaN is NaN.

        Returns:
            Empty, or the traceback.
        """
        try:
            with ThreadPoolExecutor(1) as beside:
                zeroed = beside.submit(self._zero_caches)
                self.reload_weights(weights_path=path)
                self._process_head()
                zeroed.result()
        except Exception:  # noqa: BLE001  the boundary: an exception here would kill the engine
            return traceback.format_exc()
        return ""

    def _zero_caches(self) -> None:
        for cache in _tensors(self.model_runner.kv_caches):
            cache.zero_()

    def follow_parent(self, pid: int, started: float) -> str:
        """Ends this process soon after process ``pid`` (started at ``started``) is gone.

        vLLM notices the loss of its client only by its own pipes; a watcher does not depend on
        what the worker is busy with.
        """
        threading.Thread(target=_die_with, args=(pid, started), daemon=True).start()
        return ""

    def _process_head(self) -> None:
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

        for module in self.model_runner.get_model().modules():
            if isinstance(module, ParallelLMHead):
                module.quant_method.process_weights_after_loading(module)


def _tensors(caches: Any) -> list[Any]:
    flat: list[Any] = []
    for cache in caches:
        flat.extend(_tensors(cache) if isinstance(cache, list | tuple) else [cache])
    return flat


def _die_with(pid: int, started: float) -> None:
    while True:
        try:
            process = psutil.Process(pid)
            if process.create_time() != started or process.status() == psutil.STATUS_ZOMBIE:
                break
        except psutil.NoSuchProcess:
            break
        time.sleep(0.5)
    os._exit(1)
