"""The environment variable that holds a key: its name, checked before it is shown, and its value.

Keys are written in the place of their variable's name; whatever may be one is never repeated.
"""

import re
from collections.abc import Mapping

from rl_bench.errors import DriverError, PreflightError
from rl_bench.gateway.secret import Secret

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MIN_KEY_CHARS = 16


def check_variable_name(name: str, *, where: str, environ: Mapping[str, str]) -> None:
    """Refuses what is no variable's name, or is likely to be a key.

    Args:
        name: What the config has.
        where: The config's key that has it, e.g. ``driver.key_variable``.
        environ: A variable that is set is one, however it looks.

    Raises:
        PreflightError: It does not show the name.
    """
    if name in environ or (_NAME.fullmatch(name) and not _looks_like_key(name)):
        return
    raise PreflightError(
        f"the value of {where} is no variable's name: it looks like a key, and is not shown",
        cure=f"Export the key as a variable, and give {where}= that variable's name; if it was a "
        "key, take it out of the shell's history",
    )


def read_key(variable: str, *, where: str, environ: Mapping[str, str]) -> str:
    """The key that an environment variable holds.

    Args:
        variable: Its name.
        where: The config's key that names it, e.g. ``driver.key_variable``.
        environ: Where it is looked for.

    Raises:
        PreflightError: It is no variable, is not set, or holds what cannot be a key.
    """
    check_variable_name(variable, where=where, environ=environ)
    key = environ.get(variable, "").strip()
    if not key:
        raise not_set(variable, where=where)
    try:
        Secret(key)
    except DriverError as error:
        raise PreflightError(f"{variable}: {error.message}", cure=error.cure) from None
    return key


def not_set(variable: str, *, where: str) -> PreflightError:
    """Says that a key is missing."""
    return PreflightError(
        f"{variable} is not set in the environment",
        cure=f"Export {variable}, or name another with {where}= (empty: the endpoint needs no key)",
    )


def _looks_like_key(name: str) -> bool:
    """Long, with a digit and small letters: some providers' keys are valid names."""
    has_digit, has_small = any(c.isdigit() for c in name), any(c.islower() for c in name)
    return len(name) >= _MIN_KEY_CHARS and has_digit and has_small
