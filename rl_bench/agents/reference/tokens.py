"""Text and chat to token ids and back, typed."""

from collections.abc import Sequence
from typing import cast

from transformers import PreTrainedTokenizerBase

from envs.protocol import ChatMessage


def encode(tokenizer: PreTrainedTokenizerBase, messages: Sequence[ChatMessage]) -> list[int]:
    """Token ids of a chat prompt, up to where the assistant begins to speak."""
    rows = [{"role": message["role"], "content": message["content"]} for message in messages]
    ids = tokenizer.apply_chat_template(
        rows, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    return [int(token) for token in cast(list[int], ids)]


def decode(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], *, special: bool = False) -> str:
    """The text of ``ids``; special tokens are shown if ``special``."""
    return cast(str, tokenizer.decode(list(ids), skip_special_tokens=not special))


def end_of_turn(tokenizer: PreTrainedTokenizerBase) -> int:
    """The token that ends the assistant's turn."""
    return cast(int, tokenizer.convert_tokens_to_ids(str(tokenizer.eos_token)))
