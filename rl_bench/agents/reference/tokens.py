"""Text and chat to token ids and back, as the grader does it.

A prompt and the answer to it are encoded apart, since a model that is asked sees the prompt alone.
A checkpoint without a chat template gets the messages' contents, one a paragraph.
"""

from collections.abc import Sequence
from typing import cast

from transformers import PreTrainedTokenizerBase

from envs.protocol import ChatMessage, Prompt


def encode(tokenizer: PreTrainedTokenizerBase, messages: Sequence[ChatMessage]) -> list[int]:
    """Token ids of a chat prompt, up to where the assistant begins to speak."""
    text = _chat_text(tokenizer, messages, asks=True)
    return _ids(tokenizer, text, is_whole=not tokenizer.chat_template)


def encode_prompt(tokenizer: PreTrainedTokenizerBase, prompt: Prompt) -> list[int]:
    """Token ids of a prompt, chat or text."""
    if prompt.messages is not None:
        return encode(tokenizer, prompt.messages)
    return _ids(tokenizer, prompt.text or "", is_whole=True)


def encode_answer(
    tokenizer: PreTrainedTokenizerBase, prompt: Prompt, answer: str, *, stop: str = ""
) -> list[int]:
    """Token ids of what a model is to generate after ``prompt``, its end included.

    Args:
        tokenizer: The checkpoint's.
        prompt: Decides how the template wraps the answer, e.g. in an empty chain of thought.
        answer: The text.
        stop: The string that ends it; when empty, the end-of-turn token does.
    """
    if stop:
        return _ids(tokenizer, answer + stop)
    end = str(tokenizer.eos_token)
    text = answer
    if prompt.messages is not None and tokenizer.chat_template:
        before = _chat_text(tokenizer, prompt.messages, asks=True)
        said: ChatMessage = {"role": "assistant", "content": answer}
        whole = _chat_text(tokenizer, [*prompt.messages, said])
        text = whole.removeprefix(before) if whole.startswith(before) else answer
    return _ids(tokenizer, text.partition(end)[0] + end)


def decode(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], *, special: bool = False) -> str:
    """The text of ``ids``; special tokens are shown if ``special``."""
    return cast(str, tokenizer.decode(list(ids), skip_special_tokens=not special))


def end_of_turn(tokenizer: PreTrainedTokenizerBase) -> int:
    """The token that ends the assistant's turn."""
    return cast(int, tokenizer.convert_tokens_to_ids(str(tokenizer.eos_token)))


def _chat_text(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[ChatMessage], *, asks: bool = False
) -> str:
    if not tokenizer.chat_template:
        return "".join(f"{message['content']}\n\n" for message in messages)
    rows = [{"role": message["role"], "content": message["content"]} for message in messages]
    return str(tokenizer.apply_chat_template(rows, add_generation_prompt=asks, tokenize=False))


def _ids(tokenizer: PreTrainedTokenizerBase, text: str, *, is_whole: bool = False) -> list[int]:
    """Ids of a text; a ``whole`` one, that no template made, gets the tokenizer's own beginning."""
    encoded = tokenizer(text, add_special_tokens=is_whole, verbose=False)["input_ids"]
    return [int(token) for token in cast(list[int], encoded)]
