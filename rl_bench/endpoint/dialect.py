"""What an endpoint does not take of a chat request, learnt from its refusals.

Endpoints that call themselves OpenAI-compatible differ: newer models want ``max_completion_tokens``
for ``max_tokens`` and no ``temperature`` but their own. A refusal that names such a parameter is
heeded once, remembered and reported; all others are the caller's.
"""

import logging
import re
from collections.abc import Mapping
from typing import Any

LOG = logging.getLogger(__name__)

_CODES = frozenset({"unsupported_parameter", "unsupported_value", "unknown_parameter"})
_WORDS = re.compile(
    r"unsupported|not support|unknown|unrecogni[sz]ed|unexpected|not permitted|not allowed"
    r"|deprecated|only the default",
    re.IGNORECASE,
)


class Dialect:
    """The parameters of one endpoint and model.

    Args:
        name: Of whoever is asked, for the log.
        substitutes: Parameters that the asker can do without, and what says the same; ``None``:
            nothing does.
    """

    def __init__(self, name: str, *, substitutes: Mapping[str, str | None]) -> None:
        self._name = name
        self._substitutes = substitutes
        self._refused: list[str] = []

    @property
    def max_tries(self) -> int:
        """As many as there are parameters to learn about, and one more."""
        return len(self._substitutes) + 1

    @property
    def notes(self) -> tuple[str, ...]:
        """What was changed, for the record."""
        return tuple(
            f"refuses {name}: " + (f"{other} is sent" if other else "its own is used")
            for name in self._refused
            for other in (self._substitutes[name],)
        )

    def spoken(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """``body`` with the parameters that the endpoint takes."""
        spoken = dict(body)
        for name in self._refused:
            value, other = spoken.pop(name, None), self._substitutes[name]
            if other is not None and value is not None:
                spoken[other] = value
        return spoken

    def learn(self, body: Mapping[str, Any], *, param: str, code: str, message: str) -> bool:
        """Takes a refusal of ``body`` in; whether asking again, differently, makes sense."""
        if code not in _CODES and not _WORDS.search(message):
            return False
        known = [name for name in self._substitutes if name in body]
        named = [name for name in known if _names(name, param, message)]
        for name in named:
            if name not in self._refused:  # another question may have learnt it meanwhile
                self._refused.append(name)
                LOG.warning("%s %s", self._name, self.notes[-1])
        return bool(named)


def _names(name: str, param: str, message: str) -> bool:
    if param:
        return param == name
    return re.search(rf"(?<!\w){name}(?!\w)", message) is not None
