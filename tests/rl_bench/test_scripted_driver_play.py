"""What the scripted driver says: a pure function of the session and the request."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_bench.drivers.dialogue import Answer, Ask, Called, Returned, Told, Tool, Turn, Words
from rl_bench.drivers.player import ASIDE, MAX_POLLS, answer
from rl_bench.drivers.schema_value import value_for
from rl_bench.drivers.session import Session, Step

TEXT = {"type": "string"}
SHELL = Tool(name="bash", schema={"properties": {"command": TEXT}, "required": ["command"]})
SESSION = Session(
    steps=(
        Step(say="One.", run="one"),
        Step(say="I stop here."),
        Step(run="three"),
        Step(say="Four.", run="four"),
    ),
    last="Done.",
)


def tool(name: str, *required: str, **properties: object) -> Tool:
    return Tool(name=name, schema={"properties": properties, "required": list(required)})


def ran(command: str, output: str = "", *, name: str = "bash") -> tuple[Turn, Turn]:
    call = Called(name, {"command": command})
    return call, Returned(call, output)


def say(*turns: Turn, tools: tuple[Tool, ...] = (SHELL,), session: Session = SESSION) -> Answer:
    return answer(session, Ask(model="m", turns=turns, tools=tools))


def command_of(said: Answer) -> object:
    assert said.call is not None
    return said.call.arguments["command"]


def test_session_goes_on_with_every_result() -> None:
    first = say(Words("Hello"))
    assert (command_of(first), first.text, first.step) == ("one", "One.", 1)
    paused = say(Words("One."), *ran("one"))
    assert (paused.call, paused.text, paused.step) == (None, "I stop here.", 2)
    resumed = say(Words("One."), *ran("one"), Words("I stop here."))
    assert (command_of(resumed), resumed.step) == ("three", 3)
    fourth = say(*ran("one"), Words("I stop here."), *ran("three"))
    assert (command_of(fourth), fourth.step) == ("four", 4)
    last = say(*ran("one"), Words("I stop here."), *ran("three"), *ran("four"))
    assert (last.call, last.text, last.step) == (None, "Done.", 5)


def test_what_comes_after_the_end_gets_the_last_words_again() -> None:
    turns = (*ran("one"), Words("I stop here."), *ran("three"), *ran("four"), Words("Done."))

    assert say(*turns).text == "Done."
    assert say(*turns, *ran("more"), *ran("and more")).text == "Done."


def test_words_that_came_in_pieces_or_trimmed_count_as_said() -> None:
    pieces = (Words("I st"), Words("op "), Words("here.\n"))

    assert say(*ran("one"), *pieces).step == 3
    assert say(*ran("one"), Words("Something else.")).step == 2


def test_words_after_a_pause_are_not_the_pauses() -> None:
    turns = (*ran("one"), Words("I stop here."), Told(), Words("Three."), *ran("three"))

    assert say(*turns).step == 4


def test_a_result_without_its_call_and_results_of_other_tools_are_not_counted() -> None:
    other = Called("read_file", {"path": "x"})

    assert say(Returned(None, "lost"), other, Returned(other, "text")).step == 1


def test_a_result_that_is_held_twice_counts_once() -> None:
    call, result = ran("one")

    assert say(call, result, result).step == 2
    assert say(call, result, result, Words("I stop here."), Told(), *ran("one")).step == 4


def test_a_failed_command_is_a_step_done_too() -> None:
    assert say(*ran("one", "Error: refused")).step == 2


conversations = st.lists(
    st.one_of(
        st.sampled_from(["one", "three", "four", "", "else"]).map(lambda c: ran(c)),
        st.sampled_from(["One.", "I stop here.", "", "Hm."]).map(
            lambda text: (Words(text), Told())
        ),
    ),
    max_size=12,
)


@given(conversations)
def test_the_same_request_gets_the_same_answer(parts: list[tuple[Turn, ...]]) -> None:
    ask = Ask(model="m", turns=tuple(turn for part in parts for turn in part), tools=(SHELL,))

    assert answer(SESSION, ask) == answer(SESSION, replace(ask))


@given(conversations)
def test_a_step_is_never_taken_back(parts: list[tuple[Turn, ...]]) -> None:
    turns: tuple[Turn, ...] = (Told(),)
    before = 1
    for part in parts:
        turns += part
        step = say(*turns).step
        assert step is not None
        assert before <= step <= before + 2
        before = step


# Beside the session


def test_without_a_shell_a_request_gets_a_short_answer() -> None:
    editor = tool("editor", "command", command={"type": "string", "enum": ["view", "create"]})

    assert say(tools=()) == Answer(text=ASIDE)
    assert say(*ran("one"), tools=(editor,)) == Answer(text=ASIDE)


def test_an_answer_in_a_form_has_that_form() -> None:
    schema = {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "isNewTopic": {"type": "boolean"},
            "who": {"enum": ["user", "model"]},
            "extra": {"type": "number"},
        },
        "required": ["title", "isNewTopic", "who"],
    }
    said = answer(SESSION, Ask(model="m", schema=schema))

    assert json.loads(said.text) == {"title": ASIDE, "isNewTopic": False, "who": "user"}
    assert said.step is None


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}}, {"n": 0}),
        ({"type": "array", "items": TEXT, "minItems": 2}, ["t", "t"]),
        ({"type": "array", "items": TEXT}, []),
        ({"anyOf": [{"type": "null"}, TEXT]}, None),
        ({"type": ["string", "null"]}, "t"),
        ({"const": 3}, 3),
        ({"type": "number", "minimum": 2}, 2),
    ],
)
def test_values_fulfil_their_schemas(schema: dict[str, object], value: object) -> None:
    assert value_for(schema, text="t") == value


# Shells


@pytest.mark.parametrize(
    ("shell", "arguments"),
    [
        (
            tool(
                "Bash",
                "command",
                command=TEXT,
                timeout={"type": "number", "description": "in milliseconds (max 600000)"},
                description=TEXT,
                run_in_background={"type": "boolean"},
            ),
            {"command": "one", "timeout": 600_000, "description": "One"},
        ),
        (
            tool(
                "exec_command",
                "cmd",
                cmd=TEXT,
                yield_time_ms={"type": "number"},
                login={"type": "boolean"},
                workdir=TEXT,
            ),
            {"cmd": "one", "yield_time_ms": 30_000, "login": False},
        ),
        (
            tool("run_shell_command", "command", command=TEXT, description=TEXT, dir_path=TEXT),
            {"command": "one", "description": "One"},
        ),
        (
            tool(
                "bash",
                "command",
                "description",
                command=TEXT,
                description=TEXT,
                timeout={"type": "integer", "description": "Optional timeout in milliseconds"},
            ),
            {"command": "one", "description": "One", "timeout": 2_000_000},
        ),
        (
            tool(
                "terminal",
                "command",
                "security_risk",
                command=TEXT,
                security_risk={"type": "string", "enum": ["UNKNOWN", "LOW", "HIGH"]},
                timeout={"type": "number", "description": "a limit (in seconds)"},
                is_input={"type": "boolean"},
            ),
            {"command": "one", "security_risk": "LOW", "timeout": 2000},
        ),
        (
            tool("shell", "command", command={"type": "array", "items": TEXT}, timeout_ms={}),
            {"command": ["bash", "-lc", "one"], "timeout_ms": 2_000_000},
        ),
        (
            tool("anything", "cmd", "mode", cmd=TEXT, mode={"enum": ["fast", "slow"]}),
            {"cmd": "one", "mode": "fast"},
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Tool) else "",
)
def test_every_shell_gets_the_arguments_of_its_schema(
    shell: Tool, arguments: dict[str, object]
) -> None:
    session = Session(steps=(Step(say="One.", run="one", limit_s=2000),), last="Done.")
    said = say(tools=(tool("read", path=TEXT), shell), session=session)

    assert said.call == Called(shell.name, arguments)


def test_a_known_shell_goes_before_others_that_take_commands() -> None:
    monitor = tool("Monitor", "command", command=TEXT)

    said = say(tools=(monitor, SHELL))

    assert said.call is not None
    assert said.call.name == "bash"


FINISH = tool("finish", "message", message=TEXT)


def test_where_a_tool_ends_the_work_it_takes_the_words() -> None:
    tools = (SHELL, FINISH)
    paused = say(*ran("one"), tools=tools)
    assert paused.call == Called("finish", {"message": "I stop here."})

    resumed = say(*ran("one"), paused.call, Returned(paused.call, "ok"), tools=tools)
    assert resumed.step == 3

    last = say(*ran("one"), paused.call, *ran("three"), *ran("four"), tools=tools)
    assert last.call == Called("finish", {"message": "Done."})


# Commands that still run


def test_codex_is_asked_again_until_the_command_ends() -> None:
    tools = (tool("exec_command", "cmd", cmd=TEXT), tool("write_stdin", session_id={}))
    call = Called("exec_command", {"cmd": "one"})
    running = "Chunk ID: 1\nProcess running with session ID 42\nOutput:\nstep 1"
    turns: list[Turn] = [call, Returned(call, running)]
    for _ in range(3):
        said = say(*turns, tools=tools)
        assert said.step is None
        assert said.call is not None
        assert said.call.name == "write_stdin"
        assert said.call.arguments == {"session_id": 42, "chars": "", "yield_time_ms": 300_000}
        turns += [said.call, Returned(said.call, running)]
    turns[-1] = Returned(None, "Process exited with code 0")

    assert say(*turns, tools=tools).step == 2


def test_openhands_is_asked_again_in_the_same_terminal() -> None:
    tools = (tool("terminal", "command", command=TEXT, timeout={"type": "number"}),)
    call = Called("terminal", {"command": "one"})
    pause = "step 1\n[The command has no new output after 30 seconds. You may wait longer.]"
    poll = say(call, Returned(call, pause), tools=tools).call

    assert poll == Called("terminal", {"command": "", "timeout": 300})
    assert say(call, Returned(call, pause), poll, Returned(poll, "end"), tools=tools).step == 2


def test_claude_codes_background_task_is_waited_for() -> None:
    tools = (tool("Bash", "command", command=TEXT), tool("TaskOutput", task_id=TEXT))
    turns = ran("one", "Command running in background with ID: b1a. Output is", name="Bash")

    said = say(*turns, tools=tools)

    assert said.call == Called("TaskOutput", {"task_id": "b1a", "block": True, "timeout": 300_000})


def test_waiting_has_an_end() -> None:
    tools = (tool("exec_command", "cmd", cmd=TEXT), tool("write_stdin", session_id={}))
    call, poll = Called("exec_command", {"cmd": "one"}), Called("write_stdin", {"session_id": 1})
    running = "Process running with session ID 1"
    polls = [turn for _ in range(MAX_POLLS) for turn in (poll, Returned(poll, running))]

    assert say(call, Returned(call, running), *polls[:-2], tools=tools).step is None
    assert say(call, Returned(call, running), *polls, tools=tools).step == 2
