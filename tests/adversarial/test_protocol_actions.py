"""What a model writes is never an error: every protocol makes of any text one action."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from envs.protocol import PromptProtocol
from envs.protocols import get_protocol
from envs.search_actions import first_action
from tests.adversarial.bounds import MANY

NAMES = (
    "chat",
    "chat_rules",
    "react",
    "react_published",
    "search_react",
    "search_react_published",
    "webshop_react",
)
FRAGMENTS = st.sampled_from(
    [
        "Action:",
        "Thought:",
        "search[",
        "answer[",
        "click[",
        "choose[",
        "]",
        "[",
        ">",
        "\n",
        "\r",
        " ",
        "\u2028",
        "\x85",
        "\x0b",
        "\x1c",
        "\x00",
        "�",
        "\u202e",
        "go to desk 1",
        "İ",
        "ſearch[",
    ]
)
TEXTS = st.text(max_size=80) | st.lists(FRAGMENTS, max_size=25).map("".join)
HUGE = ("[" * 200_000, "search[" * 50_000, "\n" * 200_000, ">" * 200_000, "Action:" * 50_000)


@pytest.fixture(scope="module", params=NAMES)
def protocol(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> PromptProtocol:
    name: str = request.param
    if not name.startswith("react"):
        return get_protocol(name)
    kinds = ("put", "examine", "clean", "heat", "cool", "puttwo")
    path: Path = tmp_path_factory.mktemp("react") / "prompts.json"
    path.write_text(json.dumps({f"react_{kind}_{i}": "> look" for kind in kinds for i in (0, 1)}))
    return get_protocol(name, prompts=str(path))


@MANY
@given(text=TEXTS)
@example(text="")
def test_any_completion_is_one_action(protocol: PromptProtocol, text: str) -> None:
    action = protocol.action(text)

    assert action == protocol.action(text)
    assert action == action.strip()
    assert len(action) <= len(text) + len("click[") - len("choose[") or action in text
    if not protocol.name.startswith("search"):  # theirs is a thought and an action
        assert len(action.splitlines()) <= 1


@pytest.mark.parametrize("text", HUGE, ids=[text[:8] for text in HUGE])
def test_a_huge_completion_is_one_action(protocol: PromptProtocol, text: str) -> None:
    assert len(protocol.action(text)) <= len(text)


@MANY
@given(text=TEXTS)
def test_the_first_search_action_lies_in_the_text(text: str) -> None:
    found = first_action(text)
    if found is None:
        return
    assert found.kind in ("search", "answer")
    assert 0 < found.end <= len(text)
    assert found.argument in text[: found.end]
    again = first_action(text[: found.end])
    assert again is not None
    assert (again.kind, again.end) == (found.kind, found.end)
