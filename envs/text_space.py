"""A space of any text: Gymnasium's own knows only texts over a small, listed alphabet.

`gymnasium.vector.AsyncVectorEnv` with its default ``shared_memory=True`` reads texts once, when it
is made, and shows them unchanged ever after (1.4.0). A space of this kind makes it refuse instead,
with the cure: ``shared_memory=False``.
"""

import string
from typing import Any, NoReturn

from gymnasium import spaces
from gymnasium.error import CustomSpaceError
from gymnasium.vector.utils import create_shared_memory


class AnyText(spaces.Text):
    """Texts of every script, up to ``max_length`` characters; samples are printable ASCII."""

    def __init__(self, max_length: int) -> None:
        super().__init__(max_length, min_length=0, charset=string.printable)

    def contains(self, x: Any) -> bool:  # noqa: ANN401  Gymnasium's own signature
        """Whether ``x`` is a text that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length


@create_shared_memory.register(AnyText)
def _refuse(space: AnyText, n: int = 1, ctx: object = None) -> NoReturn:
    raise CustomSpaceError("texts are not shared through memory: pass shared_memory=False")
