"""The answer to a request: a pure function of the session and the request.

Where the session is follows from the conversation alone, so that a request sent twice gets the same
answer twice, and a driver that was started again goes on. Every result of a command is a step done;
a step of words alone is done when the conversation holds its words.
"""

from collections.abc import Sequence

from rl_bench.drivers.dialogue import Answer, Ask, Called, Returned, Told, Turn, Words, compact
from rl_bench.drivers.schema_value import value_for
from rl_bench.drivers.session import Session, Step
from rl_bench.drivers.shell_tool import Shell, find_finish, find_shell, finish_call, poll_for

ASIDE = "Post-training session"
"""What is said to requests beside the session: titles, topics and the like."""
MAX_POLLS = 200
"""Of one command; after them the session goes on without its end."""


def answer(session: Session, ask: Ask) -> Answer:
    """What the driver says to ``ask``.

    A request without a shell among its tools is beside the session, and does not advance it.
    """
    shell = find_shell(ask.tools)
    if shell is None:
        return Answer(text=ASIDE if ask.schema is None else _in_form(ask))
    poll = _poll(ask, shell)
    if poll is not None:
        return Answer(call=poll)
    number = steps_done(session, ask, shell) + 1
    if number > len(session.steps):
        return _closing(session.last, ask, number)
    step = session.steps[number - 1]
    if not step.command:
        return _closing(step.say, ask, number)
    return Answer(text=step.say, call=shell.call(step), step=number)


def steps_done(session: Session, ask: Ask, shell: Shell) -> int:
    """How many of the session's steps the conversation holds."""
    done = 0
    waited_for: Called | None = None
    for turn in _merged(ask.turns):
        if done == len(session.steps):
            break
        if isinstance(turn, Called) and shell.ran(turn):
            waited_for = turn
        elif isinstance(turn, Returned):
            # An agent that was started again may hold a result twice.
            if waited_for is not None and turn.call == waited_for:
                done = _after_command(session.steps, done)
                waited_for = None
        elif not session.steps[done].command and _same(_words(turn, ask), session.steps[done].say):
            done += 1
    return done


def _merged(turns: Sequence[Turn]) -> list[Turn]:
    """Joins words that an agent keeps in the pieces they were streamed in."""
    merged: list[Turn] = []
    for turn in turns:
        if isinstance(turn, Words) and merged and isinstance(merged[-1], Words):
            merged[-1] = Words(merged[-1].text + turn.text)
        else:
            merged.append(turn)
    return merged


def _after_command(steps: tuple[Step, ...], done: int) -> int:
    """The number of steps done when one more command was run; words before it count as said."""
    commands = [number for number, step in enumerate(steps) if number >= done and step.command]
    return commands[0] + 1 if commands else len(steps)


def _poll(ask: Ask, shell: Shell) -> Called | None:
    turns = [turn for turn in ask.turns if not isinstance(turn, Told)]
    results = [turn for turn in turns if isinstance(turn, Returned)]
    if not results or turns[-1] is not results[-1]:
        return None
    num_polls = 0
    for result in reversed(results):
        if result.call is not None and shell.ran(result.call):
            break
        num_polls += 1
    if num_polls >= MAX_POLLS:
        return None
    return poll_for(results[-1], shell=shell, tools=ask.tools)


def _closing(text: str, ask: Ask, number: int) -> Answer:
    tool = find_finish(ask.tools)
    if tool is None:
        return Answer(text=text, step=number)
    return Answer(call=finish_call(tool, text), step=number)


def _words(turn: Turn, ask: Ask) -> str:
    """What a turn says, be it in words or by the tool that ends the work."""
    if isinstance(turn, Words):
        return turn.text
    finish = find_finish(ask.tools)
    if isinstance(turn, Called) and finish is not None and turn.name == finish.name:
        return str(turn.arguments.get("message", ""))
    return ""


def _same(one: str, other: str) -> bool:
    """Whether both say the same; agents trim and join what they keep."""
    return bool(one.strip()) and "".join(one.split()) == "".join(other.split())


def _in_form(ask: Ask) -> str:
    assert ask.schema is not None
    return compact(value_for(ask.schema, text=ASIDE))
