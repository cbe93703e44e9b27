"""A space of any text: Gymnasium's own knows only texts over a small, listed alphabet."""

import string
from typing import Any

from gymnasium import spaces


class AnyText(spaces.Text):
    """Texts of every script, up to ``max_length`` characters; samples are printable ASCII."""

    def __init__(self, max_length: int) -> None:
        super().__init__(max_length, min_length=0, charset=string.printable)

    def contains(self, x: Any) -> bool:  # noqa: ANN401  Gymnasium's own signature
        """Whether ``x`` is a text that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length
