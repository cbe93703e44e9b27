"""What runs inside vLLM's worker processes: the swap of weights, in two steps.

vLLM mixes `WorkerExtension` into its worker class and calls its methods by name. Nothing may
escape a method as an exception, since that kills the whole engine: each returns a text instead,
empty for success, and the caller falls back on a fresh engine.
"""

import os
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import psutil

from rl_bench.engine.vllm_standby import Standby, process_head


class WorkerExtension:
    """Methods for `collective_rpc`; ``self`` is vLLM's worker."""

    model_runner: Any  # vLLM's, present in the class that this is mixed into
    reload_weights: Any
    _standby: Standby | None

    def stage_weights(self, path: str) -> str:
        """Does ahead of `swap_weights` all that it can while no request runs.

        The second copy of the model, where there can be one, gets the weights of the checkpoint at
        ``path``, and the KV cache is zeroed: masked attention multiplies whatever an earlier
        checkpoint left in unused slots by zero, and zero times NaN is NaN. So the prefix cache must
        be empty.

        Returns:
            Empty, or the traceback.
        """
        return _told(partial(self._stage, path))

    def swap_weights(self, path: str) -> str:
        """Makes the checkpoint at ``path`` the one that answers, staged before or not.

        Returns:
            Empty, or the traceback.
        """
        return _told(partial(self._swap, path))

    def _stage(self, path: str) -> None:
        for cache in _tensors(self.model_runner.kv_caches):
            cache.zero_()
        if not hasattr(self, "_standby"):
            self._standby = Standby.of(self.model_runner)
        if self._standby is not None:
            self._standby.load(path)

    def _swap(self, path: str) -> None:
        standby = getattr(self, "_standby", None)
        if standby is not None and standby.holds(path):
            standby.exchange()
        else:
            self.reload_weights(weights_path=path)
            process_head(self.model_runner.get_model())

    def follow_parent(self, pid: int, started: float) -> str:
        """Ends this process soon after process ``pid`` (started at ``started``) is gone.

        vLLM notices the loss of its client only by its own pipes; a watcher does not depend on
        what the worker is busy with.
        """
        threading.Thread(target=_die_with, args=(pid, started), daemon=True).start()
        return ""


def _told(work: Callable[[], None]) -> str:
    """Does ``work``; returns the traceback of its exception, or nothing."""
    try:
        work()
    except Exception:  # noqa: BLE001  the boundary: an exception here would kill the engine
        return traceback.format_exc()
    return ""


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
