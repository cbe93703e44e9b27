"""Proves after every load that the engine answers for the checkpoint it was given.

Fixed token sequences are scored by the engine (log-probability of each token given those before
it), which passes through every layer and the output head and reads no prefix cache. Three checks:

1. *finite*: no NaN comes out;
2. *independent*: transformers computes the same numbers from the same files, a second
   implementation that shares no state with the engine. Models up to `MAX_REFERENCE_PARAMETERS`;
3. *change*: content seen before answers as it did before, and weights that differ from the
   previous checkpoint's do not answer exactly as that one did.

The independent numbers are made before the weights go to the engine, so that a model that computes
NaN from finite weights never gets there. Beyond the limit of 2 a forward pass on the CPU would take
longer than the swap it guards, and 1 and 3 stand alone: they catch a swap that did nothing, or one
that ruins the model, but not one that left a small part stale. A fresh engine is the definition of
right: where even a fresh engine disagrees with transformers, 2 is dropped for that architecture.
"""

import math
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

NUM_PROMPTS = 3
PROMPT_LEN = 24
MAX_REFERENCE_PARAMETERS = 1_000_000_000

TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 0.15, torch.float16: 0.05}
"""Largest accepted mean absolute difference of log-probabilities to transformers, in nats. In
float32 the two agree to about 1e-5; in half precision they round at different places."""

REPEAT_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.05, torch.float16: 0.02}
"""The same for the engine against itself: reductions on a GPU may change their order."""

_TURN = threading.Lock()
"""Held while transformers has a model: reading it changes torch's defaults and initialisers for all
threads, and the thread of a load that was given up goes on beside the next one's."""


class CanaryVerdict(NamedTuple):
    """``problem`` is empty when the canary lives; ``finite`` is False when NaN came out."""

    problem: str
    finite: bool = True


class Canary:
    """Judges answers and remembers them by content hash; one a running engine."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._answers: dict[str, tuple[float, ...]] = {}
        self._previous: tuple[str, str] | None = None

    def judge(
        self,
        answers: Sequence[float],
        *,
        content_hash: str,
        weights: str,
        reference: Sequence[float] | None,
    ) -> CanaryVerdict:
        """Whether ``answers`` can be those of the checkpoint; remembers them if so.

        Args:
            answers: Log-probabilities by the engine, prompts one after the other.
            content_hash: The checkpoint's.
            weights: Equal for equal weights.
            reference: The independent computation, ``None`` where there is none.
        """
        verdict = self._judge(answers, content_hash, weights, reference)
        if not verdict.problem:
            self._answers[content_hash] = tuple(answers)
            self._previous = (content_hash, weights)
        return verdict

    def _judge(
        self,
        answers: Sequence[float],
        content_hash: str,
        weights: str,
        reference: Sequence[float] | None,
    ) -> CanaryVerdict:
        if not all(map(math.isfinite, answers)):
            return CanaryVerdict("log-probabilities are not finite", finite=False)
        if reference is not None:
            gap = mean_gap(answers, reference)
            if not gap <= TOLERANCE[self._dtype]:
                return CanaryVerdict(f"differs from transformers by {gap:.4g} nats")
        known = self._answers.get(content_hash)
        if known is not None:
            gap = mean_gap(answers, known)
            if gap > REPEAT_TOLERANCE[self._dtype]:
                return CanaryVerdict(f"differs from its earlier answer by {gap:.4g} nats")
        if self._previous is None:
            return CanaryVerdict("")
        previous_hash, previous_weights = self._previous
        if previous_weights != weights and tuple(answers) == self._answers[previous_hash]:
            return CanaryVerdict("answers exactly as the previous checkpoint did")
        return CanaryVerdict("")


def canary_prompts(*, vocab_size: int, max_model_len: int) -> list[list[int]]:
    """Fixed, equally long token sequences: any ids below ``vocab_size`` (they need no meaning)."""
    length = max(2, min(PROMPT_LEN, max_model_len - 1))
    rng = random.Random(20250601)  # noqa: S311  fixed prompts, not a secret
    return [[rng.randrange(vocab_size) for _ in range(length)] for _ in range(NUM_PROMPTS)]


def mean_gap(left: Sequence[float], right: Sequence[float]) -> float:
    """Mean absolute difference of two equally long sequences."""
    return sum(abs(a - b) for a, b in zip(left, right, strict=True)) / len(left)


def reference_answers(
    folder: Path, prompts: Sequence[Sequence[int]], *, dtype: torch.dtype
) -> list[float]:
    """Log-probabilities of the prompts' tokens by transformers on the CPU.

    Args:
        folder: The checkpoint.
        prompts: Equally long token sequences.
        dtype: What to compute in.

    Returns:
        ``len(prompts) * (len(prompts[0]) - 1)`` log-probabilities, in nats.
    """
    # Lazy: transformers takes a second to import.
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    ids = torch.tensor(prompts)
    with _TURN:
        # In evaluation mode: from_pretrained sees to it.
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
        with torch.inference_mode():
            logits = model(ids).logits.float()
    scores = torch.log_softmax(logits[:, :-1], dim=-1).gather(-1, ids[:, 1:, None])
    return [float(value) for value in scores.flatten().tolist()]
