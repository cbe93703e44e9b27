"""Workspaces that are made to keep an audit from what lies in them."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_bench.audit import sources
from rl_bench.audit.agent_texts import AgentTexts
from rl_bench.audit.sources import walk_files
from rl_bench.clone import remove_tree
from rl_bench.events import ModeVerdict
from tests.rl_bench.audit_scene import AuditScene, case
from tests.rl_bench.test_audit_data import as_jsonl

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[AuditScene]:
    made = AuditScene(tmp_path)
    yield made
    remove_tree(made.workspace)  # pytest's own removal goes no deeper than a stack


def dig(folder: Path, depth: int = 2500) -> None:
    """A tree deeper than Python's stack and longer than a path may be."""
    here = Path.cwd()
    try:
        os.chdir(folder)
        for _ in range(depth):
            os.mkdir("a")  # noqa: PTH102  no path is as long
            os.chdir("a")
    finally:
        os.chdir(here)


def test_a_deep_tree_hides_no_breach(scene: AuditScene) -> None:
    dig(scene.workspace / "output")
    scene.write("train.py", case("trl_grpo"))
    scene.process("python", "code/train.py")
    scene.submit()
    audit = scene.audit()
    assert audit.mode.verdict is ModeVerdict.BREACH
    (not_checked,) = scene.findings(audit, "not_checked")
    assert "folders deep" in not_checked.summary
    assert not_checked.severity == "warning"


def test_a_deep_tree_hides_no_evaluation_items(scene: AuditScene) -> None:
    (scene.workspace / "output" / "b").mkdir()
    as_jsonl(scene.workspace / "output" / "b" / "mine.jsonl", [1, 2, 3])
    dig(scene.workspace / "output")
    found = AgentTexts(scene.workspace, (), deadline=time.monotonic() + 30)
    assert "output/b/mine.jsonl" in {piece.path for piece in found.pieces()}
    assert any("folders deep" in words for words in found.left_out)


def test_many_files_crowd_out_nothing_that_lies_higher(
    scene: AuditScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_WALKED", 50)
    crowd = scene.workspace / "output" / "a" / "crowd"
    crowd.mkdir(parents=True)
    for number in range(100):
        (crowd / f"{number}.txt").touch()
    as_jsonl(scene.workspace / "output" / "z.jsonl", [1, 2, 3])
    left_out: list[str] = []
    names = {path.name for path in walk_files(scene.workspace, left_out=left_out)}
    assert "z.jsonl" in names
    assert len(names) == 50
    assert left_out


def test_files_that_were_not_looked_at_are_told(
    scene: AuditScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_LOOSE_FILES", 5)
    for number in range(9):
        (scene.workspace / "output" / f"{number}.py").write_text("x = 1\n")
    (not_checked,) = scene.findings(scene.audit(), "not_checked")
    assert "more than 5 files of code" in not_checked.summary


def test_a_pipe_by_the_name_of_a_table_holds_nobody_up(scene: AuditScene) -> None:
    for name in ("a.parquet", "b.arrow", "c.jsonl", "d.gz"):
        os.mkfifo(scene.workspace / "output" / name)
    began = time.monotonic()
    found = AgentTexts(scene.workspace, (), deadline=time.monotonic() + 30)
    assert list(found.pieces()) == []
    assert time.monotonic() - began < 25


def test_links_lead_nowhere(scene: AuditScene, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x.py").write_text("x = 1\n")
    (scene.workspace / "output" / "folder").symlink_to(tmp_path / "outside")
    (scene.workspace / "output" / "file.py").symlink_to(tmp_path / "outside" / "x.py")
    (scene.workspace / "output" / "loop").symlink_to(scene.workspace)
    assert list(walk_files(scene.workspace)) == []
