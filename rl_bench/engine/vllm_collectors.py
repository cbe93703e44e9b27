"""What is made of the tokens and scores that an engine's core says; see `vllm_requests`."""

from collections.abc import Sequence
from typing import Any

from rl_bench.engine.base import Completion, FinishReason
from rl_bench.engine.prompts import CheckpointTokenizer
from rl_bench.engine.vllm_requests import VllmRequests


class CompletionCollector:
    """An answer's text, cut at a stop string."""

    def __init__(
        self, tokenizer: CheckpointTokenizer, stop: tuple[str, ...], *, num_prompt_tokens: int
    ) -> None:
        self._tokenizer = tokenizer
        self._watch = tokenizer.watch(stop)
        self._num_prompt_tokens = num_prompt_tokens

    def take(self, output: Any) -> Completion | None:
        """See `Collector.take`; ``None`` also when the engine ended without an answer."""
        text = self._watch.feed(output.new_token_ids)
        if text is not None:
            return self._completion(text, FinishReason.STOP)
        # vLLM's reasons by their words: their numbers are no promise of its.
        match str(output.finish_reason):
            case "stop":
                reason = FinishReason.STOP
            case "length" | "repetition":
                reason = FinishReason.LENGTH
            case _:
                return None
        return self._completion(self._tokenizer.decode(self._watch.token_ids), reason)

    def _completion(self, text: str, reason: FinishReason) -> Completion:
        return Completion(
            text=text,
            num_prompt_tokens=self._num_prompt_tokens,
            num_tokens=len(self._watch.token_ids),
            finish_reason=reason,
        )


class ScoreCollector:
    """Log-probability of each token of a prompt but the first, in nats."""

    def __init__(self) -> None:
        self._scores: list[float] = []

    def take(self, output: Any) -> list[float] | None:
        """See `Collector.take`."""
        tensors = output.new_prompt_logprobs_tensors
        if tensors is not None:
            # Columns: the token itself, then the most likely ones, of which none are asked for.
            self._scores += [float(row[0]) for row in tensors.logprobs.tolist()]
        return self._scores if output.finished else None


async def ask_for_scores(requests: VllmRequests, token_ids: Sequence[int]) -> list[float]:
    """Log-probability of each token but the first, in nats.

    Raises:
        GraderError: The engine gave it up or was stopped.
    """
    from vllm import SamplingParams

    params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0, detokenize=False)
    answer = await requests.ask(token_ids, requests.checked(params), ScoreCollector())
    try:
        return await answer
    finally:
        await requests.drop([answer])
