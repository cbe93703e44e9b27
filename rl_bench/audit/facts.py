"""What is read of one Python file: who calls what under which conditions, and what trains.

Facts cross a process boundary as JSON, see `rl_bench.audit.reader_process`; nothing of the file's
own objects does.
"""

from typing import Literal

from rl_bench.audit.frameworks import Family, Method
from rl_bench.config import Frozen

MODULE = "<module>"


class Guard(Frozen):
    """A condition on the way to a statement.

    Attributes:
        subject: The name that is looked at, e.g. ``method`` of ``args.method``.
        values: Texts that it is compared with; empty for a plain flag.
        negated: The statement is reached when the condition does not hold.
        is_option: Spelt as a command's option, e.g. ``args.rl``.
        never: The condition is false whatever happens, e.g. ``if False``.
    """

    subject: str = ""
    values: tuple[str, ...] = ()
    negated: bool = False
    is_option: bool = False
    never: bool = False


class Reference(Frozen):
    """A name that may be a function, class or module of the same program."""

    name: str
    guards: tuple[Guard, ...] = ()


class Sign(Frozen):
    """Something that trains, or would.

    Attributes:
        kind: ``train``: an update is made here; ``construct``: a trainer is made, and not seen to
            train; ``generate``: text is sampled.
        method, family, online: See `rl_bench.audit.frameworks.Method`.
    """

    kind: Literal["train", "construct", "generate"]
    method: str = ""
    family: Family = Family.UNCLEAR
    online: bool = False
    line: int
    quote: str = ""
    guards: tuple[Guard, ...] = ()

    @property
    def as_method(self) -> Method:
        return Method(self.method, self.family, self.online)


class Unit(Frozen):
    """A function, a method (``Class.name``) or the module's own statements."""

    name: str
    references: tuple[Reference, ...] = ()
    signs: tuple[Sign, ...] = ()


class Command(Frozen):
    """A command line that the file starts, as far as its words are constants."""

    words: tuple[str, ...]
    unit: str
    line: int
    guards: tuple[Guard, ...] = ()


class Text(Frozen):
    """A text constant that may name a path, an address or a model."""

    value: str
    line: int
    call: str = ""


class ModuleFacts(Frozen):
    """All that is known of one file; ``problem`` says why it could not be read."""

    path: str
    problem: str = ""
    imports: tuple[Reference, ...] = ()
    units: tuple[Unit, ...] = ()
    bases: tuple[tuple[str, str], ...] = ()
    values: tuple[tuple[str, str], ...] = ()
    commands: tuple[Command, ...] = ()
    texts: tuple[Text, ...] = ()
    calls: tuple[tuple[str, int], ...] = ()
