"""The WebShop protocol: what a model is shown, and how its answer is read."""

import pytest

from envs.protocol import Turn
from envs.protocols import get_protocol, protocol_spec

START = "WebShop [SEP] Instruction: [SEP] a red lamp [SEP] Search"
INFO = {"goal": "a red lamp", "available_actions": ["search[<your query>]", "click[search]"]}


def user_text(turns: list[Turn], observation: str, **settings: str) -> str:
    messages = get_protocol("webshop_react", **settings).prompt(turns, observation, INFO).messages
    assert messages is not None
    assert [message["role"] for message in messages] == ["system", "user"]
    return messages[1]["content"]


def test_the_first_prompt_states_the_goal_and_what_can_be_done() -> None:
    text = user_text([], START)
    assert text.startswith(
        "What to buy: a red lamp\n\nAvailable actions:\n  search[<your query>]\n  click[search]\n"
    )
    assert text.endswith(f"\n\nObservation 1: {START}\nAction 1:")


def test_past_steps_are_shown_as_their_result_and_their_action() -> None:
    text = user_text([Turn(START, "search[lamp]"), Turn("results", "click[b1]")], "item")
    assert text.endswith(
        "\n\nObservation 1: results\nAction 1: search[lamp]"
        "\n\nObservation 2: item\nAction 2: click[b1]"
        "\n\nObservation 3: item\nAction 3:"
    )
    assert START not in text


@pytest.mark.parametrize(("history_steps", "first"), [("5", 4), ("1", 8), ("0", 9)])
def test_only_the_last_steps_are_shown(history_steps: str, first: int) -> None:
    turns = [Turn(f"page {number}", f"act {number}") for number in range(8)]
    text = user_text(turns, "now", history_steps=history_steps)
    assert f"Observation {first}:" in text
    assert f"Observation {first - 1}:" not in text


def test_without_an_info_the_goal_is_read_from_the_first_page() -> None:
    messages = get_protocol("webshop_react").prompt([], START).messages
    assert messages is not None
    assert messages[1]["content"].startswith("What to buy: a red lamp\n")


@pytest.mark.parametrize(
    ("completion", "action"),
    [
        (" search[lamp]", "search[lamp]"),
        ("Action: click[b1]\nObservation", "click[b1]"),
        ("choose[b1]", "click[b1]"),
        ("Action: choose[b1]", "click[b1]"),
        ("I choose[b1]", "I choose[b1]"),
        ("\n", ""),
        ("", ""),
    ],
)
def test_an_answer_s_first_line_is_the_action(completion: str, action: str) -> None:
    assert get_protocol("webshop_react").action(completion) == action


def test_settings_travel_in_the_protocol_s_name() -> None:
    protocol = get_protocol(protocol_spec("webshop_react", history_steps="2"))
    assert protocol == get_protocol("webshop_react", history_steps="2")
    assert protocol.stop == ("\n",)
    for wrong in ("-1", "many"):
        with pytest.raises(ValueError, match=wrong.removeprefix("-")):
            get_protocol("webshop_react", history_steps=wrong)
