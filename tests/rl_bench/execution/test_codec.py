"""Plain data cross unchanged; nothing else crosses."""

import math
from collections import Counter, OrderedDict
from datetime import date
from enum import IntEnum
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_bench.execution.codec import MAX_DEPTH, MAX_FRAME_BYTES, dumps, loads

HASHABLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner).map(tuple) | st.frozensets(inner),
    max_leaves=6,
)
PLAIN = st.recursive(
    HASHABLE,
    lambda inner: st.lists(inner) | st.dictionaries(HASHABLE, inner) | st.sets(HASHABLE),
    max_leaves=10,
)


def same(one: Any, other: Any) -> bool:  # noqa: ANN401  plain data
    """Equal, and of the same types all the way down."""
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, list | tuple):
        return all(same(a, b) for a, b in zip(one, other, strict=True))
    return True


@settings(max_examples=50, deadline=None)
@given(PLAIN)
def test_plain_data_cross_unchanged(value: object) -> None:
    assert same(loads(dumps(value)), value)


def test_edges_of_types() -> None:
    edges = [math.inf, -math.inf, 5e-324, 10**5000, -1, "\ud800\0", b"", True, None]
    # Compared by hand: pytest would print the long number, which Python refuses.
    is_same = same(loads(dumps(edges)), edges)
    assert is_same
    assert math.isnan(loads(dumps(math.nan)))
    assert math.copysign(1.0, loads(dumps(-0.0))) == -1.0


class Colour(IntEnum):
    """A whole number with a name."""

    RED = 3


class Point(NamedTuple):
    """A tuple with names."""

    x: int
    y: int


class AlwaysEqual(int):
    """What a cheat returns."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]  # on purpose


@pytest.mark.parametrize(
    ("value", "built_on"),
    [
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(x=1), {"x": 1}),
        (Point(1, 2), (1, 2)),
        (Colour.RED, 3),
        (AlwaysEqual(7), 7),
    ],
)
def test_subclasses_arrive_as_what_they_are_built_on(value: object, built_on: object) -> None:
    assert same(loads(dumps(value)), built_on)


@pytest.mark.parametrize(
    "value", [object(), date(2000, 1, 1), range(3), iter([1]), print, [object()]]
)
def test_other_values_do_not_cross(value: object) -> None:
    with pytest.raises(ValueError, match="is no plain data"):
        dumps(value)


def test_depth_and_length_are_bounded() -> None:
    nested: list[Any] = []
    for _ in range(MAX_DEPTH):
        nested = [nested]
    assert same(loads(dumps(nested)), nested)
    with pytest.raises(ValueError, match="nested too deeply"):
        dumps([nested])
    with pytest.raises(ValueError, match="bytes of data"):
        dumps("x" * MAX_FRAME_BYTES)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1",
        b"1.5",
        b"NaN",
        b"{}",
        b"[]",
        b'["x", null]',
        b'["i", 5]',
        b'["i", "zz"]',
        b'["i", "1", "2"]',
        b'["f", "0x1p99999"]',
        b'["c", "1"]',
        b'["b", "0"]',
        b'["m", "one"]',
        b'["m", "1e999999999"]',
        b'["q", "1 0"]',
        b'["q", "1"]',
        b'["q", "' + b"f" * 100_000 + b' 1"]',
        b'["d", "a"]',
        b'["s", ["l"]]',
        b"[" * 100_000,
        b'["l", ' * 200 + b"null" + b"]" * 200,
        b"\xff\xfe",
        b'[["l"]]',
    ],
)
def test_what_encode_never_writes_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  json's own messages differ
        loads(content)
