"""Turns requests into token ids and token ids into text, with the loaded checkpoint's tokenizer.

A submission may bring its own tokenizer, chat template and end-of-sequence token, so none of this
is left to an engine, which keeps what it started with. Template policy: the checkpoint's own chat
template with a generation prompt; a checkpoint without one gets the messages' contents, one a
paragraph. Stop strings are cut from the text: single characters end at the tokens that hold them,
longer ones are looked for as tokens arrive.
"""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from envs.protocol import ChatMessage
from rl_bench.clone import read_regular
from rl_bench.engine.base import GenerationRequest
from rl_bench.engine.growing_texts import GrowingTexts, cutting_tokens
from rl_bench.engine.templates import TemplateFault, shared_renderer
from rl_bench.errors import SubmissionError

_BASE_TOKENIZER = "copy the base model's tokenizer files into the folder"


class CheckpointTokenizer:
    """The tokenizer of one checkpoint folder.

    Attributes:
        stop_ids: Tokens that end an answer: the tokenizer's and the generation config's.

    Raises:
        SubmissionError: ``tokenizer`` or ``chat_template``: it cannot be loaded or used.
    """

    def __init__(self, folder: Path) -> None:
        # Lazy: transformers takes a second to import, and only a grader's process needs it.
        from transformers import AutoTokenizer

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        # Broad: the files are the agent's, and the loader raises whatever it trips over; a panic of
        # its Rust part is no Exception.
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise SubmissionError(
                f"the tokenizer cannot be loaded: {type(error).__name__}: {str(error)[:300]}",
                cure=_BASE_TOKENIZER,
                reason="tokenizer",
                file="tokenizer_config.json",
            ) from error
        self.stop_ids = _stop_ids(folder, self._tokenizer)
        self._ids_that_end: dict[tuple[str, ...], frozenset[int]] = {}
        self._growing = GrowingTexts(
            partial(self._ids, add_special_tokens=False), cuts=cutting_tokens(self._tokenizer)
        )
        self.encode_chats([({"role": "user", "content": "Hello"},)])

    def encode(self, requests: Sequence[GenerationRequest]) -> list[list[int]]:
        """The prompts' token ids, in order, none of them empty.

        Raises:
            SubmissionError: ``chat_template``: the template refused some messages.
        """
        chats = [request.messages for request in requests if request.messages is not None]
        encoded_chats = iter(self.encode_chats(chats))
        texts = [request.text for request in requests if request.text is not None]
        encoded_texts = iter(self._ids(texts, add_special_tokens=True))
        return [
            next(encoded_texts if request.messages is None else encoded_chats)
            for request in requests
        ]

    def encode_chats(self, chats: Sequence[Sequence[ChatMessage]]) -> list[list[int]]:
        """Token ids of chats that the model is to answer."""
        if not self._tokenizer.chat_template:
            texts = ["".join(f"{message['content']}\n\n" for message in chat) for chat in chats]
            return self._ids(texts, add_special_tokens=True)
        if not chats:
            return []
        try:
            texts = shared_renderer().render(
                self._tokenizer.get_chat_template(),
                chats,
                special=self._tokenizer.special_tokens_map,
            )
        # ValueError: there are several templates, and none for chats.
        except (TemplateFault, ValueError) as error:
            raise SubmissionError(
                f"the chat template fails: {str(error)[:300]}",
                cure="use the base model's chat template",
                reason="chat_template",
                file="chat_template.jinja",
            ) from error
        return self._growing.encode(texts)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of an answer, without special tokens and without a token that ended it."""
        ids = list(token_ids)
        if ids and ids[-1] in self.stop_ids:
            ids.pop()
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))

    def ids_that_end(self, stop: tuple[str, ...]) -> frozenset[int] | None:
        """The tokens whose text holds one of ``stop``, if that is how each must appear.

        A single character always lies within one token, so an engine can end at these tokens by
        itself. ``None`` for longer strings, and for a tokenizer without a fast backend.
        """
        if not stop:
            return frozenset()
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None or any(len(text) != 1 or not text.isascii() for text in stop):
            return None
        if stop not in self._ids_that_end:
            ids = range(len(self._tokenizer))
            texts = backend.decode_batch([[token] for token in ids], skip_special_tokens=True)
            self._ids_that_end[stop] = frozenset(
                token
                for token, text in zip(ids, texts, strict=True)
                if any(c in text for c in stop)
            )
        return self._ids_that_end[stop]

    def watch(self, stop: tuple[str, ...]) -> "StopWatch":
        """A watch for ``stop`` strings over one answer."""
        return StopWatch(self, stop)

    def text_stream(self) -> Any:  # noqa: ANN401  an untyped class of `tokenizers`
        """An incremental decoder, or ``None`` for a tokenizer without a fast backend."""
        from tokenizers.decoders import DecodeStream

        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            return None
        stream = DecodeStream(skip_special_tokens=True)
        return lambda token: stream.step(backend, token) or ""

    def _ids(self, texts: Sequence[str], *, add_special_tokens: bool) -> list[list[int]]:
        if not texts:
            return []
        encoded = self._tokenizer(list(texts), add_special_tokens=add_special_tokens)["input_ids"]
        # Engines refuse an empty prompt; a model's first token follows a beginning, if it has one.
        first = self._tokenizer.bos_token_id
        begin = [min(self.stop_ids, default=0) if first is None else first]
        return [list(ids) or begin for ids in encoded]


class StopWatch:
    """Collects one answer's tokens until a stop string appears in their text.

    ``token_ids`` ends with the token that completed the stop string, so that counts do not depend
    on how many tokens the engine hands over at a time.
    """

    def __init__(self, tokenizer: CheckpointTokenizer, stop: tuple[str, ...]) -> None:
        self._tokenizer = tokenizer
        self._stop = stop
        self._keep = max(map(len, stop), default=1) - 1
        self._step = tokenizer.text_stream() if stop else None
        self._tail = ""
        self.token_ids: list[int] = []

    def feed(self, token_ids: Sequence[int]) -> str | None:
        """Takes the next tokens; returns the final text once a stop string is complete."""
        if not self._stop:
            self.token_ids.extend(token_ids)
            return None
        for token in token_ids:
            self.token_ids.append(token)
            if self._may_have_stopped(token) and (text := self._cut()) is not None:
                return text
        return None

    def _may_have_stopped(self, token: int) -> bool:
        if self._step is None:
            return True
        window = self._tail + self._step(token)
        self._tail = window[-self._keep :] if self._keep else ""
        return any(stop in window for stop in self._stop)

    def _cut(self) -> str | None:
        text = self._tokenizer.decode(self.token_ids)
        places = [place for stop in self._stop if (place := text.find(stop)) >= 0]
        return text[: min(places)] if places else None


def _stop_ids(folder: Path, tokenizer: Any) -> frozenset[int]:  # noqa: ANN401  transformers' own
    """End-of-sequence ids: the tokenizer's, and the generation config's or else the config's."""
    ids = {tokenizer.eos_token_id}
    for name in ("generation_config.json", "config.json"):
        if not (folder / name).is_file():
            continue
        try:
            value = json.loads(read_regular(folder / name)).get("eos_token_id")
        except (ValueError, AttributeError, RecursionError) as error:
            raise SubmissionError(
                f"{name} is not a JSON object",
                cure="copy the base model's, or delete it",
                reason="malformed_json",
                file=name,
            ) from error
        ids.update(value if isinstance(value, list) else [value])
        break
    return frozenset(value for value in ids if isinstance(value, int))
