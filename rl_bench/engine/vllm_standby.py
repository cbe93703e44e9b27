"""A second copy of the model in vLLM's worker, which gets the next checkpoint's weights.

Reading and packing weights takes tenths of seconds to seconds. The copy takes that out of the swap:
it is filled while the checkpoint is still being examined, and the swap only exchanges what the
modules of the two models hold. The model that answers stays the same object, so that whatever
points at its modules (the KV caches above all) stays true.

On CPUs only. A linear layer there calls a kernel that owns the packed weight, and no compiled
graph remembers an address. A GPU keeps its memory for the cache and is filled fast enough.
"""

from copy import deepcopy
from pathlib import Path
from typing import Any

import psutil

EXCHANGED = ("_parameters", "_buffers", "cpu_linear")
"""What of a module depends on weights: its tensors, and a CPU's kernel around the packed ones."""

MIN_FREE = 6
"""Memory that must be free for a copy, in sizes of the checkpoint's files: in float32 weights may
be twice as large as stored, and a new copy holds them packed and as they were read."""


class Standby:
    """The second copy: `load` any number of times, then `exchange`.

    Args:
        runner: vLLM's model runner, whose model is exchanged with the copy.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._copy: Any = None
        self._path = ""

    @classmethod
    def of(cls, runner: Any) -> "Standby | None":
        """The standby of ``runner``, or ``None`` where weights can only be loaded in place."""
        return cls(runner) if _can_have_copy(runner) else None

    def load(self, path: str) -> None:
        """Fills the copy with the checkpoint at ``path``; the first time, makes it.

        Does nothing where there is no room for a copy.

        Raises:
            Exception: Whatever vLLM raises. The next load makes a new copy.
        """
        from vllm.config import set_current_vllm_config

        copy, self._copy, self._path = self._copy, None, ""
        if copy is None and not _has_room_for(path):
            return
        config = self._runner.vllm_config
        with set_current_vllm_config(config):
            if copy is None:
                copy = _new_model(config, path)
                _unshare(copy, self._runner.get_model())
            else:
                _reload(config, copy, path)
        self._copy, self._path = copy, path

    def holds(self, path: str) -> bool:
        """Whether the copy holds the checkpoint at ``path``."""
        return bool(self._path) and self._path == path

    def exchange(self) -> None:
        """Gives the copy's weights to the model that answers, and the other way round."""
        self._path = ""
        pairs = zip(self._runner.get_model().modules(), self._copy.modules(), strict=True)
        for answering, waiting in pairs:
            for name in EXCHANGED:
                if name in vars(answering):
                    theirs = vars(answering)[name]
                    vars(answering)[name] = vars(waiting)[name]
                    vars(waiting)[name] = theirs


def process_head(model: Any) -> None:
    """Packs the output head again, as vLLM's reload leaves it out where it is tied.

    A CPU's linear layer keeps a packed copy of its weight, and a tied model's checkpoint has no
    tensor for the head that would refresh it.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)


def _reload(config: Any, model: Any, path: str) -> None:
    from vllm.model_executor.model_loader.reload.inplace import reload_weights

    reload_weights(config, model, None, path, is_checkpoint_format=True)
    process_head(model)


def _has_room_for(path: str) -> bool:
    size = sum(file.stat().st_size for file in Path(path).glob("*.safetensors"))
    return bool(psutil.virtual_memory().available >= MIN_FREE * size)


def _new_model(config: Any, path: str) -> Any:
    """Another model like the one that answers, with the weights at ``path``."""
    from vllm.model_executor.model_loader import get_model_loader

    compilation = config.compilation_config
    # Layers enter themselves there by their names, which the answering model's layers have taken.
    taken, compilation.static_forward_context = compilation.static_forward_context, {}
    try:
        config.model_config.model = path
        return get_model_loader(config.load_config).load_model(
            vllm_config=config, model_config=config.model_config
        )
    finally:
        compilation.static_forward_context = taken


def _unshare(copy: Any, answering: Any) -> None:
    """Gives the copy modules of its own: vLLM has one rotary embedding for all equal models.

    What both have is without its tensors while the copy is reloaded, and stays so if that fails.
    """
    taken = set(answering.modules())
    copies: dict[int, Any] = {}
    for module in list(copy.modules()):
        for name, child in list(module.named_children()):
            if child in taken:
                setattr(module, name, deepcopy(child, copies))


def _can_have_copy(runner: Any) -> bool:
    """Whether all that modules derive from their weights is what `exchange` exchanges."""
    from vllm.model_executor.layers.attention import Attention
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod
    from vllm.platforms import current_platform

    config = runner.vllm_config
    if not (current_platform.is_cpu() and config.model_config.enforce_eager):
        return False
    stateful = config.compilation_config.static_forward_context.values()
    methods = (
        getattr(module, "quant_method", None)
        for module in runner.get_model().modules()
        if module._parameters
    )
    plain = (type(None), UnquantizedLinearMethod, UnquantizedEmbeddingMethod)
    return all(type(layer) is Attention for layer in stateful) and all(
        type(method) in plain for method in methods
    )
