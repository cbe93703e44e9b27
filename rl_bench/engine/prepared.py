"""A checkpoint read and found sound, before any engine sees it.

Everything here depends on the checkpoint alone, so what costs time (a pass over all weights, an
independent forward pass) is done once for a content.
"""

import hashlib
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rl_bench.checkpoint import CheckpointHeader, inspect, weight_files
from rl_bench.engine.base import Sampling
from rl_bench.engine.canary import MAX_REFERENCE_PARAMETERS, canary_prompts, reference_answers
from rl_bench.engine.prompts import CheckpointTokenizer
from rl_bench.engine.weights import scan_weights
from rl_bench.errors import GraderError, SubmissionError

_VOLATILE = frozenset(
    {
        "_name_or_path",
        "transformers_version",
        "dtype",
        "torch_dtype",
        "use_cache",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "initializer_range",
        "attention_dropout",
    }
)
"""Config entries that change nothing in what an engine computes from token ids."""


class Evidence(NamedTuple):
    """What is computed once from a checkpoint's weights.

    ``weights``: a digest, equal for equal weights. ``reference``: canary answers by another
    implementation, ``None`` for a model too large for it.
    """

    weights: str
    reference: list[float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A checkpoint of which the headers and the tokenizer were read, in tenths of a second."""

    folder: Path
    content_hash: str
    header: CheckpointHeader
    fingerprint: str
    tokenizer: CheckpointTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(Opened):
    """A sound checkpoint with all that answering for it takes, apart from the engine.

    ``params`` keeps vLLM's form of each `Sampling` that was asked for.
    """

    evidence: Evidence
    params: dict[Sampling, Any] = field(default_factory=dict, compare=False)


class Preparer:
    """Prepares checkpoints for one engine and remembers their evidence by content hash.

    Args:
        dtype: What the engine computes in.
        max_model_len: Its context length, tokens.
    """

    def __init__(self, *, dtype: torch.dtype, max_model_len: int) -> None:
        self._dtype = dtype
        self._max_model_len = max_model_len
        self._evidence: dict[str, Evidence] = {}

    def open(self, folder: Path, *, content_hash: str) -> Opened:
        """Reads the headers and the tokenizer in ``folder``.

        Raises:
            SubmissionError: The checkpoint is at fault.
            GraderError: A file of it cannot be read, or changed meanwhile.
        """
        with _readable(folder):
            header = inspect(folder)
            return Opened(
                folder=folder,
                content_hash=content_hash,
                header=header,
                fingerprint=fingerprint(header),
                tokenizer=CheckpointTokenizer(folder),
            )

    def prove(self, opened: Opened) -> Prepared:
        """Reads, once for a content, every weight.

        Raises:
            SubmissionError: The checkpoint is at fault.
            GraderError: A file of it cannot be read, or changed meanwhile.
        """
        if opened.content_hash not in self._evidence:
            with _readable(opened.folder):
                self._evidence[opened.content_hash] = self._collect(opened.header)
        return Prepared(
            folder=opened.folder,
            content_hash=opened.content_hash,
            header=opened.header,
            fingerprint=opened.fingerprint,
            tokenizer=opened.tokenizer,
            evidence=self._evidence[opened.content_hash],
        )

    def prompts(self, header: CheckpointHeader) -> list[list[int]]:
        """The canary's token sequences for this model."""
        return canary_prompts(vocab_size=header.vocab_size, max_model_len=self._max_model_len)

    def _collect(self, header: CheckpointHeader) -> Evidence:
        summaries = scan_weights(header, weight_files(header.folder), dtype=self._dtype)
        weights = hashlib.sha256(repr(sorted(summaries.items())).encode()).hexdigest()
        if header.num_parameters > MAX_REFERENCE_PARAMETERS:
            return Evidence(weights, None)
        reference = reference_answers(header.folder, self.prompts(header), dtype=self._dtype)
        if not all(map(math.isfinite, reference)):
            raise computes_nan()
        return Evidence(weights, reference)


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise GraderError(
            f"checkpoint {folder} cannot be read: {error}", cure="See to the disk that it is on"
        ) from error


def fingerprint(header: CheckpointHeader) -> str:
    """Equal for checkpoints between which an engine's weights can be swapped in place.

    Covers the normalised config and every weight's name and shape. Not the stored dtype, since an
    engine casts all weights to its own, nor the tokenizer, which no engine holds.

    Raises:
        SubmissionError: ``config``: transformers cannot read the config.
    """
    # Lazy: transformers takes a second to import.
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(
            header.folder, local_files_only=True, trust_remote_code=False
        ).to_dict()
    # Broad: the file is the agent's, and the loader raises whatever it trips over.
    except Exception as error:
        raise SubmissionError(
            f"config.json cannot be loaded: {type(error).__name__}: {str(error)[:300]}",
            cure="copy the base model's config.json",
            reason="config",
            file="config.json",
        ) from error
    kept = {key: value for key, value in config.items() if key not in _VOLATILE}
    shapes = sorted((name, spec.shape) for name, spec in header.weights().items())
    text = json.dumps([kept, shapes], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def computes_nan() -> SubmissionError:
    """For a model whose finite weights overflow on the way to the output."""
    return SubmissionError(
        "the model computes NaN or infinite values, though its weights are finite",
        cure="its weights are too large for the dtype: train with a lower rate",
        reason="non_finite",
    )
