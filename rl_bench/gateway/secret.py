"""The provider's key, and how it is kept from coming back down.

A provider may repeat a key: in an error, in a header. The key is masked there byte by byte, so that
lengths stay true; nothing else of an answer is touched. Whatever compresses its answer although it
was asked not to cannot be looked into.
"""

import re
import string

from rl_bench.errors import DriverError

MIN_SECRET_CHARS = 12
"""Shorter ones are placeholders such as EMPTY, which local servers take; masking them would alter
words of an answer."""
MAX_HELD_BYTES = 64 * 1024
_START_CHARS = 3
_CARRIED = frozenset(string.ascii_letters + string.digits + string.punctuation)


class Secret:
    """A key that shows itself in no text; empty: none is needed.

    Raises:
        DriverError: It has characters that no header can carry.
    """

    __slots__ = ("_bytes", "_parts", "_shortened", "_value")

    def __init__(self, value: str) -> None:
        if not set(value) <= _CARRIED:
            raise DriverError(
                "the key has blanks or characters that no header can carry",
                cure="Copy it again, without quotes and line ends",
            )
        self._value = value
        self._bytes = value.encode() if len(value) >= MIN_SECRET_CHARS else b""
        self._parts = tuple(self._bytes[:n] for n in range(len(self._bytes) - 1, 0, -1))
        # As providers shorten keys in their errors: sk-proj-********wxyz.
        self._shortened = re.compile(
            re.escape(self._bytes[:_START_CHARS])
            + rb"[\w-]{0,200}(?:[*]{3,}|[.]{3}|\xe2\x80\xa6|\\u2026)[\w*.-]*"
        )

    def __repr__(self) -> str:
        return "<key>" if self._value else "<no key>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a key is not written anywhere")

    def __bool__(self) -> bool:
        return bool(self._value)

    @property
    def can_leak(self) -> bool:
        """Whether it is masked at all; see `MIN_SECRET_CHARS`."""
        return bool(self._bytes)

    def reveal(self) -> str:
        """The key itself, for the header that takes it to the provider."""
        return self._value

    def mask(self, data: bytes) -> bytes:
        """The same bytes, the key in them overwritten."""
        if not self._bytes or self._bytes not in data:
            return data
        return data.replace(self._bytes, b"*" * len(self._bytes))

    def mask_error(self, data: bytes) -> bytes:
        """Like `mask`; a shortened key is overwritten as well."""
        if not self._bytes:
            return data
        return self._shortened.sub(lambda found: b"*" * len(found[0]), self.mask(data))

    def mask_text(self, text: str) -> str:
        """Like `mask_error`, for words."""
        return self.mask_error(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def held(self, data: bytes) -> int:
        """How many bytes at the end of ``data`` could be the beginning of the key."""
        return next((len(part) for part in self._parts if data.endswith(part)), 0)


class KeyFilter:
    """Masks the key in a body that comes in pieces, wherever they are cut.

    A byte is held back only while it could belong to the key: in practice none is, since a piece
    of a stream ends with a line. Errors are short, and held until they are whole.

    Args:
        secret: The key.
        is_error: The answer is an error.
    """

    def __init__(self, secret: Secret, *, is_error: bool) -> None:
        self._secret = secret
        self._is_error = is_error and secret.can_leak
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """What may go on now."""
        data = self._rest + data
        if self._is_error and len(data) <= MAX_HELD_BYTES:
            self._rest = data
            return b""
        self._is_error = False
        data = self._secret.mask(data)
        cut = len(data) - self._secret.held(data)
        self._rest = data[cut:]
        return data[:cut]

    def end(self) -> bytes:
        """What is left when the body is over."""
        rest, self._rest = self._rest, b""
        return self._secret.mask_error(rest) if self._is_error else rest
