"""Anything on the command line is a valid experiment or an error in words, never a traceback."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_bench.compose import Composed, compose
from rl_bench.compose_overrides import AXES, CONDITIONS, MAX_OVERRIDE_CHARS
from rl_bench.errors import ConfigError
from rl_bench.option_files import OPTIONAL_GROUPS
from rl_bench.plan import expand
from tests.adversarial.bounds import FEW

MAX_ERROR_CHARS = 30_000
GROUPS = (*AXES, *CONDITIONS, *OPTIONAL_GROUPS, "sweep", "dry_run", "hydra", "options")
HEADS = st.sampled_from(
    [*GROUPS, "agnet", "é", "", "task/x", "agent@b", "../agent", "options.task.webshop"]
)
TAILS = st.sampled_from(
    [
        "",
        ".name",
        ".settings",
        ".num_eval",
        ".wall_clock_s",
        ".blocks",
        ".seeds",
        ".exclude",
        ".blocks.0.tasks",
        ".wandb.mode",
        ".results",
        ".env",
        ".argv",
        ".0",
        "..x",
        "._target_",
        ".runtime.choices.agent",
        ".endpoint.base_url",
    ]
)
NASTY = st.sampled_from(
    [
        "null",
        "{}",
        "[]",
        "''",
        "inf",
        "nan",
        "-1",
        "1e400",
        "9" * 5000,
        "true",
        "~",
        "${x}",
        "${oc.env:NOPE}",
        "${.name}",
        "${agent.argv}",
        "choice(1,2)",
        "a,b",
        "[a,b]",
        "{a: {b: 1}}",
        "{1: 2}",
        "'a\nb'",
        "'\x00'",
        "�",
        "é",
        "[{tasks: [gsm8k_mini]}]",
        "[{stacks: [a/b/c]}]",
        "['=']",
        "['task=none']",
        "[" * 60 + "]" * 60,
        "{a: " * 60 + "1" + "}" * 60,
        "noop",
        "tiny",
    ]
)
VALUES = NASTY | st.text(max_size=20) | st.integers().map(str)
WORDS = st.builds(
    lambda sign, head, tail, equals, value: f"{sign}{head}{tail}{equals}{value}",
    st.sampled_from(["", "", "", "+", "++", "~", "-"]),
    HEADS,
    TAILS,
    st.sampled_from(["=", "=", "=", "", "=="]),
    VALUES,
)
FOUND = (
    "~dry_run",
    "+options=3",
    "options.task=3",
    "hydra=null",
    "budget=null",
    "sweep.blocks={}",
    "sweep.blocks=" + "[" * 200 + "]" * 200,
    "x" * 100_000 + "=1",
    "agent=" + "x" * 100_000,
    "agent.env={1: 2}",
    "++hydra.runtime.choices.agent=zzz",
    "paths.results='\0'",
)


def assert_in_words(error: ConfigError) -> None:
    assert 0 < len(str(error)) < MAX_ERROR_CHARS
    assert "Traceback" not in str(error)
    assert all(line.strip() for line in str(error).splitlines()), "one a wrong key"


def check(words: list[str]) -> Composed | None:
    """Composes: a valid experiment with a plan or an error of words, or None where it is one."""
    try:
        composed = compose(words)
        expand(composed.experiment)
    except ConfigError as error:
        assert_in_words(error)
        return None
    return composed


@FEW
@given(st.lists(WORDS | st.text(max_size=30), min_size=1, max_size=2))
def test_any_overrides_are_a_plan_or_an_error_in_words(words: list[str]) -> None:
    check(words)


@pytest.mark.parametrize("word", FOUND, ids=[word[:24] for word in FOUND])
def test_what_was_found(word: str) -> None:
    if word.startswith("++hydra"):  # Hydra's own record of the choices decides nothing
        assert check([word]) == compose([])
        return
    with pytest.raises(ConfigError) as caught:
        compose([word])
    assert word.lstrip("+~").partition("=")[0].partition("{")[0][:40] in str(caught.value)


def test_what_lacks_its_switch_is_named() -> None:
    with pytest.raises(ConfigError, match=r"dry_run is 'None'\. Choices: true, false"):
        compose(["~dry_run"])


def test_an_override_of_no_option_names_the_way_to_write_it() -> None:
    with pytest.raises(ConfigError, match=r"'options=3' names no option\. Write options.GROUP"):
        compose(["+options=3"])


def test_an_endless_override_is_not_repeated() -> None:
    with pytest.raises(ConfigError, match=f"has {MAX_OVERRIDE_CHARS + 1} characters") as caught:
        compose(["agent=" + "x" * (MAX_OVERRIDE_CHARS - 5)])
    assert len(str(caught.value)) < 300
