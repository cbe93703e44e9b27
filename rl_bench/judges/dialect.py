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

_SUBSTITUTES: Mapping[str, str | None] = {
    "max_tokens": "max_completion_tokens",
    "temperature": None,
    "seed": None,
    "response_format": None,
}
"""Parameters that verdicts can do without, and what says the same."""
_CODES = frozenset({"unsupported_parameter", "unsupported_value", "unknown_parameter"})
_WORDS = re.compile(
    r"unsupported|not support|unknown|unrecogni[sz]ed|unexpected|not permitted|not allowed"
    r"|deprecated|only the default",
    re.IGNORECASE,
)


class Dialect:
    """The parameters of one endpoint and model.

    Args:
        name: Of the judge, for the log.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._refused: list[str] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """What was changed, for the record."""
        return tuple(
            f"refuses {name}: " + (f"{other} is sent" if other else "its own is used")
            for name in self._refused
            for other in (_SUBSTITUTES[name],)
        )

    def spoken(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """``body`` with the parameters that the endpoint takes."""
        spoken = dict(body)
        for name in self._refused:
            value, other = spoken.pop(name, None), _SUBSTITUTES[name]
            if other is not None and value is not None:
                spoken[other] = value
        return spoken

    def learn(self, body: Mapping[str, Any], *, param: str, code: str, message: str) -> bool:
        """Takes a refusal of ``body`` in; whether asking again, differently, makes sense."""
        if code not in _CODES and not _WORDS.search(message):
            return False
        named = [name for name in _SUBSTITUTES if name in body and _names(name, param, message)]
        for name in named:
            if name not in self._refused:  # another question may have learnt it meanwhile
                self._refused.append(name)
                LOG.warning("judge %s %s", self._name, self.notes[-1])
        return bool(named)


def _names(name: str, param: str, message: str) -> bool:
    if param:
        return param == name
    return re.search(rf"(?<!\w){name}(?!\w)", message) is not None
