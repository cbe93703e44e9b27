"""The search agent's prompt and the reading of its actions."""

import pytest

from envs.protocol import Turn
from envs.protocols import get_protocol
from envs.search_actions import first_action


def text_of(name: str, turns: list[Turn], observation: str, **info: object) -> str:
    text = get_protocol(name, header="H\n").prompt(turns, observation, info).text
    assert text is not None
    return text


def test_a_prompt_is_the_transcript_up_to_the_next_thought() -> None:
    assert text_of("search_react", [], "Q?", answer_type="Set Answer") == (
        "H\n\nQuestion: Q?\nAnswer type: Set Answer\n\nThought:"
    )
    turns = [Turn("Q?", "I wonder.\nAction: search[a]"), Turn("found a", "search[b]")]
    assert text_of("search_react", turns, "found b") == (
        "H\n\nQuestion: Q?\n\nThought: I wonder.\nAction: search[a]\nObservation: found a\n"
        "Thought: search[b]\nObservation: found b\nThought:"
    )


def test_a_forced_answer_is_begun_by_the_prompt() -> None:
    turns = [Turn("Q?", "search[a]"), Turn("found a", "I think so.")]
    text = text_of("search_react", turns, "Not an action.", expects_answer=True)
    assert text.endswith("found a\nThought: I think so.\nAction: answer[")
    assert "Not an action" not in text


@pytest.mark.parametrize(
    ("completion", "action"),
    [
        (" I wonder.\nAction: search[a]\nObservation: made up", "I wonder.\nAction: search[a]"),
        ("Thought: x\nAction: answer[a, b] done\nThought:", "x\nAction: answer[a, b]"),
        ("search[a]\nsearch[b]", "search[a]"),
        ("just words", "just words"),
        ("", ""),
    ],
)
def test_a_completion_is_cut_after_its_action(completion: str, action: str) -> None:
    assert get_protocol("search_react").action(completion) == action


def test_published_stop_strings_cut_before_the_action() -> None:
    assert get_protocol("search_react").stop == ("\nObservation:", "\nQuestion:")
    published = get_protocol("search_react_published")
    assert published.name == "search_react_published"
    assert set(published.stop) == {"\nAction:", "\nThought:", "\nObservation:"}


@pytest.mark.parametrize(
    ("text", "kind", "argument"),
    [
        ("search[a b]", "search", "a b"),
        ("Action: Search [ a ] tail", "search", "a"),
        ("Thought: see search[1]\nAction: answer[x [y] z] w]", "answer", "x [y] z"),
        ("answer[a\nb]", "answer", "a\nb"),
        ("answer[cut off", "answer", "cut off"),
        ("answer[a [b] cut", "answer", "a [b"),
        ("answer[]", "answer", ""),
    ],
)
def test_actions_are_found(text: str, kind: str, argument: str) -> None:
    found = first_action(text)
    assert found is not None
    assert (found.kind, found.argument) == (kind, argument)


@pytest.mark.parametrize("text", ["", "search", "we search[a]", "research[a]", "answers[a]", "[a]"])
def test_other_texts_are_no_actions(text: str) -> None:
    assert first_action(text) is None
