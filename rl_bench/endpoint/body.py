"""Bodies on the OpenAI-compatible wire, as far as all who ask read and write them alike."""

import json
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from rl_bench.endpoint.failures import AskError

C = TypeVar("C", bound=BaseModel)

CHARS_PER_TOKEN = 4
"""For endpoints that do not count: about right for English."""
MAX_SHOWN_CHARS = 80
MAX_COUNT = 10**9
"""Tokens of a prompt or an answer; an endpoint that counts more does not count."""


class Response(BaseModel, Generic[C]):
    """What responses share. ``error`` stands in some gateways' bodies of status 200."""

    choices: list[C] = []
    usage: object = None
    error: object = None


R = TypeVar("R", bound=Response[Any])


def read_body(kind: type[R], content: bytes, *, what: str) -> R:
    """The body of a response with status 200.

    Args:
        kind: Its class.
        content: As it came.
        what: The class in words, e.g. ``chat completion``.

    Raises:
        AskError: It is of another kind.
    """
    try:
        response = kind.model_validate_json(content)
    except ValidationError as error:
        # Of JSON the head says nothing, and being different each time it would hide what is common.
        head = content.lstrip()[:MAX_SHOWN_CHARS].decode(errors="replace")
        shown = "" if head.startswith("{") else f": {head!r}"
        raise AskError(f"the body is no {what}{shown}") from error
    if response.error is not None and not response.choices:
        raise AskError(f"an error in a response of status 200: {json.dumps(response.error)}")
    return response


def encodable(text: str) -> str:
    """Without halves of characters, which a model can write and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def count_or_estimate(value: object, texts: Iterable[str]) -> int:
    """Tokens of ``texts``: the endpoint's count ``value``, or an estimate where that is none."""
    if isinstance(value, int) and 0 <= value <= MAX_COUNT:
        return value
    return sum(map(len, texts)) // CHARS_PER_TOKEN
