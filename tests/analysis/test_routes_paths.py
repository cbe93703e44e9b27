"""Which checkpoints a program reads and writes."""

from collections.abc import Sequence

import pytest

from analysis.route_paths import Paths, paths_of, plain, same
from rl_bench.audit.code_reader import read_module


def paths(code: str = "", words: Sequence[str] = ()) -> Paths:
    return paths_of(words, [read_module("a.py", code)])


def test_calls_say_what_is_read_and_what_is_written() -> None:
    found = paths('m = AutoModel.from_pretrained("output/a")\nm.save_pretrained("output/b")\n')
    assert found == Paths(frozenset({"output/a"}), frozenset({"output/b"}))


def test_options_say_it_too() -> None:
    found = paths(words=["python", "x.py", "--model", "output/a", "--output_dir=output/b"])
    assert found == Paths(frozenset({"output/a"}), frozenset({"output/b"}))


def test_a_path_without_a_hint_counts_as_both() -> None:
    found = paths('where = "output/a"\n')
    assert found.reads == found.writes == {"output/a"}


def test_a_hint_elsewhere_settles_it() -> None:
    found = paths('x = "output/a"\ntrainer.save_model("output/a")\n')
    assert found == Paths(frozenset(), frozenset({"output/a"}))


def test_a_name_is_a_checkpoints_last_part() -> None:
    found = paths('NAME = "v2"\nSTEPS = "200"\nsplit = "train2"\n')
    assert found.writes == {"v2"}
    assert same("v2", "output/v2")


@pytest.mark.parametrize(
    "word",
    ["data/train.jsonl", "models/base", "/abs/x", "output", "output/log.txt", "--x", "a b", ""],
)
def test_what_names_no_checkpoint(word: str) -> None:
    assert plain(word) == ""


def test_one_checkpoint_by_two_names() -> None:
    assert same("output/a", "output/a/final")
    assert same("output/a/final", "output/a")
    assert not same("output/a", "output/ab")
