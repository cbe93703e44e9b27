"""Prompt protocols: what a model is shown and how its answer is read."""

import json
import shutil
from pathlib import Path

import pytest

from envs.alfworld_dialect import USAGE, Dialect
from envs.alfworld_layout import TaskType
from envs.protocol import Turn
from envs.protocol_react import KINDS, PROMPTS_FILE, goal_kind
from envs.protocols import get_protocol, protocol_spec

FIRST = "You are in a room.\n\nYour task is to: put a mug in desk."
EXAMPLE = (
    "You see a shelf 1.\nYour task is to: {kind} it.\n> think: I put the cup in/on desk 1\nOK.\n"
    "> put cup 1 in/on desk 1\nYou put the cup 1 in/on the desk 1.\n"
)


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    """A few-shot file of our own in the published layout."""
    texts = {
        f"react_{kind}_{i}": f"[{kind} {i}] {EXAMPLE.format(kind=kind)}"
        for kind in KINDS
        for i in range(3)
    }
    file = tmp_path / "prompts.json"
    file.write_text(json.dumps(texts))
    return str(file)


def test_chat_alternates_observations_and_actions() -> None:
    chat = get_protocol("chat")
    prompt = chat.prompt([Turn(FIRST, "go to desk 1")], "You arrive.")
    assert prompt.text is None
    assert prompt.messages == (
        {"role": "user", "content": FIRST},
        {"role": "assistant", "content": "go to desk 1"},
        {"role": "user", "content": "You arrive."},
    )


def test_every_chat_prompt_extends_the_one_before() -> None:
    chat = get_protocol("chat_rules")
    first = chat.prompt([], FIRST).messages
    second = chat.prompt([Turn(FIRST, "look")], "Nothing.").messages
    assert first is not None
    assert second is not None
    assert second[: len(first)] == first
    assert first[0]["role"] == "system"


@pytest.mark.parametrize(
    ("completion", "action"),
    [
        ("go to desk 1", "go to desk 1"),
        ("\n\n > go to desk 1 \nYou arrive", "go to desk 1"),
        ("", ""),
        ("  \n ", ""),
    ],
)
def test_actions_are_the_first_line_with_words(completion: str, action: str, prompts: str) -> None:
    assert get_protocol("chat").action(completion) == action
    assert get_protocol("react", prompts=prompts).action(completion) == action


def test_react_shows_two_examples_and_the_game_so_far(prompts: str) -> None:
    react = get_protocol("react", prompts=prompts, header="HEAD\n")
    text = react.prompt([Turn(FIRST, "think: hm"), Turn("OK.", "look")], "You see nothing.").text
    assert text is not None
    assert text.startswith("HEAD\n[put 1]")
    assert text.index("[put 1]") < text.index("[put 0]")
    assert "[put 2]" not in text
    assert text.endswith(
        "\nHere is the task.\nYou are in a room.\nYour task is to: put a mug in desk.\n"
        "> think: hm\nOK.\n> look\nYou see nothing.\n>"
    )
    assert react.stop == ("\n",)


PUT_EXAMPLE = "> put cup 1 in/on desk 1\nYou put the cup 1 in/on the desk 1."
MOVE_EXAMPLE = "> move cup 1 to desk 1\nYou move the cup 1 to the desk 1."


@pytest.mark.parametrize(
    ("name", "info", "example"),
    [
        ("react", {"dialect": "move"}, MOVE_EXAMPLE),
        ("react", {"dialect": "put"}, PUT_EXAMPLE),
        ("react", {}, MOVE_EXAMPLE),
        ("react_published", {"dialect": "move"}, PUT_EXAMPLE),
        ("react_published", {"dialect": "put"}, PUT_EXAMPLE),
    ],
)
def test_examples_speak_the_game_s_dialect_or_as_published(
    prompts: str, name: str, info: dict[str, str], example: str
) -> None:
    protocol = get_protocol(name, prompts=prompts)
    text = protocol.prompt([], FIRST, info).text
    assert protocol.name == name
    assert text is not None
    assert text.count(example) == 2
    assert (PUT_EXAMPLE in text) != (MOVE_EXAMPLE in text)


@pytest.mark.parametrize(("dialect", "other"), [("move", "put"), ("put", "move")])
def test_the_rules_state_the_game_s_own_command(dialect: str, other: str) -> None:
    messages = get_protocol("chat_rules").prompt([], FIRST, {"dialect": dialect}).messages
    assert messages is not None
    rules = messages[0]["content"]
    assert USAGE[Dialect(dialect)] in rules
    assert USAGE[Dialect(other)] not in rules


def test_a_transcript_leaves_out_location_numbers_as_published(prompts: str) -> None:
    react = get_protocol("react", prompts=prompts)
    arrival = "You arrive at loc 12. On the desk 1, you see a cup 1."
    text = react.prompt([Turn(FIRST, "go to desk 1")], arrival).text
    assert text is not None
    assert text.endswith("> go to desk 1\nOn the desk 1, you see a cup 1.\n>")
    named = "You arrive at desk 1. On the desk 1, you see a cup 1."
    text = react.prompt([Turn(FIRST, "go to desk 1")], named).text
    assert text is not None
    assert named in text


@pytest.mark.parametrize(
    ("goal", "kind"),
    [
        ("put some spraybottle on toilet.", "put"),
        ("look at bowl under the desklamp.", "examine"),
        ("examine the cd with the desklamp.", "examine"),
        ("clean some apple and put it in fridge.", "clean"),
        ("put a clean apple in fridge.", "clean"),
        ("put a hot apple in fridge.", "heat"),
        ("heat some egg and put it in diningtable.", "heat"),
        ("put a cool mug in coffeemachine.", "cool"),
        ("cool some mug and put it in cabinet.", "cool"),
        ("put two soapbar in cabinet.", "puttwo"),
        ("find two soapbar and put them in cabinet.", "puttwo"),
    ],
)
def test_the_goal_picks_the_examples(goal: str, kind: str) -> None:
    room = "Looking around you, you see a cool two clean hot heat 1."
    assert goal_kind(f"{room}\n\nYour task is to: {goal}") == kind


def test_every_wording_of_the_installed_package_picks_its_examples() -> None:
    from alfworld.gen.goal_library import gdict

    kinds = {
        TaskType.PLACE: "put",
        TaskType.LOOK: "examine",
        TaskType.CLEAN: "clean",
        TaskType.HEAT: "heat",
        TaskType.COOL: "cool",
        TaskType.TWO: "puttwo",
    }
    for task_type, kind in kinds.items():
        for template in gdict[task_type]["templates"]:
            goal = template.format(obj="mug", recep="desk", toggle="desklamp")
            assert goal_kind(f"Your task is to: {goal}.") == kind


def test_a_specification_carries_its_settings(prompts: str) -> None:
    spec = protocol_spec("react", prompts=prompts, header="HEAD\n")
    text = get_protocol(spec).prompt([], FIRST).text
    assert text is not None
    assert text.startswith("HEAD\n")
    assert protocol_spec("chat") == "chat"


def test_unknown_names_and_settings_are_told() -> None:
    with pytest.raises(ValueError, match="chat, chat_rules, react"):
        get_protocol("telepathy")
    with pytest.raises(ValueError, match="colour"):
        get_protocol("chat", colour="red")


def test_missing_examples_say_where_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RL_BENCH_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="ysymyth/ReAct"):
        get_protocol("react")
    empty = tmp_path / "empty.json"
    empty.write_text("{}")
    with pytest.raises(ValueError, match="react_put_1"):
        get_protocol("react", prompts=str(empty))


def test_agents_find_the_examples_in_their_data(
    prompts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RL_BENCH_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    for folder in ("data", "multi/alfworld"):
        file = tmp_path / folder / PROMPTS_FILE
        file.parent.mkdir(parents=True)
        shutil.copy(prompts, file)
        monkeypatch.setenv("DATA_PATH", str(tmp_path / folder.partition("/")[0]))
        assert get_protocol("react").prompt([], FIRST).text


def test_the_published_examples_become_the_games_dialect(real_data: Path) -> None:
    for name in ("react", "react_published"):
        protocol = get_protocol(name, prompts=str(real_data / "react/alfworld_3prompts.json"))
        for goal in ("put a mug in desk.", "put two cd in safe.", "heat some egg and put it in x."):
            text = protocol.prompt([], f"A room.\n\nYour task is to: {goal}").text
            assert text is not None
            assert ("\n> put " in text) == (name == "react_published")
            assert ("\n> move " in text) == (name == "react")
