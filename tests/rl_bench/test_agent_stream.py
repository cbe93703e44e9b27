"""Streams of the real CLIs, recorded by `tests/rl_bench/agents/record_streams.py`, and bad ones."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_bench.agents.stream import MAX_ELEMENTS, MAX_LINE_BYTES, MAX_TEXT, StreamReader
from rl_bench.compose import compose_agent
from rl_bench.config import StreamRule
from rl_bench.events import AgentEvent

STREAMS = Path(__file__).parent / "data" / "streams"
NAMES = ("claude_code", "codex", "gemini_cli", "opencode", "openhands")
WORDS = StreamRule(kind="message", when={"type": "words"}, text=("text",))


def recorded(name: str, what: str) -> bytes:
    return (STREAMS / f"{name}.{what}.stdout").read_bytes()


def reader_of(name: str) -> StreamReader:
    agent = compose_agent(name)
    assert agent is not None
    return StreamReader(agent.stream)


def read(rules: list[StreamRule], *lines: object) -> list[AgentEvent]:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return StreamReader(rules).feed(text.encode())


@pytest.mark.parametrize("name", NAMES)
def test_a_session_is_read(name: str) -> None:
    events = reader_of(name).feed(recorded(name, "session"))

    calls = [event for event in events if event.kind == "tool_call" and event.name != "finish"]
    results = [event for event in events if event.kind == "tool_result"]
    assert [event.call_id for event in calls] == [event.call_id for event in results]
    assert "echo 'one" in calls[0].text
    assert 'one "two"' in results[0].text
    assert "cat absent.txt" in calls[1].text
    assert "No such file" in results[1].text
    # Gemini CLI calls a command that failed a success.
    assert [event.is_error for event in results] == [False, name != "gemini_cli"]
    said = [event.text for event in events if event.kind == "message"]
    assert 'I look around: "quotes", ünïcode.' in said
    assert events[-1].kind == "result"
    assert not events[-1].is_error


@pytest.mark.parametrize(
    ("name", "counts"),
    [("claude_code", True), ("codex", True), ("gemini_cli", True), ("opencode", False)],
)
def test_tokens_of_a_session_are_read(name: str, counts: bool) -> None:
    events = reader_of(name).feed(recorded(name, "session"))

    told = [event for event in events if event.input_tokens is not None]
    assert all(event.totals is counts for event in told)
    assert len(told) == (1 if counts else 3)
    for event in told:
        assert event.input_tokens is not None
        assert event.output_tokens is not None
        assert event.cached_tokens is not None
        assert event.input_tokens >= event.cached_tokens + (event.cache_write_tokens or 0)
        assert event.output_tokens > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_refused_key_is_an_error(name: str) -> None:
    events = reader_of(name).feed(recorded(name, "refused"))

    errors = [event for event in events if event.is_error]
    assert errors
    assert "key is not valid" in errors[-1].text
    assert not [event for event in events if event.kind == "tool_call"]


def test_an_error_that_calls_itself_a_success_is_one() -> None:
    result = reader_of("claude_code").feed(recorded("claude_code", "refused"))[-1]

    assert (result.kind, result.name, result.is_error) == ("result", "success", True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_bytes_may_be_cut_anywhere(name: str, size: int) -> None:
    data = recorded(name, "session")
    reader = reader_of(name)

    pieces = [reader.feed(data[at : at + size]) for at in range(0, len(data), size)]

    assert [event for piece in pieces for event in piece] == reader_of(name).feed(data)


def test_what_is_no_json_object_is_passed_over() -> None:
    reader = StreamReader([WORDS])
    good = b'{"type": "words", "text": "good"}\n'
    bad = (
        b'banner\n[1, 2]\n"text"\n{"type": "words", "te\n{"a": NaN,}\n\xff\xfe\x00{\n\r\n\n',
        b'{"a":' * 100_000 + b"\n",
        b'{"type": "words", "text": ' + b"[" * 50_000 + b"]" * 50_000 + b"}\n",
    )

    texts = [[event.text for event in reader.feed(each + good)][-1] for each in bad]

    assert texts == ["good"] * 3
    assert reader.num_passed_over >= 8


def test_a_line_without_end_is_passed_over_and_takes_no_memory() -> None:
    reader = StreamReader([WORDS])
    block = b"x" * (1024 * 1024)
    assert [reader.feed(b'{"type": "words", "text": "' + block)] == [[]]
    for _ in range(MAX_LINE_BYTES // len(block) + 2):
        assert reader.feed(block) == []
        assert len(reader._buffer) <= MAX_LINE_BYTES

    events = reader.feed(b'"}\n{"type": "words", "text": "next"}\n')

    assert [event.text for event in events] == ["next"]
    assert reader.num_passed_over == 1


def test_a_list_without_end_becomes_no_more_events_than_a_turn_can_have() -> None:
    rule = StreamRule(kind="message", each="parts", text=("text",))
    events = read(
        [rule], {"parts": [{"text": "x"}] * (2 * MAX_ELEMENTS)}, {"parts": [{"text": "y"}]}
    )
    assert len(events) == MAX_ELEMENTS + 1
    assert events[-1].text == "y"


def test_a_last_line_needs_no_newline() -> None:
    reader = StreamReader([WORDS])
    assert reader.feed(b'{"type": "words", "text": "last"}') == []
    assert [event.text for event in reader.finish(budget_used_s=3.0)] == ["last"]
    assert reader.finish() == []


def test_texts_are_cut_and_can_be_written() -> None:
    line = {"type": "words", "text": "x" * 3 * MAX_TEXT}
    [event] = read([WORDS], line)
    assert len(event.text) == MAX_TEXT
    assert event.text.endswith("more characters]")

    [event] = StreamReader([WORDS]).feed(b'{"type": "words", "text": "a\\ud800b"}\n')
    assert event.model_dump_json()


def test_the_first_rule_that_matches_an_element_is_taken() -> None:
    rules = [
        StreamRule(kind="error", when={"type": "x"}, each="parts", only={"bad": True}),
        StreamRule(kind="message", when={"type": "x"}, each="parts", text=("words", "^note")),
        StreamRule(kind="usage", when={"type": "x"}, tokens={"input_tokens": "a + b.c"}),
        StreamRule(kind="result", when={"type": "x"}),
    ]

    events = read(
        rules,
        {"type": "x", "note": "n", "parts": [{"words": "w"}, {"bad": True}, {}], "a": 1},
        {"type": "x", "parts": {"words": "alone"}, "a": 1, "b": {"c": 2}},
        {"type": "y", "parts": [{}]},
    )

    assert [(event.kind, event.text) for event in events] == [
        *(("message", "w"), ("error", ""), ("message", "n"), ("usage", "")),
        *(("message", "alone"), ("usage", "")),
    ]
    assert [event.input_tokens for event in events if event.kind == "usage"] == [1, 3]


def test_true_is_not_one() -> None:
    rules = [StreamRule(kind="message", when={"a": True}), StreamRule(kind="error", when={"a": 1})]
    assert [event.kind for event in read(rules, {"a": True}, {"a": 1}, {"a": 2})] == [
        "message",
        "error",
    ]


@pytest.mark.parametrize("value", ["12", -1, True, 1e300, 2**70, [1], None])
def test_a_count_that_is_none_is_left_out(value: object) -> None:
    rule = StreamRule(kind="usage", tokens={"input_tokens": "n"}, cost_usd="n", num_turns="n")

    [event] = read([rule], {"n": value})

    assert (event.input_tokens, event.cost_usd, event.num_turns) == (None, None, None)


@pytest.mark.parametrize(
    ("value", "is_error"),
    [
        (True, True),
        (False, False),
        (0, False),
        (1, True),
        (-1, True),
        (None, False),
        ("error", True),
        ("failed", True),
        ("Success", False),
        ("completed", False),
        ({"message": "x"}, True),
        ({}, False),
    ],
)
def test_what_tells_of_an_error(value: object, is_error: bool) -> None:
    [event] = read([StreamRule(kind="tool_result", is_error="e")], {"e": value})
    assert event.is_error is is_error


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc^"), inner),
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["type", "a", "b", "message"]), JSON))
def test_no_object_breaks_the_reader(line: dict[str, object]) -> None:
    rules = [
        StreamRule(kind="message", each="a", text=("b", "^message"), is_error="c"),
        StreamRule(kind="result", name="type", text=("message",), num_turns="b", cost_usd="a.b"),
    ]
    for event in read(rules, line):
        assert event.model_dump_json().encode()
