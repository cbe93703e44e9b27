"""The part of an answer that counts, when a model reasons between tags first.

The rule of the published evaluation (OpenCompass, ``extract-non-reasoning-content``, which
Agent² RL-Bench applies to every model): without an opening tag what follows the last closing tag
counts; else every tagged part is cut out. A part that is never closed stays.
"""

import re

_OPEN, _CLOSE = "<think>", "</think>"
_TAGGED = re.compile(f"{_OPEN}.*?{_CLOSE}", re.DOTALL)


def without_reasoning(text: str) -> str:
    """``text`` without its reasoning; unchanged if there is none."""
    if _CLOSE not in text:
        return text
    if _OPEN not in text:
        return text.rpartition(_CLOSE)[2].strip()
    return _TAGGED.sub("", text).strip()
