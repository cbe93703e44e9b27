"""A batched sampler with a key-value cache that outlives a turn.

Many conversations advance together. Each keeps its own length: chunks are padded on the right,
padding is masked, and positions are counted a row. A finished row is dropped from the cache, so a
batch gets cheaper as its episodes end. Every sampled token comes with its log-probability under
the sampling distribution, which is what a policy gradient needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from transformers import DynamicCache, PreTrainedModel


@dataclass(slots=True)
class Conversation:
    """One conversation's tokens after its prompt.

    Attributes:
        prompt_ids: The tokens before the first generated one.
        completion_ids: Generated and environment tokens, in order.
        model_mask: 1 where the model chose the token, 0 where the environment did.
        logprobs: Log-probability of each token; 0 for the environment's.
    """

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    model_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Length of prompt and completion together."""
        return len(self.prompt_ids) + len(self.completion_ids)

    def append(self, token: int, *, logprob: float, chosen: bool) -> None:
        """Adds one token of the model (``chosen``) or of the environment."""
        self.completion_ids.append(token)
        self.model_mask.append(int(chosen))
        self.logprobs.append(logprob)

    def observe(self, tokens: Sequence[int]) -> None:
        """Adds the environment's tokens."""
        for token in tokens:
            self.append(token, logprob=0.0, chosen=False)


class BatchSampler:
    """Advances a batch of conversations, one turn at a time.

    Args:
        model: A causal language model in evaluation mode.
        end_id: The token that ends a turn.
        temperature: 0 is greedy.
        generator: Source of randomness; ``None`` takes torch's global one.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        end_id: int,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        self._model = model
        self._end_id = end_id
        self._temperature = temperature
        self._generator = generator
        self._cache = DynamicCache()
        self._rows: list[Conversation] = []
        self._fed: list[int] = []
        self._mask = torch.zeros(0, 0, dtype=torch.long)

    def start(self, prompts: Sequence[Sequence[int]]) -> list[Conversation]:
        """Begins a batch of conversations; nothing is computed yet."""
        self._cache = DynamicCache()
        self._rows = [Conversation(list(prompt)) for prompt in prompts]
        self._fed = [0] * len(self._rows)
        self._mask = torch.zeros(len(self._rows), 0, dtype=torch.long)
        return list(self._rows)

    def keep(self, rows: Sequence[Conversation]) -> None:
        """Drops every conversation that is not in ``rows`` from the batch."""
        wanted = {id(row) for row in rows}
        index = [i for i, row in enumerate(self._rows) if id(row) in wanted]
        if len(index) == len(self._rows):
            return
        if self._mask.shape[1]:
            self._cache.batch_select_indices(torch.tensor(index, dtype=torch.long))
        self._rows = [self._rows[i] for i in index]
        self._fed = [self._fed[i] for i in index]
        self._mask = self._mask[index]

    @torch.no_grad()
    def turn(self, *, max_tokens: int, is_last: bool = False) -> list[list[int]]:
        """Samples one turn of every conversation in the batch.

        Args:
            max_tokens: Tokens a turn, its end token included.
            is_last: The conversations end with this turn, so each is dropped as soon as it is over.

        Returns:
            For each row of the batch the tokens of its turn, without the end token.
        """
        rows = list(self._rows)
        turns: dict[int, list[int]] = {id(row): [] for row in rows}
        ended: set[int] = set()
        for _ in range(max_tokens):
            tokens, logprobs = self._sample(self._feed())
            for row, token, logprob in zip(self._rows, tokens, logprobs, strict=True):
                if id(row) in ended:
                    continue
                row.append(token, logprob=logprob, chosen=True)
                if token == self._end_id:
                    ended.add(id(row))
                else:
                    turns[id(row)].append(token)
            if len(ended) == len(rows):
                break
            if is_last:
                self.keep([row for row in self._rows if id(row) not in ended])
        return [turns[id(row)] for row in rows]

    def _feed(self) -> torch.Tensor:
        """Feeds what has not been fed; returns each row's next-token logits, (rows, vocabulary).

        A row whose turn has ended feeds nothing more than its end token; its logits are unused.
        """
        chunks = [self._unfed(i) for i in range(len(self._rows))]
        width = max(1, *(len(chunk) for chunk in chunks))
        ids = torch.full((len(chunks), width), self._end_id, dtype=torch.long)
        mask = torch.zeros(len(chunks), width, dtype=torch.long)
        for i, chunk in enumerate(chunks):
            ids[i, : len(chunk)] = torch.tensor(chunk, dtype=torch.long)
            mask[i, : len(chunk)] = 1
        offset = torch.tensor(self._fed, dtype=torch.long)[:, None]
        self._mask = torch.cat([self._mask, mask], dim=1)
        hidden = self._model.base_model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=offset + torch.arange(width)[None, :],
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state
        last = (mask.sum(dim=1) - 1).clamp(min=0)
        for i, chunk in enumerate(chunks):
            self._fed[i] += len(chunk)
        logits: torch.Tensor = self._model.lm_head(hidden[torch.arange(len(chunks)), last])
        return logits.float()

    def _unfed(self, index: int) -> list[int]:
        row, fed = self._rows[index], self._fed[index]
        if fed < len(row.prompt_ids):
            return row.prompt_ids[fed:] + row.completion_ids
        return row.completion_ids[fed - len(row.prompt_ids) :]

    def _sample(self, logits: torch.Tensor) -> tuple[list[int], list[float]]:
        if self._temperature == 0:
            tokens = logits.argmax(dim=-1)
            logprobs = torch.log_softmax(logits, dim=-1)
        else:
            logprobs = torch.log_softmax(logits / self._temperature, dim=-1)
            tokens = self._draw(logprobs.exp())
        chosen = logprobs.gather(1, tokens[:, None])[:, 0]
        return tokens.tolist(), chosen.tolist()

    def _draw(self, probabilities: torch.Tensor) -> torch.Tensor:
        """One token a row, by inverting the distribution: many times faster than multinomial."""
        cumulative = probabilities.double().cumsum(dim=-1)
        point = torch.rand(len(cumulative), 1, dtype=torch.double, generator=self._generator)
        tokens = torch.searchsorted(cumulative, point * cumulative[:, -1:], right=True)[:, 0]
        return tokens.clamp(max=probabilities.shape[-1] - 1)
