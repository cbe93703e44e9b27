"""Whether a program's words fulfil the conditions on the way to a statement."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from rl_bench.audit.facts import Guard
from rl_bench.audit.values import EACH, UNKNOWN

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off", "none", ""})


class Truth(IntEnum):
    """Three values; the least of several is that of their conjunction."""

    NO = 0
    MAYBE = 1
    YES = 2


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is known of a program when it starts.

    Attributes:
        args: Its own words.
        env: Variables that were set for it.
        values: What names may hold, by the program's code.
    """

    args: Sequence[str]
    env: Mapping[str, str]
    values: Mapping[str, frozenset[str]]

    def all_of(self, guards: Iterable[Guard]) -> Truth:
        """Whether all hold."""
        return min((self._one(guard) for guard in guards), default=Truth.YES)

    def _one(self, guard: Guard) -> Truth:
        if guard.never:
            return Truth.NO
        truth = self._compared(guard) if guard.values else self._flag(guard)
        return Truth(2 - truth) if guard.negated else truth

    def _compared(self, guard: Guard) -> Truth:
        given = self._given(guard.subject)
        if given is not None:
            # Words of a list, e.g. --stages sft,grpo, count each.
            return Truth.YES if {given, *given.split(",")} & set(guard.values) else Truth.NO
        if any(word in guard.values for word in self.args if not word.startswith("-")):
            return Truth.YES
        if guard.subject == "argv":
            return Truth.NO
        known = self.values.get(guard.subject, frozenset())
        if any(EACH + value in known for value in guard.values):
            return Truth.YES
        if not known or UNKNOWN in known:
            return Truth.MAYBE
        matching = known & set(guard.values)
        if not matching:
            return Truth.NO
        return Truth.YES if matching == known else Truth.MAYBE

    def _flag(self, guard: Guard) -> Truth:
        given = self._given(guard.subject)
        if given is not None:
            return Truth.NO if given.lower() in _FALSE else Truth.YES
        known = {value.lower() for value in self.values.get(guard.subject, frozenset())}
        if known and known <= _FALSE:
            return Truth.NO
        if known and known <= _TRUE:
            return Truth.YES
        is_switch = bool(known & (_TRUE | _FALSE)) and UNKNOWN not in known
        if guard.is_option or is_switch:
            return Truth.MAYBE
        # Any other name is a value that might be empty, and as a rule is not.
        return Truth.YES

    def _given(self, subject: str) -> str | None:
        """The value of an option or variable; ``true`` for one without a value."""
        if not subject:
            return None
        if subject in self.env:
            return self.env[subject]
        wanted = subject.lower().replace("-", "_")
        for place, word in enumerate(self.args):
            key, equals, value = word.partition("=")
            name = key.lstrip("-").lower().replace("-", "_").rpartition(".")[2]
            if name == f"no_{wanted}" and word.startswith("--"):
                return "false"
            if name != wanted or not (word.startswith("--") or equals):
                continue
            if equals:
                return value
            following = self.args[place + 1] if place + 1 < len(self.args) else "--"
            return "true" if following.startswith("-") else following
        return None


def gathered(pairs: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """Pairs of a name and a value as one set of values a name."""
    found: dict[str, set[str]] = {}
    for name, value in pairs:
        found.setdefault(name, set()).add(value)
    return {name: frozenset(values) for name, values in found.items()}
