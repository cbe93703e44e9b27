"""The two dialects of ALFWorld's games, which differ in how an object is put down.

Games up to release 2.1.1 know ``put X in/on Y``, which is also what the published ReAct examples
say; since 2.1.2 they know ``move X to Y`` only, and answer the other form "Nothing happens.". A
game file holds its own grammar, so the dialect is read from the game and never configured.

The older texts are those that ALFWorld's own script ``scripts/patch_tw-pddl.py`` replaced when it
brought its games from 2.1.1 to 2.1.2: command and answer of putting, the answer of arriving (it
named the location, not the receptacle), and no command ``help``.
"""

import re
from enum import StrEnum
from typing import Final

from envs.errors import EnvironmentBroken


class Dialect(StrEnum):
    """How a game wants an object put down."""

    MOVE = "move"
    """``move X to Y``: games of release 2.1.2 and later."""
    PUT = "put"
    """``put X in/on Y``: games of release 2.1.1 and earlier, and the published examples."""


USAGE: Final = {
    Dialect.MOVE: "move <object> to <place>",
    Dialect.PUT: "put <object> in/on <place>",
}
"""The command as rules for a player state it."""

_TEMPLATE = re.compile(r'\baction\s+PutObject\s*\{[^"]*"(move \{o\} to |put \{o\} in/on )')
_OLDER_TEXTS: Final = (
    ("move {o} to {r}", "put {o} in/on {r}"),
    ("You move the {o.name} to the {r.name}.", "You put the {o.name} in/on the {r.name}."),
    ("You arrive at {r.name}.", "You arrive at {lend.name}."),
)
_HELP_TEXTS = re.compile(r"\naction help \{.*?\n\}\n", re.DOTALL)
_HELP_ACTION = re.compile(r"\(:action help\b.*?\n\)\n", re.DOTALL)


def dialect_of(grammar: str, *, name: str = "a game") -> Dialect:
    """The dialect that a game's grammar accepts.

    Args:
        grammar: The text under ``grammar`` in the game file.
        name: What to call the game in an error.

    Raises:
        EnvironmentBroken: The grammar knows neither form.
    """
    found = _TEMPLATE.search(grammar)
    if found is None:
        raise EnvironmentBroken(
            f"{name}: its grammar has neither 'move X to Y' nor 'put X in/on Y'"
        )
    return Dialect(found[1].partition(" ")[0])


def older_domain(domain: str) -> str:
    """A current PDDL domain as release 2.1.1 had it: without ``help``."""
    return _HELP_ACTION.sub("", domain)


def older_grammar(grammar: str) -> str:
    """A current grammar as release 2.1.1 had it, in dialect `Dialect.PUT`.

    Raises:
        EnvironmentBroken: The grammar is not of the known form.
    """
    for current, older in _OLDER_TEXTS:
        if current not in grammar:
            raise EnvironmentBroken(f"the installed alfworld's grammar no longer says {current!r}")
        grammar = grammar.replace(current, older)
    return _HELP_TEXTS.sub("\n", grammar)


def older_command(command: str) -> str:
    """``move X to Y`` as ``put X in/on Y``; other commands as they are."""
    return re.sub(r"^move (.+) to (.+)$", r"put \1 in/on \2", command)


_THING = r"([a-z]+ \d+)"


def to_move_dialect(transcript: str) -> str:
    """Rewrites ``> put X in/on Y`` and its answer as current games have them.

    Thoughts, which only talk about putting, keep their words.
    """
    commands = re.sub(
        rf"^> put {_THING} in/on {_THING}$", r"> move \1 to \2", transcript, flags=re.M
    )
    return re.sub(
        rf"^You put the {_THING} in/on the {_THING}\.$",
        r"You move the \1 to the \2.",
        commands,
        flags=re.M,
    )
