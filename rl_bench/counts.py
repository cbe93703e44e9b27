"""Counts in words, as every message and table has them."""


def plural(num: float, noun: str, several: str = "") -> str:
    """``1 run``, ``2 runs``, ``1,200 runs``.

    Args:
        num: How many.
        noun: What one of them is called.
        several: What more are called, where that is not the noun and an ``s``.
    """
    shown = f"{num:,}" if isinstance(num, int) else f"{num:g}"
    return f"{shown} {noun if num == 1 else several or f'{noun}s'}"
