"""Plain data as text, the only thing that crosses between a program and its checker.

``None``, bool, int, float, complex, `Decimal`, `Fraction`, str, bytes, list, tuple, set, frozenset
and dict cross as themselves; the receiver builds exactly these types from text, so no method of the
sender's comes along.
The sender turns subclasses (a `Counter`, a named tuple) into what they are built on. It may lie,
and then the receiver still holds plain data or a `ValueError`. Imports the standard library only.
"""

import json
import os
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_DEPTH = 64
MAX_FRAME_BYTES = 4 << 20
MAX_EXPONENT = 100_000
"""Of a `Decimal`: a few letters must not become a whole number that fills the memory."""
MAX_FRACTION_CHARS = 20_000
"""Of a `Fraction`, in hexadecimal: reducing one takes time that grows with the square of it."""
_HEADER_BYTES = 4


def encode(value: object, *, depth: int = 0) -> Any:  # noqa: ANN401  any JSON
    """``value`` as JSON data.

    Raises:
        ValueError: It is no plain data, or nested deeper than `MAX_DEPTH`.
    """
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    for kind, tag, parts in _KINDS:
        if isinstance(value, kind):
            return [tag, *(encode(part, depth=depth + 1) for part in parts(value))]
    for kind, tag, text in _SCALARS:
        if isinstance(value, kind):
            return [tag, text(value)]
    raise ValueError(f"a value of type {type(value).__name__} is no plain data")


def decode(data: Any, *, depth: int = 0) -> Any:  # noqa: ANN401  plain data of any kind
    """The value that `encode` wrote, made of exactly the types that cross.

    Raises:
        ValueError: ``data`` is nothing that `encode` writes.
    """
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if data is None or type(data) in (bool, str):
        return data
    if type(data) is not list or not data or type(data[0]) is not str:
        raise ValueError("malformed value")
    tag, *parts = data
    if tag in _BUILDERS:
        return _BUILDERS[tag]([decode(part, depth=depth + 1) for part in parts])
    if tag not in _READERS or len(parts) != 1 or type(parts[0]) is not str:
        raise ValueError("malformed value")
    return _READERS[tag](parts[0])


def _read_complex(text: str) -> complex:
    real, imaginary = text.split()
    return complex(float.fromhex(real), float.fromhex(imaginary))


def _read_decimal(text: str) -> Decimal:
    value = Decimal(text)
    if value.is_finite() and abs(value.adjusted()) > MAX_EXPONENT:
        raise ValueError("exponent out of range")
    return value


def _read_fraction(text: str) -> Fraction:
    if len(text) > MAX_FRACTION_CHARS:
        raise ValueError("a fraction of too many digits")
    numerator, denominator = text.split()
    return Fraction(int(numerator, 16), int(denominator, 16))


def _pairs(parts: list[Any]) -> dict[Any, Any]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


_KINDS: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
    (list, "l", list.__iter__),
    (tuple, "t", tuple.__iter__),
    (dict, "d", lambda value: (part for pair in dict.items(value) for part in pair)),
    (set, "s", set.__iter__),
    (frozenset, "z", frozenset.__iter__),
)
_SCALARS: tuple[tuple[type, str, Callable[[Any], str]], ...] = (
    # Hexadecimal: exact for floats, linear in time for long whole numbers.
    (int, "i", lambda value: int.__format__(int.__int__(value), "x")),
    (float, "f", float.hex),
    (complex, "c", lambda value: f"{value.real.hex()} {value.imag.hex()}"),
    (bytes, "b", bytes.hex),
    (Decimal, "m", Decimal.__str__),
    (Fraction, "q", lambda value: f"{value.numerator:x} {value.denominator:x}"),
)
_BUILDERS: dict[str, Callable[[list[Any]], Any]] = {
    "l": list,
    "t": tuple,
    "d": _pairs,
    "s": set,
    "z": frozenset,
}
_READERS: dict[str, Callable[[str], Any]] = {
    "i": lambda text: int(text, 16),
    "f": float.fromhex,
    "c": _read_complex,
    "b": bytes.fromhex,
    "m": _read_decimal,
    "q": _read_fraction,
}


def _no_number(_text: str) -> None:
    raise ValueError("malformed value")


def dumps(value: object) -> bytes:
    """``value`` as the content of one frame.

    Raises:
        ValueError: It is no plain data, too deep or too long.
    """
    content = json.dumps(encode(value)).encode("ascii")
    if len(content) > MAX_FRAME_BYTES:
        raise ValueError(f"more than {MAX_FRAME_BYTES} bytes of data")
    return content


def loads(content: bytes) -> Any:  # noqa: ANN401  plain data of any kind
    """The value of a frame, whoever wrote it.

    Raises:
        ValueError: The content is nothing that `dumps` writes.
    """
    try:
        data = json.loads(
            content.decode("ascii"),
            parse_int=_no_number,
            parse_float=_no_number,
            parse_constant=_no_number,
        )
        return decode(data)
    # A set of lists, a number out of range, no number at all, brackets without end.
    except (TypeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"malformed value: {error}") from error


def write_frame(fd: int, content: bytes) -> None:
    """Writes one frame; blocks until all of it is taken.

    Raises:
        OSError: The other side is gone.
    """
    view = memoryview(len(content).to_bytes(_HEADER_BYTES, "big") + content)
    while view:
        view = view[os.write(fd, view) :]


def read_frame(fd: int) -> bytes:
    """The content of the next frame; blocks until it is there.

    Raises:
        EOFError: The other side is gone.
        ValueError: It announces more than `MAX_FRAME_BYTES`.
    """
    size = int.from_bytes(_read_exactly(fd, _HEADER_BYTES), "big")
    if size > MAX_FRAME_BYTES:
        raise ValueError(f"more than {MAX_FRAME_BYTES} bytes of data")
    return _read_exactly(fd, size)


def _read_exactly(fd: int, size: int) -> bytes:
    blocks = []
    while size:
        block = os.read(fd, min(size, 1 << 16))
        if not block:
            raise EOFError("the process ended")
        blocks.append(block)
        size -= len(block)
    return b"".join(blocks)
