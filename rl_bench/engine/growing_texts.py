"""Token ids of texts that each begin as an earlier one did: only what is new is encoded.

An episode's prompt holds all that was said before, so encoding every prompt whole costs the square
of its length. A tokenizer of the ``tokenizers`` library first splits a text at its added tokens
(``<|im_start|>``, …) and then treats each stretch between two of them by itself. So a text may be
cut before one of them, and the ids of the parts put together. The first results of a tokenizer
are compared with those of the whole text; one that differs ends the saving for that tokenizer.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Encode = Callable[[Sequence[str]], list[list[int]]]
"""Token ids of texts, without any that the tokenizer would add."""

MAX_KEPT = 1024
"""Beginnings whose ids are kept: more than episodes are ever played at a time."""
NUM_LOOKED_AT = 12
"""Places of a text, from its end, where an earlier one may have been cut: a turn adds a few."""
NUM_COMPARED = 8
NOWHERE = re.compile("(?!)")


def cutting_tokens(tokenizer: Any) -> re.Pattern[str]:  # noqa: ANN401  an untyped class
    """Finds the special tokens of a tokenizer of transformers before which a text may be cut.

    The library takes the added token that begins first, of those the longest. So a token is safe
    when none that begins before it could reach into it, and when it looks at no neighbour itself.
    """
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        return NOWHERE
    # Those that are looked for in the normalised text are found within the stretches, later.
    added = [token for token in tokenizer.added_tokens_decoder.values() if not token.normalized]
    texts = {token.content for token in added if token.content}
    safe = [
        token.content
        for token in added
        if token.special
        and not (token.lstrip or token.single_word)
        and re.match(r"[^\w\s]", token.content)
        and not any(_reaches_into(text, token.content) for text in texts)
    ]
    return re.compile("|".join(map(re.escape, safe))) if safe else NOWHERE


def _reaches_into(text: str, token: str) -> bool:
    """Whether ``text`` can stand where ``token`` does, or end within it."""
    if text != token and token in text:
        return True
    return any(text.endswith(token[:length]) for length in range(1, len(token)))


class _Cut(NamedTuple):
    """``known`` are the ids of a text's beginning, if there are any; the rest is to be encoded.

    ``middle`` reaches to the last place for a cut, and ``end`` is what follows.
    """

    beginning: str
    known: list[int]
    middle: str
    end: str


class GrowingTexts:
    """Encodes, and remembers how texts began; may be used by several threads.

    Args:
        encode: Encodes whole texts.
        cuts: Finds the tokens before which a text may be cut.
    """

    def __init__(self, encode: Encode, *, cuts: re.Pattern[str]) -> None:
        self._encode = encode
        self._cuts = cuts
        self._kept: OrderedDict[str, list[int]] = OrderedDict()
        self._mutex = threading.Lock()
        self._num_to_compare = NUM_COMPARED

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, in order."""
        cuts = [self._cut(text) for text in texts]
        pieces = [piece for cut in cuts for piece in (cut.middle, cut.end) if piece]
        encoded = iter(self._encode(pieces))
        found = []
        for cut in cuts:
            ids = cut.known + next(encoded) if cut.middle else cut.known
            if cut.beginning:
                self._keep(cut.beginning, ids)
            found.append(ids + next(encoded) if cut.end else ids)
        if self._num_to_compare and any(cut.beginning for cut in cuts):
            return self._compared(texts, found)
        return found

    def _cut(self, text: str) -> _Cut:
        places = [match.start() for match in self._cuts.finditer(text)]
        if not places or not places[-1]:
            return _Cut("", [], text, "")
        last = places[-1]
        with self._mutex:
            for place in reversed(places[-NUM_LOOKED_AT:]):
                known = self._kept.get(text[:place])
                if known is not None:
                    return _Cut(text[:last], known, text[place:last], text[last:])
        return _Cut(text[:last], [], text[:last], text[last:])

    def _keep(self, beginning: str, ids: list[int]) -> None:
        with self._mutex:
            self._kept[beginning] = ids
            self._kept.move_to_end(beginning)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)

    def _compared(self, texts: Sequence[str], found: list[list[int]]) -> list[list[int]]:
        self._num_to_compare -= 1
        whole = self._encode(texts)
        if found != whole:
            self._cuts = NOWHERE
        return whole
