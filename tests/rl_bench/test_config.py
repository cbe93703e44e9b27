"""The typed config: frozen, strict about keys and ranges, and safe to send between processes."""

import pickle

import pytest
from pydantic import ValidationError

from rl_bench import errors
from rl_bench.compose import compose
from rl_bench.config import (
    AgentConfig,
    BlockConfig,
    BudgetConfig,
    DataSource,
    RunSpec,
    SweepConfig,
    TaskConfig,
)
from rl_bench.plan import expand, run_id


def test_configs_are_frozen() -> None:
    budget = BudgetConfig(name="b", wall_clock_s=1)

    with pytest.raises(ValidationError, match="frozen"):
        budget.wall_clock_s = 2


def test_unknown_keys_are_errors() -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        BudgetConfig.model_validate({"name": "b", "wall_clock_s": 1, "wall_clock": 2})


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_budget_is_positive(seconds: float) -> None:
    with pytest.raises(ValidationError):
        BudgetConfig(name="b", wall_clock_s=seconds)


def test_an_agent_has_a_command() -> None:
    with pytest.raises(ValidationError, match="argv"):
        AgentConfig(name="a", argv=())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"argv": ("a", "b\0c")}, "NUL"),
        ({"argv": ("a", "\ud800")}, "half a character"),
        ({"env": {"A": "b\0c"}}, "NUL"),
        ({"env": {"A=B": "c"}}, "no name of a variable"),
        ({"env": {"": "c"}}, "no name of a variable"),
        ({"files": {"a": "1", "a/b": "2"}}, "below another"),
        ({"files": {"a\0b": "1"}}, "NUL"),
        ({"on_live_children": "resume"}, "resume_argv"),
        ({"linger_s": 0}, "greater than 0"),
        ({"stream": ({"kind": "words"},)}, "stream"),
        ({"stream": ({"kind": "usage", "tokens": {"words": "a"}},)}, "tokens"),
    ],
)
def test_what_no_agent_can_be_started_with(change: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        AgentConfig.model_validate({"name": "a", "argv": ("a",), **change})


@pytest.mark.parametrize("name", ["", "a b", "../up", "-x", "a" * 65])
def test_a_sweep_name_is_a_safe_folder_name(name: str) -> None:
    with pytest.raises(ValidationError, match="name"):
        SweepConfig(name=name, seeds=(0,), blocks=(BlockConfig(),))


def test_a_block_names_pairs_in_one_way() -> None:
    with pytest.raises(ValidationError, match="not both"):
        BlockConfig(stacks=("a/b",), drivers=("b",))


def test_an_experiment_survives_pickling_and_json() -> None:
    experiment = compose(["+experiment=8b_base"]).experiment
    spec = expand(experiment)[0]

    assert pickle.loads(pickle.dumps(experiment)) == experiment  # noqa: S301  our own bytes
    assert RunSpec.model_validate_json(spec.model_dump_json()) == spec
    assert run_id(RunSpec.model_validate_json(spec.model_dump_json())) == run_id(spec)


@pytest.mark.parametrize(
    "cls",
    [c for c in vars(errors).values() if isinstance(c, type) and c.__module__ == "rl_bench.errors"],
)
def test_every_error_survives_pickling(cls: type[errors.RlBenchError]) -> None:
    error = cls("it broke", cure="mend it")

    again = pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes

    assert type(again) is cls
    assert str(again) == "it broke. mend it"
    assert vars(again) == vars(error)


@pytest.mark.parametrize("name", ["../evil", "a/b", "", "a\0b"])
def test_a_name_is_no_path(name: str) -> None:
    with pytest.raises(ValidationError):
        TaskConfig(name=name, kind="gsm8k", level="L1", source=DataSource.BUILTIN, max_tokens=8)
