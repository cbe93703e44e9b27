"""How this project starts vLLM: the environment it reads at import, and the engine's arguments.

vLLM takes many settings from environment variables, in part at import and again in its child
processes, so `prepare_environment` must run before the first `import vllm` of a process.
"""

import json
import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rl_bench.config import GraderConfig, ModelConfig

CPU_BLOCK_TOKENS = 32
MIN_BATCHED_TOKENS = 2048
"""Tokens that one step of the engine may read, at least: vLLM's own default."""

HARMFUL_VARIABLES = ("VLLM_PORT", "VLLM_CPU_KVCACHE_SPACE")
"""A fixed port would be everyone's port: vLLM finds a free one without. The second overrides the
size of the KV cache that the arguments give."""

Dtype = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmOptions:
    """What an engine is started with; see `rl_bench.config` for the fields they come from.

    Attributes:
        dtype: What weights are cast to and computed in.
        max_model_len: Context length, tokens of prompt and answer together.
        max_num_seqs: Sequences decoded at a time.
        kv_cache_gib: Memory of the KV cache on a CPU.
        num_threads: OpenMP threads that compute on a CPU.
        gpu_memory_utilization: Fraction of a GPU's memory that the engine may take.
        tensor_parallel_size: GPUs that share one model.
        enforce_eager: Do not compile.
        seed: Of sampling without a request's own seed.
        log_folder: Gets ``engine.log``; ``None`` logs to standard error.
        start_timeout_s: A start that takes longer has failed.
    """

    dtype: Dtype = "float32"
    max_model_len: int = 2048
    max_num_seqs: int = 64
    kv_cache_gib: float = 1.0
    num_threads: int = 1
    gpu_memory_utilization: float = 0.9
    tensor_parallel_size: int = 1
    enforce_eager: bool = True
    seed: int = 0
    log_folder: Path | None = None
    start_timeout_s: float = 600.0

    @classmethod
    def of(
        cls, grader: GraderConfig, model: ModelConfig, *, log_folder: Path | None = None
    ) -> "VllmOptions":
        """What a pool of ``grader`` starts an engine for ``model`` with."""
        return cls(
            dtype=model.dtype,
            max_model_len=model.max_model_len,
            max_num_seqs=grader.max_num_seqs,
            kv_cache_gib=grader.kv_cache_gib,
            num_threads=grader.num_threads,
            gpu_memory_utilization=grader.gpu_memory_utilization,
            tensor_parallel_size=max(1, grader.gpus_per_grader),
            enforce_eager=grader.enforce_eager,
            log_folder=log_folder,
        )


def prepare_environment(options: VllmOptions) -> None:
    """Sets the environment variables that vLLM and its libraries read.

    What the user has set stays, except where it would break the engine.
    """
    for name, value in default_environment(options.start_timeout_s).items():
        os.environ.setdefault(name, value)
    for name in HARMFUL_VARIABLES:
        os.environ.pop(name, None)
    if options.tensor_parallel_size == 1 and not has_gpu():
        # The CPU backend forces a second child process unless this is 0. The engine core is a
        # process of its own all the same; one process fewer starts seven seconds sooner.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if options.log_folder is not None:
        _log_to(options.log_folder)


def default_environment(start_timeout_s: float) -> dict[str, str]:
    """What vLLM and its libraries should read where the user has set nothing else."""
    return {
        # Nothing is fetched: a model hub that is looked for costs seconds and may hang.
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        # No usage reports: they need the network and a thread.
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # No third-party plugins: each is imported in every process.
        "VLLM_PLUGINS": "",
        # Engines share cores with training: idle OpenMP threads must sleep, not spin.
        "OMP_WAIT_POLICY": "PASSIVE",
        # More log lines than these help nobody.
        "VLLM_LOGGING_LEVEL": "INFO",
        "TOKENIZERS_PARALLELISM": "false",
        # The children write straight to the terminal: of torch's and Python's notes to developers
        # only errors are of use there.
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "PYTHONWARNINGS": "ignore",
        # A child that hangs while it starts is given up.
        "VLLM_ENGINE_READY_TIMEOUT_S": str(math.ceil(start_timeout_s)),
    }


def engine_arguments(folder: Path, options: VllmOptions) -> Any:
    """The ``AsyncEngineArgs`` of vLLM for a checkpoint. Call `prepare_environment` first."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform

    extra: dict[str, Any] = {}
    if current_platform.is_cpu():
        # Explicit, since otherwise the CPU backend warms the model up to measure memory.
        extra["kv_cache_memory_bytes"] = int(options.kv_cache_gib * 2**30)
        # A prompt read in chunks discards a sample a chunk and rewinds the request's generator,
        # which torch cannot do on a CPU: a request with a seed would kill the engine.
        extra["enable_chunked_prefill"] = False
        # Prompts of an episode grow by a few tokens a step, and only whole blocks are found again;
        # 32 is the smallest size that the backend's kernels are made for (its default is 128).
        extra["block_size"] = CPU_BLOCK_TOKENS
        extra["max_num_batched_tokens"] = max(MIN_BATCHED_TOKENS, options.max_model_len)
        if options.tensor_parallel_size == 1:
            extra["distributed_executor_backend"] = "uni"
    else:
        extra["gpu_memory_utilization"] = options.gpu_memory_utilization
    return AsyncEngineArgs(
        model=str(folder),
        dtype=options.dtype,
        max_model_len=options.max_model_len,
        max_num_seqs=options.max_num_seqs,
        tensor_parallel_size=options.tensor_parallel_size,
        enforce_eager=options.enforce_eager,
        seed=options.seed,
        # Prompts and answers are token ids: the tokenizer belongs to the checkpoint, and so do
        # its end-of-sequence tokens and sampling defaults, which an engine would keep.
        skip_tokenizer_init=True,
        generation_config="vllm",
        trust_remote_code=False,
        enable_prefix_caching=True,
        disable_log_stats=True,
        use_tqdm_on_load=False,
        load_format="safetensors",
        worker_extension_cls="rl_bench.engine.vllm_worker.WorkerExtension",
        **extra,
    )


def start_lock_path() -> Path:
    """The lock that serialises starts on the same GPUs (or on the CPU) of this machine.

    Two engines that measure free memory at the same time both fail.
    """
    devices = os.environ.get("CUDA_VISIBLE_DEVICES") or "cpu"
    name = f"rl_bench_engine_{os.getuid()}_{devices.replace(',', '_').replace('/', '_')}.lock"
    return Path(tempfile.gettempdir()) / name


def has_gpu() -> bool:
    """Whether vLLM would run on a GPU here."""
    import torch

    return torch.cuda.is_available()


def _log_to(folder: Path) -> None:
    """Points vLLM's loggers, in this process and its children, to ``folder/engine.log``."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {"format": "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"}
        },
        "handlers": {
            "file": {
                "class": "logging.FileHandler",
                "filename": str((folder / "engine.log").absolute()),
                "formatter": "line",
                "level": os.environ["VLLM_LOGGING_LEVEL"],
            }
        },
        "loggers": {"vllm": {"handlers": ["file"], "level": "INFO", "propagate": False}},
    }
    path = folder / "vllm_logging.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    os.environ["VLLM_LOGGING_CONFIG_PATH"] = str(path.absolute())
