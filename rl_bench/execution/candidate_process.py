"""The process of a model's program: loads it and calls its function with what the checker sends.

Nothing here is trusted once the program runs. It is started in a jail, as text, with one pipe of
requests and one of replies; it knows neither the test nor the expected results. A reply is
``["returned", value]`` or ``["raised", text]``.
"""

import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from rl_bench.execution.codec import dumps, loads, read_frame, write_frame

REQUESTS_FD, REPLIES_FD = 3, 4
HELLO = "hello"
MAX_ERROR_CHARS = 300


def main() -> None:
    """Says hello, loads the program, then answers calls until the checker is gone."""
    _send(HELLO, None)
    source, entry_point = loads(read_frame(REQUESTS_FD))
    function = _answer(partial(_load, source, entry_point), keep=True)
    while True:
        try:
            args, kwargs = loads(read_frame(REQUESTS_FD))
        except EOFError:
            return
        _answer(partial(function, *args, **kwargs))


def _load(source: str, entry_point: str) -> Any:  # noqa: ANN401  whatever the program defines
    # Not "__main__": what stands under `if __name__ == "__main__"` is not part of the function. A
    # module, since data classes and pickle look up the module that a class says it is of.
    module = ModuleType("candidate")
    sys.modules[module.__name__] = module
    namespace = module.__dict__
    exec(compile(source, "<program>", "exec"), namespace)  # noqa: S102  what the jail is for
    if not callable(namespace.get(entry_point)):
        raise NameError(f"the program defines no function {entry_point}")
    return namespace[entry_point]


def _answer(act: Callable[[], Any], *, keep: bool = False) -> Any:  # noqa: ANN401  as `act`
    """Sends what ``act`` returns (``None`` for what is kept here) or raises."""
    try:
        value = act()
        content = dumps(["returned", None if keep else value])
    except BaseException as error:  # noqa: BLE001  a model's program raises anything, exits too
        _send("raised", _text(error))
        return None
    write_frame(REPLIES_FD, content)
    return value


def _text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS]
    except BaseException:  # noqa: BLE001  its __str__ is the program's
        return "an exception that cannot be shown"


def _send(kind: str, value: object) -> None:
    write_frame(REPLIES_FD, dumps([kind, value]))
