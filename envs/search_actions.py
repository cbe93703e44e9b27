"""How a search agent says what it does: ``search[...]`` or ``answer[...]``, after a thought or not.

Shared by the environment, which obeys, and the prompt protocol, which cuts a completion there.
"""

import re
from dataclasses import dataclass
from typing import Literal

_BEGIN = re.compile(r"(?:^|\n|Action:)[ \t]*(search|answer)[ \t]*\[", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAction:
    """An action; ``end`` is where it ends in the text that it was found in."""

    kind: Literal["search", "answer"]
    argument: str
    end: int


def first_action(text: str) -> SearchAction | None:
    """The first action in ``text``: at the start of a line, or after ``Action:``.

    Its argument reaches to the bracket that closes the first one; where none does, to the last
    bracket, or else to the end: an answer that was cut off is still an answer.
    """
    found = _BEGIN.search(text)
    if found is None:
        return None
    end = _closing(text, found.end())
    return SearchAction(
        kind="search" if found[1].lower() == "search" else "answer",
        argument=text[found.end() : end].strip(),
        end=min(end + 1, len(text)),
    )


def _closing(text: str, start: int) -> int:
    depth = 1
    for bracket in re.finditer(r"[\[\]]", text[start:]):
        depth += 1 if bracket[0] == "[" else -1
        if depth == 0:
            return start + bracket.start()
    last = text.rfind("]", start)
    return len(text) if last < 0 else last
