"""The list of mutants fits the code as it is; the tool tells a killed one from one that lives."""

import ast
from pathlib import Path

import pytest

from tools.mutants import Mutant, Outcome, read_mutants, run_tests, try_mutant

ROOT = Path(__file__).resolve().parents[1]
CODE = "def double(x):\n    return 2 * x\n"
TESTS = "from code_of import double\n\n\ndef test_double():\n    assert double(2) == 4\n"


def test_every_edit_stands_once_changes_something_and_names_tests_that_exist() -> None:
    for mutant in read_mutants():
        assert mutant.new != mutant.old, mutant.why
        for test in mutant.tests:
            path, _, name = test.partition("::")
            found = ast.parse((ROOT / path).read_text()).body
            assert not name or name in {getattr(node, "name", "") for node in found}, test


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/threat_model.md"])
def test_the_docs_have_their_number(page: str) -> None:
    assert f" {len(read_mutants())} " in (ROOT / page).read_text()


def test_an_edit_that_fits_nowhere_is_named(tmp_path: Path) -> None:
    listed = tmp_path / "mutants.toml"
    listed.write_text(
        '[[mutant]]\nwhy = "w"\nfile = "tools/mutants.py"\nold = "no such"\nnew = ""\ntests = ["t"]'
    )
    with pytest.raises(ValueError, match=r"tools/mutants\.py: 'no such' stands there 0 times"):
        read_mutants(listed)


@pytest.mark.parametrize(
    ("new", "tests", "outcome", "by"),
    [
        ("3 * x", "test_it.py", Outcome.KILLED, "test_it.py::test_double"),
        ("x + x", "test_it.py", Outcome.SURVIVED, ""),
        ("3 * x", "test_none.py", Outcome.BROKEN, "pytest answered 4"),
    ],
)
def test_a_mutant_is_tried_and_taken_back(
    tmp_path: Path, new: str, tests: str, outcome: Outcome, by: str
) -> None:
    (tmp_path / "code_of.py").write_text(CODE)
    (tmp_path / "test_it.py").write_text(TESTS)
    mutant = Mutant(why="w", file="code_of.py", old="2 * x", new=new, tests=(tests,))
    assert try_mutant(tmp_path, mutant) == (outcome, by)
    assert (tmp_path / "code_of.py").read_text() == CODE


def test_tests_that_never_end_have_noticed(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it():\n    while True: pass\n")
    verdict = run_tests(tmp_path, ["test_it.py"], limit_s=2.0)
    assert verdict == (Outcome.KILLED, "no end within 2 s")
